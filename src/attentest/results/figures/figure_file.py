"""Files of figures, and whether they can be written, which is known before anything is computed or drawn."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from attentest.errors import InputError
from attentest.files import check_output_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURE_SUFFIXES = (".png", ".svg", ".pdf")


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of a size in inches; needs Matplotlib (``pip install 'attentest[plots]'``)."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("figures need Matplotlib: pip install 'attentest[plots]'.") from None
    return Figure(figsize=(width, height), layout="constrained")


def check_figure_path(path: Path, inputs: Iterable[Path] = ()) -> None:
    """Refuse a path to which no figure can be written, or that would overwrite an input."""
    check_output_path(path, "the figure", FIGURE_SUFFIXES, inputs)
    new_figure(1.0, 1.0)  # refuses where Matplotlib is missing


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure to a checked path."""
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        reason = (error.strerror or str(error)).rstrip(".")
        raise InputError(
            f"the figure {path} cannot be written ({reason}): give a place that can be written to."
        ) from None
