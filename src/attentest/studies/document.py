"""Report pages: verdicts on statements, Markdown from a template, and numbers as text."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

from attentest.errors import InputError, counted
from attentest.files import make_directory, write_complete
from attentest.results.figures.figure_file import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Columns: TypeAlias = Mapping[str, str | Callable[[Any], object]]
"""The columns of a table: for each heading a format string for the values of a row, or a function of the row."""

MARKDOWN_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~$&!])")
"""Characters that have a meaning in Markdown, or in HTML within it."""

NUMBERS = re.compile(r"\[(?:[-+.,\deE\s]|null)*\]")
"""A list of numbers in JSON; some may be null."""


Outcome: TypeAlias = Literal["holds", "differs", "not enough data"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
PLURALS: Mapping[Outcome, str] = {"holds": "hold", "differs": "differ", "not enough data": "not enough data"}
NOT_IN_THE_PAPER = "not in the paper"  # place in the paper of a statement that we added


class Verdict(NamedTuple):
    """Whether the data agree with a statement, and a sentence with the numbers."""

    outcome: Outcome
    numbers: str


NO_DATA = Verdict(outcome="not enough data", numbers="There are no data.")


def split_by_data(findings: Iterable[Mapping[str, Any]]) -> tuple[list[Any], list[Any]]:
    """Return the findings for which there are some data, even if not enough, and those for which there are none."""
    found = list(findings)
    return (
        [one for one in found if one["numbers"] != NO_DATA.numbers],
        [one for one in found if one["numbers"] == NO_DATA.numbers],
    )


class Markdown(str):
    """Text that is Markdown already: tables and templates insert it as it is and escape every other text."""

    __slots__ = ()


def markdown(text: object) -> Markdown:
    """Return text escaped, so that Markdown shows it as it is in a paragraph or in a cell of a table."""
    if isinstance(text, Markdown):
        return text
    return Markdown(MARKDOWN_SPECIAL.sub(r"\\\1", " ".join(str(text).split())))


def table(rows: Iterable[Any], columns: Columns) -> Markdown:
    """Return a Markdown table with a line per row, empty if there are no rows."""
    lines = [
        [markdown(cell.format_map(row) if isinstance(cell, str) else cell(row)) for cell in columns.values()]
        for row in rows
    ]
    head = [[markdown(heading) for heading in columns], [Markdown("---")] * len(columns)]
    return Markdown("\n".join(f"| {' | '.join(line)} |" for line in [*head, *lines]) if lines else "")


def code(command: object) -> Markdown:
    """Return a command as a block of code; on one line and without backticks, nothing in it can end the block."""
    return Markdown(f"```\n{' '.join(str(command).replace('`', chr(39)).split())}\n```")


def picture(name: str, title: str, caption: str) -> Markdown:
    """Return a figure of the page with its caption."""
    return Markdown(f"![{markdown(title)}](figures/{name}.png)\n\n{markdown(caption)}")


def fold(title: object, caller: Callable[[], str]) -> Markdown:
    """Return what a template encloses in a ``call`` of this function, folded away under a title; empty if it is empty.

    The title is plain text, which Markdown leaves as it is within this element.
    """
    content = caller().strip()
    heading = html.escape(" ".join(str(title).split()), quote=False)
    return Markdown(f"<details>\n<summary>{heading}</summary>\n\n{content}\n\n</details>\n\n" if content else "")


def counts_of(findings: Iterable[Mapping[str, Any]]) -> Markdown:
    """Return how many findings have each verdict: "**2 hold**, **1 differs**"."""
    verdicts = Counter(one["verdict"] for one in findings)
    words = {outcome: outcome if verdicts[outcome] == 1 else PLURALS[outcome] for outcome in OUTCOMES}
    return Markdown(", ".join(f"**{verdicts[outcome]} {words[outcome]}**" for outcome in OUTCOMES if verdicts[outcome]))


def link_to(heading: str, text: str) -> Markdown:
    """Return text that links to a heading of the page."""
    return Markdown(f"[{markdown(text)}](#{anchor(heading)})")


def number(value: float | None, digits: int = 3) -> str:
    """Return a number as a table shows it."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.{digits}g}"


def rate_text(rate: Mapping[str, Any] | None) -> str:
    """Return a rate with its interval, and "above" or "below" if it is outside its band."""
    if rate is None:
        return "-"
    text = f"{rate['value']:.3f} [{rate['low']:.3f}, {rate['high']:.3f}]"
    if rate.get("above_band"):
        return f"{text}, above"
    return f"{text}, below" if not rate.get("within_band", True) else text


def duration(seconds: float | None) -> str:
    """Return a time in a unit that suits it."""
    if seconds is None:
        return "-"
    for size, unit in ((86_400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def png(figure: Figure) -> bytes:
    """Return a figure as a PNG."""
    target = BytesIO()
    # Without the version of Matplotlib in the file, the same picture is the same bytes.
    figure.savefig(target, format="png", dpi=110, metadata={"Software": None})
    return target.getvalue()


def summary_text(summary: Mapping[str, Any]) -> str:
    """Return a summary as JSON, with each list of numbers on one line."""
    text = json.dumps(summary, allow_nan=False, indent=1) + "\n"
    return NUMBERS.sub(lambda found: re.sub(r"\s+", " ", found[0]), text)


def render(package: str, content: Mapping[str, Any]) -> str:
    """Return the Markdown page of a package's template, which escapes all values that are not :class:`Markdown`."""
    jinja2 = required("jinja2", "Jinja2")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(package),
        finalize=markdown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    functions = {"fold": fold, "counted": counted, "counts_of": counts_of}
    text = environment.get_template("page.md.j2").render({**functions, **content})
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def write_pages(target: Path, pages: Mapping[str, str], figures: Mapping[str, bytes]) -> None:
    """Write the pages of a report, by file name, to a directory, and the PNGs by name to its directory ``figures``."""
    make_directory(target / "figures")
    for name, content in figures.items():
        write_complete(target / "figures" / f"{name}.png", content, "the figure")
    for name, text in pages.items():
        write_complete(target / name, text.encode(), "the report")


def check_can_report() -> None:
    """Refuse where a package that draws figures or writes pages is not installed."""
    new_figure(1.0, 1.0)
    required("jinja2", "Jinja2")
    required("markdown_it", "markdown-it-py")


def required(module: str, name: str) -> Any:
    """Import a module that only pages need, and name its package where it is missing."""
    try:
        return import_module(module)
    except ImportError:
        raise InputError(f"the report needs {name}: pip install 'attentest[plots]'.") from None


def anchor(heading: str) -> str:
    """Return the name of a heading in links, by the rule of GitHub."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
