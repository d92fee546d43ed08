"""Figures that a notebook or a window shows: those of pyplot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attentest.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def shown_figure(width: float, height: float, *, arranged: bool = True) -> Figure:
    """Return a new figure of pyplot of a size in inches; needs Matplotlib (``pip install 'attentest[plots]'``).

    Matplotlib arranges its axes, unless they are put in their places one by one.
    """
    try:
        from matplotlib import pyplot
    except ImportError:
        raise InputError("figures need Matplotlib: pip install 'attentest[plots]'.") from None
    figure: Figure = pyplot.figure(figsize=(width, height), layout="constrained" if arranged else "none")
    return figure


def axes_or_new(ax: Any, width: float, height: float) -> Axes:
    """Return the axes that were given, or those of a new figure; refuse anything else."""
    if ax is None:
        return shown_figure(width, height).add_subplot()
    return checked_axes([ax], 1)[0]


def checked_axes(axes: Any, count: int) -> list[Axes]:
    """Return so many axes as a list; refuse anything else."""
    from matplotlib.axes import Axes

    found = list(axes) if hasattr(axes, "__iter__") else [axes]
    if len(found) != count or not all(isinstance(one, Axes) for one in found):
        wanted = "Matplotlib Axes" if count == 1 else f"a list of {count} Matplotlib Axes"
        got = ", ".join(sorted({type(one).__name__ for one in found})) or "nothing"
        raise InputError(f"axes must be {wanted} or None for a new figure, got {len(found)} of type {got}.")
    return found
