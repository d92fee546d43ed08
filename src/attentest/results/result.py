"""The result of a test of one image."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import isinf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.checks import level
from attentest.presentation.notebook import result_html
from attentest.presentation.picture import Picture
from attentest.presentation.words import verdict_text
from attentest.record import json_interval, json_intervals, json_number
from attentest.results.certificate import Certificate
from attentest.results.plots import ResultPlots
from attentest.results.selective_inference import USUAL_LEVEL, SelectiveInference, confidence_intervals_of, estimates_of
from attentest.search import Audit
from attentest.statistics.alternative import Alternative, as_alternative
from attentest.statistics.law import Law
from attentest.statistics.pvalue import bonferroni_log_pvalue, log_pvalues, naive_log_pvalue
from attentest.statistics.randomised_law import law_values
from attentest.statistics.truncation_set import Intervals


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class AttentionTestResult(ResultPlots, SelectiveInference):
    """Whether the attention region of one image differs from what it is compared with.

    Parameters
    ----------
    law
        Law of the statistic given the truncation set, for this one image.
    standard_error
        Standard deviation of the compared difference, in the units of the pixels.
    region : (H, W) bool
        The attention region.
    part : (H, W) bool
        The compared part of the region: all of it, or one connected component.
    image : (H, W) or (H, W, C) float64
        The tested image.
    attention : (H, W) float64
        The attention map, from 0 to 1; 0 where the model sees nothing.
    seen : (H, W) bool
        The pixels the model sees: all, unless its preprocessing crops or its patches leave a border.
    selectable
        Number of pixels seen, or of patches in which they lie if the region consists of whole patches: those from which
        the model chose the region.
    intervals : (n, 2) float64
        Truncation set: the values of z at which the model would choose this region. It is searched only where p and
        the confidence interval depend on it.
    certain_intervals, possible_intervals : (n, 2) float64
        A subset and a superset of the truncation set, as far as the search knows.
    log_pvalue, log_pvalue_bounds
        Natural logarithms of the selective p-value and of the bounds on it, for p too small for a float. They are as
        exact as the search was asked to be: with a tolerance of 1e-6 the search does not distinguish p-values below
        it; ``SpectralSearch(tol=0, rtol=1e-3)`` resolves any p.
    naive_log_pvalue, bonferroni_log_pvalue
        Logarithms of the p-value that ignores the selection, and of the one that corrects for all regions that
        could have been chosen.
    alternative
        The alternative of the p-values and the confidence interval.
    alpha
        Level at which the test was asked to decide, if it was.
    confidence_level
        Level of the confidence interval that the search went for; None if it went for p alone.
    connectivity
        1 or 2 if the part is a connected component, None if the region was compared as a whole.
    evaluations
        Number of model evaluations that the search used for this image.
    status
        "converged"; "decided" if the search stopped when it knew on which side of ``alpha`` p lies; or the reason for
        which it stopped early: "max_evaluations"; "precision" where rounding or noise of the scores hides the rest; or
        "sharp" where the scores change so abruptly somewhere that looking for all such places would take more than
        ``max_evaluations``. P is then only a guess with a wide error bar: certify the result
        (:meth:`AttentionTest.certify`), or search with a larger ``max_evaluations``.
    settings
        Record of how the test was made: region, contrast, alternative, search and noise, JSON-ready.
    audit
        How many random ``points`` the search compared with its conclusions before it ended, and how many
        ``contradictions`` it found and mended; None for the grid searches, which have no audit.
    certificate
        A second p-value, by draws instead of a search, if it was asked for.
    randomised_image : (H, W) or (H, W, C) float64
        The image plus noise that the model saw, if the selection was randomised: region and attention map are those of
        this image. The statistic is that of the image itself.
    """

    law: Law
    standard_error: float
    region: NDArray[np.bool_]
    part: NDArray[np.bool_]
    image: NDArray[np.float64]
    attention: NDArray[np.float64]
    seen: NDArray[np.bool_]
    selectable: int
    intervals: Intervals
    certain_intervals: Intervals
    possible_intervals: Intervals
    log_pvalue: float
    log_pvalue_bounds: tuple[float, float]
    naive_log_pvalue: float
    bonferroni_log_pvalue: float
    alternative: Alternative
    alpha: float | None
    confidence_level: float | None
    connectivity: int | None
    evaluations: int
    status: str
    settings: Mapping[str, Any]
    audit: Audit | None = None
    certificate: Certificate | None = None
    randomised_image: NDArray[np.float64] | None = None

    @property
    def reference_images(self) -> int | None:
        """Number of reference images that the noise was estimated from; None if it is known, or known otherwise."""
        images = self.settings["noise"].get("images")
        return images if isinstance(images, int) else None

    @property
    def noise_doubt(self) -> str | None:
        """Why the image can hardly have the noise of the noise model, by its finest details; None if it can."""
        doubt: str | None = self.settings.get("noise_doubt")
        return doubt

    def verdict(self, alpha: float = 0.05) -> str:
        """Return in words what the p-value says at a significance level, and what it does not say."""
        return verdict_text(self.to_dict(), level(alpha))

    def with_alternative(self, alternative: Alternative) -> AttentionTestResult:
        """Return the result for another p-value, from the same truncation set, without evaluating the model.

        The set was searched as far as the first p-value needs, so the bounds on this one may be wide. A certificate is
        that of the same draws.

        Parameters
        ----------
        alternative
            As in :class:`AttentionTest`.
        """
        tails = as_alternative(alternative)
        log_naive = naive_log_pvalue(self.statistic, alternative)
        other = replace(
            self,
            alternative=alternative,
            naive_log_pvalue=float(log_naive),
            bonferroni_log_pvalue=float(corrected_for_all_regions(log_naive, self.selectable, self.connectivity)),
            settings={**self.settings, "alternative": tails},
        )
        # The draws of a certificate are of the law with a known standard error.
        known = other._with_law(self.law.with_known_error()).pvalue_bounds
        certificate = None if self.certificate is None else self.certificate.compared_with(tails, known)
        return replace(other._with_law(self.law), certificate=certificate)

    def with_known_noise(self) -> AttentionTestResult:
        """Return the result if the noise model, which was estimated, is taken for the true one.

        It comes from the same truncation set, without evaluating the model. Noise that is known gives this result.
        """
        return self._with_law(self.law.with_known_error())

    def _with_law(self, law: Law) -> AttentionTestResult:
        """Return the result under another law of the statistic, given the same truncation set."""
        best, low, high = (float(log[0]) for log in log_pvalues(law, [self.truncation_set], self.alternative))
        return replace(self, law=law, log_pvalue=best, log_pvalue_bounds=(low, high))

    def picture(self, title: str = "") -> Picture:
        """Return everything that a picture of the result shows."""
        return Picture(
            values=self.to_dict(),
            law=self.law,
            image=self.image,
            attention=self.attention,
            region=self.region,
            part=self.part,
            randomised_image=self.randomised_image,
            title=title,
        )

    def to_dict(self, arrays: bool = False) -> dict[str, Any]:
        """Return the result as JSON-ready values.

        With ``arrays``, image, region, part, attention map, draws and randomised image, too. Infinite numbers become
        "inf" and "-inf".
        """
        values = values_of([self], self.confidence_level or USUAL_LEVEL)[0]
        if arrays:
            if self.certificate is not None:
                values["certificate"] = self.certificate.to_dict(arrays=True)
            values["image"] = self.image.tolist()
            values["region"] = self.region.tolist()
            values["part"] = self.part.tolist()
            values["attention"] = self.attention.tolist()
            if self.randomised_image is not None:
                values["randomised_image"] = self.randomised_image.tolist()
        return values

    def __repr__(self) -> str:
        certified = "" if self.certificate is None else f"certified p {self.certificate.pvalue:.6g}, "
        return (
            f"AttentionTestResult(statistic={self.statistic:.4g}, pvalue={self.pvalue_text(6)}, {certified}"
            f"naive_pvalue={self.naive_pvalue:.3g}, region of {int(self.part.sum())} of {int(self.seen.sum())} pixels)"
        )

    def _repr_html_(self) -> str:
        return result_html(self.picture())


def values_of(results: Sequence[AttentionTestResult], confidence_level: float) -> list[dict[str, Any]]:
    """Return the numbers of each result as JSON-ready values; intervals and estimates are computed together."""
    best, low, high = estimates_of(results)
    intervals = confidence_intervals_of(results, confidence_level)
    return [
        {
            "statistic": result.statistic,
            "pvalue": result.pvalue,
            "pvalue_bounds": list(result.pvalue_bounds),
            "log_pvalue": json_number(result.log_pvalue),
            "log_pvalue_bounds": [json_number(bound) for bound in result.log_pvalue_bounds],
            "alpha": result.alpha,
            "reject": result.reject,
            "alternative": result.alternative,
            "difference": result.difference,
            "standard_error": result.standard_error,
            "degrees_of_freedom": None if isinf(result.degrees_of_freedom) else result.degrees_of_freedom,
            "reference_images": result.reference_images,
            "estimate": json_number(best[i]),
            "estimate_bounds": [json_number(low[i]), json_number(high[i])],
            "confidence_interval": json_interval(intervals[i]),
            "naive_confidence_interval": json_interval(result.naive_confidence_interval(confidence_level)),
            "interval_bound": json_number(result.interval_bound),
            "naive_pvalue": result.naive_pvalue,
            "naive_log_pvalue": result.naive_log_pvalue,
            "bonferroni_pvalue": result.bonferroni_pvalue,
            "bonferroni_log_pvalue": result.bonferroni_log_pvalue,
            "law": law_values(result.law),
            "intervals": json_intervals(result.intervals),
            "certain_intervals": json_intervals(result.certain_intervals),
            "possible_intervals": json_intervals(result.possible_intervals),
            "region_pixels": int(result.region.sum()),
            "part_pixels": int(result.part.sum()),
            "seen_pixels": int(result.seen.sum()),
            "selectable": result.selectable,
            "image_pixels": int(result.region.size),
            "evaluations": result.evaluations,
            "status": result.status,
            "audit": None if result.audit is None else asdict(result.audit),
            "certificate": None if result.certificate is None else result.certificate.to_dict(),
            **copy.deepcopy(dict(result.settings)),
        }
        for i, result in enumerate(results)
    ]


def corrected_for_all_regions(
    log_naive: NDArray[np.float64], selectable: int, connectivity: int | None
) -> NDArray[np.float64]:
    """Return the logs of naive p-values corrected for all regions that could have been chosen (Bonferroni)."""
    # A pixel or patch is in the region or not; with components it is in this one, in another, or in none.
    return bonferroni_log_pvalue(log_naive, selectable, kinds=2 if connectivity is None else 3)
