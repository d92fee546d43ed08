"""The search also resolves the ends of a confidence interval, on curves whose truncation set is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from attentest.search import GridSearch, SpectralSearch
from attentest.search.grid import Fixed
from attentest.statistics.truncation_set import union
from toys import curve_problem
from truncated import interval_of, known_set

SEARCH = SpectralSearch()


def exact_interval(z: float, intervals: np.ndarray, level: float = 0.95) -> tuple[float, float]:
    return tuple(interval_of(z, known_set(intervals), level=level))  # type: ignore[return-value]


def between(low: float, high: float):  # type: ignore[no-untyped-def]
    """A margin that is negative between two points alone."""
    return lambda z: (z - low) * (z - high) / (1 + z * z)


CASES = {
    "one interval": (1.7, [between(1.0, 2.5)], [[1.0, 2.5]]),
    "half a line": (2.2, [lambda z: torch.tanh(2.0 - z)], [[2.0, np.inf]]),
    "another part far above": (
        2.2,
        [lambda z: (z - 2) * (z - 2.4) * (25 - z) / (1 + z * z * z * z)],
        [[2, 2.4], [25, np.inf]],
    ),
    "narrow": (3.05, [between(3.0, 3.1)], [[3.0, 3.1]]),
    "far out": (30.5, [between(29.0, 31.0)], [[29.0, 31.0]]),
}


@pytest.mark.parametrize("name", CASES)
def test_both_ends_are_resolved(name: str) -> None:
    z, curves, intervals = CASES[name]
    (outcome,) = SEARCH.find(curve_problem([z], *curves, confidence_level=0.95))
    found, exact = interval_of(z, outcome.truncation_set), exact_interval(z, union(intervals))
    length = exact[1] - exact[0]
    assert tuple(found) == pytest.approx(exact, abs=2e-3 * length)
    assert found.error < 2e-3 * length
    assert found.low <= exact[0] + 1e-9 * length
    assert found.high >= exact[1] - 1e-9 * length
    assert outcome.status == "converged"
    assert outcome.evaluations < 700


def test_without_a_level_only_p_is_resolved_and_the_interval_is_wide_but_holds() -> None:
    z, curves, _ = CASES["another part far above"]
    (p_alone,) = SEARCH.find(curve_problem([z], *curves))
    (both,) = SEARCH.find(curve_problem([z], *curves, confidence_level=0.95))
    wide, narrow = interval_of(z, p_alone.truncation_set), interval_of(z, both.truncation_set)
    assert wide.high > narrow.high + 1
    assert wide.error > 1
    assert wide.low <= narrow.low + 1e-6
    assert p_alone.evaluations < both.evaluations


def test_a_higher_level_than_was_searched_for_still_holds() -> None:
    z, curves, intervals = CASES["another part far above"]
    (outcome,) = SEARCH.find(curve_problem([z], *curves, confidence_level=0.5))
    found, exact = interval_of(z, outcome.truncation_set, level=0.999), exact_interval(z, union(intervals), 0.999)
    assert found.low <= exact[0] + 1e-9
    assert found.high >= exact[1] - 1e-9


def test_images_together_are_as_one_by_one() -> None:
    z_obs = [1.7, 1.2, 2.4]
    together = SEARCH.find(curve_problem(z_obs, between(1.0, 2.5), confidence_level=0.9))
    for z, outcome in zip(z_obs, together, strict=True):
        (alone,) = SEARCH.find(curve_problem([z], between(1.0, 2.5), confidence_level=0.9))
        ends = exact_interval(z, np.array([[1.0, 2.5]]), 0.9)
        for found in (outcome, alone):
            assert tuple(interval_of(z, found.truncation_set, level=0.9)) == pytest.approx(
                ends, abs=2e-3 * (ends[1] - ends[0])
            )


def test_p_is_not_touched_by_the_interval() -> None:
    z, curves, _ = CASES["one interval"]
    (alone,) = SEARCH.find(curve_problem([z], *curves))
    (both,) = SEARCH.find(curve_problem([z], *curves, confidence_level=0.95))
    for ours, theirs in (
        (alone.truncation_set.certain, both.truncation_set.certain),
        (alone.truncation_set.intervals, both.truncation_set.intervals),
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_deciding_goes_no_farther_than_the_decision() -> None:
    problem = dict(alpha=0.05)
    z, curves, _ = CASES["half a line"]
    (with_level,) = SEARCH.find(curve_problem([z], *curves, confidence_level=0.95, **problem))
    (without,) = SEARCH.find(curve_problem([z], *curves, **problem))
    assert with_level.evaluations == without.evaluations
    assert with_level.status == "decided"


def test_a_budget_that_ends_within_the_interval_leaves_p_converged() -> None:
    z, curves, intervals = CASES["another part far above"]
    (p_alone,) = SEARCH.find(curve_problem([z], *curves))
    search = SpectralSearch(max_evaluations=p_alone.evaluations + 24)
    (outcome,) = search.find(curve_problem([z], *curves, confidence_level=0.95))
    assert outcome.status == "converged"
    assert outcome.evaluations <= search.max_evaluations
    exact = exact_interval(z, union(intervals))
    assert interval_of(z, outcome.truncation_set).high >= exact[1] - 1e-9


def test_a_wave_to_the_end_of_the_axis_comes_to_an_end() -> None:
    """Parts of Z without end on both sides: what lies far out is never all known, and need not be."""
    z = 0.3
    (outcome,) = SEARCH.find(curve_problem([z], lambda t: torch.sin(3 * t) - 0.9, confidence_level=0.95))
    (grid,) = GridSearch(step=Fixed(step=5e-3), extent=20).find(
        curve_problem([z], lambda t: torch.sin(3 * t) - 0.9, batch_size=4096)
    )
    ours, theirs = interval_of(z, outcome.truncation_set), interval_of(z, grid.truncation_set)
    assert tuple(ours) == pytest.approx(tuple(theirs), abs=5e-3)
    assert ours.error < 0.01


def test_scores_that_are_noise_far_out_end_in_a_wide_interval() -> None:
    def rough(z: torch.Tensor) -> torch.Tensor:
        return torch.where(z > 8, torch.sin(1e6 * z), z / 8 - 0.5 + 0 * z) - 0.3

    (outcome,) = SpectralSearch(max_evaluations=2000).find(curve_problem([2.0], rough, confidence_level=0.95))
    assert outcome.status == "converged"
    found = interval_of(2.0, outcome.truncation_set)
    assert found.low < 2 < found.high
    assert math.isfinite(found.low)
