"""The spectral search against a dense float64 grid: step 1e-3, 5e-5 near z_obs, boundaries bisected."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attentest import AttentionTest, bundled_model
from attentest.attention import AggregationLike, load_model
from attentest.search import Combination, GridSearch, SpectralSearch
from attentest.simulation.images import null_images, signal_images
from dense_grid import DENSE, assert_in_bar
from hard_scores import MAPS
from toys import tiny_vit

QUICKER = GridSearch(step=Combination(fine=5e-4, coarse=5e-3, near=0.1))
"""A grid that is dense enough for the smooth maps of single tiny models."""

MODELS = ("d8", "d16", "d16small", "d32", "d64")


def compare(
    model: torch.nn.Module,
    images: np.ndarray,
    device: str,
    attention: AggregationLike = "rollout",
    grid: GridSearch = DENSE,
) -> dict[str, np.ndarray]:
    """Return |dp| by precision; asserts that every error bar contains the dense p, or that the model sides with it."""
    options: dict[str, Any] = {"noise": 1.0, "device": device, "attention": attention, "confidence_level": None}
    dense = AttentionTest(model, search=grid, **options).map(images)
    differences = {}
    for precision in ("float64", "mixed"):
        search = SpectralSearch(tol=1e-6, precision=precision)  # type: ignore[arg-type]
        test = AttentionTest(model, search=search, **options)
        found = test.map(images)
        for index, (ours, theirs) in enumerate(zip(found, dense, strict=True)):
            assert_in_bar(ours, theirs.pvalue, theirs.intervals, test, (precision, index))
        differences[precision] = np.array(
            [abs(ours.pvalue - theirs.pvalue) for ours, theirs in zip(found, dense, strict=True)]
        )
        evaluations = np.mean([result.evaluations for result in found])
        print(
            f"{precision}: {len(images)} images, |dp| max {differences[precision].max():.1e}, "
            f"median {np.median(differences[precision]):.1e}, {evaluations:.1f} evaluations"
        )
    return differences


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 12))])
def test_tiny_models(seed: int) -> None:
    model = tiny_vit(seed=seed)
    images = np.random.default_rng(seed).normal(size=(1, 8, 8))
    for difference in compare(model, images, "cpu", grid=DENSE if seed else QUICKER).values():
        assert difference.max() <= 1e-5


VARIANTS = MAPS[1:8]
"""Maps with kinks where heads take turns, and maps of a single layer."""


@pytest.mark.parametrize(
    ("attention", "count"), [(VARIANTS[4], 1), *(pytest.param(each, 2, marks=pytest.mark.slow) for each in VARIANTS)]
)
def test_kinks_of_tiny_models(attention: AggregationLike, count: int) -> None:
    images = np.random.default_rng(7).normal(size=(count, 8, 8))
    for difference in compare(tiny_vit(seed=7), images, "cpu", attention, DENSE if count > 1 else QUICKER).values():
        assert difference.max() <= 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("attention", VARIANTS)
def test_kinks_of_the_bundled_model(
    attention: AggregationLike, device: str, at_most: Callable[[int, int], int]
) -> None:
    print(f"\n{attention}")
    images = null_images(np.random.default_rng(1007), at_most(50, 2), 16)
    for difference in compare(load_model(bundled_model()).encoder, images, device, attention).values():
        assert difference.max() <= 1e-5


def reference_model(name: str) -> tuple[Path, int]:
    default = Path(__file__).resolve().parents[3] / "shared" / "reference"
    directory = Path(os.environ.get("ATTENTEST_REFERENCE", default)) / name
    if not directory.is_dir():
        return bundled_model(), 16
    return directory, int("".join(letter for letter in name if letter.isdigit()))


@pytest.mark.slow
@pytest.mark.parametrize("signal", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("name", MODELS)
def test_reference_models(name: str, signal: int, device: str, at_most: Callable[[int, int], int]) -> None:
    directory, side = reference_model(name)
    rng = np.random.default_rng(1000 + signal)
    if signal == 0:
        images = null_images(rng, at_most(50, 2), side)
    else:
        images = signal_images(rng, at_most(10, 1), side, float(signal))[0]
    print(f"\n{name}, signal {signal}")
    for difference in compare(load_model(directory).encoder, images, device).values():
        assert difference.max() <= 1e-5
