"""The grid searches of the paper (Procedure 1, section 3 and appendix C.1).

They walk the z axis in steps, note where the region changes, and bisect the boundaries.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attentest.checks import changed_parameters, positive_number, whole_number
from attentest.errors import InputError, SearchError
from attentest.search.problem import CONVERGED, Indices, Points, Report, SearchOutcome, SearchProblem
from attentest.statistics.columns import Columns, Integers, Mask
from attentest.statistics.truncation_set import Intervals, TruncationSet, union


@dataclass(frozen=True, kw_only=True, repr=False)
class StepRule(ABC):
    """The width of the next step: a frozen dataclass whose parameters are positive numbers.

    ``looks_ahead`` means that the width depends on z alone, so that many grid points can be evaluated together.
    """

    name: ClassVar[str]
    looks_ahead: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, positive_number(getattr(self, field.name), field.name))

    def __repr__(self) -> str:
        return changed_parameters(self)

    @property
    @abstractmethod
    def widest(self) -> float:
        """No step is wider than this."""

    def needs_slopes(self, z: Points, z_obs: Points) -> Mask:
        """Return for which grid points (m,) the width depends on the margins' derivatives, bool: here for none."""
        return np.zeros(z.shape, dtype=np.bool_)

    @abstractmethod
    def width(self, z: Points, z_obs: Points, margins: Tensor | None, slopes: Tensor | None) -> Points:
        """Return the step (m,) from grid points z (m,).

        ``margins`` and ``slopes`` are (m, n); both None for a rule that looks ahead, slopes None where not
        needed.
        """


@dataclass(frozen=True, kw_only=True, repr=False)
class Adaptive(StepRule):
    """The paper's adaptive width: margin over an estimated Lipschitz constant (theorem 2 and its heuristics).

    Parameters
    ----------
    eps_min, eps_max
        Least and greatest step.
    near
        Within this distance of the observed statistic the Lipschitz constant is taken to be one.
    safety
        Farther away it is taken to be this many times the derivative, and only margins that move towards zero
        are considered.
    """

    eps_min: float = 1e-4
    eps_max: float = 0.2
    near: float = 0.1
    safety: float = 10.0

    name: ClassVar[str] = "adaptive"
    looks_ahead: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.eps_min > self.eps_max:
            raise InputError(f"steps need eps_min <= eps_max, got eps_min={self.eps_min}, eps_max={self.eps_max}.")

    @property
    def widest(self) -> float:
        """The greatest step."""
        return self.eps_max

    def needs_slopes(self, z: Points, z_obs: Points) -> Mask:
        """Return where the linear heuristic is used."""
        return np.abs(z - z_obs) >= self.near

    def width(self, z: Points, z_obs: Points, margins: Tensor | None, slopes: Tensor | None) -> Points:
        """Return min(eps_max, max(d(z), eps_min))."""
        if margins is None:
            raise InputError("the adaptive step needs the margins at the grid point.")
        if slopes is None:
            distance, considered = margins.abs(), torch.ones_like(margins, dtype=torch.bool)
        else:
            distance, considered = (margins / (self.safety * slopes)).abs(), margins * slopes < 0
        # Inside, Z is left when the first margin reaches zero; outside, it is entered only after the last positive
        # margin has. If no margin moves towards zero, nothing limits the step.
        first = distance.masked_fill(~considered, math.inf).amin(dim=1)
        blocking = considered & (margins >= 0)
        last = distance.masked_fill(~blocking, -math.inf).amax(dim=1)
        last = torch.where(blocking.any(dim=1), last, math.inf)
        inside = margins.amax(dim=1) < 0
        width = torch.where(inside, first, last).clamp(self.eps_min, self.eps_max)
        return np.asarray(width.cpu().numpy(), dtype=np.float64)


@dataclass(frozen=True, kw_only=True, repr=False)
class Fixed(StepRule):
    """One step everywhere."""

    step: float = 1e-3

    name: ClassVar[str] = "fixed"

    @property
    def widest(self) -> float:
        """The step."""
        return self.step

    def width(self, z: Points, z_obs: Points, margins: Tensor | None, slopes: Tensor | None) -> Points:
        """Return the step."""
        return np.full_like(z, self.step)


@dataclass(frozen=True, kw_only=True, repr=False)
class Combination(StepRule):
    """A fine step near the observed statistic, a coarse one elsewhere."""

    fine: float = 1e-4
    coarse: float = 1e-2
    near: float = 0.1

    name: ClassVar[str] = "combination"

    @property
    def widest(self) -> float:
        """The wider of the two steps."""
        return max(self.fine, self.coarse)

    def width(self, z: Points, z_obs: Points, margins: Tensor | None, slopes: Tensor | None) -> Points:
        """Return the fine or the coarse step."""
        return np.where(np.abs(z - z_obs) < self.near, self.fine, self.coarse)


@dataclass(frozen=True, kw_only=True, eq=False)
class Brackets(Columns):
    """Pairs of points (m,), exactly one of each in the truncation set."""

    image: Indices
    """(m,). Index of the image of each bracket."""
    lower: Points
    upper: Points
    """(m,). Its ends."""
    leaving: Mask
    """(m,) bool. Whether the lower end is the one inside."""


def bisect(problem: SearchProblem, brackets: Brackets, tolerance: float) -> tuple[Brackets, Indices]:
    """Halve brackets until each is at most ``tolerance`` wide, or as narrow as float64 allows.

    Return them in the same order, and the index of the image of each evaluation (e,).
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
        z_obs = problem.z_obs
        limit = self.extent * problem.law.spread + np.abs(z_obs)
        self._check_budget(problem, 2 * limit / self.step.widest)
        changes: list[Brackets] = []
        evaluations = np.zeros(len(limit), dtype=np.int64)
        active, following, last = np.arange(len(limit)), -limit, -limit
        starts_inside = last_inside = np.empty(0, dtype=np.bool_)
        while len(active):
            points, inside, fresh, following[active] = self._evaluate(problem, limit, active, following[active])
            inside[points == z_obs[active][:, None]] = True
            if len(last_inside) == 0:
                starts_inside, last_inside = inside[:, 0], inside[:, 0].copy()
            before = np.column_stack([last_inside[active], inside[:, :-1]])
            came_from = np.column_stack([last[active], points[:, :-1]])
            row, column = np.nonzero(before != inside)
            ends = {"lower": came_from[row, column], "upper": points[row, column]}
            changes.append(Brackets(image=active[row], leaving=before[row, column], **ends))
            last[active], last_inside[active] = points[:, -1], inside[:, -1]
            evaluations[active] += fresh
            active = active[points[:, -1] < limit[active]]
            self._check_budget(problem, evaluations)
            if report is not None:
                report(float(np.mean((last + limit) / (2 * limit))))
        brackets, evaluated = bisect(problem, Brackets.concatenated(changes), self.boundary_tolerance)
        evaluations += np.bincount(evaluated, minlength=len(limit))
        return [
            _outcome(brackets, image, bool(starts_inside[image]), float(limit[image]), int(evaluations[image]))
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

    def _evaluate(
        self, problem: SearchProblem, limit: Points, image: Indices, z: Points
    ) -> tuple[Points, Mask, Integers, Points]:
        """Evaluate the next grid points of images (m,), the first of which are z (m,).

        Return the points (m, w), one, or many where the step depends on z alone, in rows that repeat the limit once
        they reach it; whether each lies in Z; how many were evaluated (m,); and the grid points after the last (m,).
        """
        if not self.step.looks_ahead:
            inside, following = self._with_margins(problem, limit, image, z)
            return z[:, None], inside[:, None], np.ones(len(image), dtype=np.int64), following
        z_obs, limits = problem.z_obs[image], limit[image]
        columns = [z]
        for _ in range(problem.batch_size // len(image) - 1):
            if (columns[-1] >= limits).all():
                break
            columns.append(self._after(columns[-1], z_obs, limits))
        points = np.column_stack(columns)
        fresh = np.diff(points, axis=1, prepend=-np.inf) > 0
        images = np.broadcast_to(image[:, None], points.shape)
        inside = np.zeros(points.shape, dtype=np.bool_)
        inside[fresh] = problem.inside_at(images[fresh], points[fresh])
        # Repetitions of the limit were not evaluated: they take its value.
        evaluated = np.maximum.accumulate(np.where(fresh, np.arange(points.shape[1]), 0), axis=1)
        inside = np.take_along_axis(inside, evaluated, axis=1)
        return points, inside, fresh.sum(axis=1), self._after(points[:, -1], z_obs, limits)

    def _with_margins(self, problem: SearchProblem, limit: Points, image: Indices, z: Points) -> tuple[Mask, Points]:
        """Return whether grid points (m,) lie in Z, and those that follow by the margins, with slopes where needed."""
        inside, following = np.empty(len(image), dtype=np.bool_), np.empty(len(image))
        z_obs, limits = problem.z_obs[image], limit[image]
        sloped = self.step.needs_slopes(z, z_obs)
        for rows, with_slopes in ((np.flatnonzero(sloped), True), (np.flatnonzero(~sloped), False)):
            if len(rows):
                at, slopes = (image[rows], z[rows]), None
                if with_slopes:
                    margins, slopes = problem.margins_and_slopes_at(*at)
                else:
                    margins = problem.margins_at(*at)
                inside[rows] = (margins.amax(dim=1) < 0).cpu().numpy()
                following[rows] = self._after(z[rows], z_obs[rows], limits[rows], margins, slopes)
        return inside, following

    def _after(
        self, z: Points, z_obs: Points, limit: Points, margins: Tensor | None = None, slopes: Tensor | None = None
    ) -> Points:
        """Return the grid points that follow z (m,), stopping at the observed statistic and at the limit."""
        width = self.step.width(z, z_obs, margins, slopes)
        following = np.maximum(z + width, np.nextafter(z, np.inf))
        following = np.where((z < z_obs) & (z_obs < following), z_obs, following)
        return np.minimum(following, limit)


adaptive, fixed, combination = (partial(GridSearch, step=rule()) for rule in (Adaptive, Fixed, Combination))
"""The searches of the registry, with the steps of the paper."""


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
    edges = np.r_[-limit, boundaries] if starts_inside else boundaries
    return union((np.r_[edges, limit] if len(edges) % 2 else edges).reshape(-1, 2))
