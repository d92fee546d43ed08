"""One page about a check of a noise model: what was measured beside what the model says, and the verdicts."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from attentest.errors import worded
from attentest.noise.model import FloatArray
from attentest.noise.stationary import STEPS
from attentest.presentation.figure import BLUE, GREEN, GREY, ORANGE, VERMILION, word_axes, wrapped
from attentest.simulation.noise_check.assumptions import BROKEN, HARMLESS, HOLDS, SMALL, Assumption
from attentest.simulation.noise_check.measures import BRIGHTNESS, CLIPPING, GAIN, NORMAL_QUANTILES, MeasuredNoise

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {HOLDS: GREEN, SMALL: ORANGE, BROKEN: VERMILION}  # colours of the verdicts
WIDTH = 12.0  # width of the page in inches
PANELS = 6.4  # height of the two rows of panels in inches
LINE = 0.185  # height of a line of words in inches
LETTERS = 158  # letters in a line of words
HEADINGS = 0.37  # share of the width of the page that names and verdicts take

BAND = "95% of draws from the model"

LONGEST_LAG = 12  # longest lag that is drawn: beyond it correlations are mostly chance
MAP_LIMITS = (0.5, 1.5)  # ends of the colours of the variance map


def draw(
    figure: Figure, title: str, conclusion: str, assumptions: Sequence[Assumption], measured: MeasuredNoise
) -> None:
    """Draw the page on an empty figure, which gets its size."""
    dimension = measured.correlation.ndim
    lines = [line for assumption in assumptions for line in _verdict_lines(assumption, dimension)]
    figure.set_size_inches(WIDTH, PANELS + LINE * (len(lines) + 3))
    verdicts = {assumption.name: assumption.verdict for assumption in assumptions}
    grid = figure.add_gridspec(3, 3, height_ratios=[PANELS / 2, PANELS / 2, LINE * len(lines)])
    for place, title_of_panel, draw_panel in (
        (grid[0, 0], "Gaussian?", _draw_quantiles),
        (grid[0, 1], "variance map: standard deviation / model's", _draw_variances),
        (grid[0, 2], "correlation of pixels", _draw_correlations),
        (grid[1, 0], "clipping?", partial(_draw_values, verdict=verdicts[CLIPPING])),
        (grid[1, 2], "correlation: measured minus model's", _draw_difference),
    ):
        axes = figure.add_subplot(place)
        draw_panel(axes, measured)
        axes.set_title(title_of_panel, fontsize=10)
    pair = grid[1, 1].subgridspec(2, 1)
    _draw_images(figure.add_subplot(pair[0]), figure.add_subplot(pair[1]), measured, verdicts)
    _draw_verdicts(figure.add_subplot(grid[2, :]), lines)
    word_axes(figure.axes, dimension)
    figure.suptitle(f"{title}\n{wrapped(conclusion, LETTERS)}", fontsize=10)


def _draw_quantiles(axes: Axes, measured: MeasuredNoise) -> None:
    normal, (low, high) = NORMAL_QUANTILES, measured.quantile_band
    # The difference from the normal quantile, because against the quantile itself the band would be a line.
    axes.fill_between(normal, low - normal, high - normal, color=GREY, alpha=0.35, lw=0, label=BAND)
    axes.axhline(0.0, color=GREY, lw=0.8)
    axes.plot(normal, measured.quantiles - normal, color=BLUE, marker=".", ms=3, lw=1, label="measured")
    axes.set(xlabel="quantile of the normal distribution", ylabel="quantile of residuals minus normal's")
    axes.margins(y=0.4)  # room for the legend
    axes.legend(fontsize=8, loc="upper left")


def _draw_variances(axes: Axes, measured: MeasuredNoise) -> None:
    relative = measured.variance_map / max(float(np.sqrt((measured.variance_map**2).mean())), 1e-300)
    _draw_map(axes, _plane(relative), *MAP_LIMITS, extend="both")
    axes.set(xticks=[], yticks=[])


def _plane(values: FloatArray) -> FloatArray:
    """Return what is shown of values (*axes) as an image: a signal as one row, of a volume the slice in the middle."""
    return values[len(values) // 2] if values.ndim == 3 else np.atleast_2d(values)


def _draw_map(
    axes: Axes,
    values: FloatArray,
    low: float,
    high: float,
    extent: tuple[float, float, float, float] | None = None,
    extend: str = "neither",
) -> None:
    """Draw values (H, W) in colours from ``low`` to ``high``; a single row fills the height."""
    image = axes.imshow(
        values,
        cmap="PuOr_r",
        vmin=low,
        vmax=high,
        extent=extent,
        interpolation="nearest",
        aspect="auto" if len(values) == 1 else "equal",
    )
    axes.figure.colorbar(image, ax=axes, extend=extend, shrink=0.85)


def _draw_correlations(axes: Axes, measured: MeasuredNoise) -> None:
    middle = [side // 2 for side in measured.correlation.shape]
    first = "along rows" if len(middle) > 1 else "in time"
    lines = (BLUE, "o", first), (VERMILION, "s", "down columns"), (GREEN, "^", "across slices")
    for axis, (colour, marker, name) in zip(reversed(range(len(middle))), lines, strict=False):
        along = list(middle)
        along[axis] = slice(middle[axis], middle[axis] + LONGEST_LAG + 1)
        images, model = measured.correlation[tuple(along)], measured.model_correlation[tuple(along)]
        lags = np.arange(len(images))
        axes.plot(lags, model, color=colour, lw=1, ls="--", label=f"model, {name}")
        axes.plot(lags, images, color=colour, marker=marker, ms=4, lw=0, label=f"measured, {name}")
    axes.axhline(0.0, color=GREY, lw=0.8)
    axes.set(xlabel="distance in pixels", ylabel="correlation")
    axes.locator_params(axis="x", integer=True)
    axes.legend(fontsize=8, loc="upper right")


def _draw_difference(axes: Axes, measured: MeasuredNoise) -> None:
    difference = _plane(measured.correlation - measured.model_correlation)
    down, across = (side // 2 for side in difference.shape)
    reach_down, reach_across = min(down, LONGEST_LAG), min(across, LONGEST_LAG)
    window = (slice(down - reach_down, down + reach_down + 1), slice(across - reach_across, across + reach_across + 1))
    difference = difference[window]
    limit = max(0.05, float(np.abs(difference).max()))
    extent = (-reach_across - 0.5, reach_across + 0.5, reach_down + 0.5, -reach_down - 0.5)
    _draw_map(axes, difference, -limit, limit, extent=extent)
    *units, last = [unit for unit, _ in STEPS[measured.correlation.ndim]]
    axes.set_xlabel(f"{last} apart")
    if units:
        axes.set_ylabel(f"{units[-1]} apart")
    else:
        axes.set_yticks([])


def _draw_values(axes: Axes, measured: MeasuredNoise, verdict: str) -> None:
    low, high = measured.value_range
    axes.stairs(measured.counts, measured.edges, fill=True, color=BLUE, alpha=0.6)
    shares = measured.effects[CLIPPING]
    for value, share, side in zip((low, high), shares, ("left", "right"), strict=True):
        marked = verdict != HOLDS and share == max(shares)
        axes.axvline(value, color=COLOURS[verdict] if marked else GREY, lw=1.2)
        place = 0.03 if side == "left" else 0.97
        axes.text(
            place, 0.97, f"{share:.2%}\nexactly {value:.4g}", transform=axes.transAxes, ha=side, va="top", fontsize=8
        )
    axes.set(xlabel="pixel value", ylabel="number of values", yscale="symlog")
    axes.set_ylim(0, float(measured.counts.max()) * 30)


def _draw_images(scales: Axes, means: Axes, measured: MeasuredNoise, verdicts: Mapping[str, str]) -> None:
    """Draw the strength of the noise and the brightness of images; those beyond the band in colour if that was found.

    The band is about one assumption alone, and the verdict about all of them: where it finds nothing, images beyond the
    band are as blue as the others.
    """
    numbers = np.arange(1, len(measured.image_scales) + 1)
    for axes, values, (low, high), name, verdict in (
        (scales, measured.image_scales, measured.scale_band, "noise", verdicts[GAIN]),
        (means, measured.image_means, measured.mean_band, "brightness", verdicts[BRIGHTNESS]),
    ):
        axes.axhspan(low, high, color=GREY, alpha=0.35, lw=0)
        marked = ((values < low) | (values > high)) & (verdict != HOLDS)
        axes.plot(numbers[~marked], values[~marked], "o", color=BLUE, ms=3.5)
        axes.plot(numbers[marked], values[marked], "D", color=COLOURS[verdict], ms=4)
        axes.set_ylabel(name)
        axes.margins(y=0.2)
    scales.set_xticklabels([])
    scales.set_title("images alike?", fontsize=10)
    means.set_xlabel("image, in the order given")
    for axes in (scales, means):
        axes.locator_params(axis="x", integer=True)


def _verdict_lines(assumption: Assumption, dimension: int) -> list[tuple[str, str, str]]:
    """Return lines of words about an assumption: name with verdict, words, colour."""
    heading = f"{worded(assumption.name, dimension)}: {assumption.verdict} (adjusted p {assumption.adjusted_text})"
    words = assumption.finding if assumption.consequence == HARMLESS[HOLDS] else assumption.in_words()
    first, *rest = textwrap.wrap(words, LETTERS - 50)
    colour = COLOURS[assumption.verdict]
    return [(heading, first, colour), *(("", part, colour) for part in rest)]


def _draw_verdicts(axes: Axes, lines: list[tuple[str, str, str]]) -> None:
    axes.set_axis_off()
    for number, (heading, words, colour) in enumerate(lines):
        height = 1 - (number + 0.5) / len(lines)
        head = axes.text(0.0, height, heading, transform=axes.transAxes, fontsize=8, va="center", weight="bold")
        head.set_color(colour)
        text = axes.text(HEADINGS, height, words, transform=axes.transAxes, fontsize=8, va="center", parse_math=False)
        for part in (head, text):
            part.set_in_layout(False)  # lines of full width would make the panels narrower
