"""How a model will be searched and what that costs: in words, as JSON, and compared with tests."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from attentest import AttentionTest, bundled_model
from attentest.attention import CAM, GradCAM, TorchScores
from attentest.errors import InputError
from attentest.pipeline.model_check import ModelCheck
from command_line import run_main


def cnn() -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
        return nn.Sequential(*layers)


def test_a_transformer_is_smooth() -> None:
    shares: list[float] = []
    test = AttentionTest.from_pretrained(bundled_model(8), noise=2.0, randomise=0.5)
    checked = test.check(lambda share, _: shares.append(share))
    assert shares == sorted(shares)
    assert (checked.kind, checked.kinks, checked.search) == ("smooth", 0.0, "spectral")
    assert checked.image_shape == (1, 8, 8)
    assert checked.maps[:3] == ("rollout", "last-layer", "layer:K")
    assert "grad-cam" in checked.maps  # for the classes that it was trained to tell apart
    assert not {"cam", "pooling", "segmentation", "text"} & {*checked.maps}
    assert checked.weights is not None
    assert checked.weight_bytes == 8 * checked.weights
    assert checked.status == "converged"
    assert checked.evaluations == checked.tested_evaluations
    assert "as narrow as is asked for" in checked.advice
    assert "standard deviation" not in str(checked)  # there are no kinks to count
    assert "ModelCheck" in checked._repr_html_()


def counted_kinks(test: AttentionTest) -> float:
    """Kinks per standard deviation along the lines of three images of noise, from changes of sign of the units."""
    rng, count = np.random.default_rng(0), 0
    for _ in range(3):
        image = rng.normal(size=(12, 12))
        region = test.attention_region(image)[1]
        eta = np.where(region, 1 / region.sum(), -1 / (~region).sum())
        eta /= np.linalg.norm(eta)
        line = image + (np.linspace(-2.5, 2.5, 2001)[:, None, None] - (eta * image).sum()) * eta
        signs = cnn().double()[0](torch.from_numpy(line).unsqueeze(1)).detach().flatten(1) > 0
        count += int((signs[1:] != signs[:-1]).sum())
    return count / 15


def test_kinks_of_a_network_are_counted() -> None:
    test = AttentionTest(cnn(), image_shape=(1, 12, 12), noise=1.0, attention=CAM(1, sign="signed"))
    checked = test.check()
    assert (checked.kind, checked.search, checked.classes) == ("linear in pieces", "piecewise", 3)
    assert checked.maps == ("grad-cam", "hires-cam", "cam", "input-gradient", "integrated-gradients")
    image = np.random.default_rng(9).normal(size=(12, 12))
    # Nine places and 8 kinks from each: a quarter is two standard deviations of such a count.
    assert checked.kinks == pytest.approx(counted_kinks(test), rel=0.25)
    assert checked.grid_shape == (12, 12)
    assert checked.evaluations is not None
    assert 0.4 < checked.evaluations / test.replace(confidence_level=None)(image).evaluations < 2.5
    assert re.search(r"along a line +linear in pieces, [0-9.]+ kinks per standard deviation of z", str(checked))


class Steps(nn.Module):
    """A map with steps, of which no derivative tells."""

    def forward(self, images: Tensor) -> Tensor:
        return images.mean(dim=1) + torch.round(3 * images.mean(dim=(1, 2, 3), keepdim=True))[:, 0] * images[:, 0]


def test_a_mask_is_used_in_the_size_of_the_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    half, pixel = np.zeros((24, 6), dtype=bool), np.zeros((36, 36), dtype=bool)
    half[:, :3], pixel[35, 35] = True, True
    test = AttentionTest(cnn(), image_shape=(1, 12, 12), noise=1.0, attention=CAM(1, sign="signed"), mask={"a": half})
    checked = test.check()
    assert checked.status == "converged"
    within = np.zeros((12, 12), dtype=bool)
    within[:, :6] = True
    same = test.replace(mask=within, mask_use="both").check()
    assert (same.tested_evaluations, same.bar) == (checked.tested_evaluations, checked.bar)
    assert test.replace(mask=None).check().tested_evaluations != checked.tested_evaluations
    assert "None of the images of noise has a region" in test.replace(mask=pixel).check().advice  # one pixel of 12 x 12
    with pytest.raises(InputError, match="a mask must have the pixels of the image"):
        test.replace(mask=np.ones(5)).check()
    np.save(tmp_path / "pixel.npy", pixel)
    done = run_main(capsys, "check", "base8", "--level", "0.01", "--mask", str(tmp_path), "--mask-use", "map", "--json")
    assert json.loads(done.out)["status"] is None, done.err
    assert run_main(capsys, "check", "base8", "--level", "0.1", "--threshold", "0.5").code == 2


def test_what_is_neither_is_said_and_certified() -> None:
    checked = AttentionTest(TorchScores(Steps(), (1, 6, 6)), noise=1.0).check()
    assert (checked.kind, checked.kinks, checked.reasons) == ("neither", None, ("round",))
    assert "--certify" in checked.advice
    assert checked.weights is None
    assert "(round)" in str(checked)


def test_an_image_without_a_region_and_another_search_are_said() -> None:
    model = cnn()
    nn.init.constant_(model[-1].weight, -1.0)  # type: ignore[arg-type]
    test = AttentionTest(model, image_shape=(1, 12, 12), noise=1.0, attention=GradCAM("1", target=0))
    checked = test.check()
    assert checked.status is None
    assert checked.seconds is None
    assert "None of the images of noise has a region" in checked.advice
    with pytest.raises(InputError, match="a check is of the searches spectral and piecewise, got search fixed"):
        test.replace(search="fixed").check()


def test_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    done = run_main(capsys, "check", "base8", "--map", "grad-cam", "--class", "0", "--tol", "0.1", "--json")
    assert done.code == 0, done.err
    record: dict[str, Any] = json.loads(done.out)
    assert {*record} == {*ModelCheck.__dataclass_fields__}
    assert record["attention"].startswith("grad-cam: layer -1, target 0")
    assert record["kind"] == "smooth"
    done = run_main(capsys, "check", "base8", "--tol", "0.1")
    assert "maps it can give  rollout, last-layer" in done.out
    assert max(map(len, done.out.splitlines())) <= 100
    assert run_main(capsys, "check", "no/such/model").code == 2
    assert run_main(capsys, "check", "base8", "--tol", "2").code == 2
