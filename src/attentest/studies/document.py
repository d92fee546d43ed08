"""Pages of results: tables of text, numbers as they are read, and templates for HTML that stands alone and Markdown."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attentest.errors import InputError
from attentest.files import make_directory, write_complete
from attentest.results.plots import new_figure

if TYPE_CHECKING:
    from jinja2 import Environment
    from matplotlib.figure import Figure

RESOLUTION = 110
"""Of figures, in dots an inch."""

MARKDOWN_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~$&!])")
"""What Markdown, or HTML in it, would read as more than a character."""


NUMBERS = re.compile(r"\[(?:[-+.,\deE\s]|null)*\]")
"""A list of numbers in JSON, of which some may be missing."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A heading of columns and rows of text."""

    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def number(value: float | None, digits: int = 3) -> str:
    """Return a number as a table shows it."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.{digits}g}"


def rate_text(rate: Mapping[str, Any] | None) -> str:
    """Return a rate with its interval, and where it lies if it is outside its band."""
    if rate is None:
        return "-"
    text = f"{rate['value']:.3f} [{rate['low']:.3f}, {rate['high']:.3f}]"
    if rate.get("above_band"):
        return f"{text}, above"
    return f"{text}, below" if not rate.get("within_band", True) else text


def duration(seconds: float | None) -> str:
    """Return a time in the unit it is read in."""
    if seconds is None:
        return "-"
    for size, unit in ((86_400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def markdown(text: object) -> str:
    """Return text that Markdown shows as it is, in a paragraph or in a cell of a table."""
    return MARKDOWN_SPECIAL.sub(r"\\\1", " ".join(str(text).split()))


def png(figure: Figure) -> bytes:
    """Return a figure as a PNG."""
    target = BytesIO()
    # Without the version of Matplotlib in the file, the same picture is the same bytes.
    figure.savefig(target, format="png", dpi=RESOLUTION, metadata={"Software": None})
    return target.getvalue()


def embedded(images: Mapping[str, bytes]) -> dict[str, str]:
    """Return PNGs as addresses that hold the picture, for HTML without files beside it."""
    return {name: "data:image/png;base64," + b64encode(content).decode() for name, content in images.items()}


def summary_text(summary: Mapping[str, Any]) -> str:
    """Return a summary as JSON, a list of numbers a line."""
    text = json.dumps(summary, allow_nan=False, indent=1) + "\n"
    return NUMBERS.sub(lambda found: re.sub(r"\s+", " ", found[0]), text)


def write_pages(target: Path, pages: Mapping[str, str], figures: Mapping[str, bytes]) -> None:
    """Write a report: pages, and figures in a directory of theirs.

    Parameters
    ----------
    target
        Directory; made if it is not there.
    pages
        Texts by the names of their files.
    figures
        PNGs by names without the ending.
    """
    make_directory(target / "figures")
    for name, content in figures.items():
        write_complete(target / "figures" / f"{name}.png", content, "the figure")
    for name, text in pages.items():
        write_complete(target / name, text.encode(), "the report")


def check_can_report() -> None:
    """Refuse where what draws and writes reports is not installed."""
    new_figure(1.0, 1.0)
    template_environment("attentest", html=True)


def template_environment(package: str, *, html: bool) -> Environment:
    """Return where the templates of a package are, and those that all pages share; HTML escapes what it shows.

    Parameters
    ----------
    package
        With a directory ``templates``.
    html
        Whether the templates are of HTML; otherwise they use the filter ``md``.
    """
    try:
        from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise InputError("the report needs Jinja2: pip install 'attentest[plots]'.") from None
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("attentest.studies")]),
        autoescape=html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["md"] = markdown
    return environment
