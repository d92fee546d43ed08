"""Figures: files, windows and notebooks, colours, axes and texts in them."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from attentest.checks import positive_number
from attentest.errors import InputError, required, worded
from attentest.files import check_output_path, write_complete
from attentest.markup import plain
from attentest.presentation.tables import elided

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase


FIGURE_SUFFIXES = (".png", ".svg", ".pdf")


def new_figure(width: float, height: float, *, arranged: bool = True) -> Figure:
    """Return an empty figure of a size in inches; needs Matplotlib (``pip install 'attentest[plots]'``).

    Matplotlib arranges its axes, unless they are put in their places one by one.
    """
    kind = required("matplotlib.figure", "figures need Matplotlib").Figure
    figure: Figure = kind(figsize=(width, height), layout="constrained" if arranged else None)
    return figure


def png_of(figure: Figure, dpi: float, **options: Any) -> bytes:
    """Return the content of a PNG file of a figure, without the version of Matplotlib: the same picture, same bytes."""
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=dpi, metadata={"Software": None}, **options)
    return content.getvalue()


def check_figure_path(path: Path, inputs: Iterable[Path] = ()) -> None:
    """Raise an error if no figure can be written to a path, or if it would overwrite an input."""
    check_output_path(path, "the figure", FIGURE_SUFFIXES, inputs)
    new_figure(1.0, 1.0)  # an error where Matplotlib is missing


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure to a checked path, completely or not at all."""
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix[1:].lower(), dpi=150)
    write_complete(path, content.getvalue(), "the figure")


def shown_figure(width: float, height: float, *, arranged: bool = True) -> Figure:
    """Return a figure like :func:`new_figure` that pyplot knows, so that notebooks and windows show it."""
    new_figure(width, height)  # an error where Matplotlib is missing
    from matplotlib import pyplot

    figure: Figure = pyplot.figure(figsize=(width, height), layout="constrained" if arranged else "none")
    return figure


def axes_or_new(ax: Any, width: float, height: float) -> Axes:
    """Return the axes that a caller passed as ``ax``, or those of a new figure of a size in inches."""
    return (
        shown_figure(width, height).add_subplot() if ax is None else _checked([ax], 1, "ax must be Matplotlib Axes")[0]
    )


def checked_axes(axes: Any, count: int) -> list[Axes]:
    """Return the axes that a caller passed as ``axes``; raise an error unless they are so many."""
    several = list(axes) if hasattr(axes, "__iter__") else [axes]
    return _checked(several, count, f"axes must be a list of {count} Matplotlib Axes")


def draw_grid(axes: Axes) -> None:
    """Draw pale horizontal lines behind the data."""
    axes.grid(axis="y", color="0.5", alpha=0.18)
    axes.set_axisbelow(True)


def legend_below(axes: Axes, columns: int, size: float) -> None:
    """Draw the legend below the label of the x axis, where no curve is, in so many columns."""
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=columns, fontsize=size, frameon=False)


def word_axes(axes: Iterable[Axes], dimension: int) -> None:
    """Put titles, labels and legends about images into the words for signals (1) or volumes (3)."""
    for panel in axes:
        legend = panel.get_legend()
        for text in (panel.title, panel.xaxis.label, panel.yaxis.label, *(legend.get_texts() if legend else ())):
            text.set_text(worded(text.get_text(), dimension))


def _checked(axes: list[Any], count: int, requirement: str) -> list[Axes]:
    from matplotlib.axes import Axes

    if len(axes) != count or not all(isinstance(panel, Axes) for panel in axes):
        kinds = ", ".join(sorted({type(panel).__name__ for panel in axes})) or "nothing"
        raise InputError(f"{requirement} or None for a new figure, got {len(axes)} of type {kinds}.")
    return axes


BLUE = "#0072b2"
SKY = "#8fc7ea"
VERMILION = "#d55e00"
ORANGE = "#e69f00"
GREEN = "#009e73"
PURPLE = "#b5568f"
GREY = "0.5"
"""Grey that can be read on white and on black."""

PALETTE = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, GREY)

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


def annotate(
    axes: Axes,
    text: str,
    at: tuple[float, float],
    *,
    along: tuple[str, str] = ("axes fraction", "axes fraction"),
    by: tuple[float, float] = (0, 2),
    **style: Any,
) -> None:
    """Write a text beside a point of axes, so many points away, with an alignment, a colour and a size.

    The coordinates of the point are each along the "data" or as an "axes fraction".
    """
    axes.annotate(text, at, xycoords=along, xytext=by, textcoords="offset points", annotation_clip=False, **style)


def make_plain(axes: Axes, label: str, size: float, hidden: Sequence[str] = ("top", "right")) -> None:
    """Give the x axis a label and small ticks, with text of a size in points, and hide sides of the frame."""
    axes.tick_params(labelsize=size - 0.5, pad=1.5, length=2.5)
    axes.set_xlabel(label, size=size, labelpad=1.5)
    axes.spines[list(hidden)].set_visible(False)


MM = 1 / 25.4  # a millimetre in inches
WIDTH = 180.0  # usual width of a figure in mm: the text width of a page
NARROWEST, WIDEST = 60.0, 1000.0  # least and greatest width in mm in which everything can be read
NARROW = 120.0  # a figure narrower than this, such as one of a column of 80 mm, has panels below each other
LETTER, LINE = 0.19, 0.48  # mean width of a letter and height of a line, in mm per point of the size of the text


def checked_width(width: float) -> float:
    """Return the width of a figure in mm; raise an error if nothing could be read in it."""
    size = positive_number(width, "width")
    if not NARROWEST <= size <= WIDEST:
        raise InputError(f"width must be {NARROWEST:g} to {WIDEST:g} mm, got {size:g}.")
    return size


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Places on a figure in mm: panels, with the name of an image above them and words below."""

    width: float
    """Width of the figure."""
    panels: Sequence[tuple[float, float, float, float]]
    """Left, top, width and height of each panel; the top is the distance from that of the figure."""
    above_words: float
    """Distance of the words from the top of the figure."""
    lines: int
    """Lines of words for which there is room."""
    size: float = 7.5
    """Size of the text in points."""

    @property
    def height(self) -> float:
        """Height of the figure."""
        return self.above_words + LINE * self.size * self.lines + 2

    @property
    def inches(self) -> tuple[float, float]:
        """Width and height of the figure in inches."""
        return self.width * MM, self.height * MM

    def draw(self, figure: FigureBase, title: str, words: str) -> list[Axes]:
        """Draw the title and the words on a figure of this size, and return the axes of its panels."""
        left, letters = 4 / self.width, letters_across(self.width - 8, self.size)
        name = shown_name(title, int(0.58 * letters))
        figure.text(left, 1 - 2 / self.height, va="top", size=self.size + 2, weight="bold", **name)
        lines = wrapped(words, letters)
        figure.text(left, 1 - self.above_words / self.height, lines, va="top", size=self.size, linespacing=1.3)
        return [
            figure.add_axes((x / self.width, 1 - (y + high) / self.height, wide / self.width, high / self.height))
            for x, y, wide, high in self.panels
        ]


def letters_across(width: float, size: float) -> int:
    """Return how many letters of a size in points are as long as a width in mm."""
    return int(width / (LETTER * size))


def width_of(axes: Axes) -> float:
    """Return the width of axes in mm."""
    return float(axes.get_window_extent().width / axes.get_figure(root=True).dpi / MM)  # type: ignore[union-attr]


def fitting_size(axes: Axes, letters: int, most: float, least: float = 4.0) -> float:
    """Return the size in points, at most and at least so large, at which so many letters are as wide as axes."""
    return min(most, max(least, width_of(axes) / (LETTER * letters)))


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
    return {"s": elided(text, letters, end_share=1 / 2), "family": list(families), "parse_math": False}


def drawable(text: str) -> tuple[str, tuple[str, ...]]:
    """Return text with the font families to draw it in; what no installed font has, or is no letter, is escaped."""
    import matplotlib as mpl

    usual = tuple(mpl.rcParams["font.family"])
    known = _letters(usual)
    other = {letter for letter in text if ord(letter) not in known}
    extra = [family for family in _installed() if any(ord(letter) in _letters((family,)) for letter in other)]
    families = (*usual, *extra)
    have = set().union(*(_letters((family,)) for family in extra)) | known
    shown = (char if ord(char) in have else char.encode("unicode_escape").decode() for char in plain(text))
    return "".join(shown), families


def wrapped(text: str, letters: int) -> str:
    """Return a paragraph in lines of at most so many letters."""
    return "\n".join(textwrap.wrap(text, max(letters, 20)))


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
