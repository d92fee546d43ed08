"""HTML that notebooks show: small tables and pictures, without scripts, colours of their own or other files."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

LONGEST_CELL = 300
"""Most characters of a cell: what is longer belongs into a variable, not into a page."""

HEAD, NAME, VALUE = "text-align:left", "text-align:left;overflow-wrap:anywhere", "text-align:left;white-space:nowrap"
"""Styles of cells: names of files may be broken anywhere, numbers nowhere. Colours and fonts are the notebook's own."""


def text_html(value: object) -> str:
    """Return any text as HTML: escaped, with characters that cannot be seen, such as line ends, as escapes too."""
    shown = (char if char.isprintable() else char.encode("unicode_escape").decode() for char in str(value))
    return html.escape("".join(shown))


def definition_table(title: object, definitions: Mapping[str, object], notes: Sequence[object] = ()) -> str:
    """Return a title, sentences, and a table of two columns, names and values, as HTML."""
    rows = "".join(
        f"<tr>{_cell('th', VALUE, name)}{_cell('td', NAME, value)}</tr>" for name, value in definitions.items()
    )
    return _headed(title, notes, f"<tbody>{rows}</tbody>")


def row_table(
    title: object, columns: Sequence[str], rows: Iterable[Sequence[object]], notes: Sequence[object] = ()
) -> str:
    """Return a title, sentences, and a table with named columns as HTML.

    Parameters
    ----------
    title, notes
        What is above the table.
    columns
        Names of the columns.
    rows
        A name, and a value for each other column; or a name and a sentence instead of values.
    """
    head = "".join(_cell("th", HEAD, column) for column in columns)
    body = []
    for name, *values in rows:
        if len(values) == len(columns) - 1:
            cells = "".join(_cell("td", VALUE, value) for value in values)
        else:
            cells = "".join(_cell(f'td colspan="{len(columns) - 1}"', NAME, value) for value in values)
        body.append(f"<tr>{_cell('td', NAME, name)}{cells}</tr>")
    return _headed(title, notes, f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody>")


def picture_html(pixels: NDArray[np.uint8], description: str, width: int) -> str:
    """Return a picture (H, W, 3) as HTML that holds it as a PNG, ``width`` screen pixels wide."""
    from PIL import Image  # here because most noise models are never shown

    png = io.BytesIO()
    Image.fromarray(pixels).save(png, "PNG", optimize=True)
    data = base64.b64encode(png.getvalue()).decode()
    return f'<img src="data:image/png;base64,{data}" alt="{text_html(description)}" style="width:{width}px;margin:0">'


def _headed(title: object, notes: Sequence[object], table: str) -> str:
    lines = "".join(f"<div>{text_html(note)}</div>" for note in notes)
    return f'<div><b>{text_html(title)}</b>{lines}<table style="margin:4px 0">{table}</table></div>'


def _cell(tag: str, style: str, value: object) -> str:
    text = str(value)
    if len(text) > LONGEST_CELL:
        text = f"{text[:LONGEST_CELL]}..."
    return f'<{tag} style="{style}">{text_html(text)}</{tag.split()[0]}>'
