"""What a test would find: its power, regions and intervals on simulated images, by how it is randomised."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from attentest.errors import InputError, counted, worded
from attentest.markup import row_table
from attentest.presentation import figure as drawing
from attentest.record import json_ready
from attentest.statistics.multiple_testing import Rate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Design(NamedTuple):
    """How the region is chosen: the gamma of ``AttentionTest(randomise=)``, what regions consist of, and the draws."""

    randomise: float
    region: str
    draws: int = 1

    @property
    def selection(self) -> str:
        """How it is randomised, in words."""
        several = f", {self.draws} draws" if self.draws > 1 else ""
        return f"gamma {self.randomise:g}{several}" if self.randomise else "not randomised"

    def __str__(self) -> str:
        return f"{self.region}, {self.selection}"


class Detectable(NamedTuple):
    """The least that a test finds with the asked-for power, in the units of the pixels, with its Monte-Carlo error.

    ``low`` and ``high`` are the ends of a 95% interval of ``value``, possibly infinite.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True, eq=False)
class SimulatedTests:
    """The tests of simulated images with one design and one height of the planted signal."""

    design: Design
    """How the region was chosen."""
    delta: float
    """Height of the signal in standard deviations of the noise; 0 if there is none."""
    rejected: Rate
    """Share of the images with p at most alpha, with its Wilson interval. Only what is certain counts."""
    undecided: int
    """Number of images whose error bar contains alpha."""
    coverage: Rate | None
    """Share of the confidence intervals that hold the true value, of several draws the mean of the true differences of
    their regions; None if there are no intervals."""
    lengths: NDArray[np.float64] | None
    """(n,). Lengths of the confidence intervals over those of the naive ones; None if there are no two-sided intervals.
    """
    differences: NDArray[np.float64] | None
    """(n,). Least true difference of each image, in the units of the pixels, that its test finds with the asked-for
    power, given the region that was chosen; None if there are no intervals, or several draws of the added noise."""
    overlaps: NDArray[np.float64] | None
    """(n,). Pixels in both the region and the signal over those in either (IoU), of several draws the pixels that most
    of them chose; None without a signal."""
    evaluations: float
    """Mean number of model evaluations per image."""

    def __repr__(self) -> str:
        return f"SimulatedTests({self.design}, delta={self.delta:g}, rejected {self.rejected})"

    @property
    def median_length(self) -> float | None:
        """Median of the lengths."""
        return None if self.lengths is None else float(np.median(self.lengths))

    @property
    def length_quartiles(self) -> tuple[float, float, float] | None:
        """Lower quartile, median and upper quartile of the lengths, some of which may be infinite."""
        if self.lengths is None or self.median_length is None:
            return None
        low, high = np.quantile(self.lengths, [0.25, 0.75], method="inverted_cdf")
        return float(low), self.median_length, float(high)

    @property
    def mean_length(self) -> float | None:
        """Mean of the lengths; infinite if one interval is."""
        return None if self.lengths is None else float(np.mean(self.lengths))

    @property
    def detectable_difference(self) -> Detectable | None:
        """Median of the differences, with its 95% interval, by their ranks."""
        if self.differences is None:
            return None
        ordered = np.sort(self.differences)
        rank = int(binom.ppf(0.025, len(ordered), 0.5))  # the interval from this to the same from the end
        low, high = (0.0, np.inf) if rank == 0 else (ordered[rank - 1], ordered[-rank])
        return Detectable(float(np.median(ordered)), float(low), float(high))

    @property
    def mean_overlap(self) -> float | None:
        """Mean of the overlaps."""
        return None if self.overlaps is None else float(np.mean(self.overlaps))

    @property
    def overlap_error(self) -> float | None:
        """Standard error of the mean of the overlaps; None for fewer than two."""
        if self.overlaps is None or len(self.overlaps) < 2:
            return None
        return float(np.std(self.overlaps, ddof=1) / np.sqrt(len(self.overlaps)))


REGION_STYLES = ((drawing.BLUE, "o"), (drawing.VERMILION, "s"), (drawing.GREEN, "D"), (drawing.PURPLE, "^"))
"""Colours and markers of the kinds of region and numbers of draws, where gamma is on the axis."""

MARKERS = "osD^v"  # of the values of gamma, where the signal is on the axis

REJECTED = "share of images rejected (bars: 95% intervals)"
OVERLAP = "mean overlap of region and signal, as IoU\n(bars: two standard errors)"
LENGTH = "median length, as a multiple of the naive one\n(bars: quartiles)"

PANEL_SIDE = 4.6  # width of a panel in inches
LONG = 10.0  # from this ratio of the longest to the shortest on, lengths are drawn on a logarithmic axis


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """What a test would find on simulated images: to choose, before looking at the data, how it is randomised."""

    tests: tuple[SimulatedTests, ...]
    """The simulated tests, by height of the signal, then by design."""
    alpha: float
    """Significance level of the tests."""
    power: float
    """Power that a detectable signal has."""
    confidence_level: float | None
    """Level of the confidence intervals; None if there are none."""
    noise_deviation: float
    """Standard deviation of the noise of a pixel, in the units of the pixels: the unit of ``delta``."""
    side: int | None
    """Side of the planted square in pixels; None if it differs between images, as a third of their shorter sides."""
    dimension: int = 2
    """Number of axes of the images, which says what they are called."""

    def __post_init__(self) -> None:
        if not self.tests:
            raise InputError("a plan needs at least one simulated test, got none.")

    @property
    def designs(self) -> tuple[Design, ...]:
        """The designs, in order."""
        return tuple(dict.fromkeys(tests.design for tests in self.tests))

    @property
    def deltas(self) -> tuple[float, ...]:
        """The heights of the signal, in standard deviations of the noise, ascending."""
        return tuple(sorted({tests.delta for tests in self.tests}))

    def of(self, design: Design) -> tuple[SimulatedTests, ...]:
        """Return the tests of a design, by height of the signal."""
        of_design = sorted((tests for tests in self.tests if tests.design == design), key=lambda tests: tests.delta)
        if not of_design:
            raise InputError(
                f"this plan has no tests of {Design(*design)}: it has {'; '.join(map(str, self.designs))}."
            )
        return tuple(of_design)

    def detectable(self, design: Design) -> Detectable | None:
        """Return the least height of the signal that a design finds with the asked-for power; None without signals.

        Between two heights the power is interpolated, and so are the ends of its intervals, which give those of the
        height. It is infinite if the power is not reached. If it is reached at the least height already, the value is
        that height, and the true one is at most that.
        """
        deltas = [tests.delta for tests in self.of(design)]
        rejected = [tests.rejected for tests in self.of(design)]
        if deltas[-1] == 0:
            return None
        value = _crossing(deltas, [rate.value for rate in rejected], self.power)
        low = _crossing(deltas, [rate.high for rate in rejected], self.power)
        high = _crossing(deltas, [rate.low for rate in rejected], self.power)
        if low == deltas[0]:
            low = 0.0
        return Detectable(*(self.noise_deviation * delta for delta in (value, low, high)))

    def detectable_text(self, design: Design) -> str:
        """Return in words which signal a design finds, or at which heights its power is on one side; empty without any.

        "a signal of 1.8 [1.6, 2.1] is found with a probability of 0.8", "power 0.8 is not reached at any height up to
        3: rejected there 0.2 [0.1334, 0.2888] (20 of 100)".
        """
        signal = self.detectable(design)
        if signal is None:
            return ""
        weakest, strongest = self.of(design)[0], self.of(design)[-1]
        if np.isinf(signal.value):
            return (
                f"power {self.power:g} is not reached at any height up to {self.signal(strongest):.3g}: rejected there "
                f"{strongest.rejected}"
            )
        if weakest.rejected.value >= self.power:
            where = f"at the least height, {self.signal(weakest):.3g}, already" if weakest.delta else "without a signal"
            return f"power {self.power:g} is reached {where}: rejected there {weakest.rejected}"
        end = f"above {self.signal(strongest):.3g}" if np.isinf(signal.high) else f"{signal.high:.3g}"
        return f"a signal of {signal.value:.3g} [{signal.low:.3g}, {end}] is found with a probability of {self.power:g}"

    def best(self) -> Design:
        """Return the design that finds the weakest signal, or rejects most at the strongest; without one, the last.

        Of designs that are equally good the first is returned. The differences of others may be due to chance: the
        intervals of :meth:`detectable` tell.
        """

        def order(design: Design) -> tuple[float, float]:
            signal = self.detectable(design)
            return (math.inf if signal is None else signal.value), -self.of(design)[-1].rejected.value

        return min(self.designs, key=order) if self.deltas[-1] else self.designs[-1]

    def signal(self, tests: SimulatedTests) -> float:
        """Return the height of the signal of tests, in the units of the pixels."""
        return self.noise_deviation * tests.delta

    def rows(self) -> list[dict[str, Any]]:
        """Return a row of numbers for each design and height of the signal; None where there is nothing to say."""
        return [
            {
                "region": tests.design.region,
                "randomise": tests.design.randomise,
                "draws": tests.design.draws,
                "delta": tests.delta,
                "signal": self.signal(tests),
                "images": tests.rejected.total,
                "rejected": tests.rejected.value,
                "rejected_low": tests.rejected.low,
                "rejected_high": tests.rejected.high,
                "undecided": tests.undecided,
                "coverage": None if tests.coverage is None else tests.coverage.value,
                "median_length": tests.median_length,
                "mean_length": tests.mean_length,
                **_named(("difference", "difference_low", "difference_high"), tests.detectable_difference),
                "iou": tests.mean_overlap,
                "iou_error": tests.overlap_error,
                "evaluations": tests.evaluations,
            }
            for tests in self.tests
        ]

    def table(self) -> dict[str, list[Any]]:
        """Return the rows as columns."""
        rows = self.rows()
        return {name: [row[name] for row in rows] for name in rows[0]}

    def text_table(self) -> dict[str, list[str]]:
        """Return the columns that the command line and notebooks show."""

        def column(name: str, form: str = ".3g") -> list[str]:
            return ["" if row[name] is None else format(row[name], form) for row in rows]

        rows = self.rows()
        ends = zip(column("rejected"), column("rejected_low"), column("rejected_high"), strict=True)
        return {
            "region": column("region", ""),
            "gamma": column("randomise", "g"),
            **({"draws": column("draws", "d")} if any(row["draws"] > 1 for row in rows) else {}),
            "signal": column("signal"),
            f"rejected at {self.alpha:g}": [f"{value} [{low}, {high}]" for value, low, high in ends],
            "difference": column("difference"),
            "length": column("median_length"),
            "coverage": column("coverage"),
            "IoU": column("iou"),
            "evaluations": column("evaluations", ".0f"),
        }

    def summary(self) -> str:
        """Return the detectable signals, or without a signal the shares rejected, in words."""
        unit = f"standard deviation of the noise: {self.noise_deviation:.4g}"
        images = self.tests[0].rejected.total
        lines = [f"{worded(counted(images, 'simulated image'), self.dimension)} for each row; {unit}"]
        for design in self.designs:
            *_, strongest = self.of(design)
            if self.detectable(design) is None:
                lines.append(f"{design}: rejected at {self.alpha:g}: {strongest.rejected}")
                if (least := strongest.detectable_difference) is not None:
                    lines[-1] += f"; a difference of {least.value:.3g} is found with a probability of {self.power:g}"
            else:
                lines.append(f"{design}: {self.detectable_text(design)}")
        if len(self.designs) > 1 and self.deltas[-1]:
            lines.append(f"most is found with: {self.best()}")
        undecided = sum(tests.undecided for tests in self.tests)
        if undecided:
            lines.append(f"error bars that contain {self.alpha:g}, counted as not rejected: {undecided}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        designs, images = counted(len(self.designs), "design"), counted(self.tests[0].rejected.total, "image")
        deltas = ", ".join(f"{delta:g}" for delta in self.deltas)
        return f"Plan({designs}, deltas {deltas}, {worded(images, self.dimension)} each, alpha={self.alpha:g})"

    def _repr_html_(self) -> str:
        columns = self.text_table()
        rows = zip(*columns.values(), strict=True)
        return row_table(f"Plan at alpha = {self.alpha:g}", list(columns), rows, self.summary().split("\n"))

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON-ready values; infinite numbers become "inf"."""
        names = ("signal", "low", "high")
        values = {
            "alpha": self.alpha,
            "power": self.power,
            "confidence_level": self.confidence_level,
            "noise_deviation": self.noise_deviation,
            "side": self.side,
            "detectable": [design._asdict() | _named(names, self.detectable(design)) for design in self.designs],
            "tests": self.rows(),
        }
        return {name: json_ready(value) for name, value in values.items()}

    def plot(self, axes: Sequence[Axes] | None = None) -> list[Axes]:
        """Draw the power against the height of the signal, and IoU and length of intervals against gamma.

        Needs Matplotlib (``pip install 'attentest[plots]'``).

        Parameters
        ----------
        axes
            Axes to draw on, as many as there are panels: one for the power, with several heights of the signal one for
            each kind of region; one for IoU if there is a signal; and one for the intervals if there are any. By
            default those of a new figure.
        """
        panels = self._panels()
        drawn_on = (
            _panel_axes(drawing.shown_figure, len(panels)) if axes is None else drawing.checked_axes(axes, len(panels))
        )
        for draw, panel_axes in zip(panels, drawn_on, strict=True):
            draw(panel_axes)
            drawing.draw_grid(panel_axes)
        drawing.word_axes(drawn_on, self.dimension)
        return drawn_on

    def figure(self) -> Figure:
        """Return the same as a figure that no window shows, for a file."""
        drawn_on = self.plot(_panel_axes(drawing.new_figure, len(self._panels())))
        return drawn_on[0].get_figure(root=True)  # type: ignore[return-value]

    def _panels(self) -> list[Callable[[Axes], None]]:
        # The least height that a design finds with the asked-for power, or the greatest of all.
        reached = [tests.delta for tests in self.tests if tests.rejected.value >= self.power and tests.delta > 0]
        delta = min(reached, default=self.deltas[-1])
        about = f"signal of {self.noise_deviation * delta:.3g}" if delta else "no signal planted"
        by_gamma = [] if len(self.deltas) > 1 else [(_rejected, f"rejected, {about}", REJECTED)]
        if delta:
            by_gamma.append((_overlap, f"quality of the region, {about}", OVERLAP))
        if any(tests.lengths is not None for tests in self.tests):
            by_gamma.append((_length, f"confidence intervals, {about}", LENGTH))
        regions = dict.fromkeys(design.region for design in self.designs)
        return [
            *(partial(_draw_power, plan=self, region=region) for region in regions if len(self.deltas) > 1),
            *(
                partial(_draw_by_gamma, plan=self, delta=delta, bar=bar, title=title, label=label)
                for bar, title, label in by_gamma
            ),
        ]


def _named(names: Sequence[str], detectable: Detectable | None) -> dict[str, float | None]:
    """Return what is detectable, and the ends of its interval, by names; None if there is nothing."""
    return dict(zip(names, detectable or (None, None, None), strict=True))


def _crossing(deltas: Sequence[float], rates: Sequence[float], target: float) -> float:
    """Return the least delta at which rates, interpolated linearly, reach a target; infinite if they never do."""
    first = next((place for place, rate in enumerate(rates) if rate >= target), None)
    if not first:
        return float("inf") if first is None else deltas[0]
    share = (target - rates[first - 1]) / (rates[first] - rates[first - 1])
    return deltas[first - 1] + share * (deltas[first] - deltas[first - 1])


def _panel_axes(make: Callable[[float, float], Figure], count: int) -> list[Axes]:
    """Return the axes of so many panels on a figure, which is made of a width and a height in inches."""
    columns = 2 if count == 4 else count
    rows = count // columns
    figure = make(PANEL_SIDE * columns, 0.9 * PANEL_SIDE * rows)
    return list(np.ravel(figure.subplots(rows, columns, squeeze=False)))


def _draw_power(axes: Axes, plan: Plan, region: str) -> None:
    from matplotlib import colormaps

    designs = [design for design in plan.designs if design.region == region]
    shades = colormaps["viridis"](np.linspace(0.0, 0.8, len(designs)))
    width = max(plan.deltas) - min(plan.deltas)
    for number, (design, marker) in enumerate(zip(designs, cycle(MARKERS), strict=False)):
        tests = plan.of(design)
        # Moved aside a little, so that bars do not hide each other.
        aside = 0.015 * width * (number - (len(designs) - 1) / 2)
        at = plan.noise_deviation * np.array([row.delta + aside for row in tests])
        _draw_bars(axes, at, list(map(_rejected, tests)), shades[number], marker, design.selection)
    # Labels where the curves are not: they rise from the lower left to the upper right.
    for value, text, style, side in ((plan.power, "power", "-", "left"), (plan.alpha, "alpha", ":", "right")):
        axes.axhline(value, color=drawing.GREY, lw=1, ls=style)
        at_side, shift = ((0.0, value), (3, 3)) if side == "left" else ((1.0, value), (-3, 3))
        words = {"ha": side, "fontsize": 8.5, "color": drawing.GREY}
        drawing.annotate(axes, f"{text} {value:g}", at_side, along=("axes fraction", "data"), by=shift, **words)
    axes.set(ylim=(0, 1.03), xlabel="height of the signal, in units of the pixels", ylabel=REJECTED)
    axes.set_title(f"power, regions of {region}")
    drawing.legend_below(axes, 2, 8.5)


Bar: TypeAlias = tuple[float, float, float]  # a value and the ends of its bar


def _rejected(tests: SimulatedTests) -> Bar:
    return tests.rejected.value, tests.rejected.low, tests.rejected.high


def _overlap(tests: SimulatedTests) -> Bar:
    mean, error = tests.mean_overlap or 0.0, 2 * (tests.overlap_error or 0.0)
    return mean, mean - error, mean + error


def _length(tests: SimulatedTests) -> Bar:
    low, middle, high = tests.length_quartiles or (np.nan, np.nan, np.nan)
    return middle, low, high


def _draw_bars(
    axes: Axes, at: NDArray[np.float64], values: Sequence[Bar], colour: Any, marker: str, label: str
) -> None:
    """Draw a curve with bars; an infinite interval is not drawn."""
    bars = np.array(values).reshape(-1, 3)  # none if the simulation was interrupted
    bars[~np.isfinite(bars)] = np.nan
    axes.vlines(at, bars[:, 1], bars[:, 2], color=colour, lw=1.2)
    axes.plot(at, bars[:, 0], color=colour, lw=1.8, marker=marker, ms=5, label=label)


def _draw_by_gamma(
    axes: Axes, plan: Plan, delta: float, bar: Callable[[SimulatedTests], Bar], title: str, label: str
) -> None:
    """Draw a quantity of the tests with one height of the signal against gamma, a line for each region and draws."""
    gammas = sorted({design.randomise for design in plan.designs})
    regions = tuple(dict.fromkeys((design.region, design.draws) for design in plan.designs))
    for number, ((region, draws), (colour, marker)) in enumerate(zip(regions, cycle(REGION_STYLES), strict=False)):
        shown = [tests for tests in plan.tests if tests.delta == delta and tests.design[1:] == (region, draws)]
        aside = 0.06 * (number - (len(regions) - 1) / 2)
        at = np.array([gammas.index(tests.design.randomise) + aside for tests in shown])
        name = f"regions of {region}{f', {draws} draws' if draws > 1 else ''}"
        _draw_bars(axes, at, list(map(bar, shown)), colour, marker, name)
    axes.set_xticks(range(len(gammas)), [f"{gamma:g}" for gamma in gammas])
    axes.set(xlim=(-0.4, len(gammas) - 0.6), xlabel="gamma (0: not randomised)", ylabel=label, title=title)
    drawing.legend_below(axes, 2, 8.5)
    low, high = axes.dataLim.intervaly
    if bar is not _length:
        axes.set_ylim(0, 1.03)
    elif np.isfinite(high) and high > LONG * low:
        drawing.make_logarithmic(axes, "y")
    elif np.isfinite(high):
        axes.set_ylim(0, 1.1 * high)
