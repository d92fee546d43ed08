"""Searches for the truncation set Z = {z : the region at z is the observed one} (section 3)."""

from __future__ import annotations

from attentest.errors import InputError
from attentest.registry import SEARCHES
from attentest.search.certification import Certification
from attentest.search.grid import Adaptive, Combination, Fixed, GridSearch
from attentest.search.piecewise import PiecewiseSearch
from attentest.search.problem import CONVERGED, DECIDED, ROUGH, Audit, Report, Search, SearchOutcome, SearchProblem
from attentest.search.spectral.search import SpectralSearch


def as_search(search: str | Search) -> Search:
    """Return the search of a name, or a configured search as it is."""
    if isinstance(search, str):
        named: Search = SEARCHES.load(search)()
        return named
    if isinstance(search, Search) and not isinstance(search, type):
        return search
    raise InputError(f"search must be a name or a search object such as SpectralSearch(tol=1e-4), got {search!r}.")


__all__ = [
    "CONVERGED",
    "DECIDED",
    "ROUGH",
    "Adaptive",
    "Audit",
    "Certification",
    "Combination",
    "Fixed",
    "GridSearch",
    "PiecewiseSearch",
    "Report",
    "Search",
    "SearchOutcome",
    "SearchProblem",
    "SpectralSearch",
]
