"""The output of a search for one image, and the interface of searches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

from attentest.search.problem import SearchProblem
from attentest.statistics.truncation_set import TruncationSet

CONVERGED = "converged"
DECIDED = "decided"
OUT_OF_EVALUATIONS = "max_evaluations"
OUT_OF_PRECISION = "precision"
TOO_SHARP = "sharp"

Report: TypeAlias = Callable[[float], None]
"""Called with the fraction of a search that is done, from 0 to 1."""


@dataclass(frozen=True, kw_only=True)
class Audit:
    """A check of what a search concluded, at random places.

    Parameters
    ----------
    points
        Number of points at which a conclusion was compared with the model.
    contradictions
        Number of them at which it was wrong. What was concluded there has been searched again.
    """

    points: int
    contradictions: int


@dataclass(frozen=True, kw_only=True)
class SearchOutcome(TruncationSet):
    """A truncation set and how it was found.

    Parameters
    ----------
    intervals, certain, possible : (n, 2)
        As in :class:`~attentest.statistics.truncation_set.TruncationSet`.
    evaluations
        Number of points at which the model was evaluated for this image, with or without a derivative.
    status
        "converged"; "decided" if the search stopped once it knew on which side of alpha p lies; or the reason for
        which it stopped early: "max_evaluations"; "precision" where rounding or noise of the scores hides the rest; or
        "sharp" where the scores change so abruptly somewhere that looking for all such places would take more than
        ``max_evaluations``.
    audit
        The check of its conclusions; None for a search that has none.
    """

    evaluations: int
    status: str
    audit: Audit | None = None


@runtime_checkable
class Search(Protocol):
    """A way to find truncation sets."""

    def find(self, problem: SearchProblem, report: Report | None = None) -> list[SearchOutcome]:
        """Return the truncation set of each image of a problem, in order."""

    def images_together(self, batch_size: int) -> int:
        """Return how many images are best searched together when the model evaluates ``batch_size`` at a time."""

    def describe(self) -> Mapping[str, Any]:
        """Return the search's name and parameters as JSON-ready values."""
