"""End to end on real photographs, grey and colour, of their own sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn.functional import interpolate
from transformers import ViTConfig, ViTForImageClassification

from attentest import AttentionTest
from attentest.attention import ViTScores
from attentest.images.preprocessing import Preprocessing
from command_line import run_main
from families import tiny
from image_processors import image_processor

data = pytest.importorskip("skimage.data")

SIGMA = 20.0


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny(ViTForImageClassification, ViTConfig, image_size=32, patch_size=4, num_labels=2)


@pytest.fixture(scope="module")
def processor() -> Any:
    return image_processor("ViT", size={"height": 32, "width": 32}, image_mean=[0.5] * 3, image_std=[0.25] * 3)


def region_at(model: Any, processor: Any, image: NDArray[np.float64]) -> NDArray[np.bool_]:
    """The region of an image (H, W) or (H, W, 3), worked out step by step."""
    pixels = torch.from_numpy(image if image.ndim == 3 else image[:, :, None]).permute(2, 0, 1)
    inputs = Preprocessing.from_processor(processor).plan(tuple(pixels.shape), 3, (0.0, 255.0))
    scores = ViTScores(model)(inputs(pixels[None]))
    attention = interpolate(scores[None], size=image.shape[:2], mode="bilinear", align_corners=False)[0, 0]
    low, high = attention.min(), attention.max()
    return (((attention - low) / (high - low)) > 0.6).numpy()


@pytest.mark.parametrize("name", ["camera", "astronaut", "coffee", "page"])
def test_the_set_found_is_where_the_model_chooses_the_region(model: Any, processor: Any, name: str) -> None:
    photograph = getattr(data, name)()
    result = AttentionTest(model, noise=SIGMA, preprocessing=processor)(photograph)
    image = photograph.astype(np.float64)
    assert result.region.shape == image.shape[:2]
    assert np.array_equal(result.region, region_at(model, processor, image))
    assert result.status == "converged"
    assert result.naive_pvalue < 1e-10  # a plain z-test finds everything significant on a photograph
    assert 0 < result.pvalue <= 1
    planes = image if image.ndim == 3 else image[:, :, None]
    region = result.region[:, :, None]
    eta = np.where(region, 1 / region.sum(), -1 / (~region).sum()) / planes.shape[2] * np.ones_like(planes)
    length = np.sqrt((eta**2).sum())
    assert result.statistic == pytest.approx((eta * planes).sum() / (SIGMA * length))
    direction = (SIGMA * eta / length).reshape(image.shape)
    left, right = result.intervals[np.flatnonzero(result.intervals[:, 1] >= result.statistic)[0]]
    step = 1e-3 * (right - left)
    for z, same in (
        (left + step, True),
        (right - step, True),
        ((left + right) / 2, True),
        (left - step, False),
        (right + step, False),
    ):
        moved = region_at(model, processor, image + direction * (z - result.statistic))
        assert np.array_equal(moved, result.region) == same, z


@pytest.fixture(scope="module")
def folder(model: Any, processor: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model and its processor, and a photograph of a cat as an array of 8 bits and of floats."""
    path = tmp_path_factory.mktemp("photographs")
    model.save_pretrained(path / "model")
    processor.save_pretrained(path / "model")
    np.save(path / "cat.npy", data.cat())
    np.save(path / "bright_cat.npy", data.cat() / 255)
    return path


def test_photographs_in_files_through_the_command_line(
    model: Any,
    processor: Any,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    camera, astronaut = data.camera()[::2, ::2], data.astronaut()[::2, ::2]
    Image.fromarray(camera).save("camera.png")
    Image.fromarray(astronaut).save("astronaut.tif")
    Image.fromarray(data.coffee()[::2, ::2]).save("coffee.jpg")
    options = ("--noise", "20", "--model", "model", "--figure", "photographs.png", "--no-interval", "--json")
    done = run_main(capsys, "test", "camera.png", "astronaut.tif", "coffee.jpg", *options)
    assert not done.code, done.err
    results = [json.loads(line) for line in done.out.splitlines()]
    assert len(results) == 3
    test = AttentionTest(model, noise=SIGMA, preprocessing=processor, confidence_level=None)
    for found, photograph in zip(results[:2], (camera, astronaut), strict=True):  # JPEG loses some
        expected = test(photograph)
        assert found["pvalue"] == pytest.approx(expected.pvalue, abs=1e-6)
        assert found["log_pvalue"] == pytest.approx(expected.log_pvalue, rel=1e-2)
        assert found["image_pixels"] == 256 * 256
        assert found["settings"]["model"]["type"] == "vit"
        assert found["settings"]["preprocessing"]["resize"] == [32, 32]
    assert Path("photographs.png").stat().st_size > 10_000


def test_options_of_the_command_line_reach_the_test(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--map", "layer:1", "--heads", "max", "--image-size", "32x48", "--range", "0,1",
               "--channels", "0.3,0.59,0.11", "--noise", "0.08,0.07,0.09", "--rho", "0.2", "--tol", "1e-4"]  # fmt: skip
    monkeypatch.chdir(folder)
    done = run_main(capsys, "test", "bright_cat.npy", "--model", "model", *options, "--no-interval", "--json")
    assert not done.code, done.err
    found = json.loads(done.out)
    assert found["settings"]["model"]["attention"] == {"name": "layer", "layer": 1, "head_fusion": "max"}
    assert found["settings"]["model"]["input"] == [3, 32, 48]
    assert found["settings"]["channels"] == [0.3, 0.59, 0.11]
    assert found["settings"]["noise"]["model"] == "per channel"
    assert found["settings"]["noise"]["spatial"] == {"model": "ar1", "rho": 0.2, "sigma": 1.0}
    assert found["settings"]["preprocessing"]["resize"] == [32, 48]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--map", "gradient"), "--map must be rollout, last-layer, layer:K, pooling"),
        (("--map", "layer:9"), "layer:K must be from -3 to 2"),
        (("--heads", "7"), "--heads = 7, but the model has heads 0 to"),
        (("--heads", "median"), "--heads must be 'mean', 'max', 'min'"),
        (("--image-size", "big"), "--image-size must be a side"),
        (("--range", "1"), "--range must be two numbers"),
        (("--channels", "red"), "--channels must be mean"),
        (("--noise", "loud"), "--noise must be a number"),
        (("--no-preprocessing",), "takes images of height 32, width 32"),
        (("--frame", "3"), "cat.npy"),
        (("--window",), "only a DICOM file has a display window"),
        (("--model", "nobody/there-is-no-such-model", "--offline"), "not among the files downloaded before"),
    ],
)
def test_bad_options_end_in_one_sentence(
    folder: Path,
    options: tuple[str, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    others = {"--noise": "20", "--model": "model"}
    given = [text for name, value in others.items() if name not in options for text in (name, value)]
    done = run_main(capsys, "test", "cat.npy", *given, *options)
    about_the_image = options[0] in ("--no-preprocessing", "--frame", "--window")
    assert done.code == (1 if about_the_image else 2)
    assert message in done.err
    assert done.err.count("\n") == 1
