"""Confidence intervals of components that all cover together, and those that agree with Holm's decisions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from attentest import AttentionTest
from attentest.errors import InputError
from attentest.pipeline.hypotheses import parts_of
from attentest.presentation.footnotes import row_notes
from attentest.presentation.rows import row_of, rows_of_line
from attentest.results.components import ComponentResults, component_records
from attentest.statistics.alternative import Alternative
from attentest.statistics.inference import (
    Inference,
    bonferroni_intervals,
    confidence_intervals_of,
    holm_intervals,
)
from attentest.statistics.multiple_testing import adjusted_pvalues, level_of_each
from attentest.statistics.pvalue import log_pvalues
from attentest.statistics.selection_laws import RandomisedNormal, TruncatedNormal
from toys import image_of_components, tiny_vit
from truncated import known_set, normal

SETS = [np.array([[-1.0, 2.5]]), np.array([[-4.0, -0.5], [0.2, 5.0]]), np.array([[-8.0, 8.0]])]
MEANS = np.array([0.0, 1.6, -0.4])
TRIALS = 1000
LEVEL = 0.9


def truncated_draws(rng: np.random.Generator, mean: float, ends: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Draw from N(mean, 1) given that it lies in a set, by inverting the distribution function."""
    below, above = stats.norm.cdf(ends - mean).T
    mass = np.cumsum(above - below)
    u = rng.uniform(0, mass[-1], size)
    piece = np.searchsorted(mass, u)
    return mean + stats.norm.ppf(below[piece] + u - np.r_[0.0, mass][piece])


def trials(means: NDArray[np.float64], alternative: Alternative) -> list[list[Inference]]:
    """Regions of three independent components."""
    rng = np.random.default_rng(20)
    columns = [truncated_draws(rng, mean, ends, TRIALS) for mean, ends in zip(means, SETS, strict=True)]
    return [
        [
            Inference(law=normal(t), truncation_set=known_set(ends), alternative=alternative, standard_error=1.0)
            for t, ends in zip(row, SETS, strict=True)
        ]
        for row in zip(*columns, strict=True)
    ]


def share_covered(found: list[Any], means: NDArray[np.float64]) -> float:
    return float(np.mean([all(m in one for m, one in zip(means, each, strict=True)) for each in found]))


@pytest.mark.parametrize("alternative", ["two-sided", "less"])
def test_they_cover_together(alternative: Alternative) -> None:
    """Independent components: together 1 - (1 - 0.1 / 3)^3 miss; 1,000 regions, 4 standard errors."""
    found = bonferroni_intervals(trials(MEANS, alternative), LEVEL)
    expected = (1 - 0.1 / 3) ** 3
    error = 4 * np.sqrt(expected * (1 - expected) / TRIALS)
    assert abs(share_covered(found, MEANS) - expected) < error
    each = [one for some in trials(MEANS, alternative) for one in some]
    alone = bonferroni_intervals([[one] for one in each], LEVEL)
    rows = [[one for (one,) in alone[i : i + 3]] for i in range(0, len(alone), 3)]
    assert share_covered(rows, MEANS) < 0.9 - error  # intervals by themselves do not, so the check can fail


def holm(regions: list[list[Inference]], alpha: float) -> list[list[bool]]:
    every = [one for components in regions for one in components]
    law = TruncatedNormal.concatenated([one.law for one in every])  # type: ignore[misc]
    p = log_pvalues(law, [one.truncation_set for one in every], every[0].alternative).best.reshape(-1, 3)
    return [(adjusted_pvalues(row, "holm") <= alpha).tolist() for row in p]


@pytest.mark.parametrize(
    ("means", "alternative"),
    [(MEANS, "greater"), (-MEANS, "less"), (np.array([1.0, 3.0, 2.5]), "greater"), (np.zeros(3), "less")],
)
def test_one_sided_ones_agree_with_holm_and_cover_together(
    means: NDArray[np.float64], alternative: Alternative
) -> None:
    """1,000 regions; the share of those that are covered together is within 4 standard errors."""
    regions = trials(means, alternative)
    rejected = holm(regions, 1 - LEVEL)
    found = holm_intervals(regions, rejected, LEVEL)
    assert [[0 not in one for one in some] for some in found] == rejected
    assert share_covered(found, means) > LEVEL - 4 * np.sqrt(0.9 * 0.1 / TRIALS)
    assert len({sum(some) for some in rejected}) >= 2  # none, some or all are rejected
    # What is not rejected has a bound at least as tight as Bonferroni's.
    for ours, plain in zip(found, bonferroni_intervals(regions, LEVEL), strict=True):
        for one, other in zip(ours, plain, strict=True):
            assert 0 not in one or (one.low >= other.low and one.high <= other.high)


def test_undecided_counts_as_not_rejected() -> None:
    components = [
        Inference(law=normal(t), truncation_set=known_set(SETS[2]), alternative="greater", standard_error=1.0)
        for t in (4.0, 3.5)
    ]
    all_rejected = holm_intervals([components], [[True, True]], 0.95)[0]
    assert all_rejected == bonferroni_intervals([components], 0.95)[0]
    open_one = holm_intervals([components], [[True, None]], 0.95)[0]
    assert open_one[0].low == np.nextafter(0.0, 1.0)
    assert open_one[1].low > all_rejected[1].low > 0  # of level 0.95 by itself


def test_levels() -> None:
    assert level_of_each(0.95, 1) == 0.95
    assert level_of_each(0.95, 5) == pytest.approx(0.99)
    labels = np.array([[[1, 0, 1], [0, 0, 0], [1, 1, 0]], [[1, 1, 1], [0, 0, 0], [0, 0, 0]]], dtype=bool)
    assert parts_of(labels, 1).siblings().tolist() == [3, 3, 3, 1]
    assert parts_of(labels, None).siblings().tolist() == [1, 1]
    assert [some.siblings().tolist() for some in parts_of(labels, 1).chunks(2)] == [[3, 3], [3, 1]]


@pytest.fixture(scope="module")
def components() -> ComponentResults:
    test = AttentionTest(tiny_vit(), noise=1.0, threshold=0.5, alternative="equal-tailed", randomise=0.5)
    return test.components(image_of_components(test, 3))


def test_components_have_them(components: ComponentResults) -> None:
    count = len(components)
    each = components.confidence_intervals(0.95)
    for one, result in zip(each, components, strict=True):
        alone = result.confidence_interval(level_of_each(0.95, count))
        # Three at once are other matrix products than one at a time: equal up to rounding, which the error magnifies.
        assert (one.low, one.high) == pytest.approx((alone.low, alone.high), rel=1e-13)
        assert one.error == pytest.approx(alone.error, rel=1e-6)
        assert (one.confidence_level, one.together) == (0.95, count)
        assert f"together={count}" in repr(one)
        assert f"one of {count} together" in one._repr_html_()
        # The search went as far as this level needs.
        assert one.error < 2e-3 * result.standard_error
    plain = components.confidence_intervals(0.95, method=None)
    assert all(one.low < other.low and one.high > other.high for one, other in zip(each, plain, strict=True))
    greater = ComponentResults([one.with_alternative("greater") for one in components])
    for level in (0.95, 0.5, 0.2):
        decisions = greater.decisions(1 - level)
        found = greater.confidence_intervals(level, method="holm")
        assert [0 not in one for one in found] == [one is True for one in decisions]
    with pytest.raises(InputError, match="method='holm' is for one-sided alternatives"):
        components.confidence_intervals(method="holm")
    with pytest.raises(InputError, match="the method must be bonferroni, holm or None, got 'sidak'"):
        components.confidence_intervals(method="sidak")  # type: ignore[arg-type]


def test_tables_and_records_have_them(components: ComponentResults) -> None:
    table = components.table()
    each = components.confidence_intervals(0.95)
    assert table["simultaneous_low"] == [one.low for one in each]
    assert table["simultaneous_count"] == [len(each)] * len(each)
    (records,) = component_records([list(components)], 0.95)
    rows = rows_of_line({"image": "x", "results": [record.to_dict() for record in records]})
    assert [row["simultaneous_high"] for row in rows] == table["simultaneous_high"]
    assert [row["component"] for row in rows] == [1, 2, 3]
    assert "simultaneous interval" in components._repr_html_()
    assert f"{each[0].low:.3g} to {each[0].high:.3g}" in components._repr_html_()


@pytest.mark.parametrize(
    ("p", "rejected", "alternative", "expected"),
    [
        (0.03, True, "equal-tailed", "Holm's method rejects a difference of 0, which is in the simultaneous interval"),
        (0.03, False, "equal-tailed", None),
        (0.001, True, "two-sided", "p and the interval disagree about a difference of 0"),
        (0.03, True, "two-sided", "Holm's method rejects"),
    ],
)
def test_notes_where_holm_and_the_interval_differ(
    components: ComponentResults, p: float, rejected: bool, alternative: str, expected: str | None
) -> None:
    (records,) = component_records([list(components)], 0.95)
    row = {**row_of("x", records[0]), "pvalue_low": p, "pvalue_high": p, "alternative": alternative}
    assert row["simultaneous_low"] <= 0 <= row["simultaneous_high"]
    notes = row_notes(row, rejected, 0.05, 0.95, simultaneous=True)
    assert [note[: len(expected or "")] for note in notes] == ([] if expected is None else [expected])
    assert (
        row_notes(row, rejected, 0.05, None, simultaneous=True)
        == row_notes(row, rejected, 0.1, 0.95, simultaneous=True)
        == []
    )


def test_levels_of_each_follow_results_of_several_laws() -> None:
    """Results are grouped by their law to be computed together, and each keeps its own level."""
    soft = RandomisedNormal(statistic=np.array([1.0]), observed_z=np.array([1.2]), gamma=np.array([0.5]))
    mixed = [
        Inference(law=law, truncation_set=known_set(SETS[2]), alternative="two-sided", standard_error=1.0)
        for law in (normal(1.0), soft, normal(1.0), soft)
    ]
    levels = [0.5, 0.6, 0.7, 0.8]
    found = confidence_intervals_of(mixed, levels)
    assert [one.confidence_level for one in found] == levels
    assert found == [confidence_intervals_of([one], level)[0] for one, level in zip(mixed, levels, strict=True)]
