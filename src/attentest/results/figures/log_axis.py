"""Logarithmic axes with plain numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NUMBERS = ((1000.0, (1.0,)), (20.0, (1.0, 3.0)), (0.0, (1.0, 2.0, 3.0, 5.0)))
"""Numbers of a decade on the axis, by the ratio of the axis' ends from which on they are so few."""


def make_logarithmic(axes: Axes, which: Literal["x", "y"]) -> None:
    """Make an axis logarithmic, now that all is drawn, with numbers such as 0.02 or 5 in place of 2 x 10^-2."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=next(numbers for ratio, numbers in NUMBERS if high > ratio * low)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())
