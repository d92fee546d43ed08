"""Figures: files, windows and notebooks, colours, axes and texts in them."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from attentest.errors import InputError
from attentest.files import check_output_path

if TYPE_CHECKING:
    from matplotlib.axes import Axes
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


BLUE = "#0072b2"
SKY = "#8fc7ea"
VERMILION = "#d55e00"
ORANGE = "#e69f00"
GREEN = "#009e73"
PURPLE = "#b5568f"
GREY = "0.5"
"""Grey that can be read on white and on black."""

REGION_COLOUR = VERMILION
OTHER_COLOUR = GREY
"""Colour of the parts of a region that are not compared."""

EXTREME_COLOUR = BLUE
ORDINARY_COLOUR = SKY
NAIVE_COLOUR = VERMILION


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


WIDE_FONTS = (
    *("Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans CJK KR", "Noto Sans JP", "Source Han Sans", "IPAexGothic"),
    *("TakaoGothic", "VL Gothic", "WenQuanYi Zen Hei", "WenQuanYi Micro Hei", "Droid Sans Fallback", "Hiragino Sans"),
    *("PingFang SC", "Apple SD Gothic Neo", "Yu Gothic", "Meiryo", "MS Gothic", "Microsoft YaHei", "SimHei"),
    *("Malgun Gothic", "Arial Unicode MS", "Unifont"),
)
"""Fonts with Chinese, Japanese and Korean characters, which Matplotlib's own does not have."""


def shown_name(name: str, letters: int) -> dict[str, Any]:
    """Return the name of an image as arguments of Matplotlib's text: as it is, in at most so many letters."""
    text, families = drawable(name)
    return {"s": shortened_name(text, letters), "family": list(families), "parse_math": False}


def shortened_name(name: str, letters: int) -> str:
    """Return a name of at most so many letters, of which a wide one counts as two: its ends, with dots between them."""
    if _width(name) <= letters:
        return name
    head, tail = "", ""
    while _width(head) + _width(tail) < letters - 3:
        if _width(head) < _width(tail):
            head += name[len(head)]
        else:
            tail = name[len(name) - len(tail) - 1] + tail
    return f"{head}…{tail}"


def drawable(text: str) -> tuple[str, tuple[str, ...]]:
    """Return text with the font families to draw it in; what no installed font has, or is no letter, is escaped."""
    import matplotlib as mpl

    usual = tuple(mpl.rcParams["font.family"])
    known = _letters(usual)
    other = {letter for letter in text if ord(letter) not in known}
    extra = [family for family in _installed() if any(ord(letter) in _letters((family,)) for letter in other)]
    families = (*usual, *extra)
    have = set().union(*(_letters((family,)) for family in extra)) | known
    return "".join(one if one.isprintable() and ord(one) in have else _escaped(one) for one in text), families


def wrapped(text: str, letters: int) -> str:
    """Return a paragraph in lines of at most so many letters."""
    return "\n".join(textwrap.wrap(text, max(letters, 20)))


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape", "surrogatepass").decode()


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


@cache
def _installed() -> tuple[str, ...]:
    from matplotlib import font_manager

    present = {font.name for font in font_manager.fontManager.ttflist}
    return tuple(family for family in WIDE_FONTS if family in present)


@cache
def _letters(families: tuple[str, ...]) -> frozenset[int]:
    """Return the code points of the letters that a font has."""
    from matplotlib import font_manager

    font = font_manager.get_font(font_manager.findfont(font_manager.FontProperties(family=list(families))))
    return frozenset(font.get_charmap())
