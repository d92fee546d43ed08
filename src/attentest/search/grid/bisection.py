"""Boundaries of truncation sets by bisection, many at once (appendix C.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attentest.search.problem import Points, SearchProblem, Which


@dataclass(frozen=True, kw_only=True)
class Brackets:
    """Pairs of points of which exactly one lies in the set.

    Parameters
    ----------
    which : (m,)
        Image each bracket belongs to.
    lower, upper : (m,)
        Its ends.
    leaving : (m,) bool
        True where the lower end is the one inside.
    """

    which: Which
    lower: Points
    upper: Points
    leaving: NDArray[np.bool_]


def bisect(problem: SearchProblem, brackets: Brackets, tolerance: float) -> tuple[Brackets, Which]:
    """Halve brackets until each is at most ``tolerance`` wide, or as narrow as float64 allows.

    Returns
    -------
    brackets
        The narrowed brackets, in the same order.
    evaluated : (e,)
        Image index of every evaluation made.
    """
    lower, upper = brackets.lower.copy(), brackets.upper.copy()
    evaluated: list[Which] = []
    while True:
        middle = lower + (upper - lower) / 2
        wide = np.flatnonzero((upper - lower > tolerance) & (lower < middle) & (middle < upper))
        if len(wide) == 0:
            break
        which = brackets.which[wide]
        inside = problem.inside_at(which, middle[wide])
        evaluated.append(which)
        like_lower = inside == brackets.leaving[wide]
        lower[wide[like_lower]] = middle[wide[like_lower]]
        upper[wide[~like_lower]] = middle[wide[~like_lower]]
    narrowed = Brackets(which=brackets.which, lower=lower, upper=upper, leaving=brackets.leaving)
    return narrowed, np.concatenate([np.empty(0, dtype=np.intp), *evaluated])
