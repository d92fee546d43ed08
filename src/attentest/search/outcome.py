"""What a search returns for one image."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

from attentest.search.problem import SearchProblem
from attentest.statistics.intervals import Intervals

CONVERGED = "converged"
DECIDED = "decided"
OUT_OF_EVALUATIONS = "max_evaluations"
OUT_OF_PRECISION = "precision"

Report: TypeAlias = Callable[[float], None]
"""Called with the share of a search that is done, from 0 to 1."""


@dataclass(frozen=True, kw_only=True)
class SearchOutcome:
    """A truncation set and what is known about it.

    Parameters
    ----------
    intervals : (k, 2)
        The set as found; contains the observed statistic.
    certain, possible : (k, 2)
        Sets inside which and outside which it is known, under the search's assumptions.
    evaluations
        Points at which the model was evaluated for this image, with or without a derivative.
    status
        "converged"; "decided" if it was enough to know on which side of alpha p lies; or what stopped the search
        before: "max_evaluations", or "precision" where rounding or noise of the scores hides the rest.
    """

    intervals: Intervals
    certain: Intervals
    possible: Intervals
    evaluations: int
    status: str


@runtime_checkable
class Search(Protocol):
    """A way to find truncation sets."""

    def find(self, problem: SearchProblem, report: Report | None = None) -> list[SearchOutcome]:
        """Return the truncation set of each image of a problem, in order."""

    def images_together(self, batch_size: int) -> int:
        """Return how many images are best searched together when the model evaluates ``batch_size`` at a time."""

    def describe(self) -> Mapping[str, Any]:
        """Return the search's name and parameters as JSON-ready values."""
