from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from attentest.errors import InputError, SearchError
from attentest.search import Adaptive, Combination, Fixed, GridSearch, Search, SearchProblem, as_search
from attentest.search.grid import Brackets, StepRule, bisect
from attentest.statistics.truncation_set import union
from toys import curve_problem
from truncated import contains

BOUNDARY_ERROR = 2e-12
"""Twice the searches' bracket width."""


def waves(z: Tensor) -> Tensor:
    """Negative where cos z > 0.5: around every multiple of 2 pi, for pi / 3 to either side."""
    return 0.1 * (0.5 - torch.cos(z))


def wave_intervals(limit: float) -> np.ndarray:
    centres = 2 * math.pi * np.arange(-10, 11)
    return np.clip(np.column_stack([centres - math.pi / 3, centres + math.pi / 3]), -limit, limit)


SEARCHES = [
    GridSearch(step=Adaptive(eps_min=5e-3)),
    GridSearch(step=Fixed(step=1e-3)),
    GridSearch(step=Combination(fine=1e-3, coarse=1e-2)),
]
"""Steps that are ten times the paper's and more, for fewer points: what is found is as exact, by bisection."""


@pytest.mark.parametrize("search", SEARCHES, ids=lambda s: s.step.name)
def test_every_search_finds_a_known_set(search: GridSearch) -> None:
    problem = curve_problem([0.3, 6.0, -6.5], waves)
    for z_obs, outcome in zip(problem.z_obs, search.find(problem), strict=True):
        limit = 10 + abs(z_obs)
        expected = wave_intervals(limit)
        expected = expected[expected[:, 0] < expected[:, 1]]
        np.testing.assert_allclose(outcome.truncation_set.intervals, expected, atol=BOUNDARY_ERROR)
        assert outcome.status == "converged"
        assert contains(outcome.truncation_set.intervals, z_obs)


@pytest.mark.parametrize("search", SEARCHES, ids=lambda s: s.step.name)
@pytest.mark.parametrize("width", [1e-5, 1e-8])
def test_a_set_far_narrower_than_a_step_is_found(search: GridSearch, width: float) -> None:
    z_obs = 2.345
    problem = curve_problem([z_obs], lambda z: z - (z_obs + width / 3), lambda z: (z_obs - width) - z)
    (outcome,) = search.find(problem)
    np.testing.assert_allclose(
        outcome.truncation_set.intervals, [[z_obs - width, z_obs + width / 3]], atol=BOUNDARY_ERROR
    )


def test_bounds_enclose_the_set() -> None:
    (outcome,) = SEARCHES[0].find(curve_problem([0.3], waves))
    inner, outer = outcome.truncation_set.certain, outcome.truncation_set.possible
    exact = wave_intervals(10.3)
    exact = exact[exact[:, 0] < exact[:, 1]]
    assert np.array_equal(union(inner, exact), exact)
    assert np.array_equal(union(outer, exact), outer)
    assert outer[0, 0] == -np.inf
    assert outer[-1, 1] == np.inf


def literal_procedure(f: Callable[[float], list[float]], z_obs: float, eps_min: float) -> tuple[list[float], float]:
    """Procedure 1 of the paper, line by line, for one image: the grid points and d_obs.

    f returns the margins; their derivatives are central differences, accurate to 1e-9 for the curves used here.
    """
    eps_max, limit = 0.2, 10 + abs(z_obs)

    def width(z: float) -> float:
        values = f(z)
        slopes = [(up - down) / 2e-5 for up, down in zip(f(z + 1e-5), f(z - 1e-5), strict=True)]
        near = abs(z - z_obs) < 0.1
        if all(v < 0 for v in values):
            d = [
                abs(v) if near else abs(v) / (10 * abs(s))
                for v, s in zip(values, slopes, strict=True)
                if near or v * s < 0
            ]
            return min(d, default=math.inf)
        d = [
            abs(v) if near else abs(v) / (10 * abs(s))
            for v, s in zip(values, slopes, strict=True)
            if v >= 0 and (near or v * s < 0)
        ]
        return max(d, default=math.inf)

    grid, z = [], -limit
    while z < limit:
        grid.append(z)
        following = z + min(eps_max, max(width(z), eps_min))
        z = z_obs if z < z_obs < following else following
    return [*grid, limit], min(eps_max, width(z_obs))


def test_adaptive_visits_the_grid_of_procedure_1() -> None:
    curves = [waves, lambda z: 0.3 * torch.sin(0.7 * z + 1) - 0.25]
    z_obs = 5.6
    visited: list[float] = []
    problem = curve_problem([z_obs], *curves)

    def recording(which: Tensor, z: Tensor) -> Tensor:
        visited.append(float(z.detach()))
        return problem.scores(which, z)

    watched = SearchProblem(
        law=problem.law, scores=recording, margins=problem.margins, device=problem.device, batch_size=1
    )
    step = Adaptive(eps_min=5e-2)  # more than the paper's, for fewer points
    (outcome,) = GridSearch(step=step, boundary_tolerance=1.0).find(watched)  # no bisection
    grid, d_obs = literal_procedure(
        lambda z: [float(c(torch.tensor(z, dtype=torch.float64))) for c in curves], z_obs, step.eps_min
    )
    assert len(visited) == len(grid) == outcome.evaluations
    np.testing.assert_allclose(visited, grid, atol=1e-5)  # the derivatives differ by 1e-9, and steps add up
    # J(z_obs), which the procedure adds, is part of what the walk itself found.
    (found,) = GridSearch(step=step).find(problem)
    radius = [[z_obs - d_obs, z_obs + d_obs]]
    assert np.array_equal(union(found.truncation_set.intervals, radius), found.truncation_set.intervals)


def test_adaptive_width_by_hand() -> None:
    step = Adaptive()
    z, z_obs = np.array([3.0]), np.array([0.0])

    def width(margins: list[float], slopes: list[float] | None) -> float:
        tangent = None if slopes is None else torch.tensor([slopes])
        return float(step.width(z, z_obs, torch.tensor([margins]), tangent)[0])

    # inside: the nearest of those that rise; the second margin is closer but falling
    assert width([-0.3, -0.01], [1.0, -1.0]) == pytest.approx(0.03)
    # outside: the farthest of the positive ones that fall
    assert width([0.3, 0.1, -5.0], [-1.0, -0.1, 0.1]) == pytest.approx(0.1)
    # nothing on its way to zero: the greatest step
    assert width([-0.3, -0.1], [-1.0, -1.0]) == pytest.approx(0.2)
    assert width([0.3, 0.1], [1.0, 1.0]) == pytest.approx(0.2)
    # near the observed statistic the Lipschitz constant is one and every margin counts
    assert width([-0.05, -0.08], None) == pytest.approx(0.05)
    assert width([0.05, 0.08, -1.0], None) == pytest.approx(0.08)
    # the least step
    assert width([-1e-9, -1.0], [1.0, 1.0]) == pytest.approx(1e-4)


def test_slopes_are_asked_for_only_away_from_the_observed_statistic() -> None:
    asked = Adaptive().needs_slopes(np.array([0.0, 0.95, 1.05, 1.2]), np.full(4, 1.0))
    assert asked.tolist() == [True, False, False, True]


@pytest.mark.parametrize(
    "step", [Adaptive(eps_min=0.1), Fixed(step=1e-2), Combination(fine=1e-2, coarse=0.1)], ids=lambda s: s.name
)
def test_a_batch_gives_what_one_by_one_gives(step: StepRule) -> None:
    search = GridSearch(step=step)
    z_obs = [0.1, -0.9, 6.2]
    together = search.find(curve_problem(z_obs, waves, batch_size=33))
    for z, outcome in zip(z_obs, together, strict=True):
        (alone,) = search.find(curve_problem([z], waves, batch_size=64))
        np.testing.assert_allclose(
            outcome.truncation_set.intervals, alone.truncation_set.intervals, atol=BOUNDARY_ERROR
        )
        assert outcome.evaluations == alone.evaluations


@settings(max_examples=2, deadline=None, derandomize=True)
@given(
    phases=st.lists(st.floats(0, 6.28), min_size=1, max_size=3),
    frequencies=st.lists(st.floats(0.1, 2.0), min_size=3, max_size=3),
    z_obs=st.floats(-4, 4),
)
def test_searches_agree_on_smooth_curves(phases: list[float], frequencies: list[float], z_obs: float) -> None:
    """On curves that cross zero cleanly, the adaptive and the combined search find what the fixed one finds."""
    curves = [
        lambda z, p=phase, w=frequency: 0.2 * (torch.sin(w * z + p) - math.sin(w * z_obs + p)) - 0.05
        for phase, frequency in zip(phases, frequencies, strict=False)
    ]
    searches = (
        GridSearch(step=Fixed(step=1e-2)),
        GridSearch(step=Adaptive(eps_min=5e-2)),
        GridSearch(step=Combination(fine=1e-2, coarse=5e-2)),
    )
    dense, *others = (search.find(curve_problem([z_obs], *curves))[0].truncation_set.intervals for search in searches)
    # A part of Z, or a gap in it, narrower than the coarsest step may be missed by the others: leave those out.
    edges = dense.ravel()
    if len(edges) > 2 and np.diff(edges).min() < 0.2:
        return
    for found in others:
        np.testing.assert_allclose(found, dense, atol=1e-11)


def test_evaluations_count_model_calls() -> None:
    calls = np.zeros(2, dtype=int)
    inner = curve_problem([0.3, 6.0], waves)

    def counting(which: Tensor, z: Tensor) -> Tensor:
        np.add.at(calls, which.numpy(), 1)
        return inner.scores(which, z)

    problem = SearchProblem(law=inner.law, scores=counting, margins=inner.margins, device=inner.device, batch_size=7)
    outcomes = GridSearch(step=Combination(fine=1e-2, coarse=5e-2)).find(problem)
    assert [outcome.evaluations for outcome in outcomes] == calls.tolist()


def test_progress_rises_to_one() -> None:
    shares: list[float] = []
    GridSearch(step=Adaptive(eps_min=2e-2)).find(curve_problem([0.3], waves), shares.append)
    assert shares == sorted(shares)
    assert shares[0] < 0.05
    assert shares[-1] == 1.0


def test_bisection_narrows_to_the_tolerance() -> None:
    problem = curve_problem([0.0], waves)
    brackets = Brackets(
        image=np.array([0, 0]),
        lower=np.array([0.9, 5.0]),
        upper=np.array([1.2, 5.5]),
        leaving=np.array([True, False]),
    )
    narrowed, evaluated = bisect(problem, brackets, 1e-6)
    assert (narrowed.upper - narrowed.lower <= 1e-6).all()
    exact = np.array([math.pi / 3, 5 * math.pi / 3])
    assert (narrowed.lower <= exact).all()
    assert (exact <= narrowed.upper).all()
    assert len(evaluated) == 2 * 19  # 0.3 / 2^19 < 1e-6 <= 0.3 / 2^18, and the same for 0.5


def test_a_margin_that_is_not_a_number_names_image_and_point() -> None:
    problem = curve_problem([0.0, 0.0], lambda z: torch.where(z > 3, torch.nan, -1.0) * torch.ones_like(z))
    with pytest.raises(SearchError, match=r"the image is NaN or infinite at z = 3\.\d+"):
        GridSearch(step=Fixed(step=0.01)).find(problem)


def test_a_score_that_is_not_a_number_is_named_whichever_batch_it_is_in() -> None:
    problem = curve_problem(
        [0.0, 0.0], lambda z: torch.where(z == 3, torch.inf, z), batch_size=2, image_numbers=np.array([10, 11])
    )
    image, z = np.array([0, 1, 0, 1, 0]), np.array([1.0, 2.0, 4.0, 3.0, 5.0])
    with pytest.raises(SearchError, match="image 11 is NaN or infinite at z = 3:"):
        problem.scores_at(image, z)
    assert problem.scores_at(image, z, rough=True).isinf().sum() == 1
    huge = np.full(5, 1e308)  # finite, unlike their sum
    assert problem.scores_at(image, huge).flatten().tolist() == huge.tolist()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: as_search("thorough"), "adaptive, fixed or combination, got 'thorough'"),
        (lambda: as_search(3), "got 3"),  # type: ignore[arg-type]
        (lambda: GridSearch(step=Fixed), "step must be a step rule"),  # type: ignore[arg-type]
        (lambda: GridSearch(step="fixed"), "got 'fixed'"),  # type: ignore[arg-type]
        (lambda: Fixed(step=None), "step must be a number, got None"),  # type: ignore[arg-type]
        (lambda: GridSearch(step=Fixed(), max_evaluations=0), "max_evaluations"),
        (lambda: Fixed(step=0.0), "step must be positive"),
        (lambda: Combination(fine=-1e-4), "fine must be positive"),
        (lambda: Adaptive(eps_min=0.3), "eps_min <= eps_max"),
        (lambda: Adaptive(safety=0.0), "safety"),
        (lambda: GridSearch(step=Fixed(), extent=0.0), "extent"),
        (lambda: GridSearch(step=Fixed(), boundary_tolerance=0.0), "boundary_tolerance"),
    ],
)
def test_what_is_no_search_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_searches_satisfy_the_protocol_and_describe_themselves() -> None:
    for name in ("adaptive", "fixed", "combination"):
        search = as_search(name)
        assert isinstance(search, Search)
        assert search.describe()["name"] == name
    assert as_search("adaptive").describe()["eps_min"] == 1e-4
