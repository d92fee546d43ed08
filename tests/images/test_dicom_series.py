"""Volumes of DICOM series: slices in order, and what is wrong with a series in one sentence that names the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from attentest.errors import InputError
from attentest.images.dicom_series import grouped, is_dicom
from attentest.images.image_file import read_image
from dicom_slices import STEP, write_series, write_slice

pytest.importorskip("pydicom")

VOLUME = np.round(np.random.default_rng(1).normal(size=(5, 4, 6)), 3)


def slice_at(folder: Path, place: int) -> Path:
    """Return the file of a slice."""
    return next(path for path in folder.iterdir() if np.allclose(read_image(path), VOLUME[place]))


def test_a_series_is_sorted_by_position(tmp_path: Path) -> None:
    write_series(tmp_path, VOLUME)
    (tmp_path / "notes.txt").write_text("not a slice")
    assert np.allclose(read_image(tmp_path, dimension=3), VOLUME)
    with pytest.raises(InputError, match="is a directory"):
        read_image(tmp_path)
    with pytest.raises(InputError, match="leave frame"):
        read_image(tmp_path, dimension=3, frame=0)
    write_slice(tmp_path / "other", VOLUME[0], 0, series="1.2.4")
    with pytest.raises(InputError, match="slices of one DICOM series, got those of 2"):
        read_image(tmp_path, dimension=3)


def test_slices_along_another_axis_are_sorted_along_it(tmp_path: Path) -> None:
    for place, pixels in enumerate(VOLUME):
        tags = {"ImageOrientationPatient": [0, 1, 0, 0, 0, -1], "ImagePositionPatient": [-3.0 * place, 7, 1]}
        write_slice(tmp_path / f"{9 - place}.dcm", pixels, 0, **tags)
    assert np.allclose(read_image(tmp_path, dimension=3), VOLUME)


def removed(folder: Path) -> str:
    """Take a slice out of the middle; return what the error says."""
    gone = slice_at(folder, 2)
    before, after = slice_at(folder, 1), slice_at(folder, 3)
    gone.unlink()
    return f"{before} and {after} are {2 * STEP:g} mm apart, and other slices of their series {STEP:g} mm, and a slice"


def moved(folder: Path) -> str:
    return f"{write_slice(slice_at(folder, 4), VOLUME[4], 4.3)} are {1.3 * STEP:.4g} mm apart"


def doubled(folder: Path) -> str:
    write_slice(folder / "again", VOLUME[2], 2)
    return "are slices of one series at the same position"


def smaller(folder: Path) -> str:
    path = write_slice(slice_at(folder, 3), VOLUME[3, :, :5], 3)
    return f"{path} has the size 4 x 5, and other slices of its series 4 x 6"


def other_spacing(folder: Path) -> str:
    path = write_slice(slice_at(folder, 0), VOLUME[0], 0, PixelSpacing=[0.5, 0.5])
    return f"{path} has the pixel spacing 0.5 x 0.5, and other slices of its series 0.5 x 0.75"


def turned(folder: Path) -> str:
    path = write_slice(slice_at(folder, 1), VOLUME[1], 1, ImageOrientationPatient=[0, 1, 0, 1, 0, 0])
    return f"{path} has the orientation"


def without_position(folder: Path) -> str:
    path = write_slice(slice_at(folder, 1), VOLUME[1], 1, ImagePositionPatient=None)
    return f"{path} has no position in its series that can be read"


def infinite_position(folder: Path) -> str:
    path = write_slice(slice_at(folder, 1), VOLUME[1], 1)
    content = path.read_bytes()
    assert content.count(b"\\2.5") == 1
    path.write_bytes(content.replace(b"\\2.5", b"\\nan"))
    return f"{path} has no position in its series that can be read"


def cut_pixels(folder: Path) -> str:
    path = slice_at(folder, 2)
    path.write_bytes(path.read_bytes()[:-9])
    return f"{path} ends before its last pixel or is damaged"


def cut_header(folder: Path) -> str:
    path = slice_at(folder, 2).rename(folder / "broken.dcm")
    path.write_bytes(path.read_bytes()[:140])
    return f"{path}"


def empty(folder: Path) -> str:
    (folder / "empty.dcm").write_bytes(b"")
    return f"{folder / 'empty.dcm'} is not a DICOM file that can be read"


def in_colour(folder: Path) -> str:
    path = slice_at(folder, 2)
    tags = {"SamplesPerPixel": 3, "PhotometricInterpretation": "RGB", "PlanarConfiguration": 0, "Columns": 6}
    colours = {
        "PixelData": bytes(3 * 4 * 6),
        "BitsAllocated": 8,
        "BitsStored": 8,
        "HighBit": 7,
        "PixelRepresentation": 0,
    }
    write_slice(path, VOLUME[2], 2, **tags, **colours)
    return f"{path} is a slice in colour"


def alone(folder: Path) -> str:
    for path in sorted(folder.iterdir())[1:]:
        path.unlink()
    return f"{folder} has 1 slices of a DICOM series"


def none(folder: Path) -> str:
    for path in folder.iterdir():
        path.unlink()
    return "got those of 0"


@pytest.mark.parametrize(
    "damage",
    [
        removed, moved, doubled, smaller, other_spacing, turned, without_position, infinite_position, cut_pixels,
        cut_header, empty, in_colour, alone, none,
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_series_is_one_sentence(damage: Callable[[Path], str], tmp_path: Path) -> None:
    folder = tmp_path / "series"
    write_series(folder, VOLUME)
    said = damage(folder)
    with pytest.raises(InputError) as caught:
        read_image(folder, dimension=3)
    message = str(caught.value)
    assert said in message.replace(" of the pixel data of", "")
    assert message.count("\n") == 0
    assert message.endswith(".")
    assert "1.2.3" not in message  # identifiers of a series may lead to a patient


def test_a_series_is_bounded_before_memory_is_taken(tmp_path: Path) -> None:
    for place in (0, 1):
        write_slice(tmp_path / f"{place}", VOLUME[0], place, Rows=60_000, Columns=60_000)
    with pytest.raises(InputError, match="7200000000 values, more than"):
        read_image(tmp_path, dimension=3)


def test_files_are_told_apart_by_series_and_by_what_they_hold(tmp_path: Path) -> None:
    write_series(tmp_path / "a", VOLUME)
    write_series(tmp_path / "b", VOLUME, "1.2.4", "x")
    write_series(tmp_path / "b", VOLUME, "1.2.5", "y")
    of_text: dict[str, object] = {"SOPClassUID": "1.2.840.10008.5.1.4.1.1.88.11", "Rows": None, "PixelData": None}
    report = write_slice(tmp_path / "a" / "report", VOLUME[0], 0, **of_text)
    frames = write_slice(tmp_path / "a" / "frames.dcm", VOLUME[0], 0, NumberOfFrames=2)
    for folder in ("a", "b"):
        (tmp_path / folder / "junk.dcm").write_bytes(b"junk")
        (tmp_path / folder / "DICOMDIR").write_bytes(report.read_bytes())
        (tmp_path / folder / "c.nii").write_bytes(report.read_bytes())
    paths = sorted(path for path in tmp_path.glob("*/*") if is_dicom(path))
    files = grouped(paths)
    assert [[path.name for path in series][::2] for series in files.series] == [
        ["IM000", "IM002", "IM004"],
        ["x000", "x002", "x004"],
        ["y000", "y002", "y004"],
    ]
    assert len(files.series[0]) == 6  # with the broken file, which may be one of its slices
    assert files.alone == [frames, tmp_path / "b" / "junk.dcm"]
    assert files.without_image == [report]
