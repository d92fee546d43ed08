from __future__ import annotations

import os
import re
import struct
import sys
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from attentest.cli.images import for_model, image_sources
from attentest.errors import InputError
from attentest.images.image_file import MAX_PIXELS, read_image
from attentest.images.image_source import ImageSource
from attentest.registry import IMAGE_FORMATS, ImageFormat
from image_refusal import refusal

GREY = np.arange(6, dtype=np.uint8).reshape(2, 3) * 40
COLOUR = np.arange(18, dtype=np.uint8).reshape(2, 3, 3) * 10
DEEP = np.arange(6, dtype=np.uint16).reshape(2, 3) * 13000


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("grey.png", GREY),
        ("colour.png", COLOUR),
        ("deep.png", DEEP),
        ("bits.png", GREY > 100),
        ("grey.tif", GREY),
        ("deep.tif", DEEP),
        ("colour.TIFF", COLOUR),
        ("float.tif", GREY.astype(np.float32) / 7),
        ("whole.tif", GREY.astype(np.int32) * -70000),
        ("grey.bmp", GREY),
        ("colour.webp", COLOUR),
        ("no_suffix", COLOUR),
    ],
)
def test_pictures_are_read_as_stored(name: str, values: NDArray[np.generic], tmp_path: Path) -> None:
    options = {"lossless": True} if name.endswith("webp") else {}
    Image.fromarray(values).save(tmp_path / name, format=None if "." in name else "PNG", **options)
    for frame in (None, 0, -1):
        pixels = read_image(tmp_path / name, frame=frame)
        assert pixels.dtype == values.dtype
        assert np.array_equal(pixels, values)


def test_a_turned_picture_is_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(DEEP).save(tmp_path / "turned.png", exif=exif)
    assert np.array_equal(read_image(tmp_path / "turned.png"), DEEP[::-1].T)


def write_stack(path: Path, pages: list[NDArray[np.generic]]) -> None:
    first, *others = [Image.fromarray(page) for page in pages]
    first.save(path, save_all=True, append_images=others)


def test_one_page_of_a_tiff_stack(tmp_path: Path) -> None:
    pages = [DEEP, (DEEP // 2)[:, :2], DEEP // 3]
    write_stack(tmp_path / "stack.tif", pages)
    for frame, index in ((0, 0), (1, 1), (2, 2), (-1, 2), (-3, 0)):
        assert np.array_equal(read_image(tmp_path / "stack.tif", frame=frame), pages[index])
    assert "stack.tif has 3 frames and one is needed: pick it with frame= or --frame, from 0 to 2." in refusal(
        tmp_path / "stack.tif"
    )
    for frame in (3, -4):
        assert f"must be at least -3 and at most 2, got {frame}." in refusal(tmp_path / "stack.tif", frame=frame)


def test_one_frame_of_a_gif(tmp_path: Path) -> None:
    frames = [np.full((4, 4), level, dtype=np.uint8) for level in (10, 200)]
    write_stack(tmp_path / "film.gif", frames)
    assert np.array_equal(read_image(tmp_path / "film.gif", frame=0), frames[0])
    assert (read_image(tmp_path / "film.gif", frame=1) == 200).all()
    assert "has 2 frames" in refusal(tmp_path / "film.gif")


def test_a_single_picture_has_no_second_frame(tmp_path: Path) -> None:
    Image.fromarray(GREY).save(tmp_path / "one.png")
    np.save(tmp_path / "one.npy", GREY)
    for name in ("one.png", "one.npy"):
        assert "must be at least -1 and at most 0, got 1." in refusal(tmp_path / name, frame=1)


@pytest.mark.parametrize(
    "values", [GREY, COLOUR, GREY > 100, DEEP.astype(">u2"), np.asfortranarray(GREY / 7), GREY.astype(np.float16)]
)
def test_arrays_keep_their_dtype_and_become_native(values: NDArray[np.generic], tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", values)
    for frame in (None, 0, -1):
        pixels = read_image(tmp_path / "a.npy", frame=frame)
        assert type(pixels) is np.ndarray
        assert pixels.dtype == values.dtype.newbyteorder("=")
        assert np.array_equal(pixels, values)
        pixels[0] = 0  # a copy, not a view of the file


def npy_header(shape: str, dtype: str = "<f8") -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.ones(5), r"must hold one image \(H, W\) or \(H, W, C\), got an array of shape \(5,\)"),
        (np.ones((1, 2, 3, 4)), r"got an array of shape \(1, 2, 3, 4\)"),
        (np.ones((2, 2), dtype=complex), "must hold real numbers, got an array of complex128"),
        (np.array([["a"]]), "must hold real numbers, got an array of <U1"),
        (np.zeros((2, 2), dtype=[("a", "f8")]), "must hold real numbers"),
        (np.array([[{"a": 1}]], dtype=object), "must hold real numbers, got an array of object"),
        (np.zeros((0, 3)), r"got an array of shape \(0, 3\)"),
    ],
)
def test_arrays_that_are_no_image(values: NDArray[np.generic], message: str, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", values, allow_pickle=True)
    with pytest.raises(InputError, match=message):
        read_image(tmp_path / "a.npy")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"hello", "is not a readable .npy array"),
        (npy_header("(2, 2)"), "is not a readable .npy array"),
        (npy_header("(2, 2)") + b"\0" * 24, "(it ends before the array of shape (2, 2) that its header announces)"),
        (npy_header("(10000000, 10000000)"), "is not a readable .npy array (it ends before"),
        (npy_header(f"({2**62}, {2**62})"), "is not a readable .npy array (it ends before"),
        (npy_header("(-2, 2)"), "must hold one image (H, W) or (H, W, C), got an array of shape (-2, 2)"),
        (b"\x93NUMPY\x01\x00\x10\x00((((((((((((((((", "is not a readable .npy array"),
        (b"PK\x03\x04 broken", "is an archive of arrays, not a .npy array"),
    ],
)
def test_broken_arrays(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(content)
    assert message in refusal(tmp_path / "a.npy")


def test_an_archive_is_called_one(tmp_path: Path) -> None:
    path = tmp_path / "study.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("slice.dcm", b"DICM")
    for dimension in (2, 3):
        with pytest.raises(InputError, match="is a ZIP archive: unpack it"):
            read_image(path, dimension=dimension)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((10**8, 16, 16), "it ends before the array of shape (100000000, 16, 16) that its header announces"),
        ((-3, 16, 16), "must be a stack (k, H, W) or (k, H, W, C), got an array of shape (-3, 16, 16)"),
        ((0, 16, 16), "must be a stack (k, H, W) or (k, H, W, C), got an array of shape (0, 16, 16)"),
        ((10**6 + 1, 1, 1), "holds 1000001 images, more than the 1000000 allowed: split it"),
    ],
)
@pytest.mark.parametrize("archived", [False, True])
def test_a_stack_that_announces_what_it_cannot_hold(
    shape: tuple[int, ...], message: str, archived: bool, tmp_path: Path
) -> None:
    path = tmp_path / ("a.npz" if archived else "a.npy")
    content = npy_header(str(shape), "|u1") + b"\0" * (10**6 + 1)
    if archived:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("k.npy", content)
    else:
        path.write_bytes(content)
    # The reason is in the row of its first image.
    (first, *others) = for_model(image_sources([path], stack=True), 2, stack=True)
    assert not others
    with pytest.raises(InputError, match=re.escape(message)):
        first.read()


def test_an_archive_is_no_array(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", a=GREY)
    assert "is an archive of arrays, not a .npy array: save the one array" in refusal(tmp_path / "a.npz")


def test_an_array_that_is_too_large(tmp_path: Path) -> None:
    header = npy_header("(8001, 8000)", "|u1")
    with open(tmp_path / "a.npy", "wb") as file:
        file.write(header)
        file.truncate(len(header) + 8001 * 8000)  # a hole: takes no room on the disk
    assert refusal(tmp_path / "a.npy").endswith("holds 64008000 values, more than the 64000000 allowed.")


def bomb(width: int, height: int) -> bytes:
    data = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    idat = b"IDAT" + zlib.compress(b"\0")
    chunks = [struct.pack(">I", len(part) - 4) + part + struct.pack(">I", zlib.crc32(part)) for part in (data, idat)]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def test_a_picture_that_is_too_large_is_not_decoded(tmp_path: Path) -> None:
    assert MAX_PIXELS == 64_000_000
    (tmp_path / "large.png").write_bytes(bomb(8001, 8000))
    assert "has 8001 x 8000 pixels, more than the 64000000 allowed: crop or" in refusal(tmp_path / "large.png")
    (tmp_path / "larger.png").write_bytes(bomb(80000, 80000))
    assert "has more than the 64000000 pixels allowed: crop or" in refusal(tmp_path / "larger.png")


@pytest.mark.parametrize("suffix", ["png", "jpg", "tif", "gif", "bmp", "webp"])
def test_a_truncated_picture(suffix: str, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (64, 64), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / f"whole.{suffix}")
    content = (tmp_path / f"whole.{suffix}").read_bytes()
    for length in (1, 20, 60, len(content) // 2, len(content) - 200):
        (tmp_path / f"cut.{suffix}").write_bytes(content[:length])
        sentence = refusal(tmp_path / f"cut.{suffix}")
        assert "cannot be read as an image" in sentence or "is not an image that can be read" in sentence


def test_damaged_pictures_end_in_one_sentence_or_in_pixels(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for suffix in ("png", "tif", "gif", "jpg"):
        picture = Image.fromarray(random.integers(0, 255, (12, 12), dtype=np.uint8)).convert("P")
        (picture.convert("L") if suffix == "jpg" else picture).save(tmp_path / f"whole.{suffix}")
        content = bytearray((tmp_path / f"whole.{suffix}").read_bytes())
        for _ in range(60):
            damaged = bytearray(content)
            for where in random.integers(0, len(content), 3):
                damaged[where] = int(random.integers(256))
            (tmp_path / f"damaged.{suffix}").write_bytes(damaged)
            with suppress(InputError):
                assert read_image(tmp_path / f"damaged.{suffix}", frame=0).ndim in (2, 3)


def test_transparent_and_other_modes_name_the_file(tmp_path: Path) -> None:
    Image.new("RGBA", (16, 16)).save(tmp_path / "rgba.png")
    assert "rgba.png has mode 'RGBA', and 256 of its 256 pixels are transparent" in refusal(tmp_path / "rgba.png")
    Image.new("RGBA", (2, 2), (1, 2, 3, 255)).save(tmp_path / "opaque.png")
    assert read_image(tmp_path / "opaque.png").tolist() == [[[1, 2, 3]] * 2] * 2
    Image.new("CMYK", (16, 16)).save(tmp_path / "ink.jpg")
    assert "ink.jpg has mode 'CMYK', but one of" in refusal(tmp_path / "ink.jpg")


def test_what_is_no_image_file(tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("hello")
    (tmp_path / "empty.png").touch()
    assert refusal(tmp_path / "missing.png") == f"there is no image file {tmp_path / 'missing.png'}."
    assert refusal(tmp_path) == f"{tmp_path} is a directory: give an image file in it."
    assert "text.png is not an image that can be read: give .npy, PNG, JPEG, TIFF" in refusal(tmp_path / "text.png")
    assert refusal(tmp_path / "empty.png").endswith("empty.png is empty: give a file that holds an image.")
    (tmp_path / "print.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n")
    assert "print.png is not an image that can be read" in refusal(tmp_path / "print.png")  # Ghostscript is not called


@pytest.mark.skipif(not Path("/proc/version").exists(), reason="this system has no such files")
def test_a_file_of_the_system_is_not_read(tmp_path: Path) -> None:
    # It is a regular file of size 0; others like it, such as /proc/kmsg, are waited for without end.
    (tmp_path / "link.png").symlink_to("/proc/version")
    assert refusal(tmp_path / "link.png").endswith("link.png is empty: give a file that holds an image.")
    assert ImageSource(path=tmp_path / "link.png").stamp() is None


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="this user may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "locked.png").write_text("hello")
    (tmp_path / "locked.png").chmod(0)
    assert refusal(tmp_path / "locked.png").endswith("cannot be opened (Permission denied).")


@pytest.mark.parametrize("name", ["a.npy", "a.png"])
def test_only_dicom_has_a_window(name: str, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", GREY)
    Image.fromarray(GREY).save(tmp_path / "a.png")
    assert f"only a DICOM file has a display window, and {tmp_path / name} is none" in refusal(
        tmp_path / name, window=True
    )


def test_a_path_may_be_a_string(tmp_path: Path) -> None:
    np.save(tmp_path / "scan.npy", np.eye(3))
    assert np.array_equal(read_image(str(tmp_path / "scan.npy")), np.eye(3))
    with pytest.raises(InputError, match="must be given as a path, got int"):
        read_image(3)  # type: ignore[arg-type]


def read_toy(path: Path, frame: int | None) -> NDArray[np.float64]:
    """Numbers as text after the word "toy", one row of pixels per line."""
    return np.loadtxt(path.read_text().removeprefix("toy").splitlines())


def test_a_new_format_is_one_line_of_the_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("attentest.images.toy")
    module.read_toy = read_toy  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "attentest.images.toy", module)
    toy = ImageFormat("images.toy:read_toy", suffixes=(".toy",), signature=b"toy")
    monkeypatch.setitem(IMAGE_FORMATS, "toy text", toy)
    for name in ("by_suffix.toy", "by_content.dat"):
        (tmp_path / name).write_text("toy\n1 2 3\n4 5 6")
        assert read_image(tmp_path / name).tolist() == [[1, 2, 3], [4, 5, 6]]
    assert "only a DICOM file has a display window" in refusal(tmp_path / "by_suffix.toy", window=True)
    (tmp_path / "text.png").write_text("hello")
    assert refusal(tmp_path / "text.png").endswith("give .npy, PNG, JPEG, TIFF, DICOM, NIfTI or toy text.")
    # Formats that were known before are read as before.
    np.save(tmp_path / "a.npy", GREY)
    assert np.array_equal(read_image(tmp_path / "a.npy"), GREY)


@pytest.mark.parametrize(("name", "package", "kind"), [("a.dcm", "pydicom", "DICOM"), ("a.nii.gz", "nibabel", "NIfTI")])
def test_a_missing_package_is_named(
    name: str, package: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).write_text("anything")
    monkeypatch.setitem(sys.modules, package, None)
    assert refusal(tmp_path / name) == f"reading {kind} needs {package}: pip install 'attentest[medical]'."
