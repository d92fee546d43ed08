"""The figure of a result: image with attention and region, map, and the density whose dark share is p."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from attentest.checks import positive_number
from attentest.errors import InputError
from attentest.presentation.figure import (
    EXTREME_COLOUR,
    GREY,
    ORDINARY_COLOUR,
    REGION_COLOUR,
    new_figure,
    shown_name,
    wrapped,
)
from attentest.presentation.picture import Picture, draw_map, draw_overlay
from attentest.presentation.words import (
    contradiction_text,
    difference_text,
    interval_name,
    number_text,
    region_text,
    searched_interval,
    selective_p,
    short_verdict,
    verdict_text,
    with_sign,
)
from attentest.record import ResultRecord
from attentest.statistics.alternative import Alternative, ordinary_range
from attentest.statistics.confidence_interval import ConfidenceInterval
from attentest.statistics.law import Law, Strips
from attentest.statistics.roots import increasing_roots
from attentest.statistics.truncation_set import Intervals

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase


UNSEEN = 1e-4
"""Share of the distribution that may lie outside the picture."""

POINTS = 400
"""Points of the curve over the range that is shown, and again over where nearly all of the mass is."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ConditionalDensity:
    """The distribution of T with mean zero, given that z lies in a truncation set.

    Parameters
    ----------
    law
        Law of the statistic of one image.
    intervals : (n, 2)
        Truncation set.
    alternative
        What counts as extreme: for "equal-tailed" the smaller of the two tails.
    """

    law: Law
    intervals: Intervals
    alternative: Alternative

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

    @property
    def extreme_share(self) -> float:
        """Probability that T is at least as extreme as observed: p, if the truncation set is known.

        With equal tails it is half of p.
        """
        low, high = self.ordinary
        tails = np.array([ends for ends in ((-np.inf, low), (high, np.inf)) if ends[0] < ends[1]])
        return float(np.exp(np.logaddexp.reduce(self.log_masses(*tails.T))))

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


SMALL = 0.005
"""A tail that holds less than this share is shown again, enlarged."""

ROOM = 2.1
"""Height of the axes over that of the curve, where there is room above it for the enlarged tail."""

TAIL = 1e-3
"""Share of the tail beyond the statistic that may lie outside its enlargement."""

FARTHEST_DRAWN = 6.0
"""An interval that ends farther out than this many times the range of everything else is cut off, with an arrow."""


def draw_density(axes: Axes, record: ResultRecord, *, size: float = 8.0) -> None:
    """Draw what p is a share of, and below it the confidence interval of the difference.

    The area under the curve is one, and its dark part is p; with equal tails it is the smaller tail, half of p. The
    axes themselves become a frame for the two plots. ``size`` is that of the text in points.
    """
    axes.set_axis_off()
    interval = searched_interval(record)
    curve = axes.inset_axes((0.0, 0.0, 1.0, 0.92) if interval is None else (0.0, 0.42, 1.0, 0.5))
    density = ConditionalDensity(law=record.law, intervals=record.intervals, alternative=record.alternative)
    _draw_curve(curve, density, record.statistic, size)
    if interval is not None:
        _draw_interval(axes.inset_axes((0.0, 0.06, 1.0, 0.1)), record, interval, size)


def _draw_curve(axes: Axes, density: ConditionalDensity, t: float, size: float) -> None:
    low, high = density.quantiles([UNSEEN / 2, 1 - UNSEEN / 2])
    margin = 0.06 * (max(high, t) - min(low, t))
    start, end = float(min(low, t) - margin), float(max(high, t) + margin)
    edges = density.edges(start, end, (float(low), float(high)))
    heights = np.exp(density.log_heights(edges))
    _fill(axes, edges, heights, density.extreme(edges))
    axes.axvline(t, color=REGION_COLOUR, lw=1.3)
    small = density.extreme_share < SMALL
    axes.set(xlim=(start, end), ylim=(0, (ROOM if small else 1.08) * heights.max()))
    label = "statistic z without a true difference; dark: p"
    if density.alternative == "equal-tailed":
        label = "z without a true difference; dark: half of p"  # as long: there is no room for more
    _plain(axes, label, size)
    across = (t - start) / (end - start)
    axes.annotate(
        f"observed z = {t:.4g}",
        (across, 1.0),
        xycoords="axes fraction",
        xytext=(0, 2),
        textcoords="offset points",
        color=REGION_COLOUR,
        ha="left" if across < 0.3 else "right" if across > 0.7 else "center",
        va="bottom",
        size=size,
        annotation_clip=False,
    )
    if small:
        _draw_tail(axes, density, t, size, on_left=across > 0.5)


def _draw_tail(axes: Axes, density: ConditionalDensity, t: float, size: float, *, on_left: bool) -> None:
    """Draw the tail beyond the statistic again, enlarged to the height of a plot of its own."""
    outwards = 1.0 if t >= density.ordinary[1] else -1.0
    reach = density.tail_length(t, outwards, TAIL)
    start, end = sorted((t - 0.15 * outwards * reach, t + outwards * reach))
    edges = density.edges(start, end)
    logs = density.log_heights(edges)
    extreme = density.extreme(edges)
    inset = axes.inset_axes((0.0 if on_left else 0.48, 0.62, 0.52, 0.28))
    with np.errstate(over="ignore"):  # what is less extreme can be far higher, and is cut off
        _fill(inset, edges, np.minimum(np.exp(logs - logs[extreme].max()), 2.0), extreme)
    inset.axvline(t, color=REGION_COLOUR, lw=1.3)
    inset.set(xlim=(start, end), ylim=(0, 1.25))
    _plain(inset, "", size - 1, ticks=3)
    inset.set_title("its tail, enlarged", size=size - 1, pad=2)


def _fill(axes: Axes, edges: NDArray[np.float64], heights: NDArray[np.float64], extreme: NDArray[np.bool_]) -> None:
    """Fill the area under a curve, the extreme part of it dark."""
    from matplotlib.patches import StepPatch

    dark = np.where(extreme, heights, 0.0)
    for values, colour in ((heights, ORDINARY_COLOUR), (dark, EXTREME_COLOUR)):
        # Not axes.stairs, which looks for the limits of the axes in every step and takes most of the time.
        axes.add_artist(StepPatch(values, edges, fill=True, color=colour, lw=0))
    axes.add_artist(StepPatch(heights, edges, fill=False, edgecolor=GREY, lw=0.9))


def _draw_interval(axes: Axes, record: ResultRecord, interval: ConfidenceInterval, size: float) -> None:
    """Draw the confidence interval with the estimate, zero, and the observed difference."""
    low, high = interval
    observed, estimate = record.difference, record.estimate
    naive = record.naive_confidence_interval(interval.confidence_level)
    near = [0.0, observed, *(end for end in naive if np.isfinite(end))]
    reach = FARTHEST_DRAWN * (max(near) - min(near))
    start, end = max(low, min(near) - reach), min(high, max(near) + reach)
    left, right = min(start, *near), max(end, *near)
    margin = 0.07 * (right - left)
    axes.set(xlim=(left - margin, right + margin), ylim=(-1, 1))
    axes.axvline(0.0, color=GREY, lw=1.0, ls=(0, (3, 2)))
    axes.plot([start, end], [0, 0], color=EXTREME_COLOUR, lw=2.2, solid_capstyle="butt")
    for at, cut, arrow in ((start, start > low, "<"), (end, end < high, ">")):
        axes.plot([at], [0], marker=arrow if cut else "|", color=EXTREME_COLOUR, ms=6, mew=1.8, clip_on=False)
    shown = "estimate"
    if start <= estimate <= end:
        axes.plot([estimate], [0], "o", color=EXTREME_COLOUR, ms=4.5)
    else:
        shown = f"estimate at {estimate:.3g}"
    axes.plot([observed], [0], "D", color=REGION_COLOUR, ms=3.5)
    _plain(axes, f"\N{BLACK DIAMOND} observed, \N{BLACK CIRCLE} {shown}", size)
    axes.set_title(f"{interval_name(interval.confidence_level)}: {low:.3g} to {high:.3g}", size=size, pad=2)


def _plain(axes: Axes, label: str, size: float, ticks: int = 5) -> None:
    """Leave only the x axis, with few ticks without an offset."""
    axes.set_yticks([])
    axes.locator_params(axis="x", nbins=ticks)
    axes.ticklabel_format(axis="x", useOffset=False)
    axes.tick_params(labelsize=size - 0.5, pad=1.5, length=2.5)
    axes.set_xlabel(label, size=size, labelpad=1)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


MM = 1 / 25.4
"""A millimetre in inches."""

WIDTH = 180.0
"""Usual width of a figure in mm: the text width of a page."""

NARROWEST, WIDEST = 60.0, 1000.0
"""Least and greatest width in mm in which everything can be read."""

NARROW = 120.0
"""A figure narrower than this, such as one of a column of 80 mm, has the density below the images."""

LETTER = 0.19
"""Mean width of a letter in mm per point of its size."""


def checked_width(width: float) -> float:
    """Return the width of a figure in mm; refuse one in which nothing can be read."""
    size = positive_number(width, "width")
    if not NARROWEST <= size <= WIDEST:
        raise InputError(f"width must be {NARROWEST:g} to {WIDEST:g} mm, got {size:g}.")
    return size


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Places on a row of a figure, in mm: three panels of one width, with text above and below them."""

    width: float

    @property
    def narrow(self) -> bool:
        """Whether the density is below the images."""
        return self.width < NARROW

    @property
    def size(self) -> float:
        """Size of the text in points."""
        return 6.5 if self.narrow else 7.5

    @property
    def panel(self) -> float:
        """Width of a panel, which is also its height."""
        return (self.width - 14) / 2 if self.narrow else (self.width - 26) / 3

    @property
    def letters(self) -> int:
        """Letters in a line."""
        return int((self.width - 8) / (LETTER * self.size))

    @property
    def words(self) -> float:
        """Height of the verdict."""
        return 0.46 * self.size * (10 if self.narrow else 5)

    @property
    def height(self) -> float:
        """Height of the row."""
        return 18 + self.panel + 11 + (self.panel * 1.15 + 12 + 10 if self.narrow else 0) + self.words + 2

    @property
    def panels(self) -> list[tuple[float, float, float, float]]:
        """Left, bottom, width and height of image, map and density."""
        top, side = self.height - 18, self.panel
        first, second = (4.0, top - side, side, side), (10.0 + side, top - side, side, side)
        if self.narrow:
            return [first, second, (5.0, top - side - 22 - 1.15 * side, self.width - 10, 1.15 * side)]
        return [first, second, (self.width - 5 - side, top - side, side, side)]


def results_figure(pictures: Sequence[Picture], *, width: float = WIDTH, alpha: float = 0.05) -> Figure:
    """Draw a row for each tested image.

    Parameters
    ----------
    pictures
        Results with their images.
    width
        Width of the figure in mm; one narrower than 120 has the density below the images.
    alpha
        Significance level of the verdicts.
    """
    if not pictures:
        raise InputError("there is nothing to draw: give at least one result.")
    figure = new_figure(width * MM, Layout(width=width).height * MM * len(pictures))
    for row, picture in zip(figure.subfigures(len(pictures), 1, squeeze=False)[:, 0], pictures, strict=True):
        draw_row(row, picture, width=width, alpha=alpha)
    return figure


def draw_row(figure: FigureBase, picture: Picture, *, width: float, alpha: float) -> list[Axes]:
    """Draw a result on a figure of a width in mm, with its name above and the verdict in words below it."""
    layout = Layout(width=width)
    axes = [
        figure.add_axes((left / width, bottom / layout.height, wide / width, high / layout.height))
        for left, bottom, wide, high in layout.panels
    ]
    draw_panels(axes, picture, alpha=alpha, size=layout.size)
    left, name = 4 / width, shown_name(picture.title, int(0.58 * layout.letters))
    figure.text(left, 1 - 2 / layout.height, va="top", size=layout.size + 2, weight="bold", **name)
    record = picture.record
    sentences = verdict_text(record, alpha), difference_text(record), contradiction_text(record, alpha)
    words = wrapped(" ".join(filter(None, sentences)), layout.letters)
    figure.text(left, (2 + layout.words) / layout.height, words, va="top", size=layout.size, linespacing=1.3)
    return axes


def draw_panels(axes: Iterable[Axes], picture: Picture, *, alpha: float, size: float = 8.0) -> None:
    """Draw image, map and density on three axes."""
    image_axes, map_axes, density_axes = axes
    record = picture.record
    draw_overlay(image_axes, picture)
    where = "image" if picture.randomised_image is None else "randomised image"
    image_axes.set_title(f"{where} and region:\n{region_text(record)}", size=size)
    shown = draw_map(map_axes, picture)
    map_axes.set_title("attention map", size=size)
    scale = map_axes.inset_axes((0.0, -0.06, 1.0, 0.03))
    map_axes.figure.colorbar(shown, cax=scale, orientation="horizontal")
    scale.tick_params(labelsize=size - 0.5, pad=1.5, length=2.5)
    draw_density(density_axes, record, size=size)
    certified = "" if record.certificate is None else f"certified p {_exact(record.certificate['pvalue'])}, "
    density_axes.set_title(
        f"{short_verdict(record.reject_at(alpha), alpha)}\nselective p {selective_p(record)}\n"
        f"{certified}naive p {_exact(record.naive_pvalue)} (not valid)",
        size=size,
    )


def _exact(p: float) -> str:
    return with_sign(number_text(p))
