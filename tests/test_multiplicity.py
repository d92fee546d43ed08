from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint

from attentest import InputError
from attentest.statistics.multiplicity import adjusted_pvalues, rate_of


@pytest.mark.parametrize("count", [1, 2, 7, 30])
def test_adjustments_are_those_of_statsmodels(count: int) -> None:
    pvalues = np.random.default_rng(count).choice([1e-12, 1e-3, 0.02, 0.03, 0.049, 0.2, 0.7, 1.0], size=count)
    for ours, theirs in (("holm", "holm"), ("bh", "fdr_bh")):
        expected = multipletests(pvalues, method=theirs)[1]
        np.testing.assert_allclose(adjusted_pvalues(np.log(pvalues), ours), expected, rtol=1e-10)  # type: ignore[arg-type]


def test_tiny_pvalues_stay_positive() -> None:
    adjusted = adjusted_pvalues(np.array([-2000.0, -800.0, -1.0]), "holm")
    assert (adjusted > 0).all()
    assert adjusted[2] == pytest.approx(np.exp(-1))


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
    with pytest.raises(InputError, match="one of holm, bh, got 'bonferroni'"):
        adjusted_pvalues(np.zeros(2), "bonferroni")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="a rate needs at least one result"):
        rate_of(np.empty(0, dtype=bool))
    with pytest.raises(InputError, match="confidence_level must lie strictly between 0 and 1, got 1"):
        rate_of(np.ones(3, dtype=bool), 1.0)
