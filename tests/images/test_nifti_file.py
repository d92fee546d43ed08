"""Images in NIfTI files."""

from __future__ import annotations

import gzip
import os
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from attentest.images.image_file import read_image
from attentest.images.nifti import nifti_like
from image_refusal import refusal

VOLUME = np.arange(24, dtype=np.int16).reshape(3, 2, 4) - 5
"""Three columns, two rows, four slices."""


def write_nifti(path: Path, values: NDArray[Any], slope: float | None = None, intercept: float = 0.0) -> Path:
    nibabel = pytest.importorskip("nibabel")
    volume = nibabel.Nifti1Image(values, np.eye(4))
    nibabel.save(volume, path)
    if slope is not None:
        content = bytearray(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())
        content[112:120] = struct.pack("<ff", slope, intercept)
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz", "a.NII"])
@pytest.mark.parametrize("dtype", [np.int16, np.uint8, np.float32, np.float64])
def test_one_slice_of_a_volume(name: str, dtype: type, tmp_path: Path) -> None:
    values = np.abs(VOLUME).astype(dtype) / (3 if np.dtype(dtype).kind == "f" else 1)
    values = values.astype(dtype)
    path = write_nifti(tmp_path / name, values)
    for frame in (0, 3, -1, -4):
        pixels = read_image(path, frame=frame)
        assert pixels.dtype == np.float64
        assert pixels.shape == (2, 3)
        assert np.array_equal(pixels, values[:, :, frame].T)
    assert "has 4 frames and one is needed: pick it with frame= or --frame, from 0 to 3." in refusal(path)
    assert "must be at least -4 and at most 3, got -5." in refusal(path, frame=-5)


def test_slope_and_intercept_of_a_volume(tmp_path: Path) -> None:
    for name in ("a.nii", "a.nii.gz"):
        path = write_nifti(tmp_path / name, VOLUME, 2.5, -1024.0)
        assert np.array_equal(read_image(path, frame=1), VOLUME[:, :, 1].T * 2.5 - 1024)


@pytest.mark.parametrize(
    ("slope", "intercept"), [(np.nan, 0.0), (np.inf, 0.0), (-np.inf, 1.0), (2.0, np.nan), (2.0, np.inf)]
)
def test_a_scaling_that_is_not_finite_is_refused(slope: float, intercept: float, tmp_path: Path) -> None:
    message = refusal(write_nifti(tmp_path / "a.nii.gz", VOLUME, slope, intercept), frame=0)
    assert f"has a slope of {slope} and an intercept of {intercept} to scale its pixels with" in message


def test_a_slope_of_zero_is_no_scaling(tmp_path: Path) -> None:
    path = write_nifti(tmp_path / "a.nii", VOLUME, 0.0, np.nan)
    assert np.array_equal(read_image(path, frame=1), VOLUME[:, :, 1].T)


@pytest.mark.parametrize("shape", [(3, 2), (3, 2, 1), (3, 2, 1, 1), (3, 2, 1, 1, 1)])
def test_a_single_slice_needs_no_frame(shape: tuple[int, ...], tmp_path: Path) -> None:
    path = write_nifti(tmp_path / "a.nii", VOLUME[:, :, 0].reshape(shape))
    for frame in (None, 0, -1):
        assert np.array_equal(read_image(path, frame=frame), VOLUME[:, :, 0].T)
    assert "must be at least -1 and at most 0, got 1." in refusal(path, frame=1)


def test_trailing_axes_of_one_are_dropped(tmp_path: Path) -> None:
    path = write_nifti(tmp_path / "a.nii", VOLUME[..., None])
    assert np.array_equal(read_image(path, frame=2), VOLUME[:, :, 2].T)


def test_volumes_that_are_no_image(tmp_path: Path) -> None:
    assert "has shape (3, 2, 2, 2), but an image (W, H) or a volume (W, H, slices) is needed" in refusal(
        write_nifti(tmp_path / "a.nii", VOLUME.reshape(3, 2, 2, 2)), frame=0
    )
    assert "has shape (24,), but" in refusal(write_nifti(tmp_path / "a.nii", VOLUME.reshape(24)))
    assert "must hold one real number per pixel, got complex64" in refusal(
        write_nifti(tmp_path / "a.nii", VOLUME.astype(np.complex64)), frame=0
    )
    colours = np.zeros((3, 2), dtype=[("R", "u1"), ("G", "u1"), ("B", "u1")])
    assert "must hold one real number per pixel" in refusal(write_nifti(tmp_path / "a.nii", colours))
    assert "only a DICOM file has a display window" in refusal(write_nifti(tmp_path / "a.nii", VOLUME), window=True)


def patched(path: Path, where: int, layout: str, *values: float) -> Path:
    content = bytearray(path.read_bytes())
    struct.pack_into(f"<{layout}", content, where, *values)
    path.write_bytes(content)
    return path


def test_sizes_of_volumes_are_checked_before_reading(tmp_path: Path) -> None:
    path = patched(write_nifti(tmp_path / "a.nii", VOLUME), 42, "3h", 9000, 8000, 1)
    assert "has 9000 x 8000 pixels, more than the 64000000 allowed" in refusal(path)
    path = patched(write_nifti(tmp_path / "a.nii", VOLUME), 42, "3h", 8000, 8000, 100)
    assert "holds 12800000000 bytes of pixels, more than the 4294967296 allowed" in refusal(path, frame=0)
    path = patched(write_nifti(tmp_path / "a.nii", VOLUME), 42, "3h", 3, -2, 4)
    assert "a.nii" in refusal(path, frame=0)
    path = patched(write_nifti(tmp_path / "a.nii", VOLUME), 108, "f", 1e9)
    assert "has its pixels after byte 1000000000, more than the 16777216 allowed" in refusal(path, frame=0)


def test_broken_volumes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("nibabel")
    (tmp_path / "text.nii").write_text("hello")
    (tmp_path / "text.nii.gz").write_text("hello")
    for name in ("text.nii", "text.nii.gz"):
        assert f"{name} is not a NIfTI file that can be read: check that it is whole." in refusal(tmp_path / name)
    random = np.random.default_rng(0).integers(0, 9999, (30, 20, 4)).astype(np.int16)
    for name in ("a.nii", "a.nii.gz"):
        whole = write_nifti(tmp_path / name, random).read_bytes()
        for share, message in ((0.02, "is not a NIfTI file"), (0.7, "ends before its last pixel or is damaged")):
            (tmp_path / name).write_bytes(whole[: int(len(whole) * share)])
            assert message in refusal(tmp_path / name, frame=3)
    assert capfd.readouterr() == ("", "")


def test_a_compressed_volume_is_checked_to_its_end(tmp_path: Path) -> None:
    random = np.random.default_rng(0).integers(0, 9999, (30, 20, 4)).astype(np.int16)
    path = write_nifti(tmp_path / "a.nii.gz", random)
    plain = gzip.decompress(path.read_bytes())
    stored = gzip.compress(plain, compresslevel=0)  # every byte of the volume is a byte of the file
    flipped = bytearray(stored)
    flipped[-9] ^= 1  # a bit of the last pixel, before checksum and length
    other_sum = bytearray(stored)
    other_sum[-8] ^= 1
    for content in (flipped, other_sum, stored[:-8], stored[:-1], stored + b"more"):
        path.write_bytes(content)
        for options in ({"frame": 0}, {"frame": 3}, {"dimension": 3}):
            assert refusal(path, **options) == f"{path} ends before its last pixel or is damaged: copy it again."
    half = len(plain) // 2
    for content in (stored, stored + bytes(99), gzip.compress(plain[:half]) + gzip.compress(plain[half:] + bytes(99))):
        path.write_bytes(content)
        assert np.array_equal(read_image(path, dimension=3), random.T)
        assert np.array_equal(read_image(path, frame=1), random[:, :, 1].T)


def test_what_follows_a_compressed_volume_is_bounded(tmp_path: Path) -> None:
    path = write_nifti(tmp_path / "a.nii.gz", VOLUME)
    whole, zeros = path.read_bytes(), gzip.compress(bytes(2**24))
    path.write_bytes(whole + zeros)
    assert np.array_equal(read_image(path, frame=1), VOLUME[:, :, 1].T)
    path.write_bytes(whole + 128 * zeros)  # 2 GiB
    tracemalloc.start()
    message = refusal(path, frame=1)
    assert tracemalloc.get_traced_memory()[1] < 8 * 2**20
    tracemalloc.stop()
    assert "goes on for more than 16 MiB after its last pixel: save it again without what is there." in message
    path.write_bytes(whole)
    os.truncate(path, 2**31)  # as many zeros that are not compressed
    assert "ends in zeros and is damaged: copy it again." in refusal(path, frame=1)


def test_only_the_slice_asked_for_is_read(tmp_path: Path) -> None:
    path = write_nifti(tmp_path / "a.nii", VOLUME)
    path.write_bytes(path.read_bytes()[: 352 + 2 * 3 * 2 * 2])  # the last two slices are gone
    assert np.array_equal(read_image(path, frame=1), VOLUME[:, :, 1].T)
    assert "ends before its last pixel" in refusal(path, frame=2)


@pytest.mark.parametrize("kind", ["Nifti1Image", "Nifti2Image"])
def test_a_map_has_the_place_of_its_volume_and_nothing_else(kind: str, tmp_path: Path) -> None:
    nibabel = pytest.importorskip("nibabel")
    affine = np.array([[0.0, 0.0, 4.0, 1.0], [0.8, 0.0, 0.0, 2.0], [0.0, 0.5, 0.0, 3.0], [0.0, 0.0, 0.0, 1.0]])
    image = getattr(nibabel, kind)(VOLUME, affine)
    image.set_qform(affine, 1)
    image.header.set_xyzt_units("micron")
    image.header.set_intent("t test", (7,), name="Doe Jane")
    image.header["cal_min"], image.header["cal_max"] = -1000, 3000
    image.header["descrip"] = image.header["aux_file"] = b"Doe Jane"
    image.header.extensions.append(nibabel.nifti1.Nifti1Extension("comment", b"Doe Jane"))
    nibabel.save(image, tmp_path / "a.nii")
    values = np.linspace(0, 1, 24).reshape(4, 2, 3)
    content = nifti_like(tmp_path / "a.nii", values)
    assert content is not None
    assert b"Doe" not in content
    (tmp_path / "map.nii").write_bytes(content)
    saved = nibabel.load(tmp_path / "map.nii")
    assert np.array_equal(np.asarray(saved.dataobj), values.T)
    assert np.allclose(saved.affine, affine)
    assert np.allclose(saved.get_qform(), affine)
    assert (saved.header["qform_code"], saved.header["sform_code"]) == (1, image.header["sform_code"])
    assert saved.header.get_xyzt_units()[0] == "micron"
    assert saved.header.get_intent() == ("none", (), "")
    assert (saved.header["cal_min"], saved.header["cal_max"]) == (0, 0)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_map_of_a_volume_without_a_place_is_not_placed(number: float, tmp_path: Path) -> None:
    path = patched(write_nifti(tmp_path / "a.nii", VOLUME), 280, "12f", *[number] * 12)
    assert read_image(path, frame=0).shape == (2, 3)
    assert nifti_like(path, np.ones((4, 2, 3), dtype=bool)) is None
    assert nifti_like(np.full((4, 4), number), np.ones((4, 2, 3), dtype=bool)) is None
