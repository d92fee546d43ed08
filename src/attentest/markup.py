"""HTML: escaped text, small tables and pictures for notebooks, and pages from templates.

Everything that is shown stands in the HTML itself: no script, no other file, no request.
"""

from __future__ import annotations

import html
import io
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attentest.errors import required

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LONGEST_CELL = 300  # most characters of a cell: what is longer belongs into a variable, not into a page

HEAD, NAME, VALUE = "text-align:left", "text-align:left;overflow-wrap:anywhere", "text-align:left;white-space:nowrap"
"""Styles of cells: names of files may be broken anywhere, numbers nowhere. Colours and fonts are the notebook's own."""


def plain(text: object) -> str:
    """Return text in which bytes that are not text, and characters that control how others are shown, are escaped."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in str(text))


def text_html(value: object) -> str:
    """Return any text as HTML: escaped, with characters that cannot be seen, such as line ends, as escapes too."""
    return html.escape(plain(value))


def definition_table(title: object, definitions: Mapping[str, object], notes: Sequence[object] = ()) -> str:
    """Return a title, sentences, and a table of two columns, names and values, as HTML."""
    rows = (f"{_cell('th', VALUE, name)}{_cell('td', NAME, value)}" for name, value in definitions.items())
    return _table(title, notes, "", rows)


def row_table(
    title: object, columns: Sequence[str], rows: Iterable[Sequence[object]], notes: Sequence[object] = ()
) -> str:
    """Return a title, sentences, and below them a table with named columns as HTML.

    A row has a name, and a value for each other column; or a name and a sentence instead of values.
    """

    def row(name: object, *values: object) -> str:
        whole = len(values) == len(columns) - 1
        tag, style = ("td", VALUE) if whole else (f'td colspan="{len(columns) - 1}"', NAME)
        return _cell("td", NAME, name) + "".join(_cell(tag, style, value) for value in values)

    head = "".join(_cell("th", HEAD, column) for column in columns)
    return _table(title, notes, f"<thead><tr>{head}</tr></thead>", (row(*cells) for cells in rows))


def _table(title: object, notes: Sequence[object], head: str, rows: Iterable[str]) -> str:
    lines = "".join(f"<div>{text_html(note)}</div>" for note in notes)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    table = f'<table style="margin:4px 0">{head}<tbody>{body}</tbody></table>'
    return f"<div><b>{text_html(title)}</b>{lines}{table}</div>"


def _cell(tag: str, style: str, value: object) -> str:
    text = str(value)
    if len(text) > LONGEST_CELL:
        text = f"{text[:LONGEST_CELL]}..."
    return f'<{tag} style="{style}">{text_html(text)}</{tag.split()[0]}>'


def png_file(pixels: NDArray[np.uint8], colours: int | None = None) -> bytes:
    """Return the content of a PNG file of a picture (H, W, 3), of at most so many colours, which makes it smaller."""
    from PIL import Image  # here because most noise models are never shown

    picture, content = Image.fromarray(pixels), io.BytesIO()
    (picture if colours is None else picture.quantize(colours)).save(content, "PNG", optimize=True)
    return content.getvalue()


def png_address(content: bytes) -> str:
    """Return the address of a PNG file that holds the file itself."""
    return f"data:image/png;base64,{b64encode(content).decode()}"


def page_from(packages: Iterable[str], template: str, **values: Any) -> str:
    """Return the HTML of a Jinja2 template in the folder ``templates`` of one of some packages.

    Every text is escaped, as by :func:`text_html`, except for those that the template declares safe. Functions among
    the values are filters, too.
    """
    environment = templates(
        *packages, autoescape=True, finalize=lambda value: plain(value) if type(value) is str else value
    )
    functions = {name: value for name, value in values.items() if callable(value)}
    environment.filters.update(functions, data=png_address)
    return str(environment.get_template(template).render(**values))


def templates(*packages: str, **options: Any) -> Any:
    """Return the Jinja2 templates of some packages; a name without a value is an error, and tags leave no lines."""
    jinja2 = required("jinja2", "the report needs Jinja2")
    options |= {"undefined": jinja2.StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    return jinja2.Environment(loader=jinja2.ChoiceLoader([*map(jinja2.PackageLoader, packages)]), **options)
