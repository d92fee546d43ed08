from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import get_args

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint

from attentest.errors import InputError
from attentest.statistics.multiple_testing import Adjustment, adjusted_pvalues, rate_of


@pytest.mark.parametrize("count", [1, 2, 7, 30])
def test_adjustments_are_those_of_statsmodels(count: int) -> None:
    pvalues = np.random.default_rng(count).choice([1e-12, 1e-3, 0.02, 0.03, 0.049, 0.2, 0.7, 1.0], size=count)
    for ours, theirs in (("holm", "holm"), ("bh", "fdr_bh"), ("by", "fdr_by")):
        expected = multipletests(pvalues, method=theirs)[1]
        np.testing.assert_allclose(adjusted_pvalues(np.log(pvalues), ours), expected, rtol=1e-10)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["bh", "by"])
@pytest.mark.parametrize("count", [1, 2, 9, 200])
def test_false_discovery_rates_are_those_of_scipy(method: str, count: int) -> None:
    pvalues = np.random.default_rng(count).beta(0.3, 1.0, size=count)
    expected = stats.false_discovery_control(pvalues, method=method)
    np.testing.assert_allclose(adjusted_pvalues(np.log(pvalues), method), expected, rtol=1e-12)  # type: ignore[arg-type]


def rejected(pvalues: Sequence[float], alpha: float, method: str) -> list[bool]:
    """The procedures as they are defined: how many hypotheses are rejected, and so which."""
    ordered, m = sorted(pvalues), len(pvalues)
    if method == "holm":
        kept = [rank for rank, p in enumerate(ordered) if p > alpha / (m - rank)]
        count = kept[0] if kept else m
    else:
        factor = sum(1 / rank for rank in range(1, m + 1)) if method == "by" else 1
        count = max((rank for rank, p in enumerate(ordered, start=1) if p <= rank * alpha / m / factor), default=0)
    return [count > 0 and p <= ordered[count - 1] for p in pvalues]


@pytest.mark.parametrize("method", get_args(Adjustment))
def test_an_adjusted_pvalue_is_the_least_level_of_rejection_in_every_order(method: Adjustment) -> None:
    for values in ((0.001, 0.004, 0.011, 0.012, 0.3), (0.02, 0.02, 0.021, 0.9, 1.0)):
        for pvalues in set(permutations(values)):
            adjusted = adjusted_pvalues(np.log(pvalues), method)
            for own, p in enumerate(adjusted):
                assert p == 1 or rejected(pvalues, p * (1 + 1e-9), method)[own]
                assert not rejected(pvalues, p * (1 - 1e-9), method)[own]


@pytest.mark.parametrize("method", get_args(Adjustment))
def test_adjusted_pvalues_increase_with_every_pvalue(method: Adjustment) -> None:
    """So bounds of p-values give bounds of adjusted ones."""
    rng = np.random.default_rng(5)
    for _ in range(200):
        logs = np.log(rng.beta(0.3, 1.0, size=6))
        more = np.minimum(logs + rng.exponential(size=6) * rng.integers(0, 2, size=6), 0)
        assert (adjusted_pvalues(more, method) >= adjusted_pvalues(logs, method)).all()


@pytest.mark.parametrize("method", get_args(Adjustment))
def test_tiny_pvalues_are_adjusted_as_logs_and_stay_positive(method: Adjustment) -> None:
    adjusted = adjusted_pvalues(np.array([-2000.0, -800.0, -1.0, -700.0]), method)
    assert (adjusted > 0).all()
    assert adjusted[0] == adjusted[1] == np.nextafter(0, 1)  # not three or four times the smallest number
    factor = {"holm": 2, "bh": 4 / 3, "by": 4 / 3 * 25 / 12}[method]
    assert adjusted[3] == pytest.approx(factor * np.exp(-700))


def test_no_pvalues_are_no_adjusted_ones() -> None:
    assert [len(adjusted_pvalues(np.empty(0), method)) for method in get_args(Adjustment)] == [0, 0, 0]


def test_yekutieli_keeps_the_false_discovery_rate_where_hochberg_does_not() -> None:
    """Two true hypotheses whose uniform p-values depend on each other as badly as possible at level 0.2."""
    first = (np.arange(10_000) + 0.5) / 10_000
    # Small together only where both are between 0.1 and 0.2, and otherwise one at a time.
    second = np.select([first <= 0.1, first <= 0.2, first <= 0.3], [first + 0.2, first, first - 0.2], first)
    np.testing.assert_allclose(np.sort(second), first)
    rates = {
        method: np.mean([(adjusted_pvalues(row, method) <= 0.2).any() for row in np.log([first, second]).T])
        for method in get_args(Adjustment)
    }
    assert rates == pytest.approx({"bh": 0.3, "by": 1 / 6, "holm": 0.2}, abs=1e-3)


def test_holm_keeps_the_probability_of_any_false_rejection() -> None:
    """Four dependent true hypotheses and one false; 20,000 runs, standard error 0.0015."""
    rng = np.random.default_rng(0)
    common = rng.normal(size=(20_000, 1))
    z = 0.7 * common + np.sqrt(1 - 0.49) * rng.normal(size=(20_000, 5))
    z[:, 4] += 3
    logs = np.log(2) + stats.norm.logsf(np.abs(z))
    false = np.array([(adjusted_pvalues(row, "holm")[:4] <= 0.05).any() for row in logs])
    assert false.mean() < 0.05 + 3 * 0.0015
    assert false.mean() > 0.02


@pytest.mark.parametrize(("count", "total"), [(0, 10), (3, 10), (50, 1000), (10, 10)])
def test_rates_have_wilson_intervals(count: int, total: int) -> None:
    rate = rate_of(np.arange(total) < count, 0.9)
    low, high = proportion_confint(count, total, alpha=0.1, method="wilson")
    assert (rate.low, rate.high) == pytest.approx((low, high), abs=1e-12)
    assert rate.value == count / total
    assert f"({count} of {total})" in str(rate)


def test_bad_input_ends_in_one_sentence() -> None:
    with pytest.raises(InputError, match="one of holm, bh, by, got 'bonferroni'"):
        adjusted_pvalues(np.zeros(2), "bonferroni")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="a rate needs at least one result"):
        rate_of(np.empty(0, dtype=bool))
    with pytest.raises(InputError, match="confidence_level must lie strictly between 0 and 1, got 1"):
        rate_of(np.ones(3, dtype=bool), 1.0)
