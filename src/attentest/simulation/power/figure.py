"""The figure of a plan: power, regions and intervals by how the test is randomised."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from attentest.presentation.figure import BLUE, VERMILION, make_logarithmic, new_figure
from attentest.simulation.power.plan import Plan, SimulatedTests

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


REGION_STYLES = ((BLUE, "o"), (VERMILION, "s"))
"""Colours and markers of the kinds of region, where gamma is on the axis."""

MARKERS = "osD^v"
"""Of the values of gamma, where the signal is on the axis."""

REJECTED = "share of images rejected (bars: 95% intervals)"

SIDE = 4.6
"""Width of a panel in inches."""

LONG = 10.0
"""From this ratio of the longest to the shortest on, lengths are drawn on a logarithmic axis."""

Bar: TypeAlias = tuple[float, float, float]
"""A value and the ends of its bar."""


def power_figure(plan: Plan) -> Figure:
    """Draw the power against the height of the signal, and IoU and length of intervals against gamma."""
    compared = _compared_delta(plan)
    about = f"signal of {plan.noise_deviation * compared:.3g}" if compared else "no signal planted"
    panels: list[Callable[[Axes], None]] = []
    if len(plan.deltas) > 1:
        panels += [partial(_draw_power, plan=plan, region=region) for region in _regions(plan)]
    else:
        panels.append(partial(_draw_rejected, plan=plan, delta=compared, about=about))
    if compared:
        panels.append(partial(_draw_overlaps, plan=plan, delta=compared, about=about))
    if any(tests.lengths is not None for tests in plan.tests):
        panels.append(partial(_draw_lengths, plan=plan, delta=compared, about=about))
    columns = 2 if len(panels) == 4 else len(panels)
    rows = len(panels) // columns
    figure = new_figure(SIDE * columns, 0.9 * SIDE * rows)
    for draw, axes in zip(panels, np.ravel(figure.subplots(rows, columns, squeeze=False)), strict=True):
        draw(axes)
        axes.grid(axis="y", color="0.5", alpha=0.18)
        axes.set_axisbelow(True)
    return figure


def _compared_delta(plan: Plan) -> float:
    """Return the least height that some design finds with the asked-for power, or the greatest of all."""
    found = [tests.delta for tests in plan.tests if tests.rejected.value >= plan.power and tests.delta > 0]
    return min(found, default=plan.deltas[-1])


def _regions(plan: Plan) -> tuple[str, ...]:
    return tuple(dict.fromkeys(design.region for design in plan.designs))


def _draw_power(axes: Axes, plan: Plan, region: str) -> None:
    from matplotlib import colormaps

    designs = [design for design in plan.designs if design.region == region]
    shades = colormaps["viridis"](np.linspace(0.0, 0.8, len(designs)))
    width = max(plan.deltas) - min(plan.deltas)
    for number, (design, marker) in enumerate(zip(designs, cycle(MARKERS), strict=False)):
        tests = plan.of(design)
        # Moved aside a little, so that bars do not hide each other.
        aside = 0.015 * width * (number - (len(designs) - 1) / 2)
        at = plan.noise_deviation * np.array([each.delta + aside for each in tests])
        rates = [each.rejected for each in tests]
        label = f"gamma {design.randomise:g}" if design.randomise else "not randomised"
        axes.vlines(at, [rate.low for rate in rates], [rate.high for rate in rates], color=shades[number], lw=1)
        axes.plot(at, [rate.value for rate in rates], color=shades[number], lw=1.8, marker=marker, ms=4, label=label)
    # Labels where the curves are not: they rise from the lower left to the upper right.
    for value, text, style, side in ((plan.power, "power", "-", "left"), (plan.alpha, "alpha", ":", "right")):
        axes.axhline(value, color="0.5", lw=1, ls=style)
        axes.annotate(
            f"{text} {value:g}",
            (0.0 if side == "left" else 1.0, value),
            xycoords=("axes fraction", "data"),
            xytext=(3 if side == "left" else -3, 3),
            textcoords="offset points",
            ha=side,
            fontsize=8.5,
            color="0.5",
        )
    axes.set(ylim=(0, 1.03), xlabel="height of the signal, in units of the pixels", ylabel=REJECTED)
    axes.set_title(f"power, regions of {region}")
    axes.legend(loc="center left", bbox_to_anchor=(0.0, 0.6), fontsize=8.5)


def _draw_rejected(axes: Axes, plan: Plan, delta: float, about: str) -> None:
    _draw_by_gamma(axes, plan, delta, lambda tests: (tests.rejected.value, tests.rejected.low, tests.rejected.high))
    axes.set(ylim=(0, 1.03), ylabel=REJECTED, title=f"rejected, {about}")


def _draw_overlaps(axes: Axes, plan: Plan, delta: float, about: str) -> None:
    def bar(tests: SimulatedTests) -> Bar:
        mean, error = tests.mean_overlap or 0.0, 2 * (tests.overlap_error or 0.0)
        return mean, mean - error, mean + error

    _draw_by_gamma(axes, plan, delta, bar)
    axes.set(ylim=(0, 1.03), title=f"quality of the region, {about}")
    axes.set_ylabel("mean overlap of region and signal, as IoU\n(bars: two standard errors)")


def _draw_lengths(axes: Axes, plan: Plan, delta: float, about: str) -> None:
    def bar(tests: SimulatedTests) -> Bar:
        low, middle, high = tests.length_quartiles or (np.nan, np.nan, np.nan)
        return middle, low, high

    _draw_by_gamma(axes, plan, delta, bar)
    low, high = axes.dataLim.intervaly
    if np.isfinite(high) and high > LONG * low:
        make_logarithmic(axes, "y")
    elif np.isfinite(high):
        axes.set_ylim(0, 1.1 * high)
    axes.set_ylabel("median length, as a multiple of the naive one\n(bars: quartiles)")
    axes.set_title(f"confidence intervals, {about}")


def _draw_by_gamma(axes: Axes, plan: Plan, delta: float, bar: Callable[[SimulatedTests], Bar]) -> None:
    """Draw a quantity of the tests with one height of the signal against gamma, a line for each kind of region."""
    gammas = sorted({design.randomise for design in plan.designs})
    regions = _regions(plan)
    for number, (region, (colour, marker)) in enumerate(zip(regions, cycle(REGION_STYLES), strict=False)):
        tests = [each for each in plan.tests if each.delta == delta and each.design.region == region]
        bars = np.array([bar(each) for each in tests]).reshape(-1, 3)  # none if the simulation was interrupted
        bars[~np.isfinite(bars)] = np.nan  # an infinite interval is not drawn
        aside = 0.06 * (number - (len(regions) - 1) / 2)
        at = np.array([gammas.index(each.design.randomise) + aside for each in tests])
        axes.vlines(at, bars[:, 1], bars[:, 2], color=colour, lw=1.2)
        axes.plot(at, bars[:, 0], color=colour, lw=1.8, marker=marker, ms=5, label=f"regions of {region}")
    axes.set_xticks(range(len(gammas)), [f"{gamma:g}" for gamma in gammas])
    axes.set(xlim=(-0.4, len(gammas) - 0.6), xlabel="gamma (0: not randomised)")
    axes.legend(fontsize=8.5)
