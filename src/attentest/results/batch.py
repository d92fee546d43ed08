"""The results of many images: a table, adjusted p-values, rates."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, get_args, overload

import numpy as np
from numpy.typing import NDArray

from attentest.checks import level
from attentest.errors import InputError
from attentest.files import as_path
from attentest.results.result import USUAL_LEVEL, AttentionTestResult, confidence_intervals_of, estimates_of
from attentest.results.tables import write_csv, write_parquet
from attentest.search import DECIDED, TOO_SHARP
from attentest.statistics.multiplicity import Adjustment, Rate, adjusted_pvalues, rate_of
from attentest.statistics.pvalue import decision

if TYPE_CHECKING:
    import pandas as pd

METHOD_NAMES: dict[Adjustment, str] = {
    "bh": "Benjamini-Hochberg",
    "by": "Benjamini-Yekutieli",
    "holm": "Holm",
}

RULES = ("threshold", "top_fraction")
"""Settings of the region rules: each result has one of them."""


class Results(Sequence[AttentionTestResult]):
    """The results of many images, in order.

    Parameters
    ----------
    results
        Results, one per image.
    names
        Names of the images in tables, such as file names; by default their numbers from 0.
    """

    def __init__(self, results: Iterable[AttentionTestResult], names: Sequence[object] | None = None) -> None:
        if not isinstance(results, Iterable) or isinstance(names, str) or not isinstance(names, (Sequence, type(None))):
            raise InputError(
                f"Results takes an iterable of results and a list of names, got {type(results).__name__} and "
                f"{type(names).__name__}."
            )
        self._results = tuple(results)
        for result in self._results:
            if not isinstance(result, AttentionTestResult):
                raise InputError(f"Results takes results of AttentionTest, got {type(result).__name__} among them.")
        self._names = tuple(range(len(self._results)) if names is None else names)
        if len(self._names) != len(self._results):
            raise InputError(f"there must be a name for each result, got {len(self._names)} for {len(self._results)}.")

    def __len__(self) -> int:
        return len(self._results)

    def __iter__(self) -> Iterator[AttentionTestResult]:
        return iter(self._results)

    @overload
    def __getitem__(self, index: int) -> AttentionTestResult: ...
    @overload
    def __getitem__(self, index: slice) -> Results: ...
    def __getitem__(self, index: int | slice) -> AttentionTestResult | Results:
        if isinstance(index, slice):
            return type(self)(self._results[index], self.names[index])
        return self._results[index]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} results)"

    @property
    def names(self) -> tuple[object, ...]:
        """Names of the images."""
        return self._names

    @property
    def pvalues(self) -> NDArray[np.float64]:
        """Selective p-values."""
        return np.array([result.pvalue for result in self])

    @property
    def naive_pvalues(self) -> NDArray[np.float64]:
        """P-values that ignore the selection: not valid."""
        return np.array([result.naive_pvalue for result in self])

    def adjusted_pvalues(self, method: Adjustment = "bh") -> NDArray[np.float64]:
        """Return the selective p-values adjusted for multiple testing: the upper ends of their bounds.

        What is adjusted is the upper bound of each p-value, never a p-value within a wide error bar. An upper bound of
        a valid p-value is a valid p-value, so an adjusted one of at most alpha is a rejection, whatever the searches
        left open. With searches that converged the difference is that of their tolerance.

        Parameters
        ----------
        method
            "bh", Benjamini and Hochberg: rejecting adjusted p-values of at most alpha controls the expected proportion
            of false rejections at alpha, for independent images. "by", Benjamini and Yekutieli: the same for images
            that depend on each other, such as those compared with one noisy reference. "holm": it controls the
            probability of any false rejection at alpha, for independent images and others.
        """
        return self.adjusted_pvalue_bounds(method)[1]

    def adjusted_pvalue_bounds(self, method: Adjustment = "bh") -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the least and the greatest adjusted p-values compatible with what the searches know.

        Where alpha lies between them it is open whether the hypothesis is rejected, as it can be after tests that were
        asked to decide at an alpha (``alpha=``): their p-values are resolved only as far as that needs.

        Parameters
        ----------
        method
            As in :meth:`adjusted_pvalues`.
        """
        low, high = np.array([result.log_pvalue_bounds for result in self]).reshape(-1, 2).T
        return adjusted_pvalues(low, method), adjusted_pvalues(high, method)

    def decisions(self, alpha: float = 0.05, method: Adjustment | None = None) -> list[bool | None]:
        """Return for each image whether its hypothesis is rejected at alpha; None where the error bars do not tell.

        Parameters
        ----------
        alpha
            Significance level.
        method
            As in :meth:`adjusted_pvalues`; None to decide by the p-values as they are.
        """
        alpha = level(alpha)
        if method is None:
            return [result.reject_at(alpha) for result in self]
        low, high = (ends.tolist() for ends in self.adjusted_pvalue_bounds(method))
        return [decision(*ends, alpha) for ends in zip(low, high, strict=True)]

    def rejection_rate(self, alpha: float = 0.05, *, naive: bool = False, confidence_level: float = 0.95) -> Rate:
        """Return the proportion of p-values that are at most alpha, with its Wilson interval.

        A selective p-value counts if its upper bound is at most alpha: if the search is certain of the rejection.

        Parameters
        ----------
        alpha
            Significance level.
        naive
            Whether to count the p-values that ignore the selection instead.
        confidence_level
            Of the interval.
        """
        alpha = level(alpha)
        hits = self.naive_pvalues <= alpha if naive else np.array([one is True for one in self.decisions(alpha, None)])
        return rate_of(hits, confidence_level)

    def table(self, confidence_level: float | None = None) -> dict[str, list[Any]]:
        """Return one row per image, as columns.

        ``audit_points`` and ``audit_contradictions`` are None for the grid searches. The columns of certificates,
        ``certificate_pvalue``, ``certificate_draws`` and others, are there if a result has one. Of ``threshold`` and
        ``top_fraction`` one is None. ``gamma`` is 0 without randomised selection, and ``randomise_seed`` None unless it
        was given.

        Parameters
        ----------
        confidence_level
            Level of the confidence intervals; by default that of the test.
        """
        if confidence_level is None:
            confidence_level = (self[0].confidence_level if len(self) else None) or USUAL_LEVEL
        intervals = confidence_intervals_of(self, confidence_level)
        audits, certificates = [result.audit for result in self], [result.certificate for result in self]
        certified: dict[str, list[Any]] = {}
        if any(certificates):
            for name in ("pvalue", "agrees", "agreement", "draws", "steps", "seed", "moved"):
                certified[f"certificate_{name}"] = [each and getattr(each, name) for each in certificates]
        randomisations = [result.settings.get("randomisation") or {} for result in self]
        adjusted = {f"pvalue_{method}": self.adjusted_pvalues(method).tolist() for method in get_args(Adjustment)}
        return {
            "image": [name if isinstance(name, (int, str)) else str(name) for name in self.names],
            "statistic": [result.statistic for result in self],
            "pvalue": [result.pvalue for result in self],
            "pvalue_low": [result.pvalue_bounds[0] for result in self],
            "pvalue_high": [result.pvalue_bounds[1] for result in self],
            "log_pvalue": [result.log_pvalue for result in self],
            **adjusted,
            **certified,
            "naive_pvalue": [result.naive_pvalue for result in self],
            "bonferroni_pvalue": [result.bonferroni_pvalue for result in self],
            "difference": [result.difference for result in self],
            "standard_error": [result.standard_error for result in self],
            "estimate": estimates_of(self).best.tolist(),
            "confidence_level": [interval.confidence_level for interval in intervals],
            "confidence_low": [interval.low for interval in intervals],
            "confidence_high": [interval.high for interval in intervals],
            "confidence_error": [interval.error for interval in intervals],
            "part_pixels": [int(result.part.sum()) for result in self],
            "region_pixels": [int(result.region.sum()) for result in self],
            "seen_pixels": [int(result.seen.sum()) for result in self],
            **{name: [result.settings.get(name) for result in self] for name in ("region_unit", *RULES)},
            "gamma": [each.get("gamma", 0.0) for each in randomisations],
            "randomise_seed": [each.get("seed") for each in randomisations],
            "alternative": [result.alternative for result in self],
            "contrast": [result.settings["contrast"]["name"] for result in self],
            "noise": [result.settings["noise"].get("model", "") for result in self],
            "approximate_noise": [bool(result.settings["noise"].get("approximate", False)) for result in self],
            "evaluations": [result.evaluations for result in self],
            "status": [result.status for result in self],
            "audit_points": [audit and audit.points for audit in audits],
            "audit_contradictions": [audit and audit.contradictions for audit in audits],
        }

    def to_csv(self, path: str | os.PathLike[str], confidence_level: float | None = None) -> None:
        """Write the table as CSV, numbers exact to the last bit."""
        write_csv(self.table(confidence_level), as_path(path, "the table"))

    def to_pandas(self, confidence_level: float | None = None) -> pd.DataFrame:
        """Return the table as a pandas data frame; needs pandas (``pip install 'attentest[tables]'``)."""
        try:
            import pandas as pd
        except ImportError:
            raise InputError("data frames need pandas: pip install 'attentest[tables]'.") from None
        return pd.DataFrame(self.table(confidence_level))

    def to_parquet(self, path: str | os.PathLike[str], confidence_level: float | None = None) -> None:
        """Write the table as Parquet; needs pyarrow (``pip install 'attentest[tables]'``)."""
        table = self.table(confidence_level)
        table["image"] = [str(name) for name in table["image"]]  # a column has one type
        write_parquet(table, as_path(path, "the table"))

    def summary(self, alpha: float = 0.05) -> str:
        """Return a summary of the results at a significance level, in words."""
        alpha = level(alpha)
        dependent = self._share_a_reference()
        adjusted, open_ = self._adjusted(alpha, *(("by", "holm") if dependent else ("bh", "by", "holm")))
        plain = self.decisions(alpha, None)
        lines = [
            f"{len(self)} image{'s' if len(self) != 1 else ''}",
            f"selective p <= {alpha:g}: {self.rejection_rate(alpha)}{_undecided(plain)}",
            f"naive p <= {alpha:g}: {self.rejection_rate(alpha, naive=True)}",
            *adjusted,
        ]
        if dependent:
            lines.append(
                "images that are compared with the same noisy reference have p-values that depend on each other: "
                "Benjamini-Hochberg does not apply to them"
            )
        return "\n".join(lines + ([self.advice(alpha)] if open_ or None in plain else []))

    def _share_a_reference(self) -> bool:
        """Return whether two images were compared with the same noisy reference."""
        known = [result.settings.get("noisy_reference") for result in self]
        references = [reference for reference in known if reference is not None]
        return len(set(references)) < len(references)

    def _adjusted(self, alpha: float, *methods: Adjustment) -> tuple[list[str], bool]:
        """Return a line for each method with the number of its rejections, and whether there is an undecided one."""
        found = {method: self.decisions(alpha, method) for method in methods}
        lines = [
            f"{METHOD_NAMES[method]}-adjusted p <= {alpha:g}: {made.count(True)} of {len(self)}{_undecided(made)}"
            for method, made in found.items()
        ]
        return lines, any(None in made for made in found.values())

    def advice(self, alpha: float) -> str:
        """Return a sentence that says how to resolve p-values whose error bar contains alpha."""
        statuses = {result.status for result in self}
        more = "a larger max_evaluations= (--max-evaluations)"
        if DECIDED in statuses:
            how = "to resolve them, test without alpha= (without --decide)"
        elif TOO_SHARP not in statuses:
            how = f"a smaller tolerance (tol=, --tol) or {more} may resolve them"
        elif all(result.certificate is not None for result in self if result.status == TOO_SHARP):
            how = f"where the status is sharp, report the certified p, or use {more}"
        else:
            how = f"where the status is sharp, certify (certification=, --certify), or use {more}"
        return f"undecided: error bars that contain {alpha:g}; {how}"


def _undecided(decisions: list[bool | None]) -> str:
    count = decisions.count(None)
    return f", {count} undecided" if count else ""


class ComponentResults(Results):
    """The results of the connected components of one image's region, in reading order.

    They are adjusted together, so there are no slices of them.
    """

    def __init__(self, results: Iterable[AttentionTestResult], names: Sequence[object] | None = None) -> None:
        super().__init__(results, names)
        if len(self) == 0:
            raise InputError("a region has at least one component, got none.")

    def __getitem__(self, index: int) -> AttentionTestResult:  # type: ignore[override]  # no slices
        if isinstance(index, slice):
            raise InputError("the components of a region are adjusted together: take one, or list(...) of them.")
        found: AttentionTestResult = super().__getitem__(index)
        return found

    @property
    def region(self) -> NDArray[np.bool_]:
        """The whole region (H, W)."""
        return self[0].region

    @property
    def labels(self) -> NDArray[np.int32]:
        """The number of each pixel's component (H, W): 0 outside, i + 1 for the i-th result."""
        labels = np.zeros(self.region.shape, dtype=np.int32)
        for number, result in enumerate(self, start=1):
            labels[result.part] = number
        return labels

    def adjusted_pvalues(self, method: Adjustment = "holm") -> NDArray[np.float64]:
        """Return the p-values adjusted across the components, by Holm's method unless told otherwise.

        Each p-value is valid given the region, and the components are a function of the region. So, whichever region it
        is, they are a fixed number of hypotheses with valid p-values, and Holm's method holds however these depend on
        each other.
        """
        return super().adjusted_pvalues(method)

    def adjusted_pvalue_bounds(self, method: Adjustment = "holm") -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the bounds of :meth:`adjusted_pvalues`, which are their upper ends."""
        return super().adjusted_pvalue_bounds(method)

    def decisions(self, alpha: float = 0.05, method: Adjustment | None = "holm") -> list[bool | None]:
        """Return for each component whether its hypothesis is rejected at alpha; None where error bars do not tell."""
        return super().decisions(alpha, method)

    def summary(self, alpha: float = 0.05) -> str:
        """Return a summary of the results at a significance level, in words."""
        alpha = level(alpha)
        adjusted, open_ = self._adjusted(alpha, "holm")
        lines = [f"{len(self)} component{'s' if len(self) != 1 else ''} of one region", *adjusted]
        return "\n".join(lines + ([self.advice(alpha)] if open_ else []))
