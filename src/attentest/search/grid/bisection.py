"""Boundaries of truncation sets by bisection, many at once (appendix C.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attentest.search.problem import Indices, Points, SearchProblem


@dataclass(frozen=True, kw_only=True)
class Brackets:
    """Pairs of points, exactly one of each in the truncation set.

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
    leaving: NDArray[np.bool_]


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
    evaluated: list[Indices] = []
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
    narrowed = Brackets(image=brackets.image, lower=lower, upper=upper, leaving=brackets.leaving)
    return narrowed, np.concatenate([np.empty(0, dtype=np.intp), *evaluated])
