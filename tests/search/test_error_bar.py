"""Error bars of the spectral search on functions that are made to escape it, against a dense, bisected grid."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from attentest import AttentionTest
from attentest.errors import InputError
from attentest.search import SpectralSearch
from attentest.search.spectral.audit import uniform
from dense_grid import DENSE, GRID_ERROR, assert_in_bar
from hard_scores import curve_with_a_dip, sharp_vit
from toys import curve_problem, negative_set, tiny_vit
from truncated import bounds_on_log_p, log_pvalue


def roots_of(margin: Callable[[Tensor], Tensor], z_obs: float) -> NDArray[np.float64]:
    """The set where a margin is negative, from a grid of step 1e-3 and bisection."""
    grid = np.unique(np.concatenate([np.arange(-14, 14, 1e-3), np.arange(z_obs - 14, z_obs + 14, 1e-3), [z_obs]]))
    return negative_set(margin, grid, np.inf)


def outside_the_bar(seeds: range, least: float, most: float) -> list[int]:
    """Return the seeds of curves whose true p is outside a bar that is called converged."""
    wrong = []
    for seed in seeds:
        z_obs, margin = curve_with_a_dip(seed, least, most)
        if float(margin(torch.tensor([z_obs], dtype=torch.float64))[0]) >= 0:
            continue  # the dip is at z_obs itself
        (outcome,) = SpectralSearch().find(curve_problem([z_obs], margin, exact=True))
        assert outcome.status == "converged"
        assert outcome.audit is not None
        assert outcome.audit.points > 0
        low, high = (
            math.exp(log)
            for log in bounds_on_log_p(z_obs, outcome.truncation_set.certain, outcome.truncation_set.possible)
        )
        if not low - GRID_ERROR <= math.exp(log_pvalue(z_obs, roots_of(margin, z_obs))) <= high + GRID_ERROR:
            wrong.append(seed)
    return wrong


def test_dips_of_the_promised_width_are_found() -> None:
    assert outside_the_bar(range(16), 0.1, 0.3) == []


@pytest.mark.slow
def test_a_thousand_dips() -> None:
    assert outside_the_bar(range(10_000, 11_000), 0.1, 0.3) == []


class DenseSet(NamedTuple):
    """What the dense grid finds."""

    pvalue: float
    intervals: NDArray[np.float64]


ONCE_ESCAPED = {
    273: DenseSet(
        0.3690033366320123,
        np.array(
            [
                [-10.669577226138143, -10.664123952969849],
                [-10.192619858935675, -3.9493748237882658],
                [-3.9181365520666294, -1.277046170737973],
                [-1.0332790200053112, 0.964324267007652],
                [1.0035068212517155, 1.0237456211133458],
                [3.7687630074405405, 3.773016324091639],
            ]
        ),
    ),
    507: DenseSet(
        0.6453849589846176,
        np.array(
            [
                [-0.5530503257090698, 0.14626736007989732],
                [0.2266680393972004, 2.6852955388637767],
                [2.6982533861376847, 2.938824226352968],
                [7.826562144535474, 7.8692927258944945],
                [10.193055731892237, 10.347044049529204],
            ]
        ),
    ),
    155: DenseSet(0.3470745646604648, np.array([[1.433354323555362, 1.4659228708306031]])),
}
"""Of sharp models whose p was once outside its bar."""


def dense_set(seed: int) -> DenseSet:
    """Return what the dense grid finds for a sharp model: 30,000 evaluations."""
    model, image, settings = sharp_vit(seed)
    dense = AttentionTest(model, search=DENSE, confidence_level=None, **settings)(image)
    return DenseSet(dense.pvalue, dense.intervals)


@pytest.mark.parametrize("seed", [24, 243])
def test_a_bar_that_the_search_for_the_interval_widened_is_narrowed_again(seed: int) -> None:
    """There a piece is found to be wrong while the interval is searched for, after p has converged."""
    z_obs, margin = curve_with_a_dip(seed, 0.02, 0.1)
    problem = curve_problem([z_obs], margin, exact=True, confidence_level=0.95)
    for most in (4_000, 150):
        (outcome,) = SpectralSearch(max_evaluations=most).find(problem)
        known = outcome.truncation_set
        low, high = (math.exp(log) for log in bounds_on_log_p(z_obs, known.certain, known.possible))
        assert (outcome.status == "converged") == (high - low <= SpectralSearch().tol * (1 + GRID_ERROR))


def check_sharp_vit(seed: int, precision: str) -> str:
    """Compare a sharp model with the dense grid; return the status of the search."""
    model, image, settings = sharp_vit(seed)
    search = SpectralSearch(tol=1e-6, precision=precision)  # type: ignore[arg-type]
    test = AttentionTest(model, search=search, confidence_level=None, **settings)
    found = test(image)
    if found.status != "converged":
        assert found.pvalue_text(4).endswith(f"({found.status})")
        return found.status
    dense = ONCE_ESCAPED.get(seed) or dense_set(seed)
    assert_in_bar(found, dense.pvalue, dense.intervals, test, (seed, precision))
    return found.status


@pytest.mark.parametrize(("seed", "precision"), [(273, "float64"), (366, "mixed"), (507, "float64"), (155, "mixed")])
def test_sharp_models_that_once_escaped(seed: int, precision: str) -> None:
    """Spikes of width 0.01 and less in saturated attention, seen by no node or by one that was forgotten."""
    check_sharp_vit(seed, precision)


@pytest.mark.slow
@pytest.mark.parametrize("seed", ONCE_ESCAPED)
def test_the_dense_sets_are_those_of_the_grid(seed: int) -> None:
    for known, found in zip(ONCE_ESCAPED[seed], dense_set(seed), strict=True):
        np.testing.assert_allclose(found, known, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float64", "mixed"])
@pytest.mark.parametrize("first", range(0, 500, 50))
def test_five_hundred_sharp_models(first: int, precision: str, at_most: Callable[[int, int], int]) -> None:
    count = at_most(50, 10)
    statuses = [check_sharp_vit(seed, precision) for seed in range(first, first + count)]
    assert statuses.count("converged") >= 0.7 * count


def test_nothing_is_concluded_from_an_unresolved_piece() -> None:
    """A gap of width 0.28 that no node of a wide piece comes near, and flanks that reach it faintly."""

    def margin(z: Tensor) -> Tensor:
        return -1 + 0.1 * torch.sin(z) + 3 * torch.exp(-(((z - 3.2) / 0.1) ** 2) / 2)

    (outcome,) = SpectralSearch().find(curve_problem([0.4], margin, exact=True))
    low, high = (
        math.exp(log) for log in bounds_on_log_p(0.4, outcome.truncation_set.certain, outcome.truncation_set.possible)
    )
    assert outcome.status == "converged"
    assert low <= math.exp(log_pvalue(0.4, roots_of(margin, 0.4))) <= high
    assert high - low <= 1e-6


@pytest.mark.parametrize(
    "margin",
    [
        lambda z: torch.where(z > 1.1, 1.0, -1.0).to(torch.float64),
        lambda z: torch.tanh(1e5 * (z - 1.234)) + 0.2,
        lambda z: torch.floor(7.3 * torch.sin(3 * z)) - 1.5,
    ],
)
def test_scores_that_jump_leave_a_wide_bar(margin: Callable[[Tensor], Tensor]) -> None:
    """There may be any number of places like the one that was seen: the bar says so, the guess is kept."""
    (outcome,) = SpectralSearch(max_evaluations=3000).find(curve_problem([0.1], margin, exact=True))
    assert outcome.status in ("sharp", "max_evaluations")
    assert outcome.evaluations <= 3000
    low, high = (
        math.exp(log) for log in bounds_on_log_p(0.1, outcome.truncation_set.certain, outcome.truncation_set.possible)
    )
    assert high - low > 0.1
    assert low <= math.exp(log_pvalue(0.1, roots_of(margin, 0.1))) <= high


def test_the_audit_finds_what_the_interpolation_missed() -> None:
    """A spike far narrower than is promised: where an audit point falls on it, p is mended."""
    contradicted = 0
    for z_obs in np.linspace(0.2, 0.3, 30)[::3]:
        place = z_obs + 0.3 + 7 * (z_obs - 0.2)

        def margin(z: Tensor, place: float = place) -> Tensor:
            return -1 + 3 * torch.exp(-(((z - place) / 0.01) ** 2) / 2)

        (outcome,) = SpectralSearch(strict=True).find(curve_problem([z_obs], margin, exact=True))
        assert outcome.audit is not None
        if outcome.audit.contradictions:
            contradicted += 1
            low, high = (
                math.exp(log)
                for log in bounds_on_log_p(z_obs, outcome.truncation_set.certain, outcome.truncation_set.possible)
            )
            assert low <= math.exp(log_pvalue(z_obs, roots_of(margin, z_obs))) <= high
    assert contradicted > 0


def test_a_strict_search_finds_narrower_dips() -> None:
    narrow = range(300, 316)
    strict = [seed for seed in narrow if _misses(seed, SpectralSearch(strict=True))]
    assert strict == []
    with pytest.raises(InputError, match="strict must be True or False"):
        SpectralSearch(strict=1)  # type: ignore[arg-type]
    assert SpectralSearch(strict=True).describe()["strict"] is True


def _misses(seed: int, search: SpectralSearch) -> bool:
    z_obs, margin = curve_with_a_dip(seed, 0.05, 0.1)
    if float(margin(torch.tensor([z_obs], dtype=torch.float64))[0]) >= 0:
        return False
    (outcome,) = search.find(curve_problem([z_obs], margin, exact=True))
    low, high = (
        math.exp(log) for log in bounds_on_log_p(z_obs, outcome.truncation_set.certain, outcome.truncation_set.possible)
    )
    return not low - GRID_ERROR <= math.exp(log_pvalue(z_obs, roots_of(margin, z_obs))) <= high + GRID_ERROR


def test_a_batch_agrees_with_single_images_to_the_tolerance() -> None:
    images = np.random.default_rng(3).normal(size=(3, 8, 8))
    test = AttentionTest(tiny_vit(), noise=1.0, search=SpectralSearch(tol=1e-4), confidence_level=None)
    for image, together in zip(images, test.map(images), strict=True):
        alone = test(image)
        assert abs(alone.pvalue - together.pvalue) <= 1e-4
        assert alone.audit is not None
        assert together.audit is not None
        assert alone.to_dict()["audit"] == {"points": alone.audit.points, "contradictions": alone.audit.contradictions}


def test_rough_scores_that_overflow_are_replaced_by_exact_ones() -> None:
    """Sharp weights and the minimum over heads leave zero divided by zero in float32."""

    def rough(image: Tensor, z: Tensor) -> Tensor:
        return torch.where(z.abs() < 1, torch.nan, torch.sin(z)).reshape(-1, 1, 1)

    problem = curve_problem([0.3], lambda z: torch.sin(z) - 0.9, exact=True, rough_scores=rough, rough_is_faster=True)
    (outcome,) = SpectralSearch(precision="mixed").find(problem)
    (exact,) = SpectralSearch(precision="float64").find(problem)
    assert outcome.status == exact.status == "converged"
    np.testing.assert_allclose(outcome.truncation_set.intervals, exact.truncation_set.intervals, atol=1e-6)


def test_rough_noise_away_from_z_obs_is_noticed() -> None:
    """Noise of 1e-2 that is zero at z_obs, where it was measured before."""

    def margin(z: Tensor) -> Tensor:
        return torch.cos(2 * z) - 0.2

    def rough(image: Tensor, z: Tensor) -> Tensor:
        noise = 1e-2 * torch.sin(1e6 * z) * (z - 1.2).abs().clamp(max=1)
        return (margin(z) + noise).reshape(-1, 1, 1)

    problem = curve_problem([1.2], margin, exact=True, rough_scores=rough, rough_is_faster=True)
    (outcome,) = SpectralSearch(precision="mixed").find(problem)
    low, high = (
        math.exp(log) for log in bounds_on_log_p(1.2, outcome.truncation_set.certain, outcome.truncation_set.possible)
    )
    assert low <= math.exp(log_pvalue(1.2, roots_of(margin, 1.2))) <= high


def test_random_places_are_uniform_and_repeatable() -> None:
    seeds = np.arange(4000, dtype=np.uint64)
    drawn = uniform(seeds, np.linspace(-3, 3, 4000), np.full(4000, 7))
    np.testing.assert_array_equal(drawn[10:20], uniform(seeds[10:20], np.linspace(-3, 3, 4000)[10:20], np.full(10, 7)))
    assert drawn.min() >= 0
    assert drawn.max() < 1
    assert abs(drawn.mean() - 0.5) < 0.02
    assert np.abs(np.histogram(drawn, 10, (0, 1))[0] - 400).max() < 100
