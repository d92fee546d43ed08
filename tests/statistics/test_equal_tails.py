"""The two-sided p-value with equal tails, twice the smaller one: the p-value that agrees with the interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from attentest import AttentionTest, Results
from attentest.cli.batch import json_lines
from attentest.errors import InputError
from attentest.presentation.footnotes import contradict
from attentest.results.certificate import Certificate
from attentest.search import Fixed, GridSearch, SpectralSearch
from attentest.statistics.alternative import as_alternative
from attentest.statistics.inference import confidence_intervals_of
from attentest.statistics.law import Law
from attentest.statistics.noise_factor import factor_log_pvalues
from attentest.statistics.pvalue import decision, log_pvalues, permutation_test
from attentest.statistics.selection_laws import RandomisedNormal
from attentest.statistics.truncation_set import TruncationSet, union
from toys import SoftmaxScores, curve_problem, tiny_vit
from truncated import bounds_on_log_p, inference, known_set, log_pvalue, normal

EVERYTHING = np.array([[-np.inf, np.inf]])


def randomised(t: float, z: float, gamma: float) -> RandomisedNormal:
    return RandomisedNormal(statistic=np.array([t]), observed_z=np.array([z]), gamma=np.array([gamma]))


def pvalue(law: Law, intervals: np.ndarray) -> float:
    return float(np.exp(log_pvalues(law, [known_set(intervals)], "equal-tailed").best[0]))


@pytest.mark.parametrize("z", [0.0, 0.7, -2.3, 9.0, -40.0])
@pytest.mark.parametrize("intervals", [EVERYTHING, [[-50.0, -1.0], [-0.8, 0.8], [1.0, 50.0]], [[-60.0, 60.0]]])
def test_it_is_the_papers_where_the_set_is_symmetric(z: float, intervals: Any) -> None:
    ends = np.array(intervals)
    both = [log_pvalue(z, ends, which) for which in ("equal-tailed", "two-sided")]
    assert both[0] == pytest.approx(both[1], rel=1e-12, abs=1e-12)


def test_closed_forms_where_the_set_is_not() -> None:
    """One interval on one side of zero, where the paper's p-value is one-sided."""
    upper = (stats.norm.sf(1.4) - stats.norm.sf(1.5)) / (stats.norm.sf(1.0) - stats.norm.sf(1.5))
    ends = np.array([[1.0, 1.5]])
    assert np.exp(log_pvalue(1.4, ends, "equal-tailed")) == pytest.approx(2 * upper, rel=1e-12)
    assert np.exp(log_pvalue(1.4, ends, "two-sided")) == pytest.approx(upper, rel=1e-12)
    assert np.exp(log_pvalue(-1.4, -ends[:, ::-1], "equal-tailed")) == pytest.approx(2 * upper, rel=1e-12)
    # Next to the inner end it is the other tail that is small.
    inner = (stats.norm.sf(1.0) - stats.norm.sf(1.01)) / (stats.norm.sf(1.0) - stats.norm.sf(1.5))
    assert np.exp(log_pvalue(1.01, ends, "equal-tailed")) == pytest.approx(2 * inner, rel=1e-11)
    assert log_pvalue(40.0, np.array([[39.0, 41.0]]), "equal-tailed") == pytest.approx(
        np.log(2) + log_pvalue(40.0, np.array([[39.0, 41.0]]), "greater"), rel=1e-12
    )


def random_set(rng: np.random.Generator, z: float) -> np.ndarray:
    """A few intervals, one of which contains z."""
    starts = rng.uniform(-3, 3, 3)
    pieces = np.column_stack([starts, starts + rng.uniform(0.05, 1.5, 3)])
    return union(pieces, [[z - rng.uniform(0.02, 1), z + rng.uniform(0.02, 1)]])


@pytest.mark.parametrize("seed", range(6))
def test_it_agrees_with_quadrature(seed: int) -> None:
    """For hard and for randomised selection, by adaptive integration of the densities."""
    rng = np.random.default_rng(seed)
    z, t, gamma = rng.normal(0, 1.5), rng.normal(), rng.uniform(0.3, 1.5)
    ends = random_set(rng, z)

    def smaller_share(density: Any, at: float, breaks: Sequence[float]) -> float:
        points = sorted({at, *(float(np.clip(end, -12, 12)) for end in breaks)})
        tails = [
            sum(integrate.quad(density, a, b, epsabs=1e-13)[0] for a, b in pairwise(p))
            for p in ([-12.0, *(x for x in points if x < at), at], [at, *(x for x in points if x > at), 12.0])
        ]
        return 2 * min(tails) / sum(tails)

    def hard(x: float) -> float:
        return float(stats.norm.pdf(x)) * float(np.any((ends[:, 0] <= x) & (x <= ends[:, 1])))

    def soft(x: float) -> float:
        inside = stats.norm.cdf((ends[:, 1] - x) / gamma) - stats.norm.cdf((ends[:, 0] - x) / gamma)
        return float(stats.norm.pdf(x) * inside.sum())

    assert pvalue(normal(z), ends) == pytest.approx(smaller_share(hard, z, ends.ravel()), rel=1e-9)
    assert pvalue(randomised(t, z, gamma), ends) == pytest.approx(smaller_share(soft, t, []), rel=1e-7)


numbers = st.floats(-4, 4, allow_nan=False).map(lambda x: round(x, 3))
widths = st.floats(0.01, 3, allow_nan=False).map(lambda x: round(x, 3))


@st.composite
def observed_sets(draw: st.DrawFn) -> tuple[Law, TruncationSet, float]:
    """A law with a set of which a part is certain and more is possible, and a level."""
    z = draw(numbers)
    own = [[z - draw(widths), z + draw(widths)]]
    others = [[start, start + draw(widths)] for start in draw(st.lists(numbers, max_size=3))]
    doubtful = [[start, start + draw(widths)] for start in draw(st.lists(numbers, max_size=2))]
    certain = union(own, others) if others else union(own)
    known = TruncationSet(intervals=certain, certain=certain, possible=union(certain, doubtful))
    law: Law = normal(z) if draw(st.booleans()) else randomised(draw(numbers), z, draw(st.floats(0.2, 2)))
    return law, known, draw(st.floats(0.001, 0.6))


@settings(max_examples=40, deadline=None)
@given(observed_sets())
def test_p_is_below_alpha_exactly_if_the_interval_excludes_zero(drawn: tuple[Law, TruncationSet, float]) -> None:
    """Also where the search left something open: a certain rejection is an interval without zero, and no other."""
    law, known, alpha = drawn
    _, low, high = (float(np.exp(log[0])) for log in log_pvalues(law, [known], "equal-tailed"))
    assume(min(abs(low - alpha), abs(high - alpha)) > 1e-9)  # next to alpha rounding decides
    (interval,) = confidence_intervals_of([inference(law, known)], 1 - alpha)
    rejected = decision(low, high, alpha)
    assert (rejected is True) == (0 not in interval)
    assert not contradict(rejected, (interval.low, interval.high), 1 - alpha, alpha)


@settings(max_examples=40, deadline=None)
@given(observed_sets(), st.lists(st.booleans(), min_size=8, max_size=8))
def test_bounds_contain_the_p_of_every_set_between(drawn: tuple[Law, TruncationSet, float], which: list[bool]) -> None:
    law, known, _ = drawn
    _, low, high = log_pvalues(law, [known], "equal-tailed")
    taken = [part for part, chosen in zip(known.possible, which, strict=False) if chosen]
    p = log_pvalues(law, [known_set(union(known.certain, *taken))], "equal-tailed").best
    assert low[0] - 1e-12 <= p[0] <= high[0] + 1e-12


TINY = SpectralSearch(tol=0.0, rtol=1e-3)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("z", [2.999999, 1.000001, 2.0], ids=["outer", "inner", "between"])
def test_either_tail_is_resolved_relatively(z: float, sign: int) -> None:
    """The set is [1, 3], and farther out [6, 7]; the statistic lies next to one of its ends, or in the middle."""

    def curve(x: torch.Tensor) -> torch.Tensor:
        x = sign * x
        return (x - 1) * (x - 3) * (x - 6) * (x - 7) / (1 + x**2) ** 1.5

    problem = curve_problem([sign * z], curve, alternative="equal-tailed")
    (outcome,) = TINY.find(problem)
    low, high = bounds_on_log_p(
        sign * z, outcome.truncation_set.certain, outcome.truncation_set.possible, "equal-tailed"
    )
    ends = np.sort(sign * np.array([1.0, 3.0, 6.0, 7.0])).reshape(2, 2)
    exact = log_pvalue(sign * z, ends, "equal-tailed")
    assert outcome.status == "converged"
    assert high - low <= np.log1p(1e-3)
    assert low - 1e-6 <= exact <= high + 1e-6


def test_a_decision_stops_early_and_grids_have_bounds() -> None:
    def curve(x: torch.Tensor) -> torch.Tensor:
        return 0.5 - torch.cos(x)

    problem = curve_problem([6.0, -0.3, 0.95], curve, alternative="equal-tailed")
    resolved = SpectralSearch().find(problem)
    decided = SpectralSearch().find(replace(problem, alpha=0.05))
    grids = GridSearch(step=Fixed(step=1e-2)).find(problem)
    for z, one, early, grid in zip(problem.z_obs, resolved, decided, grids, strict=True):
        low, high = np.exp(bounds_on_log_p(z, one.truncation_set.certain, one.truncation_set.possible, "equal-tailed"))
        at_least, at_most = np.exp(
            bounds_on_log_p(z, early.truncation_set.certain, early.truncation_set.possible, "equal-tailed")
        )
        assert decision(low, high, 0.05) is decision(at_least, at_most, 0.05) is not None
        assert early.evaluations <= one.evaluations
        coarse = np.exp(bounds_on_log_p(z, grid.truncation_set.certain, grid.truncation_set.possible, "equal-tailed"))
        assert max(coarse[0], low) <= min(coarse[1], high) + 1e-9


def test_parameters() -> None:
    assert as_alternative("equal-tailed") == "equal-tailed"
    with pytest.raises(InputError, match=r"alternative must be 'two-sided', .* or 'less', got 'both'"):
        AttentionTest(SoftmaxScores(), noise=1.0, alternative="both")  # type: ignore[arg-type]


IMAGES = np.random.default_rng(3).normal(size=(4, 8, 8))


@pytest.fixture(scope="module")
def test_() -> AttentionTest:
    return AttentionTest(tiny_vit(), noise=1.0, alternative="equal-tailed")


@pytest.fixture(scope="module")
def results(test_: AttentionTest) -> Results:
    return test_.map(IMAGES)


@pytest.fixture(scope="module")
def papers() -> Results:
    return AttentionTest(tiny_vit(), noise=1.0).map(IMAGES)


def test_a_test_from_end_to_end(test_: AttentionTest, results: Results, papers: Results) -> None:
    assert "alternative='equal-tailed'" in repr(test_)
    assert test_.settings["alternative"] == "equal-tailed"
    for result, paper in zip(results, papers, strict=True):
        assert result.alternative == "equal-tailed"
        upper, lower = (result.with_alternative(side).pvalue for side in ("greater", "less"))
        assert result.pvalue == pytest.approx(min(1.0, 2 * min(upper, lower)), abs=2e-6)
        again = paper.with_alternative("equal-tailed")
        assert again.pvalue == pytest.approx(result.pvalue, abs=1e-4)
        assert again.settings["alternative"] == "equal-tailed"
        assert again.with_alternative("less").settings["alternative"] == "less"
        for alpha in (0.02, 0.3, 0.6):
            rejected = result.reject_at(alpha)
            assert (rejected is True) == (0 not in result.confidence_interval(1 - alpha))
        assert np.exp(factor_log_pvalues(result, [1.0]).best[0]) == pytest.approx(result.pvalue, rel=1e-9)
        assert result.naive_pvalue == paper.naive_pvalue
    assert results.table()["alternative"] == ["equal-tailed"] * len(IMAGES)
    assert papers.table()["alternative"] == ["two-sided"] * len(IMAGES)


def test_the_verdict_says_which_tail_is_counted(results: Results) -> None:
    for result in results:
        upper = result.with_alternative("greater").pvalue < 0.5
        text = result.verdict()
        end = "as high as this one or higher" if upper else "as low as this one or lower"
        assert f"{100 * result.pvalue / 2:.3g}% show one {end}; p is twice this share" in text


def test_json_and_notebooks_say_where_p_and_interval_disagree(papers: Results) -> None:
    """A p-value of 0.04 beside an interval that contains 0; with equal tails there is no such note."""
    result = next(one for one in papers if 0 in one.confidence_interval())
    bound = float(np.log(0.04))
    significant = replace(result, log_pvalue=bound, log_pvalue_bounds=(bound, bound))
    for alternative, said in (("two-sided", True), ("equal-tailed", False)):
        settings_now = {**result.settings, "alternative": alternative}
        changed = replace(significant, alternative=alternative, settings=settings_now)  # type: ignore[arg-type]
        (line,) = json_lines({"image": "x", "results": [changed.to_dict()]}, 0.05)
        assert any("the equal-tailed p agrees" in note for note in line["footnotes"]) is said
        assert ("p and the interval disagree" in changed._repr_html_()) is said
        assert json_lines({"image": "x", "results": [changed.to_dict()]}, 0.1)[0]["footnotes"] == []  # another level


def test_null_pvalues_are_uniform() -> None:
    """300 images of noise on the 2 x 2 toy: a uniform sample fails the Kolmogorov-Smirnov test with chance 1e-3."""
    drawn = np.random.default_rng(8).normal(size=(300, 2, 2))
    found = AttentionTest(SoftmaxScores(), noise=1.0, alternative="equal-tailed", confidence_level=None).map(drawn)
    assert stats.kstest(found.pvalues, "uniform").pvalue > 1e-3
    # 0.05 +- 3.3 standard deviations of a share of 300
    assert abs(np.mean(found.pvalues <= 0.05) - 0.05) < 3.3 * np.sqrt(0.05 * 0.95 / 300)


def certificate(observed: float, statistics: Any, bounds: tuple[float, float]) -> Certificate:
    return Certificate(
        observed=observed,
        statistics=np.asarray(statistics, dtype=np.float64),
        alternative="equal-tailed",
        pvalue_bounds=bounds,
        moved=1.0,
        steps=6,
        seed=None,
        evaluations=1,
    )


def test_a_certificate_doubles_the_smaller_of_two_pvalues() -> None:
    draws = np.arange(99.0)
    found = certificate(97.5, draws, (0.02, 0.03))
    assert (found.extreme, found.pvalue) == (1, 2 * 2 / 100)
    assert "1 of 99 draws lie in the smaller tail: certified p = 0.04" in found.summary()
    assert certificate(0.5, draws, (0.02, 0.03)).pvalue == 0.04
    assert certificate(49.0, draws, (0.9, 1.0)).pvalue == 1.0
    assert certificate(98.0, draws, (0.0, 0.1)).pvalue == 2 * 2 / 100  # a tie counts in both tails
    assert found.agrees
    assert certificate(0.5, draws, (0.02, 0.03)).agrees  # the smaller tail is the inner one
    assert not certificate(50.0, draws, (0.02, 0.03)).agrees
    assert not found.compared_with("equal-tailed", (0.5, 1.0)).agrees


def test_certified_pvalues_are_valid() -> None:
    """Exchangeable draws, ties among them: P(p <= a) <= a for every a, up to 4 standard deviations of 5,000 trials."""
    rng = np.random.default_rng(0)
    for values in (rng.normal(size=(5_000, 20)), rng.integers(0, 6, size=(5_000, 20)).astype(float)):
        found = np.array([certificate(row[0], row[1:], (0.0, 1.0)).pvalue for row in values])
        for alpha in (0.1, 0.2, 0.5, 0.9):
            assert np.mean(found <= alpha) <= alpha + 4 * np.sqrt(alpha * (1 - alpha) / 5_000)


def test_a_permutation_test_doubles_the_smaller_tail() -> None:
    image = np.random.default_rng(1).normal(size=(1, 4, 4))

    def p(alternative: Any) -> Any:
        def corner(images: np.ndarray) -> np.ndarray:
            return images[:, 0, 0, 0] - images[:, 0].mean(axis=(1, 2))

        return permutation_test(image, corner, 200, 50, np.random.default_rng(0), alternative)

    for name in ("pvalue", "count_pvalue"):
        upper, lower = (getattr(p(side), name) for side in ("greater", "less"))
        assert getattr(p("equal-tailed"), name) == min(1.0, 2 * min(upper, lower))
