"""Two maps of one image, compared given both of their regions."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import avg_pool2d
from typer.testing import CliRunner

from attentest import AttentionTest, compare
from attentest.attention import GradCAM
from attentest.cli import app
from attentest.errors import InputError
from attentest.search import SpectralSearch

SHAPE = (1, 6, 6)
IMAGE = np.random.default_rng(3).normal(size=SHAPE[1:])


def pooled(images: torch.Tensor) -> torch.Tensor:
    return torch.tanh(avg_pool2d(images.mean(dim=1), 2))


def turned(images: torch.Tensor) -> torch.Tensor:
    return torch.sin(avg_pool2d(images.mean(dim=1), 2).flip(1)) + 0.3 * pooled(images) ** 2


def pair(**options: Any) -> list[AttentionTest]:
    chosen = {"noise": 1.0, **options}
    return [AttentionTest(function, image_shape=SHAPE, **chosen) for function in (pooled, turned)]


def test_it_is_conditional_on_both_regions() -> None:
    tests = pair()
    comparison = compare(*tests, IMAGE)
    results = [test(IMAGE) for test in tests]
    for result, region, difference in zip(results, comparison.regions, comparison.differences, strict=True):
        assert np.array_equal(result.region, region)
        assert difference == pytest.approx(result.difference, rel=1e-12)
    assert comparison.difference == pytest.approx(comparison.differences[0] - comparison.differences[1], rel=1e-12)
    first, second = (region / region.sum() - ~region / (~region).sum() for region in comparison.regions)
    eta = first - second
    assert comparison.standard_error == pytest.approx(np.linalg.norm(eta), rel=1e-12)
    # Along the line, both regions are the observed ones at points of the set and at no others.
    observed = comparison.statistic
    certain, possible = comparison.truncation_set.certain, comparison.truncation_set.possible
    inside = 0
    for at in observed + np.linspace(-3, 3, 301):
        image = IMAGE + eta / np.linalg.norm(eta) * (at - observed)
        regions = [test.attention_region(image)[1] for test in tests]
        same = all(np.array_equal(*both) for both in zip(regions, comparison.regions, strict=True))
        within = [bool(((at > known[:, 0]) & (at < known[:, 1])).any()) for known in (certain, possible)]
        assert within[0] <= same <= within[1]
        inside += same
    assert 0 < inside < 301
    assert comparison.status == "converged"
    low, high = comparison.pvalue_bounds
    assert low <= comparison.pvalue <= high <= low + 1e-6


@pytest.mark.parametrize("gamma", [0.0, 0.5])
def test_exchanging_the_tests_changes_signs_alone(gamma: float) -> None:
    tests = pair(randomise=gamma)
    one, other = compare(*tests, IMAGE), compare(*tests[::-1], IMAGE)
    assert other.pvalue == pytest.approx(one.pvalue, abs=2e-6)
    assert other.statistic == pytest.approx(-one.statistic, rel=1e-12)
    assert other.confidence_interval().low == pytest.approx(-one.confidence_interval().high, rel=1e-4)


@pytest.mark.parametrize("gamma", [0.0, 0.5])
def test_p_is_uniform_under_the_null(gamma: float) -> None:
    """Of 72 images of noise the share below 0.5 has a standard error of 0.06, that below 0.05 one of 0.026.

    Tests that rejected a quarter of such images would exceed the limit with probability 0.98.
    """
    first, second = pair(confidence_level=None, randomise=gamma, search=SpectralSearch(tol=1e-2))
    rng, pvalues = np.random.default_rng(0), []
    for number in range(72):
        image = rng.normal(size=SHAPE[1:])
        with suppress(InputError):
            pvalues.append(compare(first, second, image, name=number).pvalue)
    assert len(pvalues) > 60
    assert abs(np.mean(np.array(pvalues) < 0.5) - 0.5) < 3 * 0.06
    assert abs(np.mean(np.array(pvalues) < 0.05) - 0.05) < 3 * 0.026


def test_words_numbers_and_figure(tmp_path: Path, saved_tiny_model: Path) -> None:
    image = np.random.default_rng(3).normal(size=(8, 8))
    tests = [
        AttentionTest.from_pretrained(saved_tiny_model, noise=1.0, attention=attention, randomise=1.0)
        for attention in ("rollout", GradCAM(target=0, sign="signed"))
    ]
    comparison = compare(*tests, image)
    text = comparison.verdict()
    assert text.startswith("The regions of the attention map and of the Grad-CAM map for class 0 share ")
    assert f"selective p {comparison.pvalue_text()}" in text
    values = json.loads(json.dumps(comparison.to_dict()))
    assert values["maps"] == ["attention map", "Grad-CAM map for class 0"]
    assert values["settings"]["compared_with"]["target"]["class"] == 0
    assert len(comparison.plot().axes) == 2
    assert "overlap=" in repr(comparison)
    path, figure = tmp_path / "a.npy", tmp_path / "both.png"
    np.save(path, image)
    arguments = ["compare", str(path), "--noise", "1", "--randomise", "1", "--with-map", "last-layer"]
    done = CliRunner().invoke(app, [*arguments, "--model", str(saved_tiny_model), "--figure", str(figure), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["status"] == "converged"
    assert figure.stat().st_size > 1000
    done = CliRunner().invoke(app, arguments[:4])
    assert "nothing says what the other map is" in str(done.exception)


def test_what_cannot_be_compared_is_said() -> None:
    first, second = pair()
    for other, message in (
        (first, "both maps have the same region"),
        (second.replace(randomise=0.5), "randomise 0.0 and 0.5: both must have the same"),
        (second.replace(noise=2.0), "assume different noise"),
        (second.replace(alternative="greater"), "alternative 'two-sided' and 'greater'"),
        (second.replace(noise="poisson"), "randomise"),
    ):
        with pytest.raises(InputError, match=message):
            compare(first, other, IMAGE)
    with pytest.raises(InputError, match="use draws=1"):
        compare(first.replace(randomise=0.5, draws=3), second.replace(randomise=0.5), IMAGE)
