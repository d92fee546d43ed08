"""Images in DICOM files."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from attentest.images.image_file import Spacing, read_image, read_scan
from image_refusal import PATIENT, refusal

EXPLICIT = "1.2.840.10008.1.2.1"
BIG_ENDIAN = "1.2.840.10008.1.2.2"
DEFLATED = "1.2.840.10008.1.2.1.99"
JPEG_BASELINE = "1.2.840.10008.1.2.4.50"
JPEG_LS = "1.2.840.10008.1.2.4.80"
RLE = "1.2.840.10008.1.2.5"

STORED = np.array([[0, 1, 2], [100, 2047, 4095]], dtype=np.uint16)


def write_dicom(
    path: Path, values: NDArray[Any] | None = STORED, *, bits: int = 12, syntax: str = EXPLICIT, **tags: object
) -> Path:
    """A DICOM file of grey values (H, W), of frames (N, H, W) with NumberOfFrames, or of colours (H, W, 3)."""
    pydicom = pytest.importorskip("pydicom")
    dataset = pydicom.Dataset()
    dataset.file_meta = pydicom.dataset.FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = syntax
    dataset.SOPClassUID = dataset.file_meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.7"
    dataset.SOPInstanceUID = dataset.file_meta.MediaStorageSOPInstanceUID = "1.2.3.4"
    dataset.PatientName = PATIENT
    if values is not None:
        colour = values.shape[-1] == 3 and values.ndim == 3 and "NumberOfFrames" not in tags
        rows, columns = values.shape[:2] if colour else values.shape[-2:]
        dataset.Rows, dataset.Columns, dataset.SamplesPerPixel = rows, columns, 3 if colour else 1
        dataset.PhotometricInterpretation = "RGB" if colour else "MONOCHROME2"
        if colour:
            dataset.PlanarConfiguration = 0
        dataset.BitsAllocated = values.dtype.itemsize * 8
        if values.dtype.kind == "f":
            dataset.FloatPixelData = values.tobytes()
        else:
            dataset.BitsStored, dataset.HighBit = bits, bits - 1
            dataset.PixelRepresentation = int(values.dtype.kind == "i")
            order = ">" if syntax == BIG_ENDIAN else "<"
            data = values.astype(values.dtype.newbyteorder(order)).tobytes()
            dataset.PixelData = data + b"\0" * (len(data) % 2)
            dataset["PixelData"].VR = "OB" if values.dtype.itemsize == 1 else "OW"
    for name, value in tags.items():
        if value is None:
            delattr(dataset, name)
        else:
            setattr(dataset, name, value)
    dataset.save_as(path, enforce_file_format=True)
    return path


def item(**tags: object) -> list[Any]:
    """A sequence of one item."""
    pydicom = pytest.importorskip("pydicom")
    dataset = pydicom.Dataset()
    for name, value in tags.items():
        setattr(dataset, name, value)
    return [dataset]


def table(descriptor: list[int], data: object) -> list[Any]:
    sequence = item()
    sequence[0].add_new(0x00283002, "US", descriptor)
    sequence[0].add_new(0x00283006, "OW" if isinstance(data, bytes) else "US", data)
    return sequence


@pytest.mark.parametrize(
    ("values", "bits"),
    [
        (np.array([[0, 7, 255]], dtype=np.uint8), 8),
        (STORED, 12),
        (np.array([[0, 7, 65535]], dtype=np.uint16), 16),
        (np.array([[-2048, 7, 2047]], dtype=np.int16), 12),
        (np.array([[-32768, 7, 32767]], dtype=np.int16), 16),
        (np.arange(18, dtype=np.uint8).reshape(2, 3, 3), 8),
        (np.array([[0.5, -7.25, 1e6]], dtype=np.float32), 32),
    ],
    ids=["8", "12", "16", "signed 12", "signed 16", "RGB", "float"],
)
def test_stored_values(values: NDArray[Any], bits: int, tmp_path: Path) -> None:
    path = write_dicom(tmp_path / "a.dcm", values, bits=bits)
    for frame in (None, 0, -1):
        pixels = read_image(path, frame=frame)
        assert pixels.dtype == np.float64
        assert np.array_equal(pixels, values)


@pytest.mark.parametrize("name", ["a.dcm", "a.DICOM", "IM000001", "a.ima", "1.2.840.113"])
def test_a_dicom_file_is_known_by_suffix_or_content(name: str, tmp_path: Path) -> None:
    assert np.array_equal(read_image(write_dicom(tmp_path / name)), STORED)


@pytest.mark.parametrize("syntax", ["1.2.840.10008.1.2", BIG_ENDIAN])
def test_other_encodings(syntax: str, tmp_path: Path) -> None:
    assert np.array_equal(read_image(write_dicom(tmp_path / "a.dcm", syntax=syntax)), STORED)


def test_slope_and_intercept(tmp_path: Path) -> None:
    path = write_dicom(tmp_path / "a.dcm", RescaleSlope="2.5", RescaleIntercept="-1024")
    assert np.array_equal(read_image(path), STORED * 2.5 - 1024)
    path = write_dicom(tmp_path / "a.dcm", RescaleIntercept="-1024")
    assert np.array_equal(read_image(path), STORED - 1024.0)


@pytest.mark.parametrize(("slope", "intercept"), [("0", "1"), ("nan", "0"), ("inf", "0"), ("1", "-inf")])
def test_a_scaling_that_destroys_the_pixels_is_refused(slope: str, intercept: str, tmp_path: Path) -> None:
    path = write_dicom(tmp_path / "a.dcm", RescaleSlope="7.25", RescaleIntercept="8.25")
    content = path.read_bytes()  # pydicom writes no such numbers
    path.write_bytes(content.replace(b"7.25", slope.ljust(4).encode()).replace(b"8.25", intercept.ljust(4).encode()))
    assert f"a rescale slope of {float(slope)} and a rescale intercept of {float(intercept)}, but" in refusal(path)


def test_slope_and_window_of_each_frame(tmp_path: Path) -> None:
    values = np.stack([STORED, STORED // 2])
    shared = item(PixelValueTransformationSequence=item(RescaleSlope="3", RescaleIntercept="1"))
    own = [
        *item(FrameVOILUTSequence=item(WindowCenter="0.5", WindowWidth="1")),
        *item(PixelValueTransformationSequence=item(RescaleSlope="5", RescaleIntercept="2")),
    ]
    path = write_dicom(
        tmp_path / "a.dcm",
        values,
        NumberOfFrames=2,
        SharedFunctionalGroupsSequence=shared,
        PerFrameFunctionalGroupsSequence=own,
    )
    assert np.array_equal(read_image(path, frame=0), STORED * 3.0 + 1)
    assert np.array_equal(read_image(path, frame=1), STORED // 2 * 5.0 + 2)
    assert (read_image(path, frame=0, window=True) == 4095 * 3 + 1).all()
    assert "has no display window to apply" in refusal(path, frame=1, window=True)


def test_a_modality_table_clamps_at_its_ends(tmp_path: Path) -> None:
    sequence = table([3, 1, 16], [10, 500, 60000])
    path = write_dicom(tmp_path / "a.dcm", ModalityLUTSequence=sequence)
    expected = [[10, 10, 500], [60000, 60000, 60000]]
    assert read_image(path).tolist() == expected
    path = write_dicom(tmp_path / "a.dcm", ModalityLUTSequence=sequence, PhotometricInterpretation="MONOCHROME1")
    assert read_image(path).tolist() == (65535 - np.array(expected)).tolist()


def test_monochrome1_is_inverted_within_the_bits_stored(tmp_path: Path) -> None:
    dark = {"PhotometricInterpretation": "MONOCHROME1"}
    assert np.array_equal(read_image(write_dicom(tmp_path / "a.dcm", **dark)), 4095.0 - STORED)
    # One pixel more or less never changes another.
    assert np.array_equal(read_image(write_dicom(tmp_path / "a.dcm", STORED[:1], **dark)), 4095.0 - STORED[:1])
    signed = np.array([[-2048, 0, 2047]], dtype=np.int16)
    assert read_image(write_dicom(tmp_path / "a.dcm", signed, **dark)).tolist() == [[2047, -1, -2048]]
    scaled = {"RescaleSlope": "-2", "RescaleIntercept": "10"}
    low, high = -2 * 4095 + 10, 10
    path = write_dicom(tmp_path / "a.dcm", **dark, **scaled)
    assert np.array_equal(read_image(path), low + high - (10 - 2.0 * STORED))


def test_windows_are_applied_only_if_asked(tmp_path: Path) -> None:
    path = write_dicom(tmp_path / "a.dcm", WindowCenter=["2", "9"], WindowWidth=["5", "99"])
    assert np.array_equal(read_image(path), STORED)
    assert read_image(path, window=True).tolist() == [[4095 * 0.125, 4095 * 0.375, 4095 * 0.625], [4095] * 3]


@pytest.mark.parametrize("function", ["LINEAR", "LINEAR_EXACT", "SIGMOID"])
@pytest.mark.parametrize("signed", [False, True])
def test_windows_agree_with_pydicom(function: str, signed: bool, tmp_path: Path) -> None:
    pydicom = pytest.importorskip("pydicom")
    values = np.arange(-2048, 2048, dtype=np.int16).reshape(64, 64) if signed else np.tile(STORED, (2, 2))
    path = write_dicom(
        tmp_path / "a.dcm",
        values,
        RescaleSlope="2",
        RescaleIntercept="-100",
        WindowCenter="40.5",
        WindowWidth="400",
        VOILUTFunction=function,
    )
    expected = pydicom.pixels.apply_voi_lut(values * 2.0 - 100, pydicom.dcmread(path))
    np.testing.assert_allclose(read_image(path, window=True), expected, rtol=1e-12, atol=1e-9)


def test_a_window_of_width_one_is_a_step(tmp_path: Path) -> None:
    path = write_dicom(tmp_path / "a.dcm", WindowCenter="2", WindowWidth="1")
    assert read_image(path, window=True).tolist() == [[0, 0, 4095], [4095] * 3]


def test_monochrome1_is_inverted_after_the_window(tmp_path: Path) -> None:
    path = write_dicom(tmp_path / "a.dcm", WindowCenter="2", WindowWidth="1", PhotometricInterpretation="MONOCHROME1")
    assert read_image(path, window=True).tolist() == [[4095, 4095, 0], [0] * 3]


@pytest.mark.parametrize("packed", [False, True])
def test_a_display_table_goes_before_a_window(packed: bool, tmp_path: Path) -> None:
    # 300 entries of 8 bits: positions above 255 must not wrap around.
    entries = np.arange(300) % 251
    data = entries.astype(np.uint8).tobytes() if packed else entries.tolist()
    values = np.array([[0, 255, 256, 299, 4000]], dtype=np.uint16)
    tags = {"VOILUTSequence": table([300, 0, 8], data), "WindowCenter": "2", "WindowWidth": "1"}
    path = write_dicom(tmp_path / "a.dcm", values, **tags)
    assert read_image(path, window=True).tolist() == [[0, 4, 5, 48, 48]]
    path = write_dicom(tmp_path / "a.dcm", values, PhotometricInterpretation="MONOCHROME1", **tags)
    assert read_image(path, window=True).tolist() == [[255, 251, 250, 207, 207]]


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        ({}, "has no display window to apply: leave window"),
        ({"WindowCenter": "2"}, "has no display window to apply"),
        ({"WindowCenter": "2", "WindowWidth": "0"}, "has a display window without width"),
        (
            {"WindowCenter": "2", "WindowWidth": "5", "VOILUTFunction": "CUBIC"},
            "has a display window of an unknown kind (LINEAR, LINEAR_EXACT and SIGMOID are known)",
        ),
    ],
)
def test_windows_that_cannot_be_applied(tags: dict[str, object], message: str, tmp_path: Path) -> None:
    path = write_dicom(tmp_path / "a.dcm", **tags)
    assert message in refusal(path, window=True)
    assert np.array_equal(read_image(path), STORED)


def test_colours_have_no_window_and_floats_no_range(tmp_path: Path) -> None:
    colour = write_dicom(tmp_path / "a.dcm", np.zeros((2, 3, 3), dtype=np.uint8), bits=8)
    assert "a display window belongs to grey images, and" in refusal(colour, window=True)
    values = np.ones((2, 2), dtype=np.float32)
    floating = write_dicom(tmp_path / "b.dcm", values, PhotometricInterpretation="MONOCHROME1")
    assert "has floating-point pixels, whose range" in refusal(floating)


def test_one_frame_of_several(tmp_path: Path) -> None:
    values = np.arange(24, dtype=np.uint16).reshape(4, 2, 3)
    path = write_dicom(tmp_path / "a.dcm", values, NumberOfFrames=4)
    for frame in (0, 3, -1, -4):
        assert np.array_equal(read_image(path, frame=frame), values[frame])
    assert "has 4 frames and one is needed: pick it with frame= or --frame, from 0 to 3." in refusal(path)
    assert "must be at least -4 and at most 3, got 4." in refusal(path, frame=4)


def palette_tags(**tags: object) -> dict[str, object]:
    colours = {"Red": [1, 2, 3], "Green": [10, 20, 30], "Blue": [0, 0, 65535]}
    found: dict[str, object] = {"PhotometricInterpretation": "PALETTE COLOR"}
    for colour, entries in colours.items():
        found[f"{colour}PaletteColorLookupTableDescriptor"] = [3, 1, 16]
        found[f"{colour}PaletteColorLookupTableData"] = np.array(entries, dtype="<u2").tobytes()
    return found | tags


def test_a_palette_is_looked_up(tmp_path: Path) -> None:
    path = write_dicom(tmp_path / "a.dcm", np.array([[0, 1, 2, 3, 9]], dtype=np.uint16), **palette_tags())
    last = [3, 30, 65535]
    assert read_image(path).tolist() == [[[1, 10, 0], [1, 10, 0], [2, 20, 0], last, last]]


def test_other_palettes_are_refused(tmp_path: Path) -> None:
    transparent = palette_tags(AlphaPaletteColorLookupTableData=b"\0" * 6)
    for tags in (transparent, {"PhotometricInterpretation": "PALETTE COLOR"}):
        sentence = refusal(write_dicom(tmp_path / "a.dcm", **tags))
        assert "PALETTE COLOR with a segmented or transparent palette or none: convert it to RGB first" in sentence
    short = palette_tags(RedPaletteColorLookupTableData=b"\0\0")
    assert "is a DICOM file with broken tags" in refusal(write_dicom(tmp_path / "a.dcm", **short))


def test_ybr_becomes_rgb(tmp_path: Path) -> None:
    values = np.array([[[76, 85, 255], [128, 128, 128]]], dtype=np.uint8)
    path = write_dicom(tmp_path / "a.dcm", values, bits=8, PhotometricInterpretation="YBR_FULL")
    assert read_image(path).tolist() == [[[254, 0, 0], [128, 128, 128]]]


@pytest.mark.parametrize("name", ["HSV", "CMYK", "YBR_PARTIAL_420"])
def test_other_colour_spaces_are_refused(name: str, tmp_path: Path) -> None:
    path = write_dicom(tmp_path / "a.dcm", np.zeros((2, 3, 3), dtype=np.uint8), bits=8, PhotometricInterpretation=name)
    assert f"has the photometric interpretation '{name}', but one of MONOCHROME1, " in refusal(path)


def test_run_lengths_are_decoded(tmp_path: Path) -> None:
    pydicom = pytest.importorskip("pydicom")
    dataset = pydicom.dcmread(write_dicom(tmp_path / "a.dcm"))
    dataset.compress(RLE)
    dataset.save_as(tmp_path / "rle.dcm")
    assert np.array_equal(read_image(tmp_path / "rle.dcm"), STORED)


def encapsulated(*frames: bytes) -> bytes:
    pydicom = pytest.importorskip("pydicom")
    data: bytes = pydicom.encaps.encapsulate(list(frames))
    return data


def test_jpeg_is_decoded(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    Image.new("L", (16, 8), 77).save(buffer, format="JPEG")
    values = np.zeros((8, 16), dtype=np.uint8)
    options = {"bits": 8, "syntax": JPEG_BASELINE}
    path = write_dicom(tmp_path / "a.dcm", values, PixelData=encapsulated(buffer.getvalue()), **options)
    assert (read_image(path) == 77).all()
    path = write_dicom(tmp_path / "a.dcm", values, PixelData=encapsulated(buffer.getvalue()[:100]), **options)
    assert "ends before its last pixel or is damaged: copy the file again." in refusal(path)


def test_a_compression_without_decoder_is_named(tmp_path: Path) -> None:
    pydicom = pytest.importorskip("pydicom")
    path = write_dicom(tmp_path / "a.dcm", PixelData=encapsulated(b"\0" * 10), syntax=JPEG_LS)
    if not pydicom.pixels.get_decoder(JPEG_LS).is_available:
        assert "is compressed as JPEG-LS Lossless Image Compression, for which no decoder is installed" in refusal(path)
    path = write_dicom(tmp_path / "a.dcm", PixelData=encapsulated(b"\0" * 10), syntax="1.2.840.10008.1.2.4.100")
    assert "is compressed as MPEG2 Main Profile / Main Level, for which no decoder" in refusal(path)


def test_a_deflated_file_is_refused_before_it_is_inflated(tmp_path: Path) -> None:
    path = write_dicom(tmp_path / "a.dcm", syntax=DEFLATED)
    assert "is a deflated DICOM file: inflate it first" in refusal(path)


def test_truncated_or_missing_pixels(tmp_path: Path) -> None:
    whole = write_dicom(tmp_path / "a.dcm", np.zeros((40, 40), dtype=np.uint16)).read_bytes()
    for length in (len(whole) - 2, len(whole) - 3000):
        (tmp_path / "cut.dcm").write_bytes(whole[:length])
        assert "ends before its last pixel or is damaged" in refusal(tmp_path / "cut.dcm")
    short = write_dicom(tmp_path / "short.dcm", PixelData=b"\0\0")
    assert "ends before its last pixel or is damaged" in refusal(short)
    assert "without pixel data or without a tag" in refusal(write_dicom(tmp_path / "none.dcm", PixelData=None))
    assert "is a DICOM file without an image" in refusal(write_dicom(tmp_path / "report.dcm", None))
    assert "is a DICOM file without an image" in refusal(write_dicom(tmp_path / "flat.dcm", Rows=0))


def test_what_is_no_dicom_file(tmp_path: Path) -> None:
    pytest.importorskip("pydicom")
    (tmp_path / "text.dcm").write_text("hello")
    assert "text.dcm is not a DICOM file that can be read" in refusal(tmp_path / "text.dcm")
    (tmp_path / "empty.dcm").touch()
    assert "is empty" in refusal(tmp_path / "empty.dcm")
    whole = write_dicom(tmp_path / "a.dcm").read_bytes()
    for length in range(133, len(whole) - 20, 7):
        (tmp_path / "cut.dcm").write_bytes(whole[:length])
        assert "cut.dcm" in refusal(tmp_path / "cut.dcm")


def test_sizes_are_checked_before_decoding(tmp_path: Path) -> None:
    path = write_dicom(tmp_path / "a.dcm", Rows=9000, Columns=8000)
    assert "has 8000 x 9000 pixels, more than the 64000000 allowed" in refusal(path)
    path = write_dicom(tmp_path / "a.dcm", Rows=8000, Columns=8000, NumberOfFrames=100)
    assert "holds 12800000000 bytes of pixels, more than the 4294967296 allowed: split it first." in refusal(
        path, frame=0
    )


def test_nothing_about_the_patient_gets_out(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pydicom = pytest.importorskip("pydicom")
    path = write_dicom(tmp_path / "a.dcm", WindowCenter="2", WindowWidth="5")
    content = path.read_bytes()
    # A number that is none, as a careless export would leave it, and a date that pydicom would warn of.
    assert content.count(b"\x28\x00\x51\x10DS\x02\x005 ") == 1
    path.write_bytes(content.replace(b"\x28\x00\x51\x10DS\x02\x005 ", b"\x28\x00\x51\x10DS\x02\x00JD"))
    sentence = refusal(path, window=True)
    assert sentence.endswith("is a DICOM file with broken tags: export it again from its source.")
    assert "JD" not in sentence
    assert capfd.readouterr() == ("", "")
    assert not pydicom.config.logger.disabled


def enhanced(path: Path, heights: list[float | None], turned: int | None = None, shared: bool = True) -> Path:
    """Write a file whose frame k holds the value k and lies at a height along its normal, (-1, 0, 0)."""
    across, other = [0, 1, 0, 0, 0, -1], [1, 0, 0, 0, 1, 0]
    frames = []
    for number, height in enumerate(heights):
        tags = {}
        if height is not None:
            tags["PlanePositionSequence"] = item(ImagePositionPatient=[-height, 7, 1])
        if not shared or number == turned:
            plane = other if number == turned else across
            tags["PlaneOrientationSequence"] = item(ImageOrientationPatient=plane)
        frames += item(**tags)
    of_all = {"PixelMeasuresSequence": item(PixelSpacing=[0.5, 0.75], SpacingBetweenSlices=9)}
    if shared:
        of_all["PlaneOrientationSequence"] = item(ImageOrientationPatient=across)
    return write_dicom(
        path,
        np.repeat(np.arange(len(heights), dtype=np.uint16), 6).reshape(-1, 2, 3),
        NumberOfFrames=len(heights),
        PerFrameFunctionalGroupsSequence=frames,
        SharedFunctionalGroupsSequence=item(**of_all),
    )


@pytest.mark.parametrize("shared", [True, False])
def test_frames_are_sorted_by_position(shared: bool, tmp_path: Path) -> None:
    path = enhanced(tmp_path / "a.dcm", [5.0, 0.0, 2.5, 7.5], shared=shared)
    scan = read_scan(path, frame=None, window=False, dimension=3, channels=())
    assert scan.values[:, 0, 0].tolist() == [1, 2, 0, 3]
    assert scan.spacing == Spacing((2.5, 0.5, 0.75), "mm")
    assert (read_image(path, frame=0) == 0).all()  # one frame is counted as stored


def test_frames_without_positions_stay_as_stored(tmp_path: Path) -> None:
    path = enhanced(tmp_path / "a.dcm", [None] * 3)
    scan = read_scan(path, frame=None, window=False, dimension=3, channels=())
    assert scan.values[:, 0, 0].tolist() == [0, 1, 2]
    assert scan.spacing == Spacing((9.0, 0.5, 0.75), "mm")


def test_frames_that_are_no_volume_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.dcm"
    assert refusal(enhanced(path, [0, 2.5, 2.5, 5]), dimension=3) == (
        f"frame 1 of {path} and frame 2 of {path} are slices of one series at the same position: give each of its "
        "volumes a file of its own."
    )
    message = refusal(enhanced(path, [0, 2.5, 5], turned=2), dimension=3)
    assert f"frame 2 of {path} has the orientation 1 x 0 x 0 x 0 x 1 x 0, and other slices of its series" in message
    assert message.endswith("give a file of slices that are alike.")
    assert "mm, and a slice is missing between them" in refusal(enhanced(path, [0, 2.5, 5, 10]), dimension=3)
    message = refusal(enhanced(path, [0, None, 5]), dimension=3)
    assert message == f"frame 1 of {path} has no position in its series that can be read: export it again."
