"""Closed testing: how many hypotheses are false at least."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from attentest.statistics.multiple_testing import Dependence, adjusted_pvalues, global_pvalues, least_differing


def literal_bound(p: np.ndarray, chosen: tuple[int, ...], alpha: float, dependence: Dependence) -> int:
    """The definition: every intersection is tested, and one is rejected if all that contain it are."""
    every = range(len(p))

    def rejects(several: tuple[int, ...]) -> bool:
        ranks = np.arange(1, len(several) + 1)
        factor = len(several) * (np.sum(1 / ranks) if dependence == "any" else 1)
        return bool(np.any(np.sort(p[list(several)]) <= ranks * alpha / factor))

    sets = [several for size in range(1, len(p) + 1) for several in combinations(every, size)]
    local = {several: rejects(several) for several in sets}
    closed = {several: all(local[other] for other in sets if set(several) <= set(other)) for several in sets}
    kept = [len(several) for several in sets if set(several) <= set(chosen) and not closed[several]]
    return len(chosen) - max(kept, default=0)


@pytest.mark.parametrize("dependence", ["positive", "any"])
def test_bounds_are_those_of_all_intersections(dependence: Dependence) -> None:
    rng = np.random.default_rng(0)
    for power in (1.0, 3.0, 8.0, 40.0):
        p = rng.uniform(size=6) ** power
        for chosen in ((0, 1, 2, 3, 4, 5), (0, 3), (1, 2, 5), (4,)):
            mask = np.isin(np.arange(6), chosen)
            expected = literal_bound(p, chosen, 0.1, dependence)
            assert least_differing(np.log(p), mask, 0.1, dependence) == expected


def test_the_bound_is_not_above_the_truth_too_often_and_counts_more_than_holm() -> None:
    rng, above, bounds, holm = np.random.default_rng(1), 0, 0, 0
    for _ in range(400):
        statistic = rng.normal(size=20) + np.repeat([0.0, 2.5], 10)
        logs = np.log(stats.norm.sf(statistic))
        bound = least_differing(logs, np.ones(20, dtype=bool), 0.05, "positive")
        nulls = least_differing(logs, np.arange(20) < 10, 0.05, "positive")
        above, bounds = above + (bound > 10 or nulls > 0), bounds + bound
        holm += int(np.sum(adjusted_pvalues(logs, "holm") <= 0.05))
    assert above <= 31  # 20 expected at most, and a Monte-Carlo error of 4.4
    assert bounds > holm


def test_an_empty_choice_has_none_and_tiny_p_are_all() -> None:
    logs = np.full(5, -800.0)
    assert least_differing(logs, np.zeros(5, dtype=bool), 0.05, "any") == 0
    assert least_differing(logs, np.ones(5, dtype=bool), 0.05, "any") == 5


def test_global_p_values_are_those_of_scipy_and_of_the_definition() -> None:
    p = np.array([0.01, 0.2, 0.04, 0.9])
    found = global_pvalues(np.log(p))
    assert found["fisher"] == pytest.approx(stats.combine_pvalues(p).pvalue)
    assert found["simes"] == pytest.approx(0.04)
    assert found["hommel"] == pytest.approx(0.04 * (1 + 1 / 2 + 1 / 3 + 1 / 4))
    assert all(value > 0 for value in global_pvalues(np.full(3, -1e5)).values())
