"""The result of a test of one image: its numbers, its images, and what can be asked of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attentest.checks import level
from attentest.contrast.context import ComparedRegion, Context
from attentest.errors import InputError, worded
from attentest.presentation.figure import axes_or_new, checked_axes, checked_width, fitting_size, shown_figure
from attentest.presentation.number_texts import pvalue_text
from attentest.presentation.picture import Picture, draw_overlay, draw_seen, label_axes, seen_name
from attentest.presentation.report import result_html
from attentest.presentation.result_figure import draw_density, draw_panels, draw_row, panel_count, result_layout
from attentest.presentation.sensitivity import Sensitivity, factor_sensitivity
from attentest.presentation.words import verdict_text
from attentest.record import ResultNumbers, ResultRecord
from attentest.results.certificate import Certificate
from attentest.statistics.alternative import Alternative, as_alternative
from attentest.statistics.draws import (
    MAJORITY,
    Draw,
    combined_logs,
    draws_values,
    estimates_of_draws,
    frequency_of,
    intervals_of_draws,
)
from attentest.statistics.inference import ConfidenceInterval, Inference
from attentest.statistics.law import Law
from attentest.statistics.noise_factor import FACTORS
from attentest.statistics.pvalue import bonferroni_log_pvalue, log_pvalues, naive_log_pvalues

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class AttentionTestResult(ResultNumbers):
    """Whether the attention region of one image differs from what it is compared with."""

    region: NDArray[np.bool_]
    """(H, W) bool. The attention region."""
    part: NDArray[np.bool_]
    """(H, W) bool. The compared part of the region: all of it, or one connected component."""
    image: NDArray[np.float64]
    """(H, W) or (H, W, C) float64. The tested image."""
    attention: NDArray[np.float64]
    """(H, W) float64. The attention map, from 0 to 1; 0 where the model sees nothing."""
    seen: NDArray[np.bool_]
    """(H, W) bool. The pixels the model sees: all, unless its preprocessing crops or its patches leave a border. With a
    mask of the contrast, those within it."""
    mask: NDArray[np.bool_] | None = None
    """(H, W) bool. The mask of the image, if it has one."""
    certificate: Certificate | None = None
    """A second p-value, by draws instead of a search, if it was asked for."""
    randomised_image: NDArray[np.float64] | None = None
    """(H, W) or (H, W, C) float64. The image plus noise that the model saw, if the selection was randomised: region and
    attention map are those of this image. The statistic is that of the image itself."""
    compared: ComparedRegion | None = None
    """What was compared, from which :attr:`context` is computed when it is first asked for."""
    draws: tuple[Draw, ...] = ()
    """The draws of that noise, each with its own region and p-value, if there were several (``draws=21``). P, estimate
    and confidence interval of the result are those of all of them, and everything else is of the draw whose p is the
    median."""

    @property
    def context(self) -> Context | None:
        """How large the difference is among regions of the same shape elsewhere in the image: descriptive, no test."""
        return None if self.compared is None else self.compared.contexts[self.alternative]

    @property
    def selection_frequency(self) -> NDArray[np.float64]:
        """Share of the draws (H, W) whose region contains a pixel; with one draw, its region."""
        return frequency_of(self.draws) if self.draws else self.region.astype(np.float64)

    @property
    def majority_region(self) -> NDArray[np.bool_]:
        """The pixels (H, W) in the regions of more than half of the draws; there may be none."""
        return np.asarray(self.selection_frequency > MAJORITY)

    def significant_share(self, alpha: float = 0.05) -> float:
        """Return the share of the draws whose own p-value is at most alpha."""
        checked = level(alpha)
        return float(np.mean([draw.pvalue <= checked for draw in self.draws or (self,)]))

    def pvalue_text(self, digits: int = 3) -> str:
        """Return p as text; if the search did not converge, its bounds and the status: "0.02 to 0.41 (decided)"."""
        return pvalue_text(self.pvalue, self.pvalue_bounds, self.status, digits)

    def verdict(self, alpha: float = 0.05) -> str:
        """Return in words what the p-value says at a significance level, and what it does not say."""
        return verdict_text(self.record(), level(alpha))

    @property
    def estimate(self) -> float:
        """Median-unbiased estimate of the difference, given the selection, in the units of the pixels.

        It is too great as often as too small. Infinite if the statistic lies at the very end of the truncation set. Of
        several draws, the median of their estimates.
        """
        return float(estimates_of_draws([self.draws or (self,)]).best[0])

    @property
    def estimate_bounds(self) -> tuple[float, float]:
        """Least and greatest estimate compatible with what the search knows."""
        _, low, high = estimates_of_draws([self.draws or (self,)])
        return float(low[0]), float(high[0])

    def confidence_interval(self, confidence_level: float | None = None) -> ConfidenceInterval:
        """Return a confidence interval for the true difference that is valid although the model chose the region.

        Parameters
        ----------
        confidence_level
            Probability that such an interval covers the true difference, over images in which the model chooses this
            region. By default that of the test, or 0.95 if it went for p alone. The search went as far as the test's
            own level needs; at a higher one the interval is still valid, and its ``error`` says how much of its width
            may be due to the search.

        Returns
        -------
        ConfidenceInterval
            With equal tails for the two-sided alternative, bounded on one side otherwise, as in SciPy: from below for
            "greater". With ``alternative="equal-tailed"`` it excludes zero exactly when p is less than 1 - level. The
            paper's two-sided p-value is that of abs(z), and need not agree with equal tails. Where the truncation set
            lies on one side of zero, as it often does, it is one-sided: with alpha = 1 - level, zero is outside the
            interval for p above 1 - alpha / 2 too, and inside for p between alpha / 2 and alpha. Of several draws,
            from the median of their lower ends to that of their upper ends, with intervals of a higher level: it covers
            a difference that their regions have in common.
        """
        return intervals_of_draws([self.draws or (self,)], [self.interval_level(confidence_level)])[0]

    def sensitivity(
        self, *, alpha: float = 0.05, factors: ArrayLike = FACTORS, confidence_level: float | None = None
    ) -> Sensitivity:
        """Return p, estimate and interval as functions of a factor on the standard deviation of the noise.

        They are those of tests with that noise, from the same truncation set, without evaluating the model. For the
        correlation length, which takes further tests, see :meth:`AttentionTest.sensitivity`.

        Parameters
        ----------
        alpha
            Significance level of the verdicts; the result has the factors at which they change, from 0.5 to 2.
        factors
            Factors of the curve; by default 25 from 0.5 to 2.
        confidence_level
            Level of the intervals; by default that of the test, or 0.95 if it went for p alone. The set was searched
            as far as an interval for the factor 1 needs, so that one for a larger factor may have a larger ``error``.
        """
        asked = self.interval_level(confidence_level)
        if self.draws:
            raise InputError("sensitivity is that of one draw: use draws=1.", "draws")
        return factor_sensitivity(self, alpha=alpha, confidence_level=asked, factors=factors)

    def with_alternative(self, alternative: Alternative) -> AttentionTestResult:
        """Return the result for another p-value, from the same truncation set, without evaluating the model.

        The set was searched as far as the first p-value needs, so the bounds on this one may be wide. A certificate is
        that of the same draws. Alternatives are those of :class:`AttentionTest`.
        """
        tails = as_alternative(alternative)
        log_naive = naive_log_pvalues(self.law, alternative)[0]
        other = replace(
            self,
            alternative=alternative,
            naive_log_pvalue=float(log_naive),
            bonferroni_log_pvalue=float(corrected_for_all_regions(log_naive, self.selectable, self.connectivity)),
            settings={**self.settings, "alternative": tails},
        )
        # The draws of a certificate are of the law with a known standard error.
        known = other._with_laws(known=True).pvalue_bounds
        certificate = None if self.certificate is None else self.certificate.compared_with(tails, known)
        return replace(other._with_laws(known=False), certificate=certificate)

    def with_known_noise(self) -> AttentionTestResult:
        """Return the result if the noise model, which was estimated, is taken for the true one.

        It comes from the same truncation set, without evaluating the model. Noise that is known gives this result.
        """
        return self._with_laws(known=True)

    def _with_laws(self, *, known: bool) -> AttentionTestResult:
        """Return the result for its alternative, given the same truncation sets; the noise is known if that is so."""

        def law_of(inference: Inference) -> Law:
            return inference.law.with_known_error() if known else inference.law

        if self.draws:
            draws = tuple(draw.with_law(law_of(draw), self.alternative) for draw in self.draws)
            return replace(self, law=law_of(self), draws=draws, **combined_logs(draws, self.settings["draws"]))
        law = law_of(self)
        best, low, high = (float(log[0]) for log in log_pvalues(law, [self.truncation_set], self.alternative))
        return replace(self, law=law, log_pvalue=best, log_pvalue_bounds=(low, high))

    def record(self, confidence_level: float | None = None) -> ResultRecord:
        """Return the record of the result: all of its numbers, without its images.

        The level of its interval is by default that of the test, and there is none if it went for p alone.
        """
        return records_of([self], confidence_level)[0]

    def to_dict(self, arrays: bool = False) -> dict[str, Any]:
        """Return the :meth:`record` as JSON-ready values.

        With ``arrays``, image, region, part, attention map, the draws of a certificate, randomised image and of several
        draws the ``selection_frequency``, too. Infinite numbers become "inf" and "-inf".
        """
        values = self.record().to_dict()
        if arrays:
            if self.certificate is not None:
                values["certificate"] = self.certificate.to_dict(arrays=True)
            names = ("image", "region", "part", "attention", "randomised_image", "mask")
            shown = {name: getattr(self, name) for name in names}
            shown |= {"selection_frequency": self.selection_frequency} if self.draws else {}
            values |= {name: array.tolist() for name, array in shown.items() if array is not None}
        return values

    def picture(self, title: str = "") -> Picture:
        """Return everything that a picture of the result shows."""
        return Picture(record=self.record(), title=title, **self.shown())

    def shown(self) -> dict[str, Any]:
        """Return the arrays that pictures show, by name; of several draws, how often each pixel was chosen."""
        if self.draws:
            frequency, majority = self.selection_frequency, self.majority_region
            drawn = {"image": self.image, "attention": frequency, "region": majority, "part": majority}
            return {**drawn, "mask": self.mask}
        names = ("image", "attention", "region", "part", "randomised_image", "mask")
        return {name: getattr(self, name) for name in names}

    def plot(
        self, axes: Sequence[Axes] | None = None, *, title: str = "", alpha: float = 0.05, width: float = 180.0
    ) -> list[Axes]:
        """Draw the image with attention and region, the attention map, and the density whose dark share is p.

        After randomised selection, what the model saw is beside the image: the image plus noise. Colours of background
        and text are those of Matplotlib's style: ``plt.style.context("dark_background")`` makes a dark figure. Needs
        Matplotlib (``pip install 'attentest[plots]'``).

        Parameters
        ----------
        axes
            Three axes to draw on, four after randomised selection; by default those of a new figure, which also has the
            verdict in words.
        title
            Name of the image, for a new figure.
        alpha
            Significance level of the verdict.
        width
            Width of a new figure in mm: 180 for a page, 80 for a column, in which the density is below the images.

        Returns
        -------
        list of Axes
            Those of image, randomised image if there is one, map and density.
        """
        picture = self.picture(title)
        if axes is None:
            layout = result_layout(checked_width(width), picture, level(alpha))
            figure = shown_figure(*layout.inches, arranged=False)
            return draw_row(figure, picture, layout, alpha=alpha)
        panels = checked_axes(axes, panel_count(picture))
        draw_panels(panels, picture, alpha=level(alpha))
        return panels

    def overlay(self, ax: Axes | None = None, *, title: str = "") -> Axes:
        """Draw the image with the outline of the region, and if it is grey, with the attention over it.

        Parameters
        ----------
        ax
            Where to draw; by default on a new figure, on which after randomised selection the image plus noise that the
            model saw is beside it.
        title
            Title of the axes, taken literally.
        """
        picture = self.picture(title)
        randomised = picture.randomised_image is not None
        if randomised and ax is None:
            beside = shown_figure(6.4, 3.9).add_subplot(1, 2, 2)
            draw_seen(beside, picture, outline_width=1.6)
            beside.set_xlabel(seen_name(self.is_of_counts, self.dimension))
            ax = beside.figure.add_subplot(1, 2, 1)
        axes = axes_or_new(ax, 3.2, 3.2)
        draw_overlay(axes, picture)
        if picture.region.ndim != 2:
            label_axes(axes, picture, 9.0)
        axes.set_title(title, parse_math=False)
        if randomised:
            seen = "part of the counts" if self.is_of_counts else "image plus noise"
            label = worded(f"image; region of {seen}", self.dimension)
            axes.set_xlabel(label, size=fitting_size(axes, len(label), 10.0))
        return axes

    def density_plot(self, ax: Axes | None = None) -> Axes:
        """Draw the density of the statistic given the selection, whose dark share is p, and the interval below it.

        The axes, by default those of a new figure, become a frame, and the plots are its ``child_axes``.
        """
        axes = axes_or_new(ax, 3.6, 3.2)
        draw_density(axes, self.record())
        return axes

    def __repr__(self) -> str:
        certified = "" if self.certificate is None else f"certified p {self.certificate.pvalue:.6g}, "
        shown = (
            f"AttentionTestResult(statistic={self.statistic:.4g}, pvalue={self.pvalue_text(6)}, {certified}"
            f"naive_pvalue={self.naive_pvalue:.3g}, region of {int(self.part.sum())} of {int(self.seen.sum())} pixels)"
        )
        return worded(shown, self.dimension)

    def _repr_html_(self) -> str:
        return result_html(self.picture())


def records_of(results: Sequence[AttentionTestResult], confidence_level: float | None = None) -> list[ResultRecord]:
    """Return the record of each result; estimates and intervals are computed together.

    Intervals are at a confidence level, by default that of each test, and there are none where it went for p alone.
    """
    levels = [result.confidence_level if confidence_level is None else confidence_level for result in results]
    asked = {i: level for i, level in enumerate(levels) if level is not None}
    groups: list[Sequence[Inference]] = [result.draws or (result,) for result in results]
    found = intervals_of_draws([groups[i] for i in asked], list(asked.values()))
    intervals = dict(zip(asked, found, strict=True))
    best, low, high = (column.tolist() for column in estimates_of_draws(groups))
    return [
        ResultRecord(
            **{name: getattr(result, name) for name in SHARED},
            estimate=best[i],
            estimate_bounds=(low[i], high[i]),
            confidence_interval=intervals.get(i),
            region_pixels=int(result.region.sum()),
            part_pixels=int((result.part if result.mask is None else result.part & result.seen).sum()),
            seen_pixels=int(result.seen.sum()),
            image_pixels=result.region.size,
            certificate=None if result.certificate is None else result.certificate.to_dict(),
            context=result.context,
            draws=draws_values(result.draws, asked.get(i)) if result.draws else None,
            extent=() if result.spacing is None else _extent(result.part),
        )
        for i, result in enumerate(results)
    ]


def _extent(part: NDArray[np.bool_]) -> tuple[tuple[int, int], ...]:
    """Return where along each axis a part (*axes) begins and ends."""
    return tuple((int(at.min()), int(at.max()) + 1) if at.size else (0, 0) for at in np.nonzero(part))


SHARED = tuple(ResultNumbers.__dataclass_fields__)
"""Names of the numbers that a result and its record have in common."""


def corrected_for_all_regions(
    log_naive: NDArray[np.float64], selectable: int, connectivity: int | None
) -> NDArray[np.float64]:
    """Return the logs of naive p-values corrected for all regions that could have been chosen (Bonferroni)."""
    # A pixel or patch is in the region or not; with components it is in this one, in another, or in none.
    return bonferroni_log_pvalue(log_naive, selectable, kinds=2 if connectivity is None else 3)
