"""Report pages: verdicts on statements, Markdown from a template, figures of rates, and one HTML file of it all."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from attentest.errors import counted, required
from attentest.files import make_directory, write_complete
from attentest.markup import png_address, templates
from attentest.presentation.figure import new_figure
from attentest.presentation.report import sealed_page
from attentest.progress import duration

if TYPE_CHECKING:
    from markdown_it.rules_block import StateBlock
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Columns: TypeAlias = Mapping[str, str | Callable[[Any], object]]
"""The columns of a table: for each heading a format string for the fields of a row (`Cells`), or a function of it."""

MARKDOWN_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~$&!])")
"""Characters that have a meaning in Markdown, or in HTML within it."""

NUMBERS = re.compile(r"\[(?:[-+.,\deE\s]|null)*\]")  # a list of numbers in JSON; some may be null

Outcome: TypeAlias = Literal["holds", "differs", "not enough data"]
PLURALS: Mapping[Outcome, str] = {"holds": "hold", "differs": "differ", "not enough data": "not enough data"}
CLASSES: Mapping[Outcome, str] = {"holds": "good", "differs": "bad", "not enough data": "unknown"}  # in the stylesheet
NOT_IN_THE_PAPER = "not in the paper"  # place in the paper of a statement that we added


class Verdict(NamedTuple):
    """Whether the data agree with a statement, and a sentence with the numbers."""

    outcome: Outcome
    numbers: str

    @classmethod
    def of(cls, numbers: str, *, holds: object, differs: object) -> Verdict:
        """Return that a statement holds if it does, else that it differs if it does, else that data are missing."""
        return cls("holds" if holds else "differs" if differs else "not enough data", numbers)


NO_DATA = Verdict(outcome="not enough data", numbers="There are no data.")


def split_by_data(findings: Iterable[Mapping[str, Any]]) -> tuple[list[Any], list[Any]]:
    """Return the findings for which there are some data, even if not enough, and those for which there are none."""
    parts: tuple[list[Any], list[Any]] = ([], [])
    for finding in findings:
        parts[finding["numbers"] == NO_DATA.numbers].append(finding)
    return parts


class Markdown(str):
    """Text that is Markdown already: tables and templates insert it as it is and escape every other text."""

    __slots__ = ()


def markdown(text: object) -> Markdown:
    """Return text escaped, so that Markdown shows it as it is in a paragraph or in a cell of a table."""
    if isinstance(text, Markdown):
        return text
    return Markdown(MARKDOWN_SPECIAL.sub(r"\\\1", " ".join(str(text).split())))


class Cells(Formatter):
    """Formats fields of a row, ``{name}`` or ``{name[part]}``, as `text` shows them, or by the format that is named.

    What a row does not have is shown as "-".
    """

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return a field, None if the row lacks it."""
        try:
            return super().get_field(field_name, args, kwargs)
        except (LookupError, TypeError):
            return None, field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        """Return a field as text."""
        if value is None or not format_spec:
            return text(value)
        return duration(value) if format_spec == "duration" else format(value, format_spec)


def cell(row: Any, column: str | Callable[[Any], object]) -> str:
    """Return what a table shows of a row in a column."""
    return Cells().vformat(column, (), row) if isinstance(column, str) else text(column(row))


def table_row(*cells: object) -> Markdown:
    """Return a line of a Markdown table."""
    return Markdown(f"| {' | '.join(markdown(text(value)) for value in cells)} |")


def table_head(*headings: str) -> Markdown:
    """Return the first two lines of a Markdown table."""
    return Markdown(f"{table_row(*headings)}\n|{'---|' * len(headings)}")


def table(rows: Iterable[Any], columns: Columns) -> Markdown:
    """Return a Markdown table with a line per row, empty if there are no rows."""
    lines = [table_row(*(cell(row, column) for column in columns.values())) for row in rows]
    return Markdown("\n".join([table_head(*columns), *lines]) if lines else "")


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
    counts = Counter(finding["verdict"] for finding in findings)
    known = ((counts[outcome], outcome, plural) for outcome, plural in PLURALS.items() if counts[outcome])
    return Markdown(", ".join(f"**{count} {outcome if count == 1 else plural}**" for count, outcome, plural in known))


FINDINGS: Columns = {
    "statement": "{statement}",
    "in the paper": "{where}",
    "verdict": lambda finding: Markdown(f"**{finding['verdict']}**"),
    "numbers": "{numbers}",
}
"""The table of statements and their verdicts."""


def text(value: Any, tol: float = 0.0) -> str:
    """Return a value of a summary as a page shows it.

    Whole numbers are shown in full, other numbers with three digits, rates with their intervals, and None as "-". A
    number below the tolerance of its computation is only known to be below it.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"< {tol:.0e}" if 0 <= value < tol else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    if isinstance(value, Mapping):
        return rate_text(value)
    return "-" if value is None else f"{value:,}"


def rate_text(rate: Mapping[str, Any]) -> str:
    """Return a rate with its interval, and "above" or "below" if it is outside its band."""
    outside = "" if rate.get("within_band", True) else ", above" if rate["above_band"] else ", below"
    return f"{rate['value']:.3f} [{rate['low']:.3f}, {rate['high']:.3f}]{outside}"


def span(values: Iterable[float], shown: Callable[[float], str] = text) -> str:
    """Return the least and the greatest of some values as text, or the only one."""
    low, high = shown(min(values := list(values))), shown(max(values))
    return low if low == high else f"{low} to {high}"


SHADE: Mapping[str, Any] = {"alpha": 0.16, "lw": 0, "zorder": 0}  # how a band or a row is shaded
DASHED: Mapping[str, Any] = {"color": "0.4", "lw": 1, "ls": "--"}  # how a level is drawn
Style = tuple[str, str]  # colour and marker


def titled_panels(width: float, height: float, titles: Iterable[str], **shared: Any) -> tuple[Figure, list[Axes]]:
    """Return a new figure and its panels, one for each title, side by side with one vertical axis by default."""
    titles = list(titles)
    figure = new_figure(width, height)
    panels = list(np.ravel(figure.subplots(1, len(titles), **{"sharey": True, **shared})))
    for axes, title in zip(panels, titles, strict=True):
        axes.set_title(title)
    return figure, panels


def draw_rates(
    axes: Axes,
    rates: Iterable[tuple[float, Mapping[str, Any]]],
    style: Style,
    name: str | None,
    *,
    hollow: bool = False,
    horizontal: bool = False,
) -> None:
    """Draw rates, each with ``value``, ``low`` and ``high``, after their places on the other axis.

    The points have a name in the legend; horizontal rates lie along the horizontal axis.
    """
    pairs = list(rates)
    if not pairs:
        return
    places, (colour, marker) = [place for place, _ in pairs], style
    value, low, high = (np.array([rate[end] for _, rate in pairs]) for end in ("value", "low", "high"))
    # Rounding may put the rate itself outside its interval by 1e-17.
    ends = [np.maximum(0.0, value - low), np.maximum(0.0, high - value)]
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
    draw(level, **DASHED, zorder=1, label=name)


def draw_diagonal(axes: Axes, name: str) -> None:
    """Draw the dashed diagonal of the unit square, with its name in the legend."""
    axes.plot([0, 1], [0, 1], **DASHED, label=name)


def name_bands(axes: Axes, name: str) -> None:
    """Name all bands, of several colours, by one grey sample in the legend."""
    axes.fill([], [], color="0.4", alpha=SHADE["alpha"], lw=0, label=name)


def legend_below(figure: Figure, columns: int, ylabel: str | None = None) -> Figure:
    """Draw one legend below the panels, with each name once and points with intervals first; return the figure.

    A label of the vertical axis is that of the first panel.
    """
    if ylabel is not None:
        figure.axes[0].set_ylabel(ylabel)
    handles = {
        name: handle for axes in figure.axes for handle, name in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    names = sorted(handles, key=lambda name: not hasattr(handles[name], "has_yerr"))
    shown = [handles[name] for name in names]
    figure.legend(shown, names, loc="outside lower center", ncols=columns, fontsize=9, frameon=False)
    return figure


def summary_text(summary: Mapping[str, Any]) -> str:
    """Return a summary as JSON, with each list of numbers on one line."""
    text = json.dumps(summary, allow_nan=False, indent=1) + "\n"
    return NUMBERS.sub(lambda match: re.sub(r"\s+", " ", match[0]), text)


def render(package: str, content: Mapping[str, Any]) -> str:
    """Return the Markdown page of a package's template, which escapes all values that are not :class:`Markdown`."""
    functions = {"fold": fold, "counted": counted, "counts_of": counts_of, "duration": duration, "text": text}
    functions |= {"table": table, "row": table_row, "head": table_head, "picture": picture, "cell": cell, "span": span}
    page = templates(package, finalize=markdown).get_template("page.md.j2").render({**functions, **content})
    return re.sub(r"\n{3,}", "\n\n", page).strip() + "\n"


def write_report(
    target: Path, name: str, summary: Mapping[str, Any], page: str, figures: Mapping[str, bytes], html: str
) -> Path:
    """Write a summary, its page as Markdown and as HTML, and its PNGs by name; return the path of the HTML."""
    make_directory(target / "figures")
    for figure, content in figures.items():
        write_complete(target / "figures" / f"{figure}.png", content, "the figure")
    for file, written in {"summary.json": summary_text(summary), f"{name}.md": page, "index.html": html}.items():
        write_complete(target / file, written.encode(), "the report")
    return target / "index.html"


DPI = 110  # of the figures of a page
MARKDOWN = "the report needs markdown-it-py"


def check_can_report() -> None:
    """Raise an error if a package that draws figures or writes pages is not installed."""
    new_figure(1.0, 1.0)
    required("jinja2", "the report needs Jinja2")
    required("markdown_it", MARKDOWN)


def anchor(heading: str) -> str:
    """Return the name of a heading in links, by the rule of GitHub."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


VERDICT_CLASSES = {words: name for outcome, name in CLASSES.items() for words in (outcome, PLURALS[outcome])}
"""Class in the stylesheet of each outcome, in the singular and the plural."""

SUMMARY = re.compile(r"<summary>(.*)</summary>")
VERDICT = re.compile(rf"<strong>([\d, ]*({'|'.join(VERDICT_CLASSES)}))</strong>")
FIGURE = re.compile(r"<p>(<img [^>]*>)</p>\n<p>(.*?)</p>", re.DOTALL)
IMAGE = re.compile(r'src="figures/([^"]+)\.png"')
"""What the parser makes of a verdict or a number of verdicts, of an image with a paragraph below it, and of images."""


def to_html(text: str, images: Mapping[str, bytes]) -> str:
    """Return a Markdown page, whose first line is its title, as one HTML file with its images (PNGs by name) in it.

    HTML within the Markdown stays text, except for the lines that fold something away (:func:`document.fold`).
    """
    parser = required("markdown_it", MARKDOWN).MarkdownIt("commonmark", {"html": False}).enable("table")
    parser.block.ruler.before("paragraph", "fold", _fold)
    # A wide table scrolls in its own box, which the keyboard reaches.
    parser.add_render_rule("table_open", lambda *_: '<div class="table" tabindex="0">\n<table>\n')
    parser.add_render_rule("table_close", lambda *_: "</table>\n</div>\n")
    tokens, contents = parser.parse(text), {}
    for opening, heading in pairwise(tokens):  # headings get the names that links use
        if opening.type == "heading_open":
            opening.attrSet("id", anchor(heading.content))
            if opening.tag == "h2":
                contents[anchor(heading.content)] = "".join(part.content for part in heading.children or ())
    body = parser.renderer.render(tokens, parser.options, {})
    body = VERDICT.sub(lambda match: f'<strong class="verdict {VERDICT_CLASSES[match[2]]}">{match[1]}</strong>', body)
    body = FIGURE.sub(r'<figure class="wide">\1<figcaption>\2</figcaption>\n</figure>', body)
    body = IMAGE.sub(lambda match: f'src="{png_address(images[match[1]])}"', body)
    title = text.partition("\n")[0].removeprefix("# ")
    return sealed_page("attentest.studies", "page.html.j2", title=title, contents=contents, body=body)


def _fold(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse a line that begins, names or ends what is folded away; other text never has such a line unescaped."""
    line = state.src[state.bMarks[start] + state.tShift[start] : state.eMarks[start]]
    summary = SUMMARY.fullmatch(line)
    if summary is None and line not in ("<details>", "</details>"):
        return False
    if not silent:
        if summary is None:
            state.push("fold", "details", -1 if "/" in line else 1)
        else:
            state.push("summary_open", "summary", 1)
            token = state.push("inline", "", 0)
            token.content, token.children = markdown(html.unescape(summary[1])), []
            state.push("summary_close", "summary", -1)
        state.line = start + 1
    return True
