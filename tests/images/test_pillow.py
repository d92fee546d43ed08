from __future__ import annotations

import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from attentest.errors import InputError
from attentest.images.image_file import chosen_frame
from attentest.images.pillow import picture_pixels

GREY = np.arange(6, dtype=np.uint8).reshape(2, 3) * 40
COLOUR = np.arange(18, dtype=np.uint8).reshape(2, 3, 3) * 10
DEEP = np.arange(6, dtype=np.uint16).reshape(2, 3) * 13000
ORIENTATION = 0x0112


def write_png(
    path: Path, rows: NDArray[np.uint8], depth: int, colour_type: int, width: int, extra: bytes = b""
) -> None:
    """A PNG of any depth: Pillow writes colours only with 8 bits."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, len(rows), depth, colour_type, 0, 0, 0)
    data = b"".join(b"\0" + row.tobytes() for row in rows)
    chunks = chunk(b"IHDR", header) + extra + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunks)


def transparent_colour(*channels: int) -> bytes:
    data = b"tRNS" + struct.pack(f">{len(channels)}H", *channels)
    return struct.pack(">I", len(data) - 4) + data + struct.pack(">I", zlib.crc32(data))


@pytest.mark.parametrize(
    "values",
    [GREY, COLOUR, DEEP, GREY.astype(np.int32) * -70000, GREY.astype(np.float32) / 7, GREY > 100],
    ids=["L", "RGB", "I;16", "I", "F", "1"],
)
def test_plain_modes_are_taken_as_they_are(values: NDArray[np.generic]) -> None:
    pixels = picture_pixels(Image.fromarray(values))
    assert pixels.dtype == values.dtype
    assert np.array_equal(pixels, values)


@pytest.mark.parametrize(("mode", "stored"), [("I;16", "<u2"), ("I;16L", "<u2"), ("I;16B", ">u2"), ("I;16N", "=u2")])
def test_every_byte_order_becomes_native(mode: str, stored: str) -> None:
    pixels = picture_pixels(Image.frombytes(mode, (3, 2), DEEP.astype(stored).tobytes()))
    assert pixels.dtype == np.uint16
    assert pixels.dtype.isnative
    assert np.array_equal(pixels, DEEP)


def test_the_pixels_are_a_copy() -> None:
    picture = Image.fromarray(GREY)
    picture_pixels(picture)[:] = 7
    assert np.array_equal(picture_pixels(picture), GREY)


def palette_picture(*colours: tuple[int, int, int]) -> Image.Image:
    picture = Image.new("P", (len(colours), 1))
    picture.putpalette([channel for colour in colours for channel in colour])
    picture.putdata(list(range(len(colours))))
    return picture


def test_a_palette_gives_its_colours() -> None:
    pixels = picture_pixels(palette_picture((255, 0, 0), (0, 9, 0), (3, 3, 3)))
    assert pixels.dtype == np.uint8
    assert pixels.tolist() == [[[255, 0, 0], [0, 9, 0], [3, 3, 3]]]


def test_a_palette_is_grey_if_the_colours_used_are() -> None:
    picture = palette_picture((20, 20, 20), (7, 7, 7), (255, 0, 0))
    picture.putdata([1, 0, 1])
    assert picture_pixels(picture).tolist() == [[7, 20, 7]]


@pytest.mark.parametrize("transparency", [1, bytes([255, 128])], ids=["index", "levels"])
def test_a_palette_with_transparency_counts_only_where_used(transparency: int | bytes) -> None:
    picture = palette_picture((20, 20, 20), (7, 0, 7))
    picture.info["transparency"] = transparency
    with pytest.raises(InputError, match="has mode 'P', and 1 of its 2 pixels are transparent"):
        picture_pixels(picture)
    picture.putdata([0, 0])
    assert picture_pixels(picture).tolist() == [[20, 20]]


def test_a_palette_from_a_png_or_gif_keeps_its_transparency(tmp_path: Path) -> None:
    picture = palette_picture((20, 20, 20), (7, 0, 7))
    for name, transparency in (("a.png", 1), ("b.png", b"\x80"), ("c.gif", 0)):
        picture.save(tmp_path / name, transparency=transparency)
        with (
            Image.open(tmp_path / name) as opened,
            pytest.raises(InputError, match=r"1 of its 2 pixels are transparent, and the model .* flatten it"),
        ):
            picture_pixels(opened)


@pytest.mark.parametrize("mode", ["LA", "RGBA", "PA"])
def test_an_opaque_alpha_channel_is_dropped(mode: str) -> None:
    picture = Image.fromarray(GREY).convert(mode)
    channels = 3 if mode == "RGBA" else 1
    assert np.array_equal(picture_pixels(picture), GREY if channels == 1 else np.stack([GREY] * 3, axis=-1))
    picture.putalpha(Image.fromarray(np.where(GREY == 80, 254, 255).astype(np.uint8)))
    with pytest.raises(InputError, match=f"has mode '{mode}', and 1 of its 6 pixels .* flatten it onto a background"):
        picture_pixels(picture)


@pytest.mark.parametrize(
    ("values", "used", "unused"),
    [(GREY, 80, 81), (COLOUR, (30, 40, 50), (30, 40, 51)), (DEEP, 26000, 26001)],
    ids=["L", "RGB", "I;16"],
)
def test_a_transparent_colour_counts_only_where_used(
    values: NDArray[np.generic], used: object, unused: object, tmp_path: Path
) -> None:
    for key, refused in ((used, True), (unused, False)):
        Image.fromarray(values).save(tmp_path / "key.png", transparency=key)
        with Image.open(tmp_path / "key.png") as picture:
            assert picture.info["transparency"] == key
            if refused:
                with pytest.raises(InputError, match="1 of its 6 pixels are transparent"):
                    picture_pixels(picture)
            else:
                assert np.array_equal(picture_pixels(picture), values)


def test_a_transparent_black_of_one_bit(tmp_path: Path) -> None:
    write_png(tmp_path / "bit.png", np.array([[0b10100000]], dtype=np.uint8), 1, 0, 3, transparent_colour(0))
    with (
        Image.open(tmp_path / "bit.png") as picture,
        pytest.raises(InputError, match="1 of its 3 pixels are transparent"),
    ):
        picture_pixels(picture)


def test_grey_levels_of_two_bits_are_spread_and_so_is_the_transparent_one(tmp_path: Path) -> None:
    levels = np.array([[0b00011011], [0b11111111]], dtype=np.uint8)
    write_png(tmp_path / "two.png", levels, 2, 0, 4)
    with Image.open(tmp_path / "two.png") as picture:
        assert picture_pixels(picture).tolist() == [[0, 85, 170, 255], [255] * 4]
    write_png(tmp_path / "two.png", levels, 2, 0, 4, transparent_colour(2))
    with (
        Image.open(tmp_path / "two.png") as picture,
        pytest.raises(InputError, match="1 of its 8 pixels are transparent"),
    ):
        picture_pixels(picture)


@pytest.mark.parametrize("mode", ["CMYK", "YCbCr", "LAB", "HSV", "RGBX", "RGBa", "La"])
def test_other_modes_are_refused(mode: str) -> None:
    with pytest.raises(
        InputError, match=rf"the picture has mode '{mode}', but one of .* convert it first, .*convert\('RGB'\)\.$"
    ):
        picture_pixels(Image.new(mode, (3, 2)))


@pytest.mark.parametrize(("colour_type", "channels"), [(2, 3), (4, 2), (6, 4)], ids=["RGB", "LA", "RGBA"])
def test_png_with_16_bits_per_channel_is_refused(colour_type: int, channels: int, tmp_path: Path) -> None:
    rows = np.full((2, 3 * channels * 2), 255, dtype=np.uint8)
    write_png(tmp_path / "deep.png", rows, 16, colour_type, 3)
    with (
        Image.open(tmp_path / "deep.png") as picture,
        pytest.raises(InputError, match=r"has 16 bits per channel, of which Pillow reads only 8: .*\.npy\.$"),
    ):
        picture_pixels(picture)


@pytest.mark.parametrize("planar", ["contig", "separate"])
@pytest.mark.parametrize("compression", [None, "zlib"])
def test_tiff_with_16_bits_per_channel_is_refused(compression: str | None, planar: str, tmp_path: Path) -> None:
    tifffile = pytest.importorskip("tifffile")
    values = COLOUR.astype(np.uint16) * 300
    values = np.moveaxis(values, -1, 0) if planar == "separate" else values
    tifffile.imwrite(tmp_path / "deep.tif", values, photometric="rgb", compression=compression, planarconfig=planar)
    with Image.open(tmp_path / "deep.tif") as picture, pytest.raises(InputError, match="has 16 bits per channel"):
        picture_pixels(picture)


@pytest.mark.parametrize("plain", [False, True])
def test_ppm_with_16_bits_per_channel_is_refused(plain: bool, tmp_path: Path) -> None:
    head = b"P3 1 1 1023\n1023 0 7\n" if plain else b"P6 1 1 1023\n\x03\xff\x00\x00\x00\x07"
    (tmp_path / "deep.ppm").write_bytes(head)
    with Image.open(tmp_path / "deep.ppm") as picture, pytest.raises(InputError, match="has 16 bits per channel"):
        picture_pixels(picture)


def test_jpeg_2000_is_read_in_grey_only(tmp_path: Path) -> None:
    pytest.importorskip("PIL.Jpeg2KImagePlugin")
    square = np.arange(4096, dtype=np.uint16).reshape(64, 64) * 16
    Image.fromarray(square).save(tmp_path / "grey.jp2")
    with Image.open(tmp_path / "grey.jp2") as picture:
        assert np.array_equal(picture_pixels(picture), square)
    Image.new("RGB", (64, 64)).save(tmp_path / "colour.jp2")
    with Image.open(tmp_path / "colour.jp2") as picture, pytest.raises(InputError, match="JPEG 2000 in colour"):
        picture_pixels(picture)


def test_unsigned_32_bits_do_not_become_negative(tmp_path: Path) -> None:
    tifffile = pytest.importorskip("tifffile")
    for signed, top in ((False, 2**31 - 1), (True, -5)):
        values = np.array([[top, 4]], dtype=np.int32 if signed else np.uint32)
        tifffile.imwrite(tmp_path / "wide.tif", values)
        with Image.open(tmp_path / "wide.tif") as picture:
            assert picture_pixels(picture).tolist() == [[top, 4]]
    tifffile.imwrite(tmp_path / "wide.tif", np.array([[2**31, 4]], dtype=np.uint32))
    with Image.open(tmp_path / "wide.tif") as picture, pytest.raises(InputError, match="values above 2147483647"):
        picture_pixels(picture)


UPRIGHT = {
    1: GREY,
    2: GREY[:, ::-1],
    3: GREY[::-1, ::-1],
    4: GREY[::-1],
    5: GREY.T,
    6: GREY[::-1].T,
    7: GREY[::-1, ::-1].T,
    8: GREY[:, ::-1].T,
}


@pytest.mark.parametrize("orientation", UPRIGHT)
@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_the_orientation_is_applied_once(orientation: int, suffix: str, tmp_path: Path) -> None:
    picture = Image.fromarray(GREY)
    exif = picture.getexif()
    exif[ORIENTATION] = orientation
    picture.save(tmp_path / f"turned.{suffix}", exif=exif)
    with Image.open(tmp_path / f"turned.{suffix}") as opened:
        assert np.array_equal(picture_pixels(opened), UPRIGHT[orientation])
        assert np.array_equal(picture_pixels(opened), UPRIGHT[orientation])


def test_a_turned_jpeg(tmp_path: Path) -> None:
    values = np.repeat(np.repeat(np.array([[0, 255]], dtype=np.uint8), 8, axis=0), 8, axis=1)
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    Image.fromarray(values).save(tmp_path / "turned.jpg", exif=exif, quality=100)
    with Image.open(tmp_path / "turned.jpg") as opened:
        pixels = picture_pixels(opened)
    assert pixels.shape == (16, 8)
    assert pixels[:8].max() == 0
    assert pixels[8:].min() == 255


def test_a_truncated_picture_is_refused_when_it_is_loaded(tmp_path: Path) -> None:
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64), dtype=np.uint8)).save(tmp_path / "whole.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "whole.png").read_bytes()[:2000])
    with Image.open(tmp_path / "cut.png") as picture, pytest.raises(InputError, match="cannot be read as an image"):
        picture_pixels(picture)


def test_frames_count_from_either_end() -> None:
    assert [chosen_frame(frame, 3, "x.tif") for frame in (0, 2, -1, -3, np.int64(1))] == [0, 2, 2, 0, 1]
    assert chosen_frame(None, 1, "x.tif") == 0
    for frame, message in (
        (3, "frame .of x.tif. must be at least -3 and at most 2, got 3"),
        (-4, "frame .of x.tif. must be at least -3 and at most 2, got -4"),
        (1.0, "frame .of x.tif. must be a whole number, got 1.0"),
        (True, "frame .of x.tif. must be a whole number, got True"),
        (None, "x.tif has 3 frames and one is needed: pick it with frame= or --frame, from 0 to 2"),
    ):
        with pytest.raises(InputError, match=message):
            chosen_frame(frame, 3, "x.tif")  # type: ignore[arg-type]


def test_pillow_is_imported_only_when_needed() -> None:
    code = (
        "import sys, attentest.images.pillow, attentest.images.image_file; "
        "print({'PIL', 'pydicom', 'nibabel'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "set()"
