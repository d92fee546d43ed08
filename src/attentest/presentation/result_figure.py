"""The figure of a result: image with attention and region, map, and the density whose dark share is p."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, logit, xlog1py, xlogy

from attentest.errors import InputError, worded
from attentest.presentation import figure as drawing
from attentest.presentation import words
from attentest.presentation.footnotes import caveats_text, contradiction_text
from attentest.presentation.number_texts import interval_name, interval_text, number_text, with_sign
from attentest.presentation.picture import Picture, draw_map, draw_overlay, draw_seen, label_axes, seen_lines
from attentest.presentation.plane import channels_of
from attentest.record import ResultRecord, map_title
from attentest.statistics.alternative import Alternative, ordinary_range
from attentest.statistics.draws import share_of_each
from attentest.statistics.inference import ConfidenceInterval
from attentest.statistics.law import Law, Strips
from attentest.statistics.roots import increasing_roots
from attentest.statistics.selection_laws import BinomialCounts
from attentest.statistics.truncation_set import Intervals

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase


UNSEEN = 1e-4  # share of the distribution that may lie outside the picture
POINTS = 400  # points of the curve over the range that is shown, and again over where nearly all of the mass is


@dataclass(frozen=True, kw_only=True, eq=False)
class ConditionalDensity:
    """The distribution of T with mean zero, given that z lies in a truncation set."""

    law: Law
    """Law of the statistic of one image."""
    intervals: Intervals
    """(n, 2). Truncation set."""
    alternative: Alternative
    """What counts as extreme: for "equal-tailed" the smaller of the two tails."""

    @property
    def ordinary(self) -> tuple[float, float]:
        """The ends between which T is less extreme than observed."""
        lower, upper = ordinary_range(self.law.statistic, self.alternative)
        if self.alternative == "equal-tailed":
            t = self.law.statistic
            above, below = self.log_masses(np.concatenate([t, [-np.inf]]), np.concatenate([[np.inf], t]))
            lower, upper = ordinary_range(t, "greater" if above <= below else "less")
        return float(lower[0]), float(upper[0])

    def log_masses(self, lower: NDArray[np.float64], upper: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the log probabilities (m,) of T between ends (m,)."""
        image = np.zeros(len(self.intervals), dtype=np.int64)
        strips = Strips.of(image, *self.intervals.T, lower=lower[:, None], upper=upper[:, None])
        outside, inside = (
            np.logaddexp.reduce(masses.reshape(len(lower), -1), axis=1) for masses in self.law.log_masses(strips)
        )
        return np.asarray(inside - np.logaddexp(inside, outside))

    def log_heights(self, edges: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the logs of the mean densities (m,) between consecutive ones of m + 1 edges."""
        return np.asarray(self.log_masses(edges[:-1], edges[1:]) - np.log(np.diff(edges)))

    def extreme(self, edges: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which of the cells (m,) between edges, among which the ends of the ordinary are, are extreme."""
        middle = (edges[1:] + edges[:-1]) / 2
        low, high = self.ordinary
        return np.asarray((middle <= low) | (middle >= high))

    def tail_length(self, start: float, outwards: float, rest: float) -> float:
        """Return how far beyond a point, upwards (1) or downwards (-1), all of the tail but a share of it lies."""

        def log_beyond(distances: NDArray[np.float64]) -> NDArray[np.float64]:
            ends = start + outwards * distances
            beyond = np.full_like(ends, outwards * np.inf)
            return self.log_masses(np.minimum(ends, beyond), np.maximum(ends, beyond))

        distances = np.concatenate([[0.0], np.geomspace(1e-9, 100.0, 120)])
        logs = log_beyond(distances)
        return float(distances[np.argmax(logs < logs[0] + np.log(rest))] or distances[-1])

    def edges(self, start: float, end: float, dense: tuple[float, float] | None = None) -> NDArray[np.float64]:
        """Return ascending points from start to end for a curve: at ends of intervals, and evenly spaced in between.

        They are closer to each other in a ``dense`` part.
        """
        even = [np.linspace(left, right, POINTS + 1) for left, right in [(start, end), *([dense] if dense else [])]]
        points = np.concatenate([*even, self.intervals.ravel(), self.ordinary])
        return np.unique(points[(points >= start) & (points <= end)])

    def quantiles(self, levels: Sequence[float]) -> NDArray[np.float64]:
        """Return quantiles (k,)."""
        log_odds = logit(np.array(levels))

        def excess(rows: NDArray[np.int64], at: NDArray[np.float64]) -> tuple[NDArray[np.float64], None]:
            below = self.log_masses(np.full(len(at), -np.inf), at)
            above = self.log_masses(at, np.full(len(at), np.inf))
            return np.asarray(below - above - log_odds[rows]), None

        return increasing_roots(excess, np.zeros(len(levels)))


SMALL = 0.005  # a tail that holds less than this share is shown again, enlarged
ROOM = 2.6  # height of the axes over that of the curve, where there is room above it for the enlarged tail
TAIL = 1e-3  # share of the tail beyond the statistic that may lie outside its enlargement

FARTHEST_DRAWN = 6.0
"""An interval that ends farther out than this many times the range of everything else is cut off, with an arrow."""


def draw_density(axes: Axes, record: ResultRecord, *, size: float = 8.0) -> None:
    """Draw what p is a share of, and below it the confidence interval of the difference.

    The area under the curve is one, and its dark part is p; with equal tails it is the smaller tail, half of p. The
    axes themselves become a frame for the two plots. ``size`` is that of the text in points.
    """
    axes.set_axis_off()
    interval = words.searched_interval(record)
    curve = axes.inset_axes((0.0, 0.0, 1.0, 0.92) if interval is None else (0.0, 0.42, 1.0, 0.5))
    density = ConditionalDensity(law=record.law, intervals=record.intervals, alternative=record.alternative)
    share = record.pvalue / 2 if record.alternative == "equal-tailed" else record.pvalue
    dark = "half of p" if density.alternative == "equal-tailed" else "p"
    label = f"T without a true difference; dark: {dark}"
    if record.draws is not None:
        share, label = share * share_of_each(record.settings["draws"]), f"T of the median draw; dark: its {dark}"
    if isinstance(record.law, BinomialCounts):
        _draw_counts(curve, record.law, record.alternative, f"counts in the region at equal rates; dark: {dark}", size)
    else:
        _draw_curve(curve, density, record.statistic, label, size, record.dimension, enlarged=share < SMALL)
    if interval is not None:
        _draw_interval(axes.inset_axes((0.0, 0.06, 1.0, 0.1)), record, interval, size)


def _draw_curve(
    axes: Axes, density: ConditionalDensity, t: float, label: str, size: float, dimension: int, *, enlarged: bool
) -> None:
    """Draw the density with its extreme part dark, and if asked, the tail beyond the statistic again, enlarged."""
    low, high = density.quantiles([UNSEEN / 2, 1 - UNSEEN / 2])
    margin = 0.06 * (max(high, t) - min(low, t))
    start, end = float(min(low, t) - margin), float(max(high, t) + margin)
    edges = density.edges(start, end, (float(low), float(high)))
    heights = np.exp(density.log_heights(edges))
    _fill(axes, edges, heights, density.extreme(edges), t, (ROOM if enlarged else 1.08) * float(heights.max()))
    _only_x_axis(axes, label, size)
    across, text = (t - start) / (end - start), worded(f"statistic T of the image = {t:.4g}", dimension)
    # As wide as it may be: it stays above the axes.
    half = min(0.5, 0.6 * drawing.LETTER * size * len(text) / drawing.width_of(axes))
    at = min(max(across, half), 1 - half), 1.0
    drawing.annotate(axes, text, at, color=drawing.REGION_COLOUR, ha="center", va="bottom", size=size)
    if enlarged:
        _draw_tail(axes, density, t, size, on_left=across > 0.5)


def _draw_counts(axes: Axes, law: BinomialCounts, alternative: Alternative, label: str, size: float) -> None:
    """Draw the distribution of the counts in the region if rates are equal, with its extreme part dark."""
    expected, total, observed = (float(column[0]) for column in (law.total * law.share, law.total, law.inside))
    deviation = float(np.sqrt(expected * (1 - law.share[0])))
    reach = 1.1 * max(4.5 * deviation, abs(observed - expected)) + 1
    first, last = max(0.0, np.floor(expected - reach)), min(total, np.ceil(expected + reach))
    counts = np.unique(np.round(np.linspace(first, last, POINTS)))
    log_heights = (
        xlog1py(total - counts, -law.share[0]) + xlogy(counts, law.share[0]) - betaln(counts + 1, total - counts + 1)
    )
    if alternative == "equal-tailed":
        alternative = "greater" if observed >= expected else "less"
    low, high = ordinary_range(law.statistic, alternative)
    statistics, tie = (counts - expected) / deviation, 1e-9
    edges = np.concatenate([[first - 0.5], (counts[1:] + counts[:-1]) / 2, [last + 0.5]])
    extreme = (statistics <= low + tie) | (statistics >= high - tie)
    _fill(axes, edges, np.exp(log_heights - log_heights.max()), extreme, observed, 1.08)
    _only_x_axis(axes, label, size)
    title = f"{observed:,.0f} of {total:,.0f} counts are in the region"
    axes.set_title(title, color=drawing.REGION_COLOUR, size=size, pad=2)


def _draw_tail(axes: Axes, density: ConditionalDensity, t: float, size: float, *, on_left: bool) -> None:
    """Draw the tail beyond the statistic again, enlarged to the height of a plot of its own."""
    outwards = 1.0 if t >= density.ordinary[1] else -1.0
    reach = density.tail_length(t, outwards, TAIL)
    start, end = sorted((t - 0.15 * outwards * reach, t + outwards * reach))
    edges = density.edges(start, end)
    logs = density.log_heights(edges)
    extreme = density.extreme(edges)
    inset = axes.inset_axes((0.0 if on_left else 0.56, 0.64, 0.44, 0.22))  # above the curve, beside the statistic
    with np.errstate(over="ignore"):  # what is less extreme can be far higher, and is cut off
        _fill(inset, edges, np.minimum(np.exp(logs - logs[extreme].max()), 2.0), extreme, t, 1.25)
    _only_x_axis(inset, "", size - 1, ticks=2)
    inset.set_title("its tail, enlarged", size=size - 1, pad=2)


def _fill(
    axes: Axes,
    edges: NDArray[np.float64],
    heights: NDArray[np.float64],
    extreme: NDArray[np.bool_],
    observed: float,
    top: float,
) -> None:
    """Fill the area under a curve, the extreme part of it dark, with the observed value, on axes of a height."""
    from matplotlib.patches import StepPatch

    dark = np.where(extreme, heights, 0.0)
    for values, colour in ((heights, drawing.ORDINARY_COLOUR), (dark, drawing.EXTREME_COLOUR)):
        # Not axes.stairs, which looks for the limits of the axes in every step and takes most of the time.
        axes.add_artist(StepPatch(values, edges, fill=True, color=colour, lw=0))
    axes.add_artist(StepPatch(heights, edges, fill=False, edgecolor=drawing.GREY, lw=0.9))
    axes.axvline(observed, color=drawing.REGION_COLOUR, lw=1.3)
    axes.set(xlim=(edges[0], edges[-1]), ylim=(0, top))


def _draw_interval(axes: Axes, record: ResultRecord, interval: ConfidenceInterval, size: float) -> None:
    """Draw the confidence interval with the estimate, zero, and the observed difference."""
    low, high = interval
    observed, estimate, equal = record.difference, record.estimate, float(record.is_of_counts)
    if record.is_of_counts:  # their estimate is the observed ratio
        observed = min(estimate, 2 * interval.low + 1)
    naive = record.naive_confidence_interval(interval.confidence_level)
    near = [equal, observed, *(end for end in naive if np.isfinite(end))]
    reach = FARTHEST_DRAWN * (max(near) - min(near))
    start, end = max(low, min(near) - reach), min(high, max(near) + reach)
    left, right = min(start, *near), max(end, *near)
    margin = 0.07 * (right - left)
    axes.set(xlim=(left - margin, right + margin), ylim=(-1, 1))
    axes.axvline(equal, color=drawing.GREY, lw=1.0, ls=(0, (3, 2)))
    axes.plot([start, end], [0, 0], color=drawing.EXTREME_COLOUR, lw=2.2, solid_capstyle="butt")
    for at, cut, arrow in ((start, start > low, "<"), (end, end < high, ">")):
        axes.plot([at], [0], marker=arrow if cut else "|", color=drawing.EXTREME_COLOUR, ms=6, mew=1.8, clip_on=False)
    shown = "estimate"
    if start <= estimate <= end:
        axes.plot([estimate], [0], "o", color=drawing.EXTREME_COLOUR, ms=4.5)
    else:
        shown = f"estimate at {estimate:.3g}"
    axes.plot([observed], [0], "D", color=drawing.REGION_COLOUR, ms=3.5)
    label = "ratio of mean rates" if equal else f"\N{BLACK DIAMOND} observed difference, \N{BLACK CIRCLE} {shown}"
    _only_x_axis(axes, label, size)
    axes.set_title(f"{interval_name(interval.confidence_level)}: {interval_text(low, high)}", size=size, pad=2)


def _only_x_axis(axes: Axes, label: str, size: float, ticks: int = 5) -> None:
    """Leave only the x axis, with few ticks without an offset."""
    axes.set_yticks([])
    axes.locator_params(axis="x", nbins=ticks)
    axes.ticklabel_format(axis="x", useOffset=False)
    drawing.make_plain(axes, label, size, hidden=("top", "right", "left"))


def result_layout(width: float, picture: Picture, alpha: float) -> drawing.Layout:
    """Return the layout of the figure of a result: pictures and density, which a narrow figure has below them.

    The width is in mm, and the words of the verdict at alpha need so much room.
    """
    narrow, pictures = width < drawing.NARROW, 2 if picture.randomised_image is None else 3
    size = 6.5 if narrow else 7.5
    across = width - 10 if narrow else (width - 26) / 3  # of the density
    side = (width - 14) / 2 if narrow else (width - across - 14 - 6 * pictures) / pictures
    two = drawing.LINE * size * 2 + 3
    titles = _title(picture.record, alpha, drawing.letters_across(across, size)).count("\n") + 1
    above_density = drawing.LINE * size * titles + 3
    top, tall = 7 + (two if narrow else max(two, above_density)), 1.15 * side if narrow else across
    if picture.region.ndim == 1:  # traces above each other, and the map as a strip below them
        long = width - 8 if narrow else pictures * (side + 6) - 6
        trace = max(26.0, 4.0 * len(channels_of(picture.image)))
        places = [(4.0, top + (trace + 8 + two) * place, long, trace) for place in range(pictures - 1)]
        strip = top + (trace + 8 + two) * (pictures - 1) - two + drawing.LINE * size + 3
        places.append((4.0, strip, long, 6.0))
        below = strip + 15
    else:
        places = [(4 + (side + 6) * place, top, side, side) for place in range(2 if narrow else pictures)]
        below = top + side + 9
        if narrow and pictures == 3:  # the map by itself, in the middle
            caption = 5.0 if picture.region.ndim == 3 else 0.0  # which slices are shown
            places.append(((width - side) / 2, below - 9 + two + caption, side, side))
            below += side + two + caption
    density = (5.0, below + above_density) if narrow else (width - 5 - across, top)
    return drawing.Layout(
        width=width,
        panels=[*places, (*density, across, tall)],
        above_words=max(below, density[1] + tall + 11),
        lines=drawing.wrapped(_words(picture.record, alpha), drawing.letters_across(width - 8, size)).count("\n") + 1,
        size=size,
    )


def results_figure(pictures: Sequence[Picture], *, width: float = drawing.WIDTH, alpha: float = 0.05) -> Figure:
    """Draw a row for each tested image, with its verdict at a significance level.

    The width is in mm; a figure narrower than 120 has the density below the images.
    """
    if not pictures:
        raise InputError("there is nothing to draw: give at least one result.")
    layouts = [result_layout(width, picture, alpha) for picture in pictures]
    heights = [layout.height for layout in layouts]
    figure = drawing.new_figure(width * drawing.MM, sum(heights) * drawing.MM)
    rows = figure.subfigures(len(pictures), 1, squeeze=False, height_ratios=heights)[:, 0]
    for row, picture, layout in zip(rows, pictures, layouts, strict=True):
        draw_row(row, picture, layout, alpha=alpha)
    return figure


def draw_row(figure: FigureBase, picture: Picture, layout: drawing.Layout, *, alpha: float) -> list[Axes]:
    """Draw a result on a figure of the size of a layout, with its name above and the verdict in words below it."""
    axes = layout.draw(figure, picture.title, _words(picture.record, alpha))
    draw_panels(axes, picture, alpha=alpha, size=layout.size)
    return axes


def panel_count(picture: Picture) -> int:
    """Return the number of panels: image, map and density, and the randomised image if there is one."""
    return 3 if picture.randomised_image is None else 4


LONGEST_LABEL = 36  # letters of the longest label of the density


def draw_panels(axes: Sequence[Axes], picture: Picture, *, alpha: float, size: float | None = None) -> None:
    """Draw image, randomised image if there is one, map and density, each on its axes.

    ``size`` is that of the text in points; by default it is as small as the labels need on these axes.
    """
    image_axes, *seen_axes, map_axes, density_axes = axes
    pad = None if size else 2.0  # in points; axes of the caller's own may have little room above them
    size = size or drawing.fitting_size(density_axes, LONGEST_LABEL, 8.0)
    record = picture.record

    def title(panel: Axes, text: str) -> None:
        lines = text.split("\n")
        panel.set_title(
            "\n".join(drawing.wrapped(line, drawing.letters_across(drawing.width_of(panel), size)) for line in lines),
            size=size,
        )

    draw_overlay(image_axes, picture)
    if picture.region.ndim != 2:
        label_axes(image_axes, picture, size)
    shown_region = worded(f"image and region:\n{words.region_text(record)}", record.dimension)
    shown_region = shown_region if record.draws is None else words.majority_text(record)
    title(image_axes, "\n".join(filter(None, [shown_region, words.mask_text(record)])))
    for panel in seen_axes:
        draw_seen(panel, picture)
        title(panel, seen_lines(picture))
    shown = draw_map(map_axes, picture)
    title(map_axes, map_title(record.settings))
    place = (0.0, -0.06, 1.0, 0.03)
    if picture.region.ndim == 1:  # below a strip as long as the strip it would be read as an axis of time
        place = (0.75, -0.9, 0.25, 0.4)
        map_axes.text(
            0.735, -0.7, "colours of the map", transform=map_axes.transAxes, size=size, ha="right", va="center"
        )
    scale = map_axes.inset_axes(place)
    map_axes.figure.colorbar(shown, cax=scale, orientation="horizontal")
    scale.tick_params(labelsize=size - 0.5, pad=1.5, length=2.5)
    draw_density(density_axes, record, size=size)
    letters = drawing.letters_across(drawing.width_of(density_axes), size)
    density_axes.set_title(_title(record, alpha, letters), size=size, pad=pad)


def _words(record: ResultRecord, alpha: float) -> str:
    """Return what is said below the panels."""
    sentences = (
        words.verdict_text(record, alpha),
        words.difference_text(record),
        contradiction_text(record, alpha),
        caveats_text(record),
    )
    return " ".join(filter(None, sentences))


def _title(record: ResultRecord, alpha: float, letters: int) -> str:
    """Return verdict and p-values in lines of at most so many letters."""
    verdict = words.short_verdict(record.reject_at(alpha), alpha)
    verdict = f"{verdict}, approximate" if record.approximate_noise else verdict
    lines = [verdict, f"selective p {words.selective_p(record)}"]
    if record.certificate is not None:
        lines.append(f"certified p {with_sign(number_text(record.certificate['pvalue']))}")
    lines.append(f"naive p {with_sign(number_text(record.naive_pvalue))} (not valid)")
    return "\n".join(drawing.wrapped(line, letters) for line in lines)
