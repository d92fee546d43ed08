"""Procedure 1 of the paper: walk the z axis in steps, note where the region changes, bisect the boundaries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from attentest.checks import changed_parameters, positive_number, whole_number
from attentest.errors import InputError, SearchError
from attentest.search.grid.steps import Adaptive, Combination, Fixed, StepRule
from attentest.search.problem import CONVERGED, Indices, Points, Report, SearchOutcome, SearchProblem
from attentest.statistics.columns import Columns, Mask
from attentest.statistics.truncation_set import EMPTY, Intervals, TruncationSet, union


@dataclass(frozen=True, kw_only=True, eq=False)
class Brackets(Columns):
    """Pairs of points (m,), exactly one of each in the truncation set.

    Parameters
    ----------
    image : (m,)
        Index of the image of each bracket.
    lower, upper : (m,)
        Its ends.
    leaving : (m,) bool
        Whether the lower end is the one inside.
    """

    image: Indices
    lower: Points
    upper: Points
    leaving: Mask


def bisect(problem: SearchProblem, brackets: Brackets, tolerance: float) -> tuple[Brackets, Indices]:
    """Halve brackets until each is at most ``tolerance`` wide, or as narrow as float64 allows.

    Returns
    -------
    brackets
        The narrowed brackets, in the same order.
    evaluated : (e,)
        Index of the image of each evaluation.
    """
    lower, upper = brackets.lower.copy(), brackets.upper.copy()
    evaluated = [brackets.image[:0]]
    while True:
        middle = lower + (upper - lower) / 2
        wide = np.flatnonzero((upper - lower > tolerance) & (lower < middle) & (middle < upper))
        if len(wide) == 0:
            break
        image = brackets.image[wide]
        inside = problem.inside_at(image, middle[wide])
        evaluated.append(image)
        like_lower = inside == brackets.leaving[wide]
        lower[wide[like_lower]] = middle[wide[like_lower]]
        upper[wide[~like_lower]] = middle[wide[~like_lower]]
    return replace(brackets, lower=lower, upper=upper), np.concatenate(evaluated)


@dataclass(frozen=True, kw_only=True)
class GridSearch:
    """The paper's search over [-S, S] with S = extent + ``|z_obs|``, in units of the standard deviation of z.

    The bounds it gives count the brackets of the boundaries and the tails beyond S. They rest on the assumption
    of the paper's procedure, that the region does not change and change back within one step.

    Parameters
    ----------
    step
        The step rule: ``Adaptive()``, ``Fixed()`` or ``Combination()``.
    extent
        How far beyond the observed z to search, in its standard deviations; the paper's 10.
    boundary_tolerance
        Width to which boundaries are bisected. The default moves p by no more than rounding, unless Z itself is
        that narrow.
    max_evaluations
        Most evaluations per image, without bisection. A statistic so large that the range needs more is an error
        at once: most often the noise is not in the units of the pixels.
    """

    step: StepRule
    extent: float = 10.0
    boundary_tolerance: float = 1e-12
    max_evaluations: int = 2_000_000

    def __post_init__(self) -> None:
        if not isinstance(self.step, StepRule):
            raise InputError(f"step must be a step rule such as Adaptive() or Fixed(step=1e-3), got {self.step!r}.")
        for name in ("extent", "boundary_tolerance"):
            object.__setattr__(self, name, positive_number(getattr(self, name), name))
        budget = whole_number(self.max_evaluations, "max_evaluations", 1, 10**15)
        object.__setattr__(self, "max_evaluations", budget)

    def __repr__(self) -> str:
        return changed_parameters(self)

    def describe(self) -> Mapping[str, Any]:
        """Return name and parameters."""
        parameters = asdict(self)
        return {"name": self.step.name, **parameters.pop("step"), **parameters}

    def images_together(self, batch_size: int) -> int:
        """Return the batch size: each image needs one point at a time."""
        return batch_size

    def find(self, problem: SearchProblem, report: Report | None = None) -> list[SearchOutcome]:
        """Return the truncation set of each image of a problem, in order."""
        limit = self.extent * problem.law.spread + np.abs(problem.z_obs)
        self._check_budget(problem, 2 * limit / self.step.widest)
        walk = _Walk(problem, self.step, limit)
        while walk.unfinished:
            walk.advance()
            self._check_budget(problem, walk.evaluations)
            if report is not None:
                report(walk.share_done)
        brackets, evaluated = bisect(problem, walk.brackets(), self.boundary_tolerance)
        evaluations = walk.evaluations + np.bincount(evaluated, minlength=len(limit))
        return [
            _outcome(brackets, image, bool(walk.starts_inside[image]), float(limit[image]), int(evaluations[image]))
            for image in range(len(limit))
        ]

    def _check_budget(self, problem: SearchProblem, evaluations: NDArray[Any]) -> None:
        worst = int(np.argmax(evaluations))
        if evaluations[worst] > self.max_evaluations:
            raise SearchError(
                f"for {problem.name(worst)} with an observed statistic of {problem.z_obs[worst]:.6g} the "
                f"{self.step.name} search needs at least {evaluations[worst]:.3g} evaluations, more than "
                f"max_evaluations = {self.max_evaluations}: is the noise in the units of the pixels?"
            )


def adaptive() -> GridSearch:
    """Return the paper's Procedure 1: steps that follow the derivative of the margins."""
    return GridSearch(step=Adaptive())


def fixed() -> GridSearch:
    """Return the paper's reference: steps of 1e-3."""
    return GridSearch(step=Fixed())


def combination() -> GridSearch:
    """Return the paper's combination of fine steps near the observed statistic and coarse ones elsewhere."""
    return GridSearch(step=Combination())


class _Walk:
    """The progress of k images along their grids from -S to S."""

    def __init__(self, problem: SearchProblem, step: StepRule, limit: Points) -> None:
        count = len(limit)
        self._problem = problem
        self._step = step
        self._limit = limit
        self._next = -limit
        self._last = -limit
        self._last_inside: Mask | None = None
        self._active: Indices = np.arange(count)
        self._changes: list[Brackets] = []
        self.starts_inside = np.zeros(count, dtype=np.bool_)
        self.evaluations = np.zeros(count, dtype=np.int64)

    @property
    def unfinished(self) -> bool:
        return len(self._active) > 0

    @property
    def share_done(self) -> float:
        return float(np.mean((self._last + self._limit) / (2 * self._limit)))

    def brackets(self) -> Brackets:
        """Return the pairs of neighbouring grid points between which the region changed, in order of z."""
        return Brackets.concatenated(self._changes)

    def advance(self) -> None:
        """Evaluate the next grid points of every active image and record the changes between them."""
        active = self._active
        evaluate = self._evaluate_block if self._step.looks_ahead else self._evaluate_point
        points, inside, following = evaluate(active)
        inside[points == self._problem.z_obs[active][:, None]] = True
        if self._last_inside is None:
            self._last_inside = inside[:, 0].copy()
            self.starts_inside[:] = inside[:, 0]
        before = np.column_stack([self._last_inside[active], inside[:, :-1]])
        came_from = np.column_stack([self._last[active], points[:, :-1]])
        changed = np.nonzero(before != inside)
        self._changes.append(
            Brackets(image=active[changed[0]], lower=came_from[changed], upper=points[changed], leaving=before[changed])
        )
        self._last[active] = points[:, -1]
        self._last_inside[active] = inside[:, -1]
        self._next[active] = following
        self._active = active[points[:, -1] < self._limit[active]]

    def _evaluate_block(self, active: Indices) -> tuple[Points, Mask, Points]:
        """Evaluate many grid points per image at once.

        Returns
        -------
        points : (m, w)
            Grid points; a row that reaches the limit repeats it.
        inside : (m, w) bool
            Whether each of them lies in Z.
        following : (m,)
            The grid points after the last ones.
        """
        columns = [self._next[active]]
        for _ in range(self._problem.batch_size // len(active) - 1):
            if (columns[-1] >= self._limit[active]).all():
                break
            columns.append(self._after(active, columns[-1]))
        points = np.column_stack(columns)
        fresh = np.diff(points, axis=1, prepend=-np.inf) > 0
        image = np.broadcast_to(active[:, None], points.shape)
        inside = np.zeros(points.shape, dtype=np.bool_)
        inside[fresh] = self._problem.inside_at(image[fresh], points[fresh])
        self.evaluations[active] += fresh.sum(axis=1)
        # Repetitions of the limit were not evaluated: they take its value.
        evaluated = np.maximum.accumulate(np.where(fresh, np.arange(points.shape[1]), 0), axis=1)
        return points, np.take_along_axis(inside, evaluated, axis=1), self._after(active, points[:, -1])

    def _evaluate_point(self, active: Indices) -> tuple[Points, Mask, Points]:
        """Evaluate one grid point per image, with slopes where the step rule needs them; returns as for a block."""
        z = self._next[active]
        inside = np.empty((len(active), 1), dtype=np.bool_)
        following = np.empty(len(active))
        sloped = self._step.needs_slopes(z, self._problem.z_obs[active])
        for rows, with_slopes in ((np.flatnonzero(sloped), True), (np.flatnonzero(~sloped), False)):
            if len(rows) == 0:
                continue
            image, at, slopes = active[rows], z[rows], None
            if with_slopes:
                margins, slopes = self._problem.margins_and_slopes_at(image, at)
            else:
                margins = self._problem.margins_at(image, at)
            inside[rows, 0] = (margins.amax(dim=1) < 0).cpu().numpy()
            following[rows] = self._after(image, at, margins, slopes)
        self.evaluations[active] += 1
        return z[:, None], inside, following

    def _after(self, image: Indices, z: Points, margins: Tensor | None = None, slopes: Tensor | None = None) -> Points:
        """Return the grid points that follow ``z``, stopping at the observed statistic and at the limit."""
        z_obs = self._problem.z_obs[image]
        width = self._step.width(z, z_obs, margins, slopes)
        following = np.maximum(z + width, np.nextafter(z, np.inf))
        following = np.where((z < z_obs) & (z_obs < following), z_obs, following)
        return np.minimum(following, self._limit[image])


def _outcome(brackets: Brackets, image: int, starts_inside: bool, limit: float, evaluations: int) -> SearchOutcome:
    brackets = brackets.take(brackets.image == image)
    lower, upper, leaving = brackets.lower, brackets.upper, brackets.leaving
    outer_end, inner_end = np.where(leaving, upper, lower), np.where(leaving, lower, upper)
    tails = np.array([[-np.inf, -limit], [limit, np.inf]])
    known = TruncationSet(
        intervals=_between((lower + upper) / 2, starts_inside, limit),
        certain=_between(inner_end, starts_inside, limit),
        possible=union(_between(outer_end, starts_inside, limit), tails),
    )
    return SearchOutcome(truncation_set=known, evaluations=evaluations, status=CONVERGED)


def _between(boundaries: Points, starts_inside: bool, limit: float) -> Intervals:
    """Return the intervals between boundaries at which the set is left and entered in turn."""
    edges = boundaries
    if starts_inside:
        edges = np.r_[-limit, edges]
    if len(edges) % 2:
        edges = np.r_[edges, limit]
    return union(edges.reshape(-1, 2)) if len(edges) else EMPTY
