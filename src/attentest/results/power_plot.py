"""The figure of a plan: power, regions and intervals by how the test is randomised."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from attentest.results.plan import Plan, SimulatedTests
from attentest.results.plots import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINE_STYLES = ("-", "--")
"""Of the kinds of region; colours are values of gamma."""

REGION_COLOURS = ("#1f6fb2", "#d1495b")
"""Of the kinds of region where gamma is on the axis."""

LONG = 10.0
"""From this ratio of the longest to the shortest on, lengths are drawn on a logarithmic axis."""

Bar = tuple[float | None, float | None, float | None]
"""A value and the ends of its bar; None where there is none."""


def power_figure(plan: Plan) -> Figure:
    """Draw the power against the height of the signal, and IoU and length of intervals against gamma."""
    compared = _compared_delta(plan)
    about = f"signal {plan.noise_deviation * compared:.3g}" if compared else "no signal"
    panels: list[Callable[[Axes], None]] = []
    if len(plan.deltas) > 1:
        panels.append(lambda axes: _draw_power(axes, plan))
    else:
        panels.append(lambda axes: _draw_by_gamma(axes, plan, compared, _rejected_bar, f"share rejected, {about}"))
    if compared:
        panels.append(lambda axes: _draw_by_gamma(axes, plan, compared, _overlap_bar, f"mean IoU, {about}"))
    if any(tests.lengths is not None for tests in plan.tests):
        title = f"median length of intervals, {about}"
        panels.append(lambda axes: _draw_by_gamma(axes, plan, compared, _length_bar, title))
    figure = new_figure(4.6 * len(panels) + 1.2, 4.6)
    drawn = figure.subplots(1, len(panels), squeeze=False, width_ratios=[1.35] + [1] * (len(panels) - 1))[0]
    for axes, draw in zip(drawn, panels, strict=True):
        draw(axes)
    return figure


def _compared_delta(plan: Plan) -> float:
    """Return the least height that some design finds with the asked-for power, or the greatest of all."""
    found = [tests.delta for tests in plan.tests if tests.rejected.value >= plan.power and tests.delta > 0]
    return min(found, default=plan.deltas[-1])


def _regions(plan: Plan) -> tuple[str, ...]:
    return tuple(dict.fromkeys(design.region for design in plan.designs))


def _gammas(plan: Plan) -> list[float]:
    return sorted({design.randomise for design in plan.designs})


def _draw_power(axes: Axes, plan: Plan) -> None:
    from matplotlib import colormaps

    gammas, regions = _gammas(plan), _regions(plan)
    shades = colormaps["viridis"](np.linspace(0.0, 0.85, len(gammas)))
    width = max(plan.deltas) - min(plan.deltas)
    for number, design in enumerate(plan.designs):
        tests = plan.of(design)
        # Moved aside a little, so that bars do not hide each other.
        aside = 0.012 * width * (number - (len(plan.designs) - 1) / 2)
        at = plan.noise_deviation * np.array([each.delta + aside for each in tests])
        colour = shades[gammas.index(design.randomise)]
        style = LINE_STYLES[regions.index(design.region) % len(LINE_STYLES)]
        rates = [each.rejected for each in tests]
        axes.vlines(at, [rate.low for rate in rates], [rate.high for rate in rates], color=colour, lw=1, alpha=0.6)
        axes.plot(at, [rate.value for rate in rates], style, color=colour, lw=1.8, marker="o", ms=4, label=str(design))
    axes.axhline(plan.power, color="0.6", lw=1)
    axes.annotate(f"power {plan.power:g}", (1, plan.power), xycoords=("axes fraction", "data"), **_beside_a_line())
    axes.axhline(plan.alpha, color="0.6", lw=1, ls=":")
    axes.annotate(f"alpha {plan.alpha:g}", (1, plan.alpha), xycoords=("axes fraction", "data"), **_beside_a_line())
    axes.set(ylim=(0, 1.02), xlabel="height of the signal, in units of the pixels", ylabel="share rejected")
    axes.set_title(f"power at alpha = {plan.alpha:g}, with 95% intervals")
    axes.legend(loc="upper left", fontsize=8.5)


def _beside_a_line() -> dict[str, Any]:
    return {"xytext": (-3, 3), "textcoords": "offset points", "ha": "right", "fontsize": 8.5, "color": "0.4"}


def _draw_by_gamma(axes: Axes, plan: Plan, delta: float, bar: Callable[[SimulatedTests], Bar], title: str) -> None:
    """Draw a quantity of the tests with one height of the signal against gamma, a line for each kind of region."""
    gammas, regions = _gammas(plan), _regions(plan)
    for number, region in enumerate(regions):
        tests = [each for each in plan.tests if each.delta == delta and each.design.region == region]
        bars = np.array([bar(each) for each in tests], dtype=np.float64)  # None becomes NaN, which is not drawn
        bars[~np.isfinite(bars)] = np.nan
        at = np.array([gammas.index(each.design.randomise) for each in tests]) + 0.06 * (
            number - (len(regions) - 1) / 2
        )
        colour = REGION_COLOURS[number % len(REGION_COLOURS)]
        style = LINE_STYLES[number % len(LINE_STYLES)]
        axes.vlines(at, bars[:, 1], bars[:, 2], color=colour, lw=1.2, alpha=0.7)
        axes.plot(at, bars[:, 0], style, color=colour, lw=1.8, marker="o", ms=5, label=region)
    low, high = axes.dataLim.y0, axes.dataLim.y1
    if bar is _length_bar and high > LONG * max(low, 1e-3):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
    elif bar is not _length_bar:
        axes.set_ylim(0, 1.02)
    else:
        axes.set_ylim(0, 1.1 * high)
    axes.set_xticks(range(len(gammas)), [f"{gamma:g}" for gamma in gammas])
    axes.set_xlim(-0.3, len(gammas) - 0.7)
    axes.set_xlabel("gamma (0: not randomised)")
    axes.set_ylabel(title.split(",")[0] + (" over the naive one" if bar is _length_bar else ""))
    axes.set_title(title)
    axes.legend(fontsize=8.5)


def _rejected_bar(tests: SimulatedTests) -> Bar:
    return tests.rejected.value, tests.rejected.low, tests.rejected.high


def _overlap_bar(tests: SimulatedTests) -> Bar:
    mean, error = tests.mean_overlap, tests.overlap_error
    return (mean, None, None) if mean is None or error is None else (mean, mean - 2 * error, mean + 2 * error)


def _length_bar(tests: SimulatedTests) -> Bar:
    if tests.lengths is None:
        return None, None, None
    quartiles = np.quantile(tests.lengths, [0.5, 0.25, 0.75])
    return float(quartiles[0]), float(quartiles[1]), float(quartiles[2])
