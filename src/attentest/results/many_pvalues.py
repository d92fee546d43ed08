"""P-values of many images together: adjusted p-values, decisions, rates, and a summary in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attentest.checks import level
from attentest.errors import counted
from attentest.search import DECIDED, TOO_SHARP
from attentest.statistics.multiple_testing import Adjustment, Rate, adjusted_pvalues, rate_of
from attentest.statistics.pvalue import decision

METHOD_NAMES: dict[Adjustment, str] = {
    "bh": "Benjamini-Hochberg",
    "by": "Benjamini-Yekutieli",
    "holm": "Holm",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class ManyPvalues:
    """What is known of the p-values of m images.

    Parameters
    ----------
    log_low, log_high : (m,)
        Logs of the bounds on the selective p-values.
    naive : (m,)
        P-values that ignore the selection.
    statuses
        How each search ended.
    certified
        Whether each result has a certificate.
    references
        Digest of the noisy reference image of each; None where there is none.
    """

    log_low: NDArray[np.float64]
    log_high: NDArray[np.float64]
    naive: NDArray[np.float64]
    statuses: Sequence[str]
    certified: Sequence[bool]
    references: Sequence[str | None]

    def __len__(self) -> int:
        return len(self.log_low)

    def adjusted_bounds(self, method: Adjustment) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the least and the greatest adjusted p-values (m,) compatible with what the searches know."""
        return adjusted_pvalues(self.log_low, method), adjusted_pvalues(self.log_high, method)

    def decisions(self, alpha: float, method: Adjustment | None) -> list[bool | None]:
        """Return for each image whether its hypothesis is rejected at alpha; None where the error bars do not tell."""
        alpha = level(alpha)
        ends = (np.exp(self.log_low), np.exp(self.log_high)) if method is None else self.adjusted_bounds(method)
        return [decision(low, high, alpha) for low, high in zip(*(each.tolist() for each in ends), strict=True)]

    def rejection_rate(self, alpha: float, naive: bool, confidence_level: float) -> Rate:
        """Return the proportion of p-values that are certainly at most alpha, with its Wilson interval."""
        alpha = level(alpha)
        hits = self.naive <= alpha if naive else np.array([one is True for one in self.decisions(alpha, None)])
        return rate_of(hits, confidence_level)

    @property
    def share_a_reference(self) -> bool:
        """Whether two images were compared with the same noisy reference."""
        references = [reference for reference in self.references if reference is not None]
        return len(set(references)) < len(references)

    def summary(self, alpha: float, of: str = "image", methods: Sequence[Adjustment] | None = None) -> str:
        """Return a summary at a significance level, in words.

        Parameters
        ----------
        alpha
            Significance level.
        of
            What the p-values are of, in the singular.
        methods
            How to adjust them; by default all ways that are valid, after the rates of those that are not adjusted.
        """
        alpha = level(alpha)
        lines = [counted(len(self), of)]
        plain: list[bool | None] = []
        if methods is None:
            plain = self.decisions(alpha, None)
            lines += [
                f"selective p <= {alpha:g}: {self.rejection_rate(alpha, False, 0.95)}{_undecided(plain)}",
                f"naive p <= {alpha:g}: {self.rejection_rate(alpha, True, 0.95)}",
            ]
        chosen = methods or (("by", "holm") if self.share_a_reference else ("bh", "by", "holm"))
        adjusted = {method: self.decisions(alpha, method) for method in chosen}
        lines += [
            f"{METHOD_NAMES[method]}-adjusted p <= {alpha:g}: {made.count(True)} of {len(self)}{_undecided(made)}"
            for method, made in adjusted.items()
        ]
        if methods is None and self.share_a_reference:
            lines.append(
                "images that are compared with the same noisy reference have p-values that depend on each other: "
                "Benjamini-Hochberg does not apply to them"
            )
        is_open = None in plain or any(None in made for made in adjusted.values())
        return "\n".join(lines + ([self.advice(alpha)] if is_open else []))

    def advice(self, alpha: float) -> str:
        """Return a sentence that says how to resolve p-values whose error bar contains alpha."""
        more = "a larger max_evaluations= (--max-evaluations)"
        sharp = [self.certified[i] for i, status in enumerate(self.statuses) if status == TOO_SHARP]
        if DECIDED in self.statuses:
            how = "to resolve them, test without alpha= (without --decide)"
        elif not sharp:
            how = f"a smaller tolerance (tol=, --tol) or {more} may resolve them"
        elif all(sharp):
            how = f"where the status is sharp, report the certified p, or use {more}"
        else:
            how = f"where the status is sharp, certify (certification=, --certify), or use {more}"
        return f"undecided: error bars that contain {alpha:g}; {how}"


def _undecided(decisions: Sequence[bool | None]) -> str:
    count = list(decisions).count(None)
    return f", {count} undecided" if count else ""
