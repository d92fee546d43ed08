"""A report page as one HTML file, from its Markdown."""

from __future__ import annotations

import html
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from attentest.studies.document import PLURALS, Outcome, anchor, markdown, required

if TYPE_CHECKING:
    from markdown_it.rules_block import StateBlock
    from markdown_it.token import Token

CLASSES: Mapping[Outcome, str] = {"holds": "good", "differs": "bad", "not enough data": "unknown"}
VERDICT_CLASSES = {words: name for outcome, name in CLASSES.items() for words in (outcome, PLURALS[outcome])}
"""Class in the stylesheet of each outcome, in the singular and the plural."""

SUMMARY = re.compile(r"<summary>(.*)</summary>")
PARAGRAPH = ("paragraph_open", "inline", "paragraph_close")


def to_html(text: str, images: Mapping[str, bytes]) -> str:
    """Return a Markdown page, whose first line is its title, as one HTML file with its images (PNGs by name) in it.

    HTML within the Markdown stays text, except for the lines that fold something away (:func:`document.fold`).
    """
    jinja2 = required("jinja2", "Jinja2")
    parser = required("markdown_it", "markdown-it-py").MarkdownIt("commonmark", {"html": False}).enable("table")
    parser.block.ruler.before("paragraph", "fold", _fold)
    # A wide table scrolls in its own box, which the keyboard reaches.
    parser.add_render_rule("table_open", lambda *_: '<div class="table" tabindex="0">\n<table>\n')
    parser.add_render_rule("table_close", lambda *_: "</table>\n</div>\n")
    tokens = list(_figures(parser.parse(text)))
    for token in tokens:
        _complete(token.children or (), images)
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("attentest.studies"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    page = environment.get_template("page.html.j2").render(
        title=text.partition("\n")[0].removeprefix("# "),
        style=(files("attentest.results") / "html_style.css").read_text(encoding="utf-8"),
        contents=_named_headings(tokens),
        body=parser.renderer.render(tokens, parser.options, {}),
    )
    return str(page)


def _complete(parts: Sequence[Token], images: Mapping[str, bytes]) -> None:
    """Put the images into a text, and give its verdicts, and numbers of verdicts, their classes."""
    for part in parts:
        if part.type == "image":
            content = images[Path(str(part.attrGet("src"))).stem]
            part.attrSet("src", "data:image/png;base64," + b64encode(content).decode())
    for opening, inside in pairwise(parts):
        words = inside.content.lstrip("0123456789, ")
        if opening.type == "strong_open" and words in VERDICT_CLASSES:
            opening.attrSet("class", f"verdict {VERDICT_CLASSES[words]}")


def _named_headings(tokens: Sequence[Token]) -> dict[str, str]:
    """Give headings the names that links use, and return the texts of the sections' headings by their names."""
    contents = {}
    for opening, heading in pairwise(tokens):
        if opening.type == "heading_open":
            name = anchor(heading.content)
            opening.attrSet("id", name)
            if opening.tag == "h2":
                contents[name] = "".join(part.content for part in heading.children or ())
    return contents


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


def _figures(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield tokens, with a paragraph of one image and the paragraph after it as a figure and its caption."""
    place = 0
    while place < len(tokens):
        two = tokens[place : place + 6]
        found = [token.type for token in two] == [*PARAGRAPH, *PARAGRAPH]
        if found and [child.type for child in two[1].children or ()] == ["image"]:
            figure, image, end, opening, caption, closing = two
            figure.type = figure.tag = end.type = end.tag = "figure"
            figure.attrSet("class", "wide")
            opening.tag = closing.tag = "figcaption"
            yield from (figure, image, opening, caption, closing, end)
            place += 6
        else:
            yield tokens[place]
            place += 1
