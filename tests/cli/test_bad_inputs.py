"""A corpus of bad inputs: each ends in one sentence and exit code 2, in bounded time and memory."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import os
import pickle
import re
import resource
import shutil
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.numpy import save
from transformers import ViTForImageClassification

from attentest.attention import load_model
from attentest.cli import images
from attentest.errors import ModelError
from command_line import run_main

SIDE = 16
DIGITS = "1" * 5000
"""A number that Python's int() refuses."""

MOST_SECONDS = 10.0  # of the processor, which others may use as well
MOST_MEMORY = 4 * 2**30
"""Address space that all cases together may add; one that believes what its file says takes far more."""


@pytest.fixture(scope="module", autouse=True)
def bounded_memory() -> Iterator[None]:
    """Let an allocation of what a bad input asks for fail, whatever memory the machine has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 2**40
    before = resource.getrlimit(resource.RLIMIT_AS)
    if pages < 2**40:
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MOST_MEMORY, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.fixture
def refuse(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command that must be refused, and return its message."""

    def run(*arguments: object) -> str:
        start = time.process_time()
        done = run_main(capsys, *(str(argument) for argument in arguments))
        assert time.process_time() - start < MOST_SECONDS
        lines = [line for line in done.err.splitlines() if line.strip()]
        assert done.code in (1, 2), done
        assert "Traceback" not in done.err + done.out
        if lines[0].startswith("Usage:"):  # of Typer, in a box
            assert done.code == 2
            return " ".join(line.strip("│ ") for line in lines[3:-1])
        assert len(lines) == 1, done.err
        assert lines[0].startswith("attentest: ")
        assert lines[0].endswith(".")
        assert len(lines[0]) < 1500
        return lines[0]

    return run


def image_bytes(kind: str) -> bytes:
    """A good image of 16 x 16 pixels in a format."""
    values = np.random.default_rng(0).integers(0, 255, (SIDE, SIDE)).astype(np.uint8)
    target = io.BytesIO()
    if kind == "npy":
        np.save(target, values)
    elif kind in ("nii", "nii.gz"):
        nibabel = pytest.importorskip("nibabel")
        content = nibabel.Nifti1Image(values[:, :, None], np.eye(4)).to_bytes()
        return gzip.compress(content, mtime=0) if kind == "nii.gz" else bytes(content)
    elif kind == "dcm":
        dicom(target, values)
    else:
        Image.fromarray(values).save(target, format=kind)
    return target.getvalue()


def dicom(target: io.BytesIO, values: np.ndarray, **tags: object) -> None:
    pydicom = pytest.importorskip("pydicom")
    meta = pydicom.dataset.FileMetaDataset()
    meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = "1.2.840.10008.5.1.4.1.1.7", "1.2.3"
    header = pydicom.Dataset()
    header.file_meta = meta
    header.SOPClassUID, header.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
    header.Rows, header.Columns = values.shape
    header.BitsAllocated = header.BitsStored = 8
    header.HighBit, header.PixelRepresentation, header.SamplesPerPixel = 7, 0, 1
    header.PhotometricInterpretation = "MONOCHROME2"
    header.PixelData = values.tobytes()
    for name, value in tags.items():
        setattr(header, name, value)
    pydicom.dcmwrite(target, header, enforce_file_format=True)


def npy_bytes(header: str, data: bytes = b"", version: bytes = b"\x01\x00", length: int | None = None) -> bytes:
    """A .npy file with any header."""
    text = header.encode("latin-1")
    size = len(text) if length is None else length
    return b"\x93NUMPY" + version + struct.pack("<H" if version[0] == 1 else "<I", size) + text + data


def array_bytes(values: Any) -> bytes:
    target = io.BytesIO()
    np.save(target, values, allow_pickle=True)
    return target.getvalue()


def patched(content: bytes, where: int, layout: str, *values: float) -> bytes:
    changed = bytearray(content)
    struct.pack_into(layout, changed, where, *values)
    return bytes(changed)


def png_of_size(width: int, height: int) -> bytes:
    """A PNG whose header announces a size that it does not have."""
    import zlib

    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))


def dicom_bytes(**tags: object) -> bytes:
    target = io.BytesIO()
    dicom(target, np.zeros((SIDE, SIDE), np.uint8), **tags)
    return target.getvalue()


FORMATS = ("png", "tiff", "jpeg", "bmp", "npy", "nii", "nii.gz", "dcm")
SHARES = (0.0, 0.01, 0.1, 0.3, 0.6, 0.9)
TRUNCATED = {f"{share:g}.{kind}": (kind, share) for kind in FORMATS for share in SHARES}

HEADER = "{'descr': '<f8', 'fortran_order': False, 'shape': %s, }\n"

IMAGES: dict[str, Callable[[], bytes]] = {
    **{f"garbage.{kind}": lambda: np.random.default_rng(1).bytes(3000) for kind in FORMATS},
    **{f"text.{kind}": lambda: b"hello" for kind in FORMATS},
    "no-suffix": lambda: b"\0" * 2000,
    "trillion.npy": lambda: npy_bytes(HEADER % "(1000000, 1000000)", b"\0" * 64),
    "long.npy": lambda: npy_bytes(HEADER % "(1000000000000,)", b"\0" * 64),
    "overflow.npy": lambda: npy_bytes(HEADER % "(4611686018427387904, 4611686018427387904)"),
    "digits.npy": lambda: npy_bytes(HEADER % f"({DIGITS}, 2)"),
    "negative.npy": lambda: npy_bytes(HEADER % "(-3, 2)", b"\0" * 64),
    "words.npy": lambda: npy_bytes(HEADER % "('a', 2)", b"\0" * 64),
    "code.npy": lambda: npy_bytes(HEADER % "__import__('os').abort()"),
    "deep.npy": lambda: npy_bytes(HEADER % ("(" * 3000 + ")" * 3000)),
    "nothing.npy": lambda: npy_bytes("{}"),
    "gap.npy": lambda: npy_bytes("{", version=b"\x02\x00", length=2**32 - 1),
    "version.npy": lambda: npy_bytes(HEADER % "(2, 2)", b"\0" * 32, version=b"\x09\x00"),
    "short.npy": lambda: npy_bytes(HEADER % "(16, 16)", b"\0" * 2047),
    "objects.npy": lambda: array_bytes(np.array([[1, None], [2, 3]], dtype=object)),
    "records.npy": lambda: array_bytes(np.zeros((4, 4), dtype=[("a", "f8"), ("b", "i4")])),
    "strings.npy": lambda: array_bytes(np.full((4, 4), "pixel")),
    "bytes.npy": lambda: array_bytes(np.full((4, 4), b"p")),
    "complex.npy": lambda: array_bytes(np.ones((4, 4), dtype=complex)),
    "dates.npy": lambda: array_bytes(np.zeros((4, 4), dtype="M8[s]")),
    "scalar.npy": lambda: array_bytes(np.float64(1)),
    "row.npy": lambda: array_bytes(np.zeros(9)),
    "five.npy": lambda: array_bytes(np.zeros((2, 2, 2, 2, 2))),
    "none.npy": lambda: array_bytes(np.zeros((0, 5))),
    "nan.npy": lambda: array_bytes(np.full((SIDE, SIDE), np.nan)),
    "inf.npy": lambda: array_bytes(np.where(np.eye(SIDE) > 0, np.inf, 0.0)),
    "half.npy": lambda: array_bytes(np.full((SIDE, SIDE), np.inf, dtype=np.float16)),
    "pickle.npy": lambda: pickle.dumps(np.zeros((4, 4))),
    "archive.npy": lambda: b"PK\x03\x04" + b"\0" * 100,
    "bomb.png": lambda: png_of_size(100_000, 100_000),
    "lie.png": lambda: png_of_size(16, 16),
    "flat.png": lambda: png_of_size(0, 16),
    "huge.png": lambda: png_of_size(2**31 - 1, 2**31 - 1),
    "nan-slope.nii": lambda: patched(image_bytes("nii"), 112, "<2f", np.nan, 0.0),
    "inf-slope.nii": lambda: patched(image_bytes("nii"), 112, "<2f", np.inf, 0.0),
    "nan-intercept.nii": lambda: patched(image_bytes("nii"), 112, "<2f", 1.0, np.nan),
    "wide.nii": lambda: patched(image_bytes("nii"), 42, "<2h", 32767, 32767),
    "negative.nii": lambda: patched(image_bytes("nii"), 42, "<2h", -3, 16),
    "deep.nii": lambda: patched(image_bytes("nii"), 40, "<8h", 7, 16, 16, 32767, 32767, 32767, 32767, 32767),
    "gap.nii": lambda: patched(image_bytes("nii"), 108, "<f", 1e30),
    "nan-gap.nii": lambda: patched(image_bytes("nii"), 108, "<f", np.nan),
    "type.nii": lambda: patched(image_bytes("nii"), 70, "<h", 1792),
    "unknown-type.nii": lambda: patched(image_bytes("nii"), 70, "<h", 9999),
    "wide.dcm": lambda: dicom_bytes(Rows=65535, Columns=65535),
    "frames.dcm": lambda: dicom_bytes(NumberOfFrames=2**31 - 1),
    "empty.dcm": lambda: dicom_bytes(Rows=0),
    "bits.dcm": lambda: dicom_bytes(BitsAllocated=65535, BitsStored=65535),
    "channels.dcm": lambda: dicom_bytes(SamplesPerPixel=3),
    "colours.dcm": lambda: dicom_bytes(PhotometricInterpretation="CMYK"),
    "slope.dcm": lambda: dicom_bytes(RescaleSlope="0", RescaleIntercept="0"),
}
"""Image files by name; none of them may be read."""


@pytest.mark.parametrize("name", [*TRUNCATED, *IMAGES])
def test_image_files(name: str, refuse: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / name
    if name in TRUNCATED:
        kind, share = TRUNCATED[name]
        whole = image_bytes(kind)
        path.write_bytes(whole[: int(share * len(whole))])
    else:
        path.write_bytes(IMAGES[name]())
    for suffix, package in ((".dcm", "pydicom"), (".nii", "nibabel"), (".nii.gz", "nibabel")):
        if name.endswith(suffix) and path.stat().st_size:
            pytest.importorskip(package)  # without it, the message is how to install it
    other = tmp_path / f"other-{name}"
    other.write_bytes(path.read_bytes())
    message = refuse("noise", "fit", path, other, "--out", tmp_path / "noise.json")
    assert name in message or "image 0" in message or "pixel values" in message
    assert not (tmp_path / "noise.json").exists()


SOME_IMAGES = ("0.6.png", "0.3.npy", "trillion.npy", "objects.npy", "nan.npy", "bomb.png", "complex.npy", "digits.npy")


@pytest.mark.parametrize("name", SOME_IMAGES)
def test_image_files_of_a_test(
    name: str, capsys: pytest.CaptureFixture[str], saved_tiny_model: Path, tmp_path: Path
) -> None:
    path = tmp_path / name
    kind, share = TRUNCATED.get(name, ("npy", 0.0))
    path.write_bytes(image_bytes(kind)[: int(share * len(image_bytes(kind)))] if share else IMAGES[name]())
    done = run_main(capsys, "test", str(path), "--noise", "1", "--model", str(saved_tiny_model))
    assert done.code in (1, 2)  # a row with its reason, or an error
    assert "Traceback" not in done.err + done.out
    assert name in done.err + done.out


def wrapped(noise: str) -> str:
    return f'{{"format": "attentest noise", "version": 1, "noise": {noise}}}'


NOISE: dict[str, str | bytes] = {
    "empty": "",
    "open": "{",
    "binary": np.random.default_rng(0).bytes(500),
    "deep": "[" * 100_000,
    "deep-object": '{"noise": ' * 50_000,
    "list": "[1, 2]",
    "number": "7",
    "digits": DIGITS,
    "null": "null",
    "another": '{"model_type": "vit"}',
    "no-version": '{"format": "attentest noise"}',
    "version": '{"format": "attentest noise", "version": 99, "noise": {}}',
    "long-version": f'{{"format": "attentest noise", "version": {DIGITS}}}',
    "twice-version": '{"format": "attentest noise", "version": 1, "version": 1}',
    "no-kind": wrapped("{}"),
    "kind": wrapped('{"kind": "loud"}'),
    "kind-list": wrapped('{"kind": []}'),
    "long-kind": wrapped(f'{{"kind": "{"x" * 10_000}"}}'),
    "twice": wrapped('{"kind": "isotropic", "sigma": 1, "sigma": 2}'),
    "no-sigma": wrapped('{"kind": "isotropic"}'),
    "other-key": wrapped('{"kind": "isotropic", "std": 1}'),
    "nan": wrapped('{"kind": "isotropic", "sigma": NaN}'),
    "inf": wrapped('{"kind": "isotropic", "sigma": Infinity}'),
    "overflow": wrapped('{"kind": "isotropic", "sigma": 1e400}'),
    "long": wrapped(f'{{"kind": "isotropic", "sigma": {DIGITS}}}'),
    "long-but-read": wrapped(f'{{"kind": "isotropic", "sigma": {"1" * 4000}}}'),
    "negative": wrapped('{"kind": "isotropic", "sigma": -1}'),
    "zero": wrapped('{"kind": "isotropic", "sigma": 0}'),
    "text": wrapped('{"kind": "isotropic", "sigma": "1"}'),
    "true": wrapped('{"kind": "isotropic", "sigma": true}'),
    "object": wrapped('{"kind": "isotropic", "sigma": {}}'),
    "rho": wrapped('{"kind": "ar1", "rho": 2, "sigma": 1}'),
    "ragged": wrapped('{"kind": "diagonal", "variance": [[1], [1, 2]]}'),
    "negative-variance": wrapped('{"kind": "diagonal", "variance": [1, -1]}'),
    "not-square": wrapped('{"kind": "dense", "covariance": [[1, 0]]}'),
    "not-symmetric": wrapped('{"kind": "dense", "covariance": [[1, 0.5], [0, 1]]}'),
    "indefinite": wrapped('{"kind": "dense", "covariance": [[1, 2], [2, 1]]}'),
    "giant": wrapped('{"kind": "stationary", "autocovariance": [[1]], "shape": [1000000, 1000000]}'),
    "long-shape": wrapped(f'{{"kind": "stationary", "autocovariance": [[1]], "shape": [{"1" * 4000}, 1]}}'),
    "tensor": wrapped('{"kind": "diagonal", "variance": {"tensor": "elsewhere"}}'),
    "nested": wrapped('{"kind": "averaged", "model": ' * 3000 + "1" + ', "count": 2}' * 3000),
    "count": wrapped('{"kind": "averaged", "model": {"kind": "isotropic", "sigma": 1}, "count": -2}'),
}


@pytest.mark.parametrize("name", NOISE)
def test_noise_files(name: str, refuse: Callable[..., str], tmp_path: Path) -> None:
    path, content = tmp_path / "noise.json", NOISE[name]
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert "noise.json" in refuse("noise", "show", path)


def tensors(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file with any header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(shape: Any, offsets: Any, dtype: str = "F32") -> dict[str, Any]:
    return {"x": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


SAFETENSORS: dict[str, bytes] = {
    "empty": b"",
    "short": b"\x01\x00",
    "garbage": np.random.default_rng(2).bytes(1000),
    "long-header": tensors({}, length=2**63),
    "header-beyond": tensors({}, length=10**6),
    "no-json": tensors(b"{{{{"),
    "list": tensors([1, 2]),
    "deep": tensors(b"[" * 100_000),
    "digits": tensors(f'{{"x": {{"dtype": "F32", "shape": [{DIGITS}], "data_offsets": [0, 4]}}}}'.encode()),
    "overflow": tensors(entry([2**62, 2**62], [0, 4]), b"\0" * 4),
    "negative": tensors(entry([-1], [0, 4]), b"\0" * 4),
    "more": tensors(entry([1000], [0, 4]), b"\0" * 4),
    "outside": tensors(entry([10**9], [0, 4 * 10**9]), b"\0" * 4),
    "backwards": tensors(entry([1], [4, 0]), b"\0" * 4),
    "text": tensors(entry("[1]", [0, 4]), b"\0" * 4),
    "dtype": tensors(entry([1], [0, 4], "Q7"), b"\0" * 4),
    "no-shape": tensors({"x": 1}),
    "no-tensors": tensors({}),
    "other-tensors": save({"x": np.zeros(3)}),
}


@pytest.mark.parametrize("name", SAFETENSORS)
def test_noise_files_of_arrays(name: str, refuse: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "noise.safetensors"
    path.write_bytes(SAFETENSORS[name])
    assert "noise.safetensors" in refuse("noise", "show", path)


def model_refusal(directory: Path) -> str:
    start = time.process_time()
    with pytest.raises(ModelError) as caught:
        load_model(directory)
    assert time.process_time() - start < MOST_SECONDS
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    assert len(message) < 1500
    return message


@pytest.fixture
def model(saved_tiny_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved_tiny_model, tmp_path / "model"))


@pytest.mark.parametrize("name", SAFETENSORS)
def test_weights_that_lie(name: str, model: Path) -> None:
    (model / "model.safetensors").write_bytes(SAFETENSORS[name])
    assert "weights" in model_refusal(model) or "model.safetensors" in model_refusal(model)


NAN, INFINITY = float("nan"), float("inf")
SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "patch_size", "num_channels")
CONFIGS: dict[str, dict[str, Any]] = {
    **{f"{name} {value!r}": {name: value} for name in SIZES for value in (-1, 0, "16", NAN, INFINITY, 1.5, [], {})},
    **{f"{name} {value!r}": {name: value} for name in SIZES for value in (10**30, True)},
    **{f"image_size {value!r}": {"image_size": value} for value in (-8, 0, "8", NAN, [], [8, 8, 8], [8, None], {})},
    "width": {"hidden_size": 6000, "num_attention_heads": 6},
    "layers": {"num_hidden_layers": 10**6},
    "some layers": {"num_hidden_layers": 4000},
    "mlp": {"intermediate_size": 10**6},
    "channels": {"num_channels": 4000},
    "patches": {"image_size": 100_000, "patch_size": 1},
    "more patches": {"image_size": 10_000, "patch_size": 1},
    "one patch": {"image_size": 16_000, "patch_size": 16_000},
    "labels": {"num_labels": 10**9},
    "registers": {"model_type": "dinov2_with_registers", "num_register_tokens": 10**9},
    "ratio": {"model_type": "dinov2", "mlp_ratio": 1e308},
    "nested": {"model_type": "clip", "vision_config": {"hidden_size": 10**5, "num_hidden_layers": 10**5}},
    "nested text": {"model_type": "siglip", "vision_config": {"image_size": "large"}},
    "no type": {"model_type": None},
    "list type": {"model_type": ["vit"]},
    "long type": {"model_type": "x" * 100},
}


@pytest.mark.parametrize("name", CONFIGS)
def test_configurations(name: str, model: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, **CONFIGS[name]}))
    assert str(model) in model_refusal(model)


CONFIG_TEXTS = {
    "empty": "",
    "open": "{",
    "list": "[]",
    "number": DIGITS,
    "digits": f'{{"model_type": "vit", "hidden_size": {DIGITS}}}',
    "overflow": '{"model_type": "vit", "hidden_size": 1e400}',
    "deep": "[" * 100_000,
    "deep object": '{"model_type": ' * 50_000,
    "large": '{"model_type": "vit"}' + " " * 2**24,
    "latin": "\xff",
}


@pytest.mark.parametrize("name", CONFIG_TEXTS)
def test_models_by_the_command_line(name: str, model: Path, refuse: Callable[..., str], tmp_path: Path) -> None:
    (model / "config.json").write_bytes(CONFIG_TEXTS[name].encode("latin-1"))
    np.save(tmp_path / "x.npy", np.zeros((8, 8)))
    assert str(model) in refuse("test", tmp_path / "x.npy", "--noise", "1", "--model", model)


def test_pickled_weights_alone(model: Path, tiny_model: ViTForImageClassification, refuse: Callable[..., str]) -> None:
    (model / "model.safetensors").unlink()
    torch.save(tiny_model.state_dict(), model / "pytorch_model.bin")
    message = refuse("calibrate", "--noise", "1", "--images", "2", "--model", model)
    assert "if you trust them, set --allow-pickle" in message


OPTIONS: dict[str, list[str]] = {
    "test": [
        *(f"--noise {value}" for value in ("0", "-1", "nan", "inf", "x", DIGITS, "1,,2", "1e-400", "none.json")),
        *(f"--noise {value}" for value in ("1,2,3,4,5", "1e400")),
        *(f"--noise 1 --rho {value}" for value in ("1", "-1", "nan", "inf", DIGITS, "x")),
        *(f"--noise 1 --threshold {value}" for value in ("0", "1", "-1", "nan", DIGITS, "x")),
        *(f"--noise 1 --top-fraction {value}" for value in ("0", "1", "nan", DIGITS)),
        "--noise 1 --threshold 0.5 --top-fraction 0.5",
        *(f"--noise 1 --randomise {value}" for value in ("-1", "nan", "inf", DIGITS)),
        *(f"--noise 1 --randomise 1 --randomise-seed {value}" for value in ("-1", "1.5", "x", DIGITS)),
        *(f"--noise 1 --map {value}" for value in ("x", "layer:x", "layer:99", f"layer:{DIGITS}", "layer:")),
        *(f"--noise 1 --heads {value}" for value in ("x", "99", DIGITS, "-1")),
        *(f"--noise 1 --image-size {value}" for value in ("0", "1", "x", "8x", "99999", DIGITS, "16384")),
        *(f"--noise 1 --range {value}" for value in ("0", "0,0", "a,b", f"0,{DIGITS}", "0,nan")),
        *(f"--noise 1 --channels {value}" for value in ("9", "x", DIGITS, "nan", "-1", "-1.0")),
        *(f"--noise 1 --contrast {value}" for value in ("x", "neighbourhood:0", f"neighbourhood:{DIGITS}")),
        *(f"--noise 1 --contrast neighbourhood:5 --spacing {value}" for value in ("x", "1", "1,-1", "1,nan", "1,2,3")),
        *(f"--noise 1 --filter {value}" for value in ("x", "gaussian:0", f"gaussian:{DIGITS}", "none.npy")),
        *(f"--noise 1 --search {value}" for value in ("x", "combination --tol 0.1")),
        *(f"--noise 1 --tol {value}" for value in ("0", "-1", "nan", "2", DIGITS)),
        *(f"--noise 1 --max-evaluations {value}" for value in ("0", "-1", "1.5", DIGITS)),
        *(f"--noise 1 --device {value}" for value in ("x", f"cuda:{DIGITS}", "meta")),
        *(f"--noise 1 --frame {value}" for value in ("1", DIGITS)),
        *(f"--noise 1 --alpha {value}" for value in ("0", "1", "nan", DIGITS)),
    ],
    "calibrate": [
        *(f"--noise 1 --size {value}" for value in ("99999x99999", f"{DIGITS}x2", "0x8", "8", "3x8000x8000", "x")),
        *(f"--noise 1 --images {value}" for value in ("0", "-1", "1.5", DIGITS)),
        *(f"--noise 1 --seed {value}" for value in ("-1", "x", DIGITS)),
        *(f"--noise {value}" for value in ("sample", "1 --true-noise x", "1 --true-noise -1", "1 --mean none.png")),
    ],
    "power": ["--noise 1 --size 99999x99999", f"--noise 1 --delta {DIGITS}", "--noise 1 --side 99999"],
}


@pytest.mark.parametrize(
    ("command", "options"), [(command, options) for command, each in OPTIONS.items() for options in each], ids=str
)
def test_options(
    command: str, options: str, saved_tiny_model: Path, refuse: Callable[..., str], tmp_path: Path
) -> None:
    image = tmp_path / "x.npy"
    np.save(image, np.random.default_rng(0).normal(size=(8, 8)))
    files = [image] if command == "test" else []
    refuse(command, *files, "--model", saved_tiny_model, *options.split())


LISTS: dict[str, tuple[bytes, str]] = {
    "nul": (b"a.npy\nb\0c.npy\n", "line 2 of the list of images .* has a NUL byte"),
    "utf-16": ("a.npy\nb.npy\n".encode("utf-16"), "is a text in UTF-16 or UTF-32: save it as UTF-8"),
    "utf-16 without a mark": ("a.npy\n".encode("utf-16-le"), "line 1 of the list of images .* has a NUL byte"),
    "utf-32": ("a.npy\n".encode("utf-32"), "UTF-32: save it as UTF-8"),
    "utf-32 of the other order": (b"\0\0\xfe\xff" + "a.npy\n".encode("utf-32-be"), "line 1 .* has a NUL byte"),
    "long line": (b"a.npy\n" + b"x" * 5000, "line 2 of the list of images .* has 5000 bytes, more than the 4096"),
    "one long line": (b"x" * 2**20, "line 1 of the list of images .* has 1048576 bytes"),
    "only a mark": (codecs.BOM_UTF8, "is empty"),
}


@pytest.mark.parametrize("name", LISTS)
def test_lists_of_paths(name: str, refuse: Callable[..., str], tmp_path: Path) -> None:
    content, message = LISTS[name]
    (tmp_path / "list.txt").write_bytes(content)
    said = refuse("test", tmp_path / "list.txt", "--noise", "1")
    assert str(tmp_path / "list.txt") in said
    assert re.search(message, said), said


def test_lists_that_are_no_regular_files(refuse: Callable[..., str], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "link.txt").symlink_to(tmp_path / "pipe.txt")
    (tmp_path / "zero.list").symlink_to("/dev/zero")
    for name in ("pipe.txt", "link.txt", "zero.list"):
        assert f"{name} is not a regular file" in refuse("test", tmp_path / name, "--noise", "1")


def test_a_list_that_is_too_large(refuse: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "LARGEST_LIST", 100)
    (tmp_path / "list.txt").write_bytes(b"a.npy\n" * 50)
    assert "list.txt has more than the 100 bytes allowed" in refuse("test", tmp_path / "list.txt", "--noise", "1")


def test_a_list_in_utf_8_may_have_a_mark(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(SIDE, SIDE)))
    (tmp_path / "list.txt").write_bytes(codecs.BOM_UTF8 + f"{tmp_path}/x.npy\r\n".encode())
    done = run_main(capsys, "test", str(tmp_path / "list.txt"), "--noise", "1", "--no-interval")
    assert not done.code, done.err


MUTATED = ("png", "tiff", "npy", "npz")
NAMES = (
    "a\0b",
    "line\nend",
    "return\r",
    "=cmd|'/c calc'!A1",
    "@SUM(1)",
    "\x1b[31mred",
    "x" * 300,
    "[a-",
    "--",
    "a" * 5000,
)
SHAPES = ((), (1,), (0, 16), (16, 0, 3), (1, 16, 16), (2, 16, 16, 3), (16, 16, 5), (1, 1), (16, 17), (3, 3, 3, 3, 3))
DTYPES = ("f2", "f4", "f8", "i1", "i8", "u8", "?", "c16", "U3", "S2", "M8[s]", "m8[s]", "V5", "O")


def damaged(rng: np.random.Generator, place: Path) -> tuple[list[str], str]:
    """Write a bad input into a folder and return the arguments that name it, and what a message must mention."""
    kind = MUTATED[rng.integers(len(MUTATED))]
    values = rng.integers(0, 255, (SIDE, SIDE)).astype(np.uint8)
    target = io.BytesIO()
    if kind == "npy":
        np.save(target, values)
    elif kind == "npz":
        np.savez(target, values)
    else:
        Image.fromarray(values).save(target, format=kind)
    content, path = bytearray(target.getvalue()), place / f"image.{kind}"
    how = rng.integers(9)
    if how == 0:  # cut short, perhaps to nothing
        content = content[: rng.integers(len(content))]
    elif how == 1:  # flipped bits, most of them in the header
        for place_of_bit in rng.integers(0, 8 * min(len(content), 200), size=rng.integers(1, 6)):
            content[place_of_bit // 8] ^= 1 << (place_of_bit % 8)
    elif how == 2:  # a text under the name of an image
        content = bytearray(rng.choice(["hello", "{}", "<svg/>", "", "\ufeff", "P5 16 16 255 "]).encode())
    elif how == 3:  # a shape that is none of an image, or one of another
        path, content = place / "shape.npy", bytearray(array_bytes(np.zeros(SHAPES[rng.integers(len(SHAPES))])))
    elif how == 4:  # another dtype, or no numbers
        values = np.zeros((SIDE, SIDE), dtype=DTYPES[rng.integers(len(DTYPES))])
        if values.dtype.kind == "f":
            values[rng.integers(SIDE), 0] = rng.choice([np.nan, np.inf, -np.inf])
        path, content = place / "dtype.npy", bytearray(array_bytes(values))
    elif how == 5:  # a header that promises more than there is
        shape = tuple(int(side) for side in rng.integers(2**10, 2**40, size=rng.integers(2, 4)))
        path, content = place / "header.npy", bytearray(npy_bytes(HEADER % (shape,), b"\0" * 64))
    elif how == 6:  # no file
        (place / "image.npy").mkdir()
        return [str(place / "image.npy")], "image.npy"
    elif how == 7:  # a list of such names, or of anything
        lines = [NAMES[number] for number in rng.integers(len(NAMES), size=3)]
        listed = "\n".join(lines).encode() if rng.integers(2) else rng.bytes(500)
        (place / "list.txt").write_bytes(listed)
        return [str(place / "list.txt")], ""
    else:  # a strange name, of a file that is not there or that holds a text
        name = NAMES[rng.integers(1, len(NAMES))]  # no argument of a process holds a NUL
        path = place / name
        with suppress(OSError, ValueError):
            path.write_bytes(b"hello")
        return [str(path)], ""
    path.write_bytes(content)
    return [str(path), *(["--stack"] if kind == "npz" and how in (0, 1) else [])], path.name


def test_three_hundred_random_bad_inputs(
    capsys: pytest.CaptureFixture[str], saved_tiny_model: Path, tmp_path: Path
) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tested = 0
    for seed in range(300):
        place = tmp_path / str(seed)
        place.mkdir()
        arguments, name = damaged(np.random.default_rng(seed), place)
        start = time.process_time()
        done = run_main(capsys, "test", *arguments, "--noise", "1", "--model", str(saved_tiny_model), "--no-interval")
        assert time.process_time() - start < MOST_SECONDS, (seed, arguments)
        assert "Traceback" not in done.err + done.out, (seed, done)
        assert done.code in (0, None, 1, 2), (seed, done)
        if not done.code:  # what was changed is not what the picture is read from, or the image fits after all
            tested += 1
            continue
        said = [line for line in done.err.splitlines() if not line.startswith("attentest: note: ")]
        assert said, (seed, done)
        assert all(line.startswith("attentest: ") and line.endswith(".") for line in said), (seed, done.err)
        assert name in done.err, (seed, done.err)
    assert tested < 60
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**20  # in kB: 1 GiB


TRAINING = ("--image-size", "--epochs", "--images-per-class", "--batch-size", "--seed", "--learning-rate", "--dropout")


@pytest.mark.parametrize("value", ["-1", str(10**30), DIGITS, "x"])
@pytest.mark.parametrize("option", TRAINING)
def test_options_of_a_training(option: str, value: str, refuse: Callable[..., str], tmp_path: Path) -> None:
    refuse("train", tmp_path / "model", option, value)
    assert not (tmp_path / "model").exists()
