"""The certificate of a result: a second p-value, exactly valid whatever the model does between two evaluations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.markup import definition_table
from attentest.presentation.number_texts import range_text
from attentest.statistics.alternative import Alternative, ordinary_range

DISAGREEMENT_LEVEL = 0.001  # a count of draws less probable than this contradicts the error bar of the search
MOVES_WELL = 0.9  # where a smaller share of the chains left the observed point, it is the chains that are in doubt


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Certificate:
    """A Monte-Carlo p-value by the parallel method of Besag and Clifford, beside the one of the search.

    It is exactly valid in finite samples: if the hypothesis is true, ``pvalue`` is at most k / (n + 1) with probability
    at most k / (n + 1), for any model, smooth or not, and for chains that mix well or badly. Where the search ends with
    status "sharp", it is the p-value to report.
    """

    observed: float
    """The observed statistic."""
    statistics: NDArray[np.float64]
    """(n,). Statistics of the draws: under the hypothesis exchangeable with the observed one, given the region."""
    alternative: Alternative
    """Which statistics are at least as extreme as the observed one. For "equal-tailed" p is twice the smaller of the
    two one-sided p-values. Each is at most a / 2 with probability at most a / 2, so twice the smaller is at most a with
    probability at most a; the least possible one is 2 / (n + 1)."""
    pvalue_bounds: tuple[float, float]
    """Least and greatest p-value by the search, with which the draws are compared."""
    moved: float
    """Share of the chains that left the observed point; if it is small the certified p is valid but too great."""
    steps: int
    """Steps of each chain."""
    seed: int | None
    """The seed that was asked for; None if the random numbers are a function of the image."""
    evaluations: int
    """Number of model evaluations that the draws took."""

    @property
    def draws(self) -> int:
        """Number n of draws."""
        return len(self.statistics)

    @property
    def extreme(self) -> int:
        """Number of draws that are at least as extreme as the observed statistic; with equal tails, in the smaller."""
        if self.alternative == "equal-tailed":
            return min(int(np.sum(self.statistics >= self.observed)), int(np.sum(self.statistics <= self.observed)))
        return self._beyond

    @property
    def pvalue(self) -> float:
        """The certified p-value, (1 + extreme) / (1 + n), or twice that with equal tails."""
        return min(1.0, (2 if self.alternative == "equal-tailed" else 1) * (1 + self.extreme) / (1 + self.draws))

    @property
    def _beyond(self) -> int:
        """Number of draws outside the ordinary range: a binomial number."""
        lower, upper = ordinary_range(np.array(self.observed), self.alternative)
        return int(np.sum((self.statistics <= lower) | (self.statistics >= upper)))

    @property
    def agreement(self) -> float:
        """Two-sided binomial probability of the draws, for the most favourable p within ``pvalue_bounds``.

        If the search is right and the chains mix well, ``extreme`` is Binomial(n, p). With equal tails the number of
        draws beyond the statistic, seen from zero, is Binomial(n, p / 2) or Binomial(n, 1 - p / 2).
        """
        low, high = self.pvalue_bounds
        if self.alternative == "equal-tailed":
            return max(self._agreement(low / 2, high / 2), self._agreement(1 - high / 2, 1 - low / 2))
        return self._agreement(low, high)

    def _agreement(self, low: float, high: float) -> float:
        """Return the two-sided binomial probability of the draws, for a probability between two."""
        from scipy.stats import binom  # here because scipy.stats is slow to import

        at_most, at_least = binom.cdf(self._beyond, self.draws, low), binom.sf(self._beyond - 1, self.draws, high)
        return float(min(1.0, 2 * min(at_most, at_least)))

    @property
    def agrees(self) -> bool:
        """Whether the draws are compatible with the error bar of the search."""
        return self.agreement >= DISAGREEMENT_LEVEL

    def compared_with(self, alternative: Alternative, pvalue_bounds: tuple[float, float]) -> Certificate:
        """Return the certificate of another p-value, from the same draws."""
        return replace(self, alternative=alternative, pvalue_bounds=pvalue_bounds)

    def summary(self) -> str:
        """Return the certificate in words."""
        searched = f"p from {range_text(*self.pvalue_bounds, 4)}"
        where = "lie in the smaller tail" if self.alternative == "equal-tailed" else "are at least as extreme"
        counted = f"{self.extreme} of {self.draws} draws {where}: certified p = {self.pvalue:.4g}"
        if self.agrees:
            return f"{counted}, in agreement with {searched}"
        return f"{counted}, but {searched} makes that a {self.agreement:.0e} chance; " + (
            "either the error bar is wrong or the chains are too short, which more steps would show"
            if self.moved >= MOVES_WELL
            else f"only {self.moved:.0%} of the chains moved, so the certified p is too great, and more steps may help"
        )

    def to_dict(self, arrays: bool = False) -> dict[str, Any]:
        """Return the certificate as JSON-ready values; ``arrays`` adds the statistics of the draws."""
        first, last = ("pvalue", "draws", "extreme", "agreement", "agrees"), ("moved", "steps", "seed", "evaluations")
        values = {name: getattr(self, name) for name in first} | {"summary": self.summary()}
        values |= {name: getattr(self, name) for name in last}
        if arrays:
            values["statistics"] = self.statistics.tolist()
        return values

    def __repr__(self) -> str:
        return f"Certificate(pvalue={self.pvalue:.4g}, {self.extreme} of {self.draws} draws, agrees={self.agrees})"

    def _repr_html_(self) -> str:
        defined = {
            "certified p": f"{self.pvalue:.4g}",
            "p by the search": range_text(*self.pvalue_bounds),
            "chains": f"{self.steps} steps, {self.moved:.0%} moved, {self.evaluations} evaluations",
        }
        return definition_table("Certificate", defined, [self.summary()])
