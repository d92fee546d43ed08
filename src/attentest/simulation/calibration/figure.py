"""Figure of a calibration: the p-values of null images, and how often they were small."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from attentest.presentation.figure import EXTREME_COLOUR, GREY, NAIVE_COLOUR, new_figure
from attentest.presentation.words import number_text, with_sign
from attentest.statistics.multiple_testing import Rate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


SIZE = (11.0, 5.2)
"""Width and height of the figure in inches."""

WIDTHS = (1.25, 1.0)
"""Relative widths of the two plots."""

FEW_POINTS = 100
"""Up to this many p-values are drawn as points."""


class NullPvalues(Protocol):
    """What is drawn of a calibration (:class:`attentest.Calibration`)."""

    @property
    def pvalues(self) -> NDArray[np.float64]:
        """Selective p-values (n,)."""

    @property
    def naive_pvalues(self) -> NDArray[np.float64]:
        """P-values (n,) that ignore the selection."""

    @property
    def ks_pvalue(self) -> float:
        """Whether the selective ones are uniform."""

    @property
    def naive_ks_pvalue(self) -> float:
        """Whether the naive ones are uniform."""

    @property
    def alphas(self) -> Sequence[float]:
        """Significance levels."""

    @property
    def limits(self) -> Sequence[int]:
        """Most rejections of a valid test at each level."""

    @property
    def rates(self) -> Sequence[Rate]:
        """Rejection rates of the selective test."""

    @property
    def naive_rates(self) -> Sequence[Rate]:
        """Rejection rates of the naive test."""

    @property
    def error_rate(self) -> float:
        """Probability that a valid test exceeds a limit."""


def calibration_figure(calibration: NullPvalues) -> Figure:
    """Draw the p-values of null images against those of a perfect test, and how often they were small."""
    figure = new_figure(*SIZE)
    draw_calibration(figure.subplots(1, 2, width_ratios=WIDTHS), calibration)
    return figure


def draw_calibration(axes: Sequence[Axes], calibration: NullPvalues) -> None:
    """Draw the two plots of a calibration on two axes."""
    quantile_axes, rate_axes = axes
    _draw_quantiles(quantile_axes, calibration)
    _draw_rates(rate_axes, calibration)


def _draw_quantiles(axes: Axes, calibration: NullPvalues) -> None:
    count = len(calibration.pvalues)
    rank = np.arange(1, count + 1)
    expected = rank / (count + 1)  # the mean of the i-th of n uniform numbers, which is Beta(i, n + 1 - i)
    low, high = (beta.ppf(tail, rank, count + 1 - rank) for tail in (0.025, 0.975))
    axes.fill_between(expected, low, high, color=GREY, alpha=0.25, lw=0, label="95% of perfect tests, at each point")
    axes.plot([0, 1], [0, 1], color=GREY, lw=1, label="uniform: a perfect test")
    marker = {"marker": "o", "ms": 3} if count <= FEW_POINTS else {}
    for pvalues, colour, label in (
        (
            calibration.naive_pvalues,
            NAIVE_COLOUR,
            f"naive (Kolmogorov-Smirnov p {with_sign(number_text(calibration.naive_ks_pvalue))})",
        ),
        (
            calibration.pvalues,
            EXTREME_COLOUR,
            f"selective (Kolmogorov-Smirnov p {with_sign(number_text(calibration.ks_pvalue))})",
        ),
    ):
        axes.plot(expected, np.sort(pvalues), color=colour, lw=1.8, label=label, **marker)  # type: ignore[arg-type]
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axes.set_xlabel("quantile of the uniform distribution")
    axes.set_ylabel("quantile of the p-values")
    axes.set_title(f"p-values of {count:,} null image{'s' if count > 1 else ''}")
    axes.legend(loc="upper left", fontsize=9)


def _draw_rates(axes: Axes, calibration: NullPvalues) -> None:
    """Draw rates with their intervals on logarithmic axes; a rate of zero is an arrow out of the picture."""
    alphas = np.array(calibration.alphas)
    floor = alphas.min() / 5
    ends = np.array([alphas.min() / 2, min(1.0, alphas.max() * 2)])
    axes.plot(ends, ends, color=GREY, lw=1, label="as it should be")
    most = np.array(calibration.limits) / len(calibration.pvalues)
    about = f"at most {calibration.error_rate:.0%} of valid tests exceed one of these"
    axes.hlines(most, alphas / 1.12, alphas * 1.12, color=GREY, lw=1.5, label=about)
    for rates, colour, label, aside in (
        (calibration.naive_rates, NAIVE_COLOUR, "naive", 1.04),
        (calibration.rates, EXTREME_COLOUR, "selective", 1 / 1.04),
    ):
        level = rates[0].confidence_level
        axes.vlines(
            alphas * aside, [max(rate.low, floor) for rate in rates], [rate.high for rate in rates], color=colour
        )
        axes.plot(
            alphas * aside,
            [rate.value or np.nan for rate in rates],
            "o",
            color=colour,
            ms=5,
            label=f"{label}, with its {100 * level:.4g}% interval",
        )
        none = [alpha * aside for alpha, rate in zip(alphas, rates, strict=True) if not rate.count]
        axes.plot(none, [floor * 1.1] * len(none), "v", color=colour, ms=6)
    axes.set(xscale="log", yscale="log", xlim=tuple(ends), ylim=(floor, 1.3))
    axes.set_xticks(alphas, [f"{alpha:g}" for alpha in alphas])
    axes.set_xticks([], minor=True)
    marks = [mark for mark in (0.001, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0) if mark >= floor]
    axes.set_yticks(marks, [f"{mark:g}" for mark in marks])
    axes.set_yticks([], minor=True)
    axes.grid(axis="y", color=GREY, alpha=0.2)
    axes.set_axisbelow(True)
    axes.set_xlabel("significance level")
    axes.set_ylabel("share of null images rejected")
    axes.set_title("rejections where there is nothing to find")
    axes.legend(loc="lower right", fontsize=9)
