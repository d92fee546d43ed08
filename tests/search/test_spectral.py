"""The spectral search on functions whose truncation set is known."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from torch import Tensor

from attentest.errors import InputError, SearchError
from attentest.search import SearchOutcome, SearchProblem, SpectralSearch
from attentest.search.spectral.search import Run
from attentest.statistics.alternative import Alternative
from attentest.statistics.truncation_set import union
from toys import CurveMargins, curve_problem, negative_set
from truncated import bounds_on_log_p, contains, log_pvalue, normal

Curve = Callable[[Tensor], Tensor]

EXACT = SpectralSearch(tol=1e-6)
ROUNDING = 1e-9


def find(search: SpectralSearch, z_obs: float, *curves: Curve) -> SearchOutcome:
    (outcome,) = search.find(curve_problem([z_obs], *curves))
    assert contains(outcome.truncation_set.intervals, z_obs)
    assert np.array_equal(
        union(outcome.truncation_set.certain, outcome.truncation_set.intervals), outcome.truncation_set.intervals
    )
    assert np.array_equal(
        union(outcome.truncation_set.intervals, outcome.truncation_set.possible), outcome.truncation_set.possible
    )
    return outcome


def bar(z_obs: float, outcome: SearchOutcome, alternative: Alternative = "two-sided") -> tuple[float, float]:
    low, high = bounds_on_log_p(z_obs, outcome.truncation_set.certain, outcome.truncation_set.possible, alternative)
    return math.exp(low), math.exp(high)


def roots_of(curve: Curve, reach: float, cells: int) -> np.ndarray:
    """The set where a curve is negative, from a fine grid and bisection."""
    return negative_set(curve, np.linspace(-reach, reach, cells + 1), reach)


def check(z_obs: float, outcome: SearchOutcome, exact: np.ndarray, tolerance: float = 1e-6) -> None:
    """The error bar contains the exact p, is as narrow as asked, and p is as close as that."""
    p = math.exp(log_pvalue(z_obs, exact))
    low, high = bar(z_obs, outcome)
    assert outcome.status == "converged"
    assert low - ROUNDING <= p <= high + ROUNDING
    assert high - low <= tolerance
    assert math.exp(log_pvalue(z_obs, outcome.truncation_set.intervals)) == pytest.approx(p, abs=tolerance)


@pytest.mark.parametrize("z_obs", [0.01, 5.0, -5.0, 50.0, 500.0])
def test_any_size_of_statistic(z_obs: float) -> None:
    band = find(EXACT, z_obs, lambda z: (z - z_obs) ** 2 - 1)
    check(z_obs, band, np.array([[z_obs - 1, z_obs + 1]]))
    waves = find(EXACT, z_obs, lambda z: 0.5 - torch.cos(z - z_obs))
    centres = z_obs + 2 * math.pi * np.arange(-200, 200)
    check(z_obs, waves, np.column_stack([centres - math.pi / 3, centres + math.pi / 3]))


@pytest.mark.parametrize("z_obs", [5.0, 50.0, 500.0])
def test_a_relative_tolerance_resolves_tiny_pvalues(z_obs: float) -> None:
    search = SpectralSearch(tol=0.0, rtol=1e-3)
    outcome = find(search, z_obs, lambda z: torch.tanh(z_obs - 0.3 - z))
    exact = log_pvalue(z_obs, np.array([[z_obs - 0.3, np.inf]]))
    low, high = bounds_on_log_p(z_obs, outcome.truncation_set.certain, outcome.truncation_set.possible)
    assert outcome.status == "converged"
    assert low <= exact + 1e-9 <= high + 2e-9
    assert math.expm1(high - low) <= 1.01e-3
    assert log_pvalue(z_obs, outcome.truncation_set.intervals) == pytest.approx(exact, abs=1e-3)


def test_a_pvalue_too_small_for_a_float_has_a_relative_error_bar() -> None:
    z_obs = 50.0
    outcome = find(SpectralSearch(tol=0.0, rtol=1e-4), z_obs, lambda z: 0.5 - torch.cos(z - z_obs))
    centres = z_obs + 2 * math.pi * np.arange(-20, 20)
    exact = log_pvalue(z_obs, np.column_stack([centres - math.pi / 3, centres + math.pi / 3]))
    low, high = bounds_on_log_p(z_obs, outcome.truncation_set.certain, outcome.truncation_set.possible)
    assert outcome.status == "converged"
    assert exact < -1000
    assert low <= exact + 1e-9 <= high + 2e-9
    assert high - low <= 1e-4


@pytest.mark.parametrize("width", [1e-2, 1e-5, 1e-6])
def test_a_narrow_set_around_z_obs(width: float) -> None:
    z_obs = 2.345
    outcome = find(EXACT, z_obs, lambda z: torch.expm1(z - (z_obs + width / 3)), lambda z: (z_obs - width) - z)
    check(z_obs, outcome, np.array([[z_obs - width, z_obs + width / 3]]))


def test_a_set_as_narrow_as_rounding_admits_it() -> None:
    z_obs, width = 2.345, 1e-9
    outcome = find(EXACT, z_obs, lambda z: z - (z_obs + width / 3), lambda z: (z_obs - width) - z)
    low, high = bar(z_obs, outcome)
    assert low <= 0.25 <= high
    assert high - low < 1e-3
    assert (outcome.status == "precision") == (high - low > 1e-6)


@pytest.mark.parametrize("frequency", [8.0, 16.0])
def test_dozens_of_intervals(frequency: float) -> None:
    def curve(z: Tensor) -> Tensor:
        return 0.3 - torch.cos(frequency * z)

    outcome = find(EXACT, 0.05, curve)
    check(0.05, outcome, roots_of(curve, 14.0, 100_000))
    assert len(outcome.truncation_set.intervals) >= 10


@pytest.mark.parametrize("gap", [1e-3, 1e-6, 1e-9, -1e-9, -1e-6, -1e-3])
def test_roots_that_nearly_touch(gap: float) -> None:
    """The curve comes within ``gap`` of zero at 1.3, or goes beyond it for sqrt(gap) to either side."""
    outcome = find(EXACT, 0.5, lambda z: gap - (z - 1.3) ** 2 / (1 + z**2 / 10))
    if gap < 0:
        exact = np.array([[-np.inf, np.inf]])
    else:
        # gap (1 + z^2 / 10) = (z - 1.3)^2 is a quadratic equation.
        low, high = np.sort(np.roots([1 - gap / 10, -2.6, 1.69 - gap]))
        exact = np.array([[-np.inf, low], [high, np.inf]])
    check(0.5, outcome, exact)


def test_a_root_that_touches() -> None:
    check(0.5, find(EXACT, 0.5, lambda z: -((z - 1.3) ** 2)), np.array([[-np.inf, np.inf]]))


@pytest.mark.parametrize("depth", [1e-3, 1e-12])
def test_plateaus(depth: float) -> None:
    check(1.0, find(EXACT, 1.0, lambda z: -depth + 0 * z), np.array([[-np.inf, np.inf]]))


@pytest.mark.parametrize("steepness", [3.0, 10.0, 100.0, 1e3])
def test_steep_sigmoids(steepness: float) -> None:
    outcome = find(EXACT, 0.5, lambda z: torch.tanh(steepness * (z - 1.234)) + 0.2)
    check(0.5, outcome, np.array([[-np.inf, 1.234 - math.atanh(0.2) / steepness]]))


@pytest.mark.parametrize("kink", [-0.7, 0.2, 1.1])
@pytest.mark.parametrize("height", [-0.9, -0.3, -0.05])
def test_kinks(kink: float, height: float) -> None:
    """As of attention fused by a maximum over heads."""
    z_obs = kink - 0.4 * height
    outcome = find(EXACT, z_obs, lambda z: (z - kink).abs() + height)
    check(z_obs, outcome, np.array([[kink + height, kink - height]]))


@pytest.mark.parametrize("width", [0.3, 0.2, 0.1])
def test_dips_between_the_nodes(width: float) -> None:
    """A dip of this standard deviation, anywhere, is seen."""
    rng = np.random.default_rng(7)
    for _ in range(6):
        z_obs, phase = rng.uniform(-2, 2), rng.uniform(0, 6)
        place = z_obs + rng.choice([-1, 1]) * rng.uniform(4 * width, 3)

        def curve(z: Tensor, place: float = place, phase: float = phase) -> Tensor:
            return -0.3 - 0.1 * torch.sin(z + phase) + 0.8 * torch.exp(-0.5 * ((z - place) / width) ** 2)

        check(z_obs, find(EXACT, z_obs, curve), roots_of(curve, 14.0, 50_000))


def test_narrower_dips_are_seen_with_narrower_pieces() -> None:
    rng = np.random.default_rng(8)
    for _ in range(6):
        place = rng.uniform(0.5, 3)

        def curve(z: Tensor, place: float = place) -> Tensor:
            return -0.3 - 0.1 * torch.sin(z) + 0.8 * torch.exp(-0.5 * ((z - place) / 0.03) ** 2)

        check(0.0, find(SpectralSearch(width=0.8), 0.0, curve), roots_of(curve, 14.0, 200_000))


@settings(max_examples=25, deadline=None)
@given(
    amplitudes=st.lists(st.floats(-1, 1), min_size=3, max_size=3),
    frequencies=st.lists(st.floats(0.1, 4.0), min_size=3, max_size=3),
    phases=st.lists(st.floats(0, 6.28), min_size=3, max_size=3),
    level=st.floats(0.01, 0.5),
    z_obs=st.floats(-4, 4),
    tol=st.sampled_from([1e-3, 1e-5, 1e-7]),
)
def test_random_smooth_functions(
    amplitudes: list[float], frequencies: list[float], phases: list[float], level: float, z_obs: float, tol: float
) -> None:
    def waves(z: Tensor) -> Tensor:
        parts = zip(amplitudes, frequencies, phases, strict=True)
        return torch.stack([a * torch.sin(w * z + p) for a, w, p in parts]).sum(dim=0)

    offset = float(waves(torch.tensor([z_obs], dtype=torch.float64))) + level

    def curve(z: Tensor) -> Tensor:
        return waves(z) - offset

    outcome = find(SpectralSearch(tol=tol), z_obs, curve)
    low, high = bar(z_obs, outcome)
    p = math.exp(log_pvalue(z_obs, roots_of(curve, 12.0, 24_000)))
    # A part of Z narrower than the grid of 1e-3 shifts the grid's p, not ours.
    assert low - 1e-6 <= p <= high + 1e-6
    assert outcome.status == "converged"
    assert high - low <= tol


@pytest.mark.parametrize("alternative", ["two-sided", "equal-tailed", "greater", "less"])
def test_alternatives(alternative: Alternative) -> None:
    def curve(z: Tensor) -> Tensor:
        return 0.5 - torch.cos(z)

    problem = curve_problem([6.0, -0.3], curve, alternative=alternative)
    for z_obs, outcome in zip(problem.z_obs, EXACT.find(problem), strict=True):
        low, high = bar(z_obs, outcome, alternative)
        exact = math.exp(log_pvalue(z_obs, roots_of(curve, 14.0, 20_000), alternative))
        assert low - ROUNDING <= exact <= high + ROUNDING
        assert high - low <= 1e-6


def counting(problem: SearchProblem) -> tuple[SearchProblem, list[tuple[int, float]]]:
    calls: list[tuple[int, float]] = []

    def scores(which: Tensor, z: Tensor) -> Tensor:
        calls.extend(zip(which.tolist(), z.tolist(), strict=True))
        return problem.scores(which, z)

    watched = SearchProblem(
        law=problem.law, scores=scores, margins=problem.margins, device=problem.device, batch_size=13
    )
    return watched, calls


def test_no_point_is_evaluated_twice_and_all_are_counted() -> None:
    problem, calls = counting(curve_problem([0.3, 6.0, -2.0], lambda z: 0.5 - torch.cos(z) + 0.1 * torch.tanh(20 * z)))
    outcomes = EXACT.find(problem)
    assert len(set(calls)) == len(calls)
    assert [o.evaluations for o in outcomes] == [sum(image == i for image, _ in calls) for i in range(3)]


def test_a_batch_gives_what_one_by_one_gives() -> None:
    def curve(z: Tensor) -> Tensor:
        return 0.4 - torch.cos(1.3 * z) + 0.2 * torch.sin(3 * z)

    z_obs = np.linspace(-6, 6, 14).tolist()
    z_obs = [z for z in z_obs if float(curve(torch.tensor(z))) < 0]
    together = EXACT.find(curve_problem(z_obs, curve, batch_size=10_000))
    for z, outcome in zip(z_obs, together, strict=True):
        (alone,) = EXACT.find(curve_problem([z], curve, memory=1))
        assert outcome.evaluations == alone.evaluations
        np.testing.assert_allclose(outcome.truncation_set.intervals, alone.truncation_set.intervals, atol=1e-12)
        np.testing.assert_allclose(outcome.truncation_set.possible, alone.truncation_set.possible, atol=1e-12)


def test_images_of_very_different_p_do_not_disturb_each_other() -> None:
    """Costs are relative to each p: next to one of 1e-90 the others' would be lost in rounding."""

    def scores(which: Tensor, z: Tensor) -> Tensor:
        far_out = 28.0 - z  # Z = (28, inf): p of 33 and of 36 are tens of orders of magnitude apart
        waves = 0.3 - torch.cos(z / 3)
        return torch.where(which % 2 == 0, far_out, waves)[:, None, None]

    z_obs = [33.0, 0.4, 36.0, 1.2, 29.0, -1.0]
    options = {"margins": CurveMargins(), "device": torch.device("cpu")}
    together = EXACT.find(SearchProblem(law=normal(*z_obs), scores=scores, batch_size=10_000, **options))
    for image, (z, outcome) in enumerate(zip(z_obs, together, strict=True)):

        def own(which: Tensor, z: Tensor, image: int = image) -> Tensor:
            return scores(which + image, z)

        (alone,) = EXACT.find(SearchProblem(law=normal(z), scores=own, batch_size=10_000, **options))
        assert outcome.status == alone.status == "converged"
        assert outcome.evaluations == alone.evaluations
        assert bar(z, outcome) == pytest.approx(bar(z, alone), abs=1e-12)
    assert bar(33.0, together[0])[1] < 1e-15
    assert bar(0.4, together[1])[0] > 0.1


@pytest.mark.parametrize(("z_obs", "most"), [(200.0, 150), (-700.0, 320), (1500.0, 320)])
def test_a_smooth_curve_is_explored_in_steps_that_grow(z_obs: float, most: int) -> None:
    """As with photographs: the statistic is far out, and a unit of z hardly changes the image."""

    def curve(z: Tensor) -> Tensor:
        return ((z - z_obs) / 300) ** 2 * (1 + 0.1 * torch.cos(z / 400)) - (0.5 / z_obs / 300) ** 2

    outcome = find(EXACT, z_obs, curve)
    half = 0.5 / abs(z_obs)  # to within the cosine's effect on the width, which is within the tolerance below
    assert outcome.status == "converged"
    assert outcome.evaluations <= most
    found = outcome.truncation_set.intervals
    assert len(found) == 1
    assert found[0, 0] < z_obs < found[0, 1]
    assert np.diff(found)[0, 0] == pytest.approx(2 * half / math.sqrt(1 + 0.1 * math.cos(z_obs / 400)), rel=1e-3)
    low, high = bar(z_obs, outcome)
    assert low <= math.exp(log_pvalue(z_obs, found)) <= high
    assert high - low <= 1e-6
    assert 0.1 < high < 0.9


def test_far_out_a_tiny_p_needs_only_what_is_more_extreme() -> None:
    outcome = find(EXACT, 400.0, lambda z: 399.0 - z)  # Z = (399, inf): p is about exp(-400)
    assert outcome.evaluations <= 60
    assert bar(400.0, outcome)[1] <= 1e-6


@pytest.mark.parametrize("z_obs", [12.0, -30.0])
@pytest.mark.parametrize("alternative", ["two-sided", "equal-tailed", "greater", "less"])
def test_far_out_the_pieces_at_the_statistic_settle_p(z_obs: float, alternative: Alternative) -> None:
    """Whatever the set is elsewhere: what is inside just before the statistic outweighs all that is more extreme."""

    def with_a_hole_at_zero(z: Tensor) -> Tensor:
        return 1 - z * z

    (outcome,) = EXACT.find(curve_problem([z_obs], with_a_hole_at_zero, alternative=alternative, exact=True))
    exact = np.exp(log_pvalue(z_obs, np.array([[-np.inf, -1.0], [1.0, np.inf]]), alternative))
    assert outcome.evaluations <= 25  # two pieces, and the audit
    low, high = (
        math.exp(log)
        for log in bounds_on_log_p(z_obs, outcome.truncation_set.certain, outcome.truncation_set.possible, alternative)
    )
    assert low <= exact <= high <= low + 1e-6


def test_far_out_everything_is_explored_where_it_can_still_matter() -> None:
    """The set begins just before the statistic, and has an island on the other side of zero or none."""
    found = {}
    for depth in (0.0, 4.0):

        def curve(z: Tensor, depth: float = depth) -> Tensor:
            return torch.tanh(19.9 - z) - depth * torch.exp(-(((z + 9.7) / 0.3) ** 2) / 2)

        found[depth] = bar(20.05, find(EXACT, 20.05, curve))
    assert found[0.0][0] > 0.01
    assert found[4.0][1] <= 1e-6


def test_far_out_a_tiny_p_is_resolved_when_asked_for() -> None:
    relative = SpectralSearch(tol=0, rtol=1e-3)
    outcome = find(relative, -3900.0, lambda z: (z + 3890.0) / 50)  # Z = (-inf, -3890)
    expected = log_pvalue(-3900.0, np.array([[-np.inf, -3890.0]]))
    low, high = bounds_on_log_p(-3900.0, outcome.truncation_set.certain, outcome.truncation_set.possible)
    assert outcome.status == "converged"
    assert low - 1e-6 <= expected <= high + 1e-6
    assert high - low <= 1.1e-3
    assert expected < -38_000


def test_a_budget_leaves_an_honest_bar() -> None:
    def curve(z: Tensor) -> Tensor:
        return 0.3 - torch.cos(16 * z)

    exact = math.exp(log_pvalue(0.05, roots_of(curve, 14.0, 100_000)))
    widths = []
    for budget in (64, 100, 150, 300):
        outcome = find(SpectralSearch(max_evaluations=budget), 0.05, curve)
        low, high = bar(0.05, outcome)
        assert outcome.status == "max_evaluations"
        assert outcome.evaluations <= budget
        assert low <= exact <= high
        widths.append(high - low)
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 0.5


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.5])
def test_a_decision_takes_fewer_evaluations(alpha: float) -> None:
    def curve(z: Tensor) -> Tensor:
        return 0.5 - torch.cos(2 * z) + 0.3 * torch.sin(z)

    z_obs = [0.1, 2.9, 3.3, -2.9]
    full = EXACT.find(curve_problem(z_obs, curve))
    quick = EXACT.find(curve_problem(z_obs, curve, alpha=alpha))
    for z, ours, theirs in zip(z_obs, quick, full, strict=True):
        low, high = bar(z, ours)
        p = math.exp(log_pvalue(z, theirs.truncation_set.intervals))
        assert ours.status in ("decided", "converged")
        assert low - ROUNDING <= p <= high + ROUNDING
        assert (p <= alpha) == (high <= alpha)
        assert (p > alpha) == (low > alpha)
    assert sum(o.evaluations for o in quick) < sum(o.evaluations for o in full)


def test_noise_in_the_scores_widens_the_bar() -> None:
    """Scores that are float32 inside: the search must not believe them to the last digit."""

    def noisy(z: Tensor) -> Tensor:
        return (1.0 + (0.5 - torch.cos(z))).to(torch.float32).to(torch.float64) - 1.0

    outcome = find(SpectralSearch(tol=1e-9), 0.3, noisy)
    exact = math.exp(log_pvalue(0.3, roots_of(lambda z: 0.5 - torch.cos(z), 14.0, 20_000)))
    low, high = bar(0.3, outcome)
    assert outcome.status == "precision"
    assert low <= exact <= high
    assert high - low < 1e-4
    assert outcome.evaluations < 600


def test_mixed_precision_explores_with_rough_scores_and_decides_with_exact_ones() -> None:
    def curve(z: Tensor) -> Tensor:
        return 0.5 - torch.cos(z) + 0.1 * torch.sin(2.3 * z)

    exact_calls = {"float64": 0, "mixed": 0}
    for precision in exact_calls:
        problem, calls = counting(curve_problem([0.3], curve))

        def rough(which: Tensor, z: Tensor) -> Tensor:
            return (
                curve(z).to(torch.float32).to(torch.float64).reshape(-1, 1, 1)
                + 1e-6 * torch.sin(1e4 * z)[:, None, None]
            )

        problem = SearchProblem(**{**problem.__dict__, "rough_scores": rough})
        (outcome,) = SpectralSearch(precision=precision).find(problem)  # type: ignore[arg-type]
        check(0.3, outcome, roots_of(curve, 14.0, 20_000))
        exact_calls[precision] = len(calls)
        if precision == "mixed":
            assert outcome.evaluations > len(calls)
    assert exact_calls["mixed"] < 0.5 * exact_calls["float64"]


def test_noise_that_hides_an_end_near_z_obs_leaves_the_rest_to_rough_scores() -> None:
    def curve(z: Tensor) -> Tensor:  # near the end at -11.9 noise hides it; the rest is far above zero
        return 1e-4 * (z + 11.9 - 0.01 * torch.cos(z))

    numbers = {}
    for precision in ("float64", "mixed"):
        problem, calls = counting(curve_problem([-12.0], curve))

        def rough(which: Tensor, z: Tensor) -> Tensor:
            return (curve(z) + 1e-5 * torch.sin(1e4 * z)).reshape(-1, 1, 1)

        problem = SearchProblem(**{**problem.__dict__, "rough_scores": rough})
        (outcome,) = SpectralSearch(precision=precision).find(problem)  # type: ignore[arg-type]
        check(-12.0, outcome, roots_of(curve, 16.0, 20_000))
        numbers[precision] = len(calls)
    assert numbers["mixed"] < 0.6 * numbers["float64"], numbers


def test_progress_rises_to_one() -> None:
    shares: list[float] = []
    EXACT.find(curve_problem([0.3, 2.0], lambda z: 0.5 - torch.cos(z) - 0.9), shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_a_score_that_is_not_a_number_names_image_and_point() -> None:
    problem = curve_problem(
        [0.0, 0.5], lambda z: torch.where(z > 3, torch.nan, -1.0) * torch.ones_like(z), image_numbers=np.array([10, 11])
    )
    with pytest.raises(SearchError, match=r"image 1[01] is NaN or infinite at z = 3\.\d+|z = [4-9]"):
        EXACT.find(problem)


def test_a_score_function_that_fails_names_image_and_point() -> None:
    def fails(z: Tensor) -> Tensor:
        if bool((z < -1.5).any()):
            raise ZeroDivisionError("no such place")
        return z - 3

    with pytest.raises(SearchError, match=r"failed for image 4 at z = -\d.*ZeroDivisionError: no such place"):
        EXACT.find(curve_problem([0.0], fails, image_numbers=np.array([4])))


def test_an_interrupt_is_passed_on() -> None:
    def interrupted(z: Tensor) -> Tensor:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        EXACT.find(curve_problem([0.0], interrupted))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SpectralSearch(tol=-1), "tol must be at least 0 and less than 1, got -1"),
        (lambda: SpectralSearch(tol=1), "less than 1, got 1"),
        (lambda: SpectralSearch(rtol=float("nan")), "rtol must be at least 0 and less than 1, got nan"),
        (lambda: SpectralSearch(tol=0), "cannot both be 0"),
        (lambda: SpectralSearch(tol="small"), "tol must be a number, got 'small'"),  # type: ignore[arg-type]
        (lambda: SpectralSearch(width=0), "width must be positive"),
        (lambda: SpectralSearch(max_evaluations=0), "max_evaluations must be at least 64"),
        (lambda: SpectralSearch(max_evaluations=1.5), "whole number"),  # type: ignore[arg-type]
        (lambda: SpectralSearch(precision="float16"), "precision must be .* got 'float16'"),  # type: ignore[arg-type]
    ],
)
def test_bad_parameters_end_in_one_sentence(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_uniform_on_a_known_set() -> None:
    """P of statistics drawn from a truncated normal is uniform: the search end to end, without a model."""
    rng = np.random.default_rng(3)
    draws = rng.normal(size=4000)
    kept = draws[np.cos(3 * draws) > 0.2][:300]

    def curve(z: Tensor) -> Tensor:
        return 0.2 - torch.cos(3 * z)

    outcomes = SpectralSearch(tol=1e-4).find(curve_problem(kept.tolist(), curve, batch_size=4096))
    p = np.array([math.exp(log_pvalue(z, o.truncation_set.intervals)) for z, o in zip(kept, outcomes, strict=True)])
    expected = np.array([2 * norm.sf(abs(z)) for z in kept])
    assert abs(np.mean(p <= 0.1) - 0.1) < 3 * math.sqrt(0.09 / 300)
    assert not np.allclose(p, expected)


def test_a_second_audit_draws_other_points_than_the_first() -> None:
    problem = curve_problem([0.3, 1.2], lambda z: torch.cos(2 * z) * z - 1.5)
    run = Run(problem, SpectralSearch(precision="float64"))
    run.outcomes(None)
    audits = []
    for _ in range(2):
        run._unaudited[:] = True
        audits.append(run._audit_points().z)
    assert len(audits[0]) == len(audits[1]) > 4
    assert not np.isin(audits[0], audits[1]).any()
