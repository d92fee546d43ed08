"""End to end on real photographs, grey and colour, of their own sizes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn.functional import interpolate
from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessorPil

from attentest import AttentionTest
from attentest.attention import ViTScores
from attentest.images.preprocessing import Preprocessing
from families import tiny

data = pytest.importorskip("skimage.data")

SIGMA = 20.0


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny(ViTForImageClassification, ViTConfig, image_size=32, patch_size=4, num_labels=2)


@pytest.fixture(scope="module")
def processor() -> ViTImageProcessorPil:
    return ViTImageProcessorPil(size={"height": 32, "width": 32}, image_mean=[0.5] * 3, image_std=[0.25] * 3)


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


def test_photographs_in_files_through_the_command_line(model: Any, processor: Any, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "model")
    processor.save_pretrained(tmp_path / "model")
    Image.fromarray(data.camera()).save(tmp_path / "camera.png")
    Image.fromarray(data.astronaut()).save(tmp_path / "astronaut.tif")
    Image.fromarray(data.coffee()).save(tmp_path / "coffee.jpg")
    command = [sys.executable, "-m", "attentest", "test", "camera.png", "astronaut.tif", "coffee.jpg", "--noise", "20",
               "--model", "model", "--figure", "photographs.png", "--json"]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    test = AttentionTest(model, noise=SIGMA, preprocessing=processor)
    for found, photograph in zip(results[:2], (data.camera(), data.astronaut()), strict=True):  # JPEG loses some
        expected = test(photograph)
        assert found["pvalue"] == pytest.approx(expected.pvalue, abs=1e-6)
        assert found["log_pvalue"] == pytest.approx(expected.log_pvalue, rel=1e-2)
        assert found["image_pixels"] == 512 * 512
        assert found["model"]["type"] == "vit"
        assert found["preprocessing"]["resize"] == [32, 32]
    assert (tmp_path / "photographs.png").stat().st_size > 10_000


def test_options_of_the_command_line_reach_the_test(
    model: Any, processor: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from attentest import cli

    model.save_pretrained(tmp_path / "model")
    processor.save_pretrained(tmp_path / "model")
    np.save(tmp_path / "cat.npy", data.cat() / 255)
    options = ["--attention", "layer:1", "--heads", "max", "--image-size", "32x48", "--range", "0,1",
               "--channels", "0.3,0.59,0.11", "--noise", "0.08,0.07,0.09", "--rho", "0.2", "--tol", "1e-4"]  # fmt: skip
    capsys.readouterr()  # what saving the model printed
    monkeypatch.chdir(tmp_path)
    command = ["attentest", "test", "cat.npy", "--model", "model", *options, "--no-interval", "--json"]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert not stop.value.code
    found = json.loads(capsys.readouterr().out)
    assert found["model"]["attention"] == {"name": "layer", "layer": 1, "head_fusion": "max"}
    assert found["model"]["input"] == [3, 32, 48]
    assert found["channels"] == [0.3, 0.59, 0.11]
    assert found["noise"]["model"] == "per channel"
    assert found["noise"]["spatial"] == {"model": "ar1", "rho": 0.2, "sigma": 1.0}
    assert found["preprocessing"]["resize"] == [32, 48]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--attention", "gradient"), "--attention must be rollout, last-layer or layer:K"),
        (("--attention", "layer:9"), "layer:K must be from -3 to 2"),
        (("--heads", "7"), "--heads = 7, but the model has heads 0 to"),
        (("--heads", "median"), "--heads must be 'mean', 'max', 'min'"),
        (("--image-size", "big"), "--image-size must be a side such as 224"),
        (("--range", "1"), "--range must be the values of black and white"),
        (("--channels", "red"), "--channels must be a number"),
        (("--noise", "loud"), "--noise must be a number"),
        (("--no-preprocessing",), "takes images of height 32, width 32"),
        (("--frame", "3"), "cat.npy"),
        (("--window",), "only a DICOM file has a display window"),
        (("--model", "nobody/there-is-no-such-model", "--offline"), "not among the files downloaded before"),
    ],
)
def test_bad_options_end_in_one_sentence(
    model: Any, processor: Any, tmp_path: Path, options: tuple[str, ...], message: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    from attentest import cli

    model.save_pretrained(tmp_path / "model")
    processor.save_pretrained(tmp_path / "model")
    np.save(tmp_path / "cat.npy", data.cat())
    monkeypatch.chdir(tmp_path)
    arguments = ["test", "cat.npy", "--noise", "20", "--model", "model", *options]
    monkeypatch.setattr(sys, "argv", ["attentest", *arguments])
    capsys.readouterr()  # what saving the model printed
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
