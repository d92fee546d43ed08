"""DICOM series on the command line: a folder is one volume, known again by its content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from attentest import AttentionTest, bundled_model
from attentest.errors import InputError
from attentest.images.dicom_series import affine_of_series
from command_line import Done, run_main
from dicom_slices import write_series, write_slice
from toys import tiny_vit

pytest.importorskip("pydicom")


def volume(seed: int) -> np.ndarray[Any, Any]:
    values = np.random.default_rng(seed).normal(size=(16, 16, 16))
    values[3:9, 3:9, 3:9] += 1.5
    return np.round(values, 3)


@pytest.fixture(autouse=True)
def series(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_series(Path("head"), volume(0))


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> Done:
    options = ("--model", "volume16", "--noise", "1", "--randomise", "0.5", "--region-unit", "patches", "--no-interval")
    return run_main(capsys, "test", *arguments, *options)


def lines(done: Done) -> dict[str, dict[str, Any]]:
    return {line["image"]: line for line in map(json.loads, done.out.splitlines())}


def test_a_folder_is_one_volume_and_known_again_by_all_of_its_files(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "head", "--out", "out", "--json", "--report", "report.html", "--save", "regions")
    assert done.code == 0, done.err
    (line,) = lines(done).values()
    assert line["image"] == "head"
    test = AttentionTest.from_pretrained(
        bundled_model(axes=3), noise=1.0, randomise=0.5, region_unit="patches", confidence_level=None
    )
    assert line["log_pvalue"] == pytest.approx(test(Path("head")).log_pvalue, rel=1e-9)
    assert "head" in Path("report.html").read_text()
    records = Path("out/results.jsonl")
    before = records.read_text()
    assert "slices" not in before
    assert run(capsys, "head", "--out", "out").code == 0
    assert records.read_text() == before  # nothing was tested again
    Path("head/IM003").rename(Path("head/renamed"))
    assert run(capsys, "head", "--out", "out").code == 0
    assert records.read_text() == before  # the slices are the same
    content = bytearray(Path("head/IM005").read_bytes())
    content[-1] ^= 1
    Path("head/IM005").write_bytes(content)
    assert run(capsys, "head", "--out", "out").code == 0
    assert len(records.read_text().splitlines()) > len(before.splitlines())


def test_each_series_of_folders_is_a_volume(capsys: pytest.CaptureFixture[str]) -> None:
    write_series(Path("study/one"), volume(1), "1.1")
    write_series(Path("study/two"), volume(2), "1.2", "a")
    write_series(Path("study/two"), volume(3), "1.3", "b")
    of_text: dict[str, object] = {"SOPClassUID": "1.2.840.10008.5.1.4.1.1.88.11", "Rows": None, "PixelData": None}
    write_slice(Path("study/two/report"), volume(0)[0], 0, **of_text)
    np.save("study/plain.npy", volume(4))
    done = run(capsys, "study", "--recursive", "--json")
    assert done.code == 0, done.err
    assert list(lines(done)) == ["study/one", "study/plain.npy", "study/two[a000]", "study/two[b000]"]
    assert "left out 1 DICOM file without an image, such as study/two/report." in done.err
    Path("list.txt").write_text("study/one\nhead\n")
    assert list(lines(run(capsys, "list.txt", "--json"))) == ["study/one", "head"]
    named = run(capsys, *map(str, sorted(Path("head").iterdir())), "--json")
    assert list(lines(named)) == ["head"]
    Path("study/plain.npy").unlink()
    assert "; --recursive looks into the folders in it too" in run(capsys, "study").err


def test_a_folder_of_other_volumes_stays_one_of_inputs(capsys: pytest.CaptureFixture[str]) -> None:
    nibabel = pytest.importorskip("nibabel")
    for number in (1, 2):
        nibabel.save(nibabel.Nifti1Image(volume(number), np.eye(4)), f"head/{number}.nii")
    assert list(lines(run(capsys, "head", "--json"))) == ["head/1.nii", "head/2.nii", "head"]


def test_to_a_model_of_images_slices_stay_images(capsys: pytest.CaptureFixture[str]) -> None:
    tiny_vit(16, 4).save_pretrained("tiny")
    done = run_main(capsys, "test", "head", "--model", "tiny", "--noise", "1", "--no-interval", "--json")
    assert done.code == 0, done.err
    assert list(lines(done)) == [f"head/IM{number:03}" for number in range(16)]


def test_a_broken_slice_is_named_and_the_others_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    write_series(Path("other"), volume(1), "1.1")
    Path("other/IM004").unlink()
    done = run(capsys, "head", "other", "--json")
    assert done.code == 1
    assert "a slice is missing between them" in lines(done)["other"]["error"]
    assert "pvalue" in lines(done)["head"]
    path = Path("head/IM007.dcm")
    path.write_bytes(Path("head/IM007").read_bytes()[:400])
    Path("head/IM007").unlink()
    assert "head/IM007.dcm has no position in its series" in run(capsys, "head").err
    assert "leave frame (--frame) out" in run(capsys, "head", "--frame", "1").err


def test_references_may_be_series(capsys: pytest.CaptureFixture[str]) -> None:
    write_series(Path("before"), volume(1), "1.1")
    done = run(capsys, "head", "--contrast", "reference", "--reference", "before", "--json")
    assert done.code == 0, done.err
    done = run(capsys, "head", "--contrast", "reference", "--reference", "head")
    assert "head would be compared with itself" in done.err
    Image.new("L", (16, 16)).save("image.png")
    done = run_main(capsys, "test", "image.png", "--noise", "1", "--contrast", "reference", "--reference", "before")
    assert "before is a directory: give an image file in it" in done.err


def test_a_series_has_one_figure_of_its_sensitivity(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "head", "--sensitivity", "--sensitivity-figure", "noise.png").code == 0
    assert Path("noise.png").is_file()


def test_noise_is_fitted_to_series(capsys: pytest.CaptureFixture[str]) -> None:
    for seed in range(3):
        write_series(Path(f"phantoms/{seed}"), np.random.default_rng(seed).normal(size=(6, 8, 8)))
    folders = [f"phantoms/{seed}" for seed in range(3)]
    done = run_main(capsys, "noise", "fit", *folders, "--axes", "3", "--estimator", "pooled", "--out", "noise.json")
    assert done.code == 0, done.err
    assert Path("noise.json").is_file()


def test_regions_and_maps_lie_where_the_series_does(capsys: pytest.CaptureFixture[str]) -> None:
    nibabel = pytest.importorskip("nibabel")
    assert run(capsys, "head", "--out", "out", "--save", "regions,maps,masks").code == 0
    for kind in ("regions", "maps"):
        (plain,), (placed,) = Path("out", kind).glob("*.npy"), Path("out", kind).glob("*.nii")
        image = nibabel.load(placed)
        assert np.array_equal(np.asarray(image.dataobj), np.load(plain).T)
        # Columns 0.75 and rows 0.5 mm apart, slices 2.5, from (-10, 20, 0); left and back are negative in NIfTI.
        assert np.allclose(image.affine, [[-0.75, 0, 0, 10], [0, -0.5, 0, -20], [0, 0, 2.5, 0], [0, 0, 0, 1]])
        assert image.header.get_xyzt_units()[0] == "mm"
    assert not list(Path("out/masks").glob("*.nii"))
    for path in Path("head").iterdir():
        content = path.read_bytes()
        path.write_bytes(content.replace(b"\x28\x00\x30\x00DS", b"\x29\x00\x30\x00DS"))  # without PixelSpacing
    assert run(capsys, "head", "--out", "again", "--save", "maps").code == 0
    assert [path.suffix for path in Path("again/maps").iterdir()] == [".npy"]


def test_maps_of_nifti_volumes_keep_the_affine(capsys: pytest.CaptureFixture[str]) -> None:
    nibabel = pytest.importorskip("nibabel")
    affine = np.array([[0.0, 0.0, 4.0, 1.0], [0.8, 0.0, 0.0, 2.0], [0.0, 0.5, 0.0, 3.0], [0.0, 0.0, 0.0, 1.0]])
    stored = np.round(100 * volume(0)).astype(np.int16).reshape(16, 16, 16, 1)
    image = nibabel.Nifti1Image(stored, affine)
    image.header.set_slope_inter(0.01, 5.0)
    nibabel.save(image, "head.nii.gz")
    assert run(capsys, "head.nii.gz", "--out", "out", "--save", "maps,regions").code == 0
    for kind, dtype in (("maps", np.float64), ("regions", np.uint8)):
        (plain,), (placed,) = Path("out", kind).glob("*.npy"), Path("out", kind).glob("*.nii")
        saved = nibabel.load(placed)
        assert np.allclose(saved.affine, affine)
        assert saved.get_data_dtype() == dtype
        assert np.array_equal(np.asarray(saved.dataobj)[..., 0], np.load(plain).T)


def test_the_mask_of_a_series_lies_where_the_series_does() -> None:
    nibabel = pytest.importorskip("nibabel")
    place = affine_of_series(sorted(Path("head").iterdir()))
    assert place is not None
    upside_down = place @ np.diag([1, -1, 1, 1])  # as most programs write what they are given as DICOM
    mask = (volume(0).T < 9).astype(np.uint8)
    for name, affine in (("same.nii", place), ("mirrored.nii", upside_down)):
        nibabel.save(nibabel.Nifti1Image(mask, affine), name)
    test = AttentionTest.from_pretrained(bundled_model(axes=3), noise=1.0, search="fixed", mask="same.nii")
    assert test.attention_region("head")[1].any()
    with pytest.raises(InputError, match="the mask lies elsewhere in space than its volume"):
        test.replace(mask="mirrored.nii").attention_region("head")
    assert test.replace(mask=mask.T).attention_region("head")[1].any()  # an array lies where the image does
    header = nibabel.Nifti1Header()
    nibabel.save(nibabel.Nifti1Image(mask, None, header), "unplaced.nii")
    header["sform_code"], header["srow_x"], header["srow_y"], header["srow_z"] = 1, *np.full((3, 4), np.nan)
    nibabel.save(nibabel.Nifti1Image(mask, None, header), "nowhere.nii")
    for name in ("unplaced.nii", "nowhere.nii"):
        assert test.replace(mask=name).attention_region("head")[1].any()


def test_spacing_and_window_are_those_of_series_and_reference(capsys: pytest.CaptureFixture[str]) -> None:
    ring = ("head", "--contrast", "neighbourhood:3", "--spacing")
    assert "--spacing is not that of head, 2.5,0.5,0.75 (slices, rows, columns)" in run(capsys, *ring, "2.5,2,2").err
    assert "--spacing is not" not in run(capsys, *ring, "2.5,0.5,0.75").err
    for name in ("windowed", "before"):
        Path(name).mkdir()
        tags = {"WindowCenter": 0, "WindowWidth": 8} if name == "windowed" else {}
        for place, pixels in enumerate(volume(1)):
            write_slice(Path(name) / f"IM{place:03}", pixels, place, **tags)
    pair = ("windowed", "--contrast", "reference", "--reference", "before")
    assert run(capsys, *pair).code == 0
    done = run(capsys, *pair, "--window")
    assert done.code == 2
    assert "before/IM000 has no display window to apply" in done.err


def test_a_mask_or_a_reference_that_lies_elsewhere_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    nibabel = pytest.importorskip("nibabel")
    affine = np.diag([0.5, 0.75, 2.5, 1.0])
    mirrored = np.diag([-0.5, 0.75, 2.5, 1.0])
    mask = (volume(0) < 9).astype(np.uint8)
    for name, values, place in (
        ("head.nii", volume(0), affine),
        ("before.nii", volume(1), affine),
        ("elsewhere.nii", volume(1), mirrored),
        ("mask.nii", mask, affine),
        ("masks/head.nii", mask, mirrored),
    ):
        Path(name).parent.mkdir(exist_ok=True)
        nibabel.save(nibabel.Nifti1Image(values, place), name)
    assert run(capsys, "head.nii", "--mask", "mask.nii").code == 0
    for asked, named in (
        (("--mask", "masks/head.nii"), "mask"),
        (("--mask", "masks"), "mask"),
        (("--contrast", "reference", "--reference", "elsewhere.nii"), "reference"),
    ):
        done = run(capsys, "head.nii", *asked)
        assert done.code == 1
        # The first and the last column lie 15 columns of 0.5 mm on either side of the first.
        assert f"head.nii: the {named} lies elsewhere in space than its volume by 30 voxels (their affines" in done.err
    assert run(capsys, "head.nii", "--contrast", "reference", "--reference", "before.nii").code == 0
    ring = ("--contrast", "neighbourhood:3", "--spacing")
    note = "--spacing is not that of head.nii, 2.5,0.75,0.5 (slices, rows, columns)"
    assert note in run(capsys, "head.nii", *ring, "0.5,0.75,2.5").err
    assert note not in run(capsys, "head.nii", *ring, "2.5,0.75,0.5").err
    done = run(capsys, "head.nii", *ring, "2.5,0.75,0.5,1")
    assert (done.code, done.out) == (1, "")
    assert "spacing must have a length for each of the 3 axes" in done.err
    np.save("before5.npy", volume(1)[:, :, 5].T)
    frame = ("test", "head.nii", "--frame", "5", "--noise", "1", "--no-interval", "--json", "--contrast", "reference")
    whole, alone = (run_main(capsys, *frame, "--reference", name) for name in ("before.nii", "before5.npy"))
    assert whole.code == alone.code == 0, whole.err + alone.err
    assert json.loads(whole.out)["pvalue"] == json.loads(alone.out)["pvalue"]
    done = run_main(capsys, "noise", "fit", "head.nii", "before.nii", "--out", "noise.json")
    assert "Whole volumes are read with --axes 3." in done.err
