"""What studies share: rows on disk as an engine makes them, their intervals, and figures of rates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import norm

from attentest.results.result import AttentionTestResult
from attentest.runs.engine import Engine, Work
from attentest.runs.records import RecordFile, Row
from attentest.statistics.confidence_interval import ConfidenceInterval
from attentest.training.classifier import described_machine

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


SHADE = {"alpha": 0.16, "lw": 0, "zorder": 0}
"""How a band or a row is shaded."""


def draw_rates(
    axes: Axes,
    places: Sequence[float],
    rates: Sequence[Mapping[str, Any]],
    colour: str,
    name: str | None,
    *,
    marker: str = "o",
    hollow: bool = False,
    horizontal: bool = False,
) -> None:
    """Draw rates, each with ``value``, ``low`` and ``high``, at their places on the other axis.

    The points have a name in the legend; horizontal rates lie along the horizontal axis.
    """
    if not rates:
        return
    value = np.array([rate["value"] for rate in rates])
    # Rounding may put the rate itself outside its interval by 1e-17.
    below = np.maximum(0.0, value - [rate["low"] for rate in rates])
    above = np.maximum(0.0, [rate["high"] for rate in rates] - value)
    ends = [below, above]
    axes.errorbar(
        value if horizontal else places,
        places if horizontal else value,
        xerr=ends if horizontal else None,
        yerr=None if horizontal else ends,
        fmt=marker,
        ms=5,
        lw=1.2,
        capsize=2.5,
        color=colour,
        markerfacecolor=axes.get_facecolor() if hollow else colour,
        label=name,
    )


def draw_level(axes: Axes, level: float, name: str, *, vertical: bool = False) -> None:
    """Draw a dashed line at a level, with its name in the legend."""
    draw = axes.axvline if vertical else axes.axhline
    draw(level, color="0.4", lw=1, ls="--", zorder=1, label=name)


def name_in_legend(axes: Axes, name: str, *, dashed: bool = False) -> None:
    """Name all bands, or all dashed lines, of several colours by one grey sample in the legend."""
    if dashed:
        axes.plot([], [], color="0.4", lw=1, ls="--", label=name)
    else:
        axes.fill([], [], color="0.4", alpha=SHADE["alpha"], lw=0, label=name)


def draw_grid(axes: Axes) -> None:
    """Draw pale horizontal lines behind the data."""
    axes.grid(axis="y", color="0.5", alpha=0.18)
    axes.set_axisbelow(True)


def legend_below(figure: Figure, columns: int) -> None:
    """Draw one legend below the panels, with each name once and points with intervals first."""
    found = {
        name: handle for axes in figure.axes for handle, name in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    names = sorted(found, key=lambda name: not hasattr(found[name], "has_yerr"))
    handles = [found[name] for name in names]
    figure.legend(handles, names, loc="outside lower center", ncols=columns, fontsize=9, frameon=False)


CONFIDENCE_LEVEL = 0.95

ENDS = ("confidence_low", "confidence_high", "confidence_error", "confidence_bound")
"""Numbers of an interval in a row, None where it is infinite."""

ROUNDING = 1e-9  # relative, by which an interval may exceed its bound


def interval_values(result: AttentionTestResult, interval: ConfidenceInterval) -> Row:
    """Return the values of an interval that are stored, JSON-ready: None for an infinite one."""
    values = (interval.low, interval.high, interval.error, result.interval_bound)
    return {name: float(value) if np.isfinite(value) else None for name, value in zip(ENDS, values, strict=True)}


def interval_lengths(rows: Sequence[Row]) -> dict[str, Any] | None:
    """Return how long the intervals of rows are, in units of the naive ones, and how many exceed their bounds.

    None if no row has an interval. There are bounds after randomised selection; each end may lie outside that of the
    exact interval by what its search left open, and this does not count.
    """
    rows = [row for row in rows if "confidence_low" in row]
    if not rows:
        return None
    naive = 2 * norm.ppf((1 + CONFIDENCE_LEVEL) / 2) * np.array([row["standard_error"] for row in rows])
    ends = [(row["confidence_low"], row["confidence_high"]) for row in rows]
    ratio = np.sort([np.inf if None in pair else pair[1] - pair[0] for pair in ends] / naive)
    over = [
        (pair[1] - pair[0] - 2 * row["confidence_error"]) / (row["confidence_bound"] * one)
        for row, pair, one in zip(rows, ends, naive.tolist(), strict=True)
        if None not in (row.get("confidence_bound"), row.get("confidence_error"), *pair)
    ]
    bounds = [row["confidence_bound"] for row in rows if row.get("confidence_bound") is not None]
    return {
        "median": float(ratio[len(ratio) // 2]) if np.isfinite(ratio[len(ratio) // 2]) else None,
        "mean": float(ratio.mean()) if np.isfinite(ratio[-1]) else None,
        "infinite": int(np.isinf(ratio).sum()),
        "bound": max(bounds, default=None),
        "bounded": len(over),
        "over_bound": sum(one > 1 + ROUNDING for one in over),
        "longest": max(over, default=None),
    }


def recorded(
    work: Work[int, Row],
    numbers: list[int],
    file: RecordFile,
    header: Mapping[str, Any],
    engine: Engine,
    retry: bool = False,
) -> Iterator[list[Row]]:
    """Yield the rows of images as they reach the disk, in any order; only this process writes.

    Parameters
    ----------
    work
        Makes rows of images.
    numbers
        Numbers of the images. Those that the file has by now, because another run made them, are left out.
    file
        Where the rows go.
    header
        What the rows have in common. It is written with this machine and the engine, which may differ within a file.
    engine
        Does the work.
    retry
        Whether images whose rows are errors are among those to be done.
    """
    where = {**described_machine(work.device), **engine.describe()}
    with file.writing({**header, **where}) as writer:
        for _, rows in engine.run(work, writer.records.missing(numbers, retry)):
            writer.add(rows)
            yield rows
