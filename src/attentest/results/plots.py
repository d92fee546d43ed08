"""Figures of results (image, attention map, region, truncation set) and of a calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit
from scipy.stats import beta

from attentest.errors import InputError
from attentest.results.calibration import ERROR_RATE, Calibration
from attentest.results.figure_file import new_figure
from attentest.results.pvalue_text import estimate_text, number_text, with_sign
from attentest.results.result import AttentionTestResult
from attentest.statistics.alternative import ordinary_range
from attentest.statistics.conditional_mean import increasing_roots
from attentest.statistics.intervals import clip

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

REGION_COLOUR = "#d1495b"
KEPT_COLOUR = "#9fc5e8"
EXTREME_COLOUR = "#1f6fb2"
NAIVE_COLOUR = REGION_COLOUR

FEW_POINTS = 100
"""Up to this many p-values are drawn as points."""

FAR_OUT = 15.0
"""A statistic farther from zero than this is shown with its surroundings only."""

UNSEEN = 1e-4
"""Share of the law of a statistic that may lie outside the picture."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One row of a figure: a tested image, shown as (H, W) or (H, W, 3), and its result."""

    title: str
    image: NDArray[np.float64]
    result: AttentionTestResult


def results_figure(panels: Sequence[Panel]) -> Figure:
    """Draw a row for each tested image."""
    if not panels:
        raise InputError("there is nothing to draw: give at least one panel.")
    figure = new_figure(13.0, 3.1 * len(panels))
    grid = figure.add_gridspec(len(panels), 4, width_ratios=[1, 1.18, 1, 2.1])
    for row, panel in enumerate(panels):
        image_axes, map_axes, region_axes, set_axes = (figure.add_subplot(grid[row, i]) for i in range(4))
        image_axes.imshow(_displayed(panel.image), cmap="gray", interpolation="nearest")
        image_axes.set_title(panel.title, parse_math=False)
        shown = map_axes.imshow(panel.result.attention, cmap="viridis", vmin=0, vmax=1, interpolation="nearest")
        map_axes.set_title("attention map")
        figure.colorbar(shown, ax=map_axes, shrink=0.85)
        randomised = panel.result.randomised_image
        chosen_on = panel.image if randomised is None else randomised
        region_axes.imshow(_displayed(chosen_on), cmap="gray", interpolation="nearest")
        draw_outline(region_axes, panel.result.region)
        title = f"region: {int(panel.result.region.sum())} of {int(panel.result.seen.sum())}"
        if randomised is not None:
            draw_outline(image_axes, panel.result.region, width=1.2)
            title = f"randomised image\n{title}"
        region_axes.set_title(title)
        for axes in (image_axes, map_axes, region_axes):
            axes.set_xticks([])
            axes.set_yticks([])
        if randomised is None:
            draw_truncation_set(set_axes, panel.result)
        else:
            draw_conditional_density(set_axes, panel.result)
    return figure


def draw_truncation_set(axes: Axes, result: AttentionTestResult) -> None:
    """Shade the truncation set under the logarithm of the density of z.

    Dark is what is at least as extreme as the observed statistic; its share of the shaded probability is the p-value.
    Far from zero only the part of the set around the observed z is shown.
    """
    low, high = _shown_range(result)
    decades = _log10_density(result, np.linspace(low, high, 801))[0]
    floor, ceiling = decades.min(), decades.max()
    axes.plot(np.linspace(low, high, 801), decades, color="0.6", lw=1)
    cuts = np.concatenate(ordinary_range(result.law.statistic, result.alternative))
    for left, right in clip(result.intervals, low, high):
        ends = np.array([left, *np.sort(cuts[(cuts > left) & (cuts < right)]), right])
        for start, end in pairwise(ends):
            at = np.linspace(start, end, 101)
            height, extreme = _log10_density(result, at)
            colour = EXTREME_COLOUR if np.mean(extreme) > 0.5 else KEPT_COLOUR
            # The edge keeps a set far narrower than a pixel visible.
            axes.fill_between(at, floor, height, color=colour, lw=1.0)
    axes.axvline(result.statistic, color=REGION_COLOUR, lw=1.5)
    _annotate_statistic(axes, "z", result.statistic, beside=result.statistic < low + 0.75 * (high - low))
    axes.set_xlim(low, high)
    axes.set_ylim(floor, ceiling + 0.1 * (ceiling - floor))
    axes.set_xlabel("z; shaded: same region chosen; dark: at least as extreme")
    axes.set_ylabel("log10 of the density of z")
    axes.locator_params(axis="x", nbins=6)
    axes.set_title(_title(result), fontsize=9.5)


def draw_conditional_density(axes: Axes, result: AttentionTestResult) -> None:
    """Draw the density of the statistic under the hypothesis, given that the model chooses the region.

    Dark is what is at least as extreme as the observed statistic: its share of the area is the p-value.
    """
    t = result.statistic
    low, high = _quantiles(result, [UNSEEN / 2, 1 - UNSEEN / 2])
    margin = 0.05 * (max(high, t) - min(low, t))
    start, end = min(low, t) - margin, max(high, t) + margin
    ordinary = np.concatenate(ordinary_range(result.law.statistic, result.alternative))
    # Many points between each two of these, so that the density is smooth however far from there T is.
    ends = np.unique(np.clip([start, low, *ordinary, high, end], start, end))
    edges = np.unique(np.concatenate([np.linspace(left, right, 201) for left, right in pairwise(ends)]))
    density = np.exp(_log_masses_given_set(result, edges[:-1], edges[1:])) / np.diff(edges)
    at = (edges[1:] + edges[:-1]) / 2
    extreme = (at <= ordinary[0]) | (at >= ordinary[1])
    axes.stairs(density, edges, fill=True, color=KEPT_COLOUR, lw=0)
    axes.stairs(np.where(extreme, density, 0.0), edges, fill=True, color=EXTREME_COLOUR, lw=0)
    axes.plot(at, density, color="0.4", lw=1)
    axes.axvline(t, color=REGION_COLOUR, lw=1.5)
    _annotate_statistic(axes, "T", t, beside=t < start + 0.75 * (end - start))
    axes.set(xlim=(start, end), ylim=(0, 1.15 * density.max()))
    axes.set_xlabel("T if there were no difference; dark: at least as extreme")
    axes.set_ylabel("density of T given the region")
    axes.set_title(_title(result), fontsize=9.5)


def draw_outline(axes: Axes, region: NDArray[np.bool_], colour: str = REGION_COLOUR, width: float = 2.5) -> None:
    """Draw the border of a region (H, W) along pixel edges; width in points."""
    from matplotlib.collections import LineCollection

    padded = np.pad(region, 1)
    rows, columns = np.nonzero(padded[1:, 1:-1] != padded[:-1, 1:-1])
    horizontal = [[(c - 0.5, r - 0.5), (c + 0.5, r - 0.5)] for r, c in zip(rows, columns, strict=True)]
    rows, columns = np.nonzero(padded[1:-1, 1:] != padded[1:-1, :-1])
    vertical = [[(c - 0.5, r - 0.5), (c - 0.5, r + 0.5)] for r, c in zip(rows, columns, strict=True)]
    axes.add_collection(LineCollection(horizontal + vertical, colors=colour, linewidths=width))


def calibration_figure(calibration: Calibration) -> Figure:
    """Draw the p-values of null images against those of a perfect test, and how often they were small."""
    figure = new_figure(11.0, 5.2)
    quantile_axes, rate_axes = figure.subplots(1, 2, width_ratios=[1.25, 1])
    _draw_quantiles(quantile_axes, calibration)
    _draw_rates(rate_axes, calibration)
    return figure


def _draw_quantiles(axes: Axes, calibration: Calibration) -> None:
    count = len(calibration.pvalues)
    rank = np.arange(1, count + 1)
    expected = rank / (count + 1)  # the mean of the i-th of n uniform numbers, which is Beta(i, n + 1 - i)
    low, high = (beta.ppf(tail, rank, count + 1 - rank) for tail in (0.025, 0.975))
    axes.fill_between(expected, low, high, color="0.88", lw=0, label="95% of perfect tests, at each point")
    axes.plot([0, 1], [0, 1], color="0.55", lw=1)
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
    axes.set_title(f"p-values of {count} null image{'s' if count > 1 else ''}")
    axes.legend(loc="upper left", fontsize=9)


def _draw_rates(axes: Axes, calibration: Calibration) -> None:
    """Draw rates with their intervals on logarithmic axes; a rate of zero is an arrow out of the picture."""
    alphas = np.array(calibration.alphas)
    floor = alphas.min() / 5
    ends = np.array([alphas.min() / 2, min(1.0, alphas.max() * 2)])
    axes.plot(ends, ends, color="0.55", lw=1, label="as it should be")
    most = np.array(calibration.limits) / len(calibration.pvalues)
    about = f"at most {ERROR_RATE:.0%} of valid tests exceed one of these"
    axes.hlines(most, alphas / 1.12, alphas * 1.12, color="0.35", lw=1.5, label=about)
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
    axes.grid(axis="y", color="0.92")
    axes.set_axisbelow(True)
    axes.set_xlabel("significance level")
    axes.set_ylabel("share of null images rejected")
    axes.set_title("rejections where there is nothing to find")
    axes.legend(loc="lower right", fontsize=9)


def _log10_density(
    result: AttentionTestResult, points: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return log10 of the density of z at ascending points (m,) for mean zero, and the extreme share of it."""
    edges = np.concatenate([points[:1], (points[1:] + points[:-1]) / 2, points[-1:]])
    left, right = np.r_[edges[:-1], -np.inf], np.r_[edges[1:], np.inf]
    lower, upper = ordinary_range(result.law.statistic, result.alternative)
    extreme, ordinary = result.law.log_masses(
        np.zeros(len(left), dtype=np.int64), left, right, mean=0.0, lower=lower, upper=upper
    )
    mass = np.logaddexp(extreme, ordinary)
    density = (mass[:-1] - mass[-1] - np.log(np.diff(edges))) / np.log(10)
    return density, np.exp(extreme[:-1] - mass[:-1])


def _quantiles(result: AttentionTestResult, levels: Sequence[float]) -> NDArray[np.float64]:
    """Return quantiles (k,) of the statistic, for mean zero and z in the truncation set."""
    log_odds = logit(np.array(levels))

    def excess(rows: NDArray[np.int64], at: NDArray[np.float64]) -> NDArray[np.float64]:
        below = _log_masses_given_set(result, np.full(len(at), -np.inf), at)
        above = _log_masses_given_set(result, at, np.full(len(at), np.inf))
        return np.asarray(below - above - log_odds[rows])

    return increasing_roots(excess, len(levels))


def _log_masses_given_set(
    result: AttentionTestResult, lower: NDArray[np.float64], upper: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return log probabilities (m,) of a statistic between ends (m,), for mean zero and z in the truncation set."""
    left, right = result.intervals.T
    image = np.zeros(len(left), dtype=np.int64)
    elsewhere, between = result.law.log_masses(image, left, right, mean=0.0, lower=lower[:, None], upper=upper[:, None])
    inside, outside = (np.logaddexp.reduce(masses, axis=1) for masses in (between, elsewhere))
    return np.asarray(inside - np.logaddexp(inside, outside))


def _annotate_statistic(axes: Axes, name: str, statistic: float, *, beside: bool) -> None:
    """Write the observed statistic to the right of its line, or to the left."""
    axes.annotate(
        f"{name} = {statistic:.2f}",
        (statistic, 0.93),
        xycoords=("data", "axes fraction"),
        xytext=(4 if beside else -4, 0),
        textcoords="offset points",
        color=REGION_COLOUR,
        ha="left" if beside else "right",
        va="center",
    )


def _shown_range(result: AttentionTestResult) -> tuple[float, float]:
    """Return the part of the z axis to show: around zero, or around the observed z where that is far out."""
    z = float(result.law.z_obs[0])
    if abs(z) <= FAR_OUT:
        reach = max(4.0, abs(z) + 1.5)
        return -reach, reach
    left, right = result.intervals[np.searchsorted(result.intervals[:, 1], z)]
    left, right = max(left, z - FAR_OUT), min(right, z + FAR_OUT)
    margin = 0.4 * (right - left)
    return left - margin, right + margin


def _displayed(image: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return an image as Matplotlib shows it: grey as it is, colour scaled to [0, 1]."""
    if image.ndim == 2:
        return image
    span = float(image.max() - image.min()) or 1.0
    return np.asarray((image - image.min()) / span)


def _title(result: AttentionTestResult) -> str:
    """Return the p-values and the interval, and the contrast and alternative if they are not the defaults."""
    asked = [result.settings["contrast"]["name"], result.alternative]
    lines = [] if asked == ["background", "two-sided"] else [f"contrast: {asked[0]}, alternative: {asked[1]}"]
    shown = {"naive": number_text(result.naive_pvalue), "selective": result.pvalue_text()}
    if result.certificate is not None:
        shown["certified"] = number_text(result.certificate.pvalue)
    if (randomisation := result.settings.get("randomisation")) is not None:
        lines.append(f"randomised selection, gamma {randomisation['gamma']:g}")
    lines.append(",  ".join(f"{name} p {with_sign(text)}" for name, text in shown.items()))
    level = result.confidence_level
    if level is not None:
        interval = result.confidence_interval(level)
        estimate = estimate_text(result.estimate, result.estimate_bounds, result.status)
        lines.append(
            f"difference {result.difference:.3g},  estimate {estimate},  {100 * level:.10g}% interval "
            f"{interval.low:.3g} to {interval.high:.3g}"
        )
    return "\n".join(lines)
