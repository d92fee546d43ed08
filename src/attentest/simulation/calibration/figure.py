"""Figure of a calibration: the p-values of null images, and how often they were small."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import beta

from attentest.presentation.figure import EXTREME_COLOUR, GREY, NAIVE_COLOUR
from attentest.presentation.words import number_text, with_sign
from attentest.simulation.calibration.calibration import ERROR_RATE, Calibration

if TYPE_CHECKING:
    from matplotlib.axes import Axes


FEW_POINTS = 100
"""Up to this many p-values are drawn as points."""


COLOURS = {"naive": NAIVE_COLOUR, "selective": EXTREME_COLOUR}


def draw_quantiles(axes: Axes, drawn: Calibration) -> None:
    """Draw the quantiles of p-values against those of a perfect test."""
    count = len(drawn.pvalues)
    rank = np.arange(1, count + 1)
    expected = rank / (count + 1)  # the mean of the i-th of n uniform numbers, which is Beta(i, n + 1 - i)
    low, high = (beta.ppf(tail, rank, count + 1 - rank) for tail in (0.025, 0.975))
    axes.fill_between(expected, low, high, color=GREY, alpha=0.25, lw=0, label="95% of perfect tests, at each point")
    axes.plot([0, 1], [0, 1], color=GREY, lw=1, label="uniform: a perfect test")
    marker = "o" if count <= FEW_POINTS else ""
    for kind, values, uniform in (
        ("naive", drawn.naive_pvalues, drawn.naive_ks_pvalue),
        ("selective", drawn.pvalues, drawn.ks_pvalue),
    ):
        label = f"{kind} (Kolmogorov-Smirnov p {with_sign(number_text(uniform))})"
        axes.plot(expected, np.sort(values), color=COLOURS[kind], lw=1.8, marker=marker, ms=3, label=label)
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axes.set_xlabel("quantile of the uniform distribution")
    axes.set_ylabel("quantile of the p-values")
    axes.set_title(f"p-values of {count:,} null image{'s' if count > 1 else ''}")
    axes.legend(loc="upper left", fontsize=9)


def draw_rates(axes: Axes, drawn: Calibration) -> None:
    """Draw rates with their intervals and limits on logarithmic axes; a rate of zero is an arrow out of the picture."""
    levels = np.array(drawn.alphas)
    floor = levels.min() / 5
    ends = np.array([levels.min() / 2, min(1.0, levels.max() * 2)])
    axes.plot(ends, ends, color=GREY, lw=1, label="as it should be")
    about = f"at most {ERROR_RATE:.0%} of valid tests exceed one of these"
    axes.hlines(
        np.array(drawn.limits) / len(drawn.pvalues), levels / 1.12, levels * 1.12, color=GREY, lw=1.5, label=about
    )
    for kind, measured, shift in (("naive", drawn.naive_rates, 1.04), ("selective", drawn.rates, 1 / 1.04)):
        at, colour = levels * shift, COLOURS[kind]
        label = f"{kind}, with its {100 * measured[0].confidence_level:.4g}% interval"
        axes.vlines(at, [max(rate.low, floor) for rate in measured], [rate.high for rate in measured], color=colour)
        axes.plot(at, [rate.value or np.nan for rate in measured], "o", color=colour, ms=5, label=label)
        at_zero = at[[not rate.count for rate in measured]]
        axes.plot(at_zero, [floor * 1.1] * len(at_zero), "v", color=colour, ms=6)
    axes.set(xscale="log", yscale="log", xlim=tuple(ends), ylim=(floor, 1.3))
    axes.set_xticks(levels, [f"{alpha:g}" for alpha in drawn.alphas])
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
