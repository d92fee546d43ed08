"""Spacing of pixels: read from files, kept in records, and said in words, tables and figures."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import wavfile

from attentest import AttentionTest, Results, bundled_model
from attentest.contrast import Neighbourhood
from attentest.errors import InputError
from attentest.images.image_file import Spacing
from attentest.images.sample import as_sample
from attentest.presentation.number_texts import row_texts
from attentest.presentation.picture import label_axes
from attentest.presentation.plane import MOST_SIDE, Plane
from attentest.presentation.rows import row_of
from attentest.presentation.words import measure_text, region_text
from attentest.record import ResultRecord
from dicom_slices import STEP, write_series, write_slice


def signal() -> np.ndarray[Any, Any]:
    values = np.random.default_rng(0).normal(size=256)
    values[100:185] += 2.0
    return values


def volume() -> np.ndarray[Any, Any]:
    values = np.random.default_rng(0).normal(size=(16, 16, 16))
    values[3:9, 3:9, 3:9] += 1.5
    return values


def write_nifti(path: Path, affine: Any, unit: int | None, values: Any = None) -> Path:
    nibabel = pytest.importorskip("nibabel")
    image = nibabel.Nifti1Image((volume() if values is None else values).T, affine)
    if unit is not None:
        image.header["xyzt_units"] = unit
    nibabel.save(image, path)
    return path


AFFINE = np.array([[0.0, 0.0, 4.0, 1.0], [0.8, 0.0, 0.0, 2.0], [0.0, 0.5, 0.0, 3.0], [0.0, 0.0, 0.0, 1.0]])
"""Columns 0.8, rows 0.5 and slices 4 apart, turned in space."""


@pytest.mark.parametrize(("code", "unit"), [(2, "mm"), (2 + 8, "mm"), (1, "m"), (3, "um"), (0, ""), (7, "")])
def test_nifti(code: int, unit: str, tmp_path: Path) -> None:
    path = write_nifti(tmp_path / "a.nii", AFFINE, code)
    assert as_sample(path, 3).spacing == Spacing((4.0, 0.5, 0.8), unit)
    slice_of_it = write_nifti(tmp_path / "b.nii", AFFINE, code, volume()[:1])
    assert as_sample(slice_of_it, 2).spacing == Spacing((0.5, 0.8), unit)


def test_an_affine_without_lengths_is_no_spacing(tmp_path: Path) -> None:
    path = write_nifti(tmp_path / "a.nii", AFFINE, 2)
    content = path.read_bytes()
    for number in (0.0, np.nan, np.inf):
        path.write_bytes(content[:280] + struct.pack("<12f", *[number] * 12) + content[328:])
        assert as_sample(path, 3).spacing is None


def test_dicom(tmp_path: Path) -> None:
    write_series(tmp_path / "series", volume())
    assert as_sample(tmp_path / "series", 3).spacing == Spacing((STEP, 0.5, 0.75), "mm")
    path = write_slice(tmp_path / "a.dcm", volume()[0], 0)
    assert as_sample(path, 2).spacing == Spacing((0.5, 0.75), "mm")
    for bad in (None, [0, 1], [1.0], "x"):
        tags = {"PixelSpacing": bad} if bad != "x" else {"PixelSpacing": []}
        assert as_sample(write_slice(path, volume()[0], 0, **tags), 2).spacing is None
    frames = {"NumberOfFrames": 2, "Rows": 8, "SpacingBetweenSlices": 3}
    assert as_sample(write_slice(path, volume()[0], 0, **frames), 3).spacing == Spacing((3.0, 0.5, 0.75), "mm")
    without = {"NumberOfFrames": 2, "Rows": 8}
    assert as_sample(write_slice(path, volume()[0], 0, **without), 3).spacing is None


@pytest.mark.filterwarnings("ignore")  # of the packages that write the records
def test_recordings(tmp_path: Path) -> None:
    wavfile.write(tmp_path / "a.wav", 200, signal())
    pyedflib, wfdb = pytest.importorskip("pyedflib"), pytest.importorskip("wfdb")
    header = pyedflib.highlevel.make_signal_headers(["II"], sample_frequency=128, physical_min=-9, physical_max=9)
    pyedflib.highlevel.write_edf(str(tmp_path / "a.edf"), signal()[None], header)
    wfdb.wrsamp("a", 250, ["mV"], ["II"], signal()[:, None], fmt=["16"], write_dir=str(tmp_path))
    for name, rate in (("a.wav", 200), ("a.edf", 128), ("a.hea", 250)):
        assert as_sample(tmp_path / name, 1).spacing == Spacing((1 / rate,), "s")
    np.save(tmp_path / "a.npy", signal())
    assert as_sample(tmp_path / "a.npy", 1).spacing is None


def test_what_is_no_spacing_is_an_error() -> None:
    for lengths, unit in (((0.0,), "s"), ((1.0, np.nan), "mm"), ((1.0,), "feet")):
        with pytest.raises(InputError):
            Spacing(lengths, unit)
    assert Spacing((2.0, 1.0, 1.0), "mm").size_text(4800) == "9.6 cm3"
    assert Spacing((2.0, 1.0, 1.0), "mm").size_text(300) == "600 mm3"
    assert Spacing((2.0, 1.0), "mm").size_text(60) == "1.2 cm2"
    assert Spacing((2.0, 1.0)).size_text(60) == ""
    assert Spacing((1e-3,), "s").size_text(410) == "0.41 s"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Results of a signal and of a volume in files that tell the spacing."""
    folder = tmp_path_factory.mktemp("files")
    wavfile.write(folder / "a.wav", 100, signal())
    write_nifti(folder / "a.nii", AFFINE, 2)
    common: dict[str, Any] = {"noise": 1.0, "randomise": 0.5, "region_unit": "patches"}
    tests = [AttentionTest.from_pretrained(bundled_model(axes=axes), **common) for axes in (1, 3)]
    return [test(folder / name) for test, name in zip(tests, ("a.wav", "a.nii"), strict=True)]


def test_results_say_what_their_region_measures(results: list[Any]) -> None:
    of_signal, of_volume = results
    size = of_volume.part.sum() * 4.0 * 0.5 * 0.8
    said = f"{size / 1000:.3g} cm3" if size >= 1000 else f"{size:.3g} mm3"
    assert f"({of_volume.part.sum():,} voxels, {said})" in of_volume.verdict()
    assert region_text(of_volume.record()).endswith(f"of 4,096 voxels, {said}")
    places = np.flatnonzero(of_signal.part)
    words = measure_text(of_signal.record())
    start, end = f"{places[0] / 100:g} s", f"{(places[-1] + 1) / 100:g} s"
    contiguous = places[-1] + 1 - places[0] == places.size
    assert words == (f"from {start} to {end}" if contiguous else f"{places.size / 100:g} s between {start} and {end}")
    assert words in of_signal.verdict()
    without = AttentionTest.from_pretrained(bundled_model(axes=1), noise=1.0, randomise=0.5, region_unit="patches")
    plain = without(signal(), name="a.wav")
    assert plain.log_pvalue == of_signal.log_pvalue
    assert " s)" not in plain.verdict()
    assert "spacing" not in plain.to_dict()


def test_records_keep_it(results: list[Any]) -> None:
    for result in results:
        values = json.loads(json.dumps(result.to_dict()))
        record = ResultRecord.from_dict(values)
        assert (record.spacing, record.extent) == (result.spacing, result.record().extent)
        assert record.to_dict() == values
        for part, bad in (("unit", "feet"), ("lengths", [1.0] * 5), ("lengths", [-1.0] * result.part.ndim)):
            with pytest.raises(InputError):
                ResultRecord.from_dict({**values, "spacing": {**values["spacing"], part: bad}})
        with pytest.raises(InputError):
            ResultRecord.from_dict({**values, "extent": [[5, 3]] * result.part.ndim})


def test_tables_have_it(results: list[Any]) -> None:
    of_signal, of_volume = results
    for result, unit in ((of_signal, "s"), (of_volume, "mm3")):
        table = Results([result]).table()
        assert table["part_size_unit"] == [unit]
        assert table["part_size"] == pytest.approx([result.part.sum() * np.prod(result.spacing.lengths)])
        row = row_of("a", result.record())
        assert row_texts(row)["pixels"].endswith(measure_text(result.record()))
    start, end = of_signal.record().extent[0]
    table = Results([of_signal]).table()
    assert (table["part_start"], table["part_end"]) == (pytest.approx([start / 100]), pytest.approx([end / 100]))
    assert "part_start" not in Results([of_volume]).table()


def test_a_signal_is_drawn_over_time(results: list[Any]) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    axes.set_xlim(-0.5, 255.5)
    label_axes(axes, results[0].picture(), 8.0)
    assert axes.get_xlabel() == "time (s)"
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert labels[0] == "0"
    assert labels[-1] == "2.5"
    assert axes.get_xticks()[-1] == pytest.approx(250 - 0.5)


def test_slices_have_the_proportions_of_the_volume() -> None:
    region = np.zeros((10, 30, 20), dtype=bool)
    region[4, 10:20, 5:9] = True
    plain = Plane.through(region, region)
    same = Plane.through(region, region, Spacing((2.0, 2.0, 2.0), "mm"))
    assert np.array_equal(plain.places, same.places)
    long = Plane.through(region, region, Spacing((6.0, 1.0, 1.0), "mm"))
    columns = np.flatnonzero(long.places[0] >= 0)
    front = np.argmin(np.diff(columns) == 1) + 1
    assert (columns.size - front) / front == pytest.approx(6 * 10 / 20, rel=0.05)
    extreme = Plane.through(region, region, Spacing((1e6, 1.0, 1e-6)))
    assert max(extreme.places.shape) < 4 * MOST_SIDE
    assert set(np.unique(region[np.unravel_index(extreme.places[extreme.places >= 0], region.shape)])) == {False, True}


def test_rings_may_be_in_the_units_of_the_file() -> None:
    part, seen = np.zeros((9, 9, 9), dtype=bool), np.ones((9, 9, 9), dtype=bool)
    part[4, 4, 4] = True
    _, ring = Neighbourhood(4.0, spacing=(4.0, 1.0, 2.0)).compared(part, part, seen)
    assert [ring[3, 4, 4], ring[2, 4, 4], ring[4, 0, 4], ring[4, 4, 2], ring[4, 4, 1]] == [
        True,
        False,
        True,
        True,
        False,
    ]
    _, plain = Neighbourhood(2.0).compared(part, part, seen)
    _, scaled = Neighbourhood(3.0, spacing=(1.5, 1.5, 1.5)).compared(part, part, seen)
    assert np.array_equal(plain, scaled)
    assert Neighbourhood(2.0).describe() == {"name": "neighbourhood", "radius": 2.0}
    assert Neighbourhood(4, spacing=[4, 1, 2]).describe()["spacing"] == (4.0, 1.0, 2.0)
    for radius, spacing in ((3.0, (4.0, 1.0)), (5.0, (0.0, 1.0)), (5.0, 2.0), (5.0, "mm")):
        with pytest.raises(InputError):
            Neighbourhood(radius, spacing=spacing)  # type: ignore[arg-type]
    test = AttentionTest.from_pretrained(bundled_model(), noise=1.0, contrast=Neighbourhood(4.0, spacing=(1.0,) * 3))
    with pytest.raises(InputError, match="a length for each of the 2 axes"):
        test(np.random.default_rng(0).normal(size=(16, 16)))


def test_a_ring_in_millimetres_is_tested() -> None:
    ring = Neighbourhood(8.0, spacing=(4.0, 0.5, 0.8))
    test = AttentionTest.from_pretrained(
        bundled_model(axes=3), noise=1.0, randomise=0.5, region_unit="patches", contrast=ring, confidence_level=None
    )
    result = test(volume(), name="a.nii")
    inside, outside = ring.compared(result.region, result.region, result.seen)
    assert result.difference == pytest.approx(volume()[inside].mean() - volume()[outside].mean())
    assert result.context is not None
