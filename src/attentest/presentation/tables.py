"""Tables as CSV and Parquet files, and on the terminal, where columns are left out and names shortened to fit.

Names of images are shown without characters that control the terminal, and are short without becoming the same.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from attentest.errors import required
from attentest.files import check_output_path, write_complete
from attentest.markup import plain

if TYPE_CHECKING:
    import pandas as pd

FORMULA = re.compile(r"^(?=[\r\n])|(^|(?<=[\r\n]))(?=[=+\-@\t\uff1d\uff0b\uff0d\uff20])")
"""Where a spreadsheet takes what follows for a formula; the last four characters are the wide forms of the first."""


def csv_cell(cell: Any) -> Any:
    """Return a cell of a CSV file: a text that a spreadsheet would take for a formula has a quotation mark before it.

    A file may be called ``=HYPERLINK(...)``, and spreadsheets run what begins like this, some after a line break within
    a cell too. A single quotation mark tells them that it is text, as OWASP recommends ("CSV Injection"). Numbers,
    negative ones too, are left as they are.
    """
    return FORMULA.sub("'", cell) if isinstance(cell, str) else cell


def csv_lines(rows: Iterable[Iterable[Any]]) -> Iterator[bytes]:
    """Yield the lines of a CSV file one by one: the text of a long table takes more memory than the table.

    Lines end as RFC 4180 has it, which makes the ``csv`` module quote cells with either kind of line break.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    for cells in rows:
        writer.writerow(map(csv_cell, cells))
        yield text.getvalue().encode("utf-8", "backslashreplace")
        text.seek(0)
        text.truncate()


def write_csv(table: Mapping[str, Sequence[Any]], path: Path) -> None:
    """Write columns of equal length as CSV, numbers exact to the last bit, texts as in :func:`csv_cell`."""
    write_complete(path, csv_lines(chain([table], zip(*table.values(), strict=True))), "the table")


PARQUET = "Parquet files need pyarrow"


def write_parquet(table: Mapping[str, Sequence[Any]], path: Path) -> None:
    """Write columns of equal length, each of one type, as Parquet.

    Names of files that are not UTF-8, which cannot be written, have their bytes as escapes.
    """
    pa, pq = required("pyarrow", PARQUET, "tables"), required("pyarrow.parquet", PARQUET, "tables")
    content = io.BytesIO()
    columns = {
        name: [cell.encode("utf-8", "backslashreplace").decode() if isinstance(cell, str) else cell for cell in cells]
        for name, cells in table.items()
    }
    pq.write_table(pa.table(columns), content)
    write_complete(path, content.getvalue(), "the table")


def data_frame(table: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return columns of equal length, or rows, as a pandas data frame."""
    frame: pd.DataFrame = required("pandas", "data frames need pandas", "tables").DataFrame(table)
    return frame


def check_table_path(path: Path, suffix: str, inputs: Iterable[Path] = ()) -> None:
    """Raise an error if a path cannot become a file of a suffix, .csv or .parquet, before anything is computed."""
    check_output_path(path, "the table", (suffix,), inputs)
    if suffix == ".parquet":
        required("pyarrow", PARQUET, "tables")


GAP = 2  # cells between two columns
SHORTEST_NAME = 7  # cells that names of images have at least

NAME_SHARE = 4
"""Columns are left out before names are shortened to less than the width of the terminal divided by this."""

ALWAYS = 0  # rank of columns that are never left out
WIDE_PAGE = 160  # cells of a line of a file, in tables whose cells are broken


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table."""

    heading: str
    cells: Sequence[str | Text]
    """A text for each row, which may have a style."""
    rank: int = ALWAYS
    """Where there is no room for all columns, those of greater rank are left out first; ``ALWAYS`` are never."""
    is_text: bool = False
    """Whether it is aligned left, as words are, and not right, as numbers are."""

    @property
    def width(self) -> int:
        """Cells of the terminal that it takes."""
        return max(cell_len(str(text)) for text in (*self.heading.split("\n"), *self.cells))


@dataclass(frozen=True, kw_only=True)
class FittedTable:
    """A table of images as it is printed."""

    columns: Sequence[Column]
    """The columns that are shown; the names of the images are the first."""
    folder: str = ""
    """Leading folders that the names have in common, if they are said above the table and not in it."""
    left_out: Sequence[str] = ()
    """Headings of the columns that do not fit."""
    is_shortened: bool = False
    """Whether names are shown without a part of them."""
    groups: Sequence[int] = ()
    """Number of rows of each group, if a line is to be left free between groups of more than one row."""

    def print(self) -> None:
        """Print it on standard output."""
        if self.folder:
            Console(highlight=False).print(Text(f"images in {self.folder}"), soft_wrap=True)
        print_table(self.columns, groups=self.groups, width=total_width(self.columns))


def print_table(
    columns: Sequence[Column],
    *,
    title: str = "",
    caption: str = "",
    groups: Sequence[int] = (),
    separated: bool = False,
    width: int | None = None,
) -> None:
    """Print a table on standard output, with a title above it and a caption below.

    If there are groups of more than one row, given by their numbers of rows, a line is left free between groups; if
    rows are ``separated``, between all of them. A line of a ``width`` in cells is never broken; without it, what is too
    long for the terminal is, or for a wide page if it is printed to a file.
    """
    console = Console(width=table_width() or WIDE_PAGE if width is None else width, highlight=False)
    table = Table(
        box=SIMPLE_HEAD,
        show_edge=False,
        show_lines=separated,
        pad_edge=False,
        padding=(0, GAP - 1, 0, 0),
        title=Text(title) if title else None,
        caption=Text(caption) if caption else None,
        title_justify="left",
        caption_justify="left",
    )
    for column in columns:
        table.add_column(
            Text(column.heading),
            justify="left" if column.is_text else "right",
            vertical="bottom" if width is not None else "top",
            width=None if width is None else column.width,
            no_wrap=width is not None,
        )
    last_of_group = set(accumulate(groups)) if any(size > 1 for size in groups) else set()
    for number, cells in enumerate(zip(*(column.cells for column in columns), strict=True), start=1):
        table.add_row(
            *(Text(cell) if isinstance(cell, str) else cell for cell in cells), end_section=number in last_of_group
        )
    console.print(table)


def print_notes(notes: Iterable[str]) -> None:
    """Print sentences on standard output, each on lines as long as those of tables."""
    console, width = Console(highlight=False), table_width()
    for note in notes:
        console.print(Text(note), width=width, soft_wrap=width is None)


def table_width() -> int | None:
    """Return the width for tables: that of the terminal, or COLUMNS; None, any, if it goes to a file."""
    console, columns = Console(), os.environ.get("COLUMNS", "")
    return console.width if console.is_terminal or (columns.isdigit() and int(columns) > 0) else None


def fitted(names: Sequence[str], columns: Sequence[Column], groups: Sequence[int], of: str = "image") -> FittedTable:
    """Return a table that fits the terminal; if it is printed to a file, it is as wide as it must be.

    Its first column has the names of the images, as given by the user, under the heading ``of``. Groups have the rows
    of one image each.
    """
    width, encoding = table_width(), Console().encoding
    names = [shown(name, encoding) for name in names]
    if width is None:
        return FittedTable(columns=[Column(heading=of, cells=names, is_text=True), *columns])
    one_line = [_name_column(names, groups, of), *columns]
    two_lines = [replace(column, heading=column.heading.replace(" ", "\n", 1)) for column in one_line]
    for all_columns in (one_line, two_lines):
        if total_width(all_columns) <= width:
            return FittedTable(columns=all_columns, groups=groups)
    folder = common_folder(names)
    names = [name[len(folder) :] for name in names]
    ellipsis = ELLIPSIS if shown(ELLIPSIS, encoding) == ELLIPSIS else "..."
    longest = max(cell_len(name) for name in names)
    least = min(longest, max(SHORTEST_NAME, width // NAME_SHARE))
    kept = _fitting(two_lines[1:], width - least - GAP)
    room = max(width - total_width(kept) - GAP, SHORTEST_NAME)
    short = shortened(names, room, ellipsis)
    return FittedTable(
        columns=[_name_column([short[name] for name in names], groups, of), *kept],
        folder=folder,
        left_out=[column.heading for column, two in zip(columns, two_lines[1:], strict=True) if two not in kept],
        is_shortened=longest > room,
        groups=groups,
    )


def total_width(columns: Sequence[Column]) -> int:
    """Return the cells of a line of a table."""
    return sum(column.width for column in columns) + GAP * (len(columns) - 1)


def _fitting(columns: Sequence[Column], width: int) -> list[Column]:
    """Return the columns that fit into a width, in their order: none without all that are more important."""
    kept = [column for column in columns if column.rank == ALWAYS]
    for column in sorted(columns, key=lambda candidate: candidate.rank)[len(kept) :]:
        if total_width([*kept, column]) > width:
            break
        kept.append(column)
    return [column for column in columns if column in kept]


def _name_column(names: Sequence[str], groups: Sequence[int], of: str) -> Column:
    """Return the column of names; each is shown once for all rows of its image."""
    first_of_group = {0, *accumulate(groups)}
    cells = [name if row in first_of_group else "" for row, name in enumerate(names)]
    return Column(heading=of, cells=cells, is_text=True)


ELLIPSIS = "\u2026"  # stands for the part of a name that is left out; three dots where it cannot be written

SHARES = (2 / 3, 1 / 2, 1 / 3)
"""Shares of the room that the end of a name gets, in the order in which they are tried."""


def shown(name: object, encoding: str = "utf-8") -> str:
    """Return the name of an image for the terminal: what is not text in its encoding, or controls it, is escaped."""
    text = str(name) if os.sep == "\\" else str(name).replace("\\", r"\\")  # so that an escape is not another name
    return plain(text).encode(encoding, "backslashreplace").decode(encoding)


def common_folder(names: Sequence[str]) -> str:
    """Return the leading folders that all names have in common, with the slash behind them; "" if there are none."""
    shared = names[0][: _shared(names)].partition("[")[0]  # behind it is the place of an image in a stack
    return shared[: shared.rfind("/") + 1]


def shortened(names: Iterable[str], width: int, ellipsis: str = ELLIPSIS) -> dict[str, str]:
    """Return names by themselves in at most ``width`` cells of a terminal each, no two of them the same.

    The names are as :func:`shown` returns them; a Chinese character takes two cells. The middle of a long name is left
    out. Of names that this would make the same, the part that tells them apart is shown; if there is no room for it,
    they are numbered.
    """
    whole = list(dict.fromkeys(names))
    attempts = [[elided(name, width, ellipsis, share) for name in whole] for share in SHARES]
    short = next((texts for texts in attempts if not _alike(texts)), attempts[0])
    for places in _alike(short):
        for place, text in zip(places, _told_apart([whole[i] for i in places], width, ellipsis), strict=True):
            short[place] = text
    taken = set(short)
    for places in _alike(short):
        for number, place in enumerate(places, start=1):
            short[place] = _numbered(short[place], number, width, ellipsis, taken)
            taken.add(short[place])
    return dict(zip(whole, short, strict=True))


def elided(text: str, width: int, ellipsis: str = ELLIPSIS, end_share: float = SHARES[0]) -> str:
    """Return a text in at most ``width`` cells, without its middle if it is longer; its end has a share of the room."""
    if cell_len(text) <= width:
        return text
    room = width - cell_len(ellipsis)
    if room < 1:
        return ellipsis[:width]
    end = _start(text[::-1], ceil(end_share * room))[::-1]
    return f"{_start(text, room - cell_len(end))}{ellipsis}{end}"


def _told_apart(names: Sequence[str], width: int, ellipsis: str) -> list[str]:
    """Return different names from where they differ on; equal ones where there is no room to tell them apart."""
    before = _shared(names)
    texts = [f"{ellipsis}{elided(name[before:], width - cell_len(ellipsis), ellipsis, SHARES[-1])}" for name in names]
    for places in _alike(texts):
        if len(places) < len(names):
            for place, text in zip(places, _told_apart([names[i] for i in places], width, ellipsis), strict=True):
                texts[place] = text
    return texts


def _numbered(text: str, number: int, width: int, ellipsis: str, taken: set[str]) -> str:
    """Return a name with a number behind it that no other name has."""
    while True:
        mark = f"#{number}"
        numbered = f"{elided(text, max(width - len(mark), 0), ellipsis)}{mark}"
        if numbered not in taken:
            return numbered
        number += 1


def _alike(texts: Sequence[str]) -> list[list[int]]:
    """Return the places of texts that are the same, for each text that is there more than once."""
    places: dict[str, list[int]] = {}
    for place, text in enumerate(texts):
        places.setdefault(text, []).append(place)
    return [equal for equal in places.values() if len(equal) > 1]


def _shared(texts: Sequence[str]) -> int:
    """Return the number of characters with which all texts begin alike."""
    first, last = min(texts), max(texts)
    return next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))


def _start(text: str, room: int) -> str:
    """Return as much of the start of a text as fits into so many cells."""
    length = room
    while cell_len(text[:length]) > room:
        length -= 1
    return text[:length]
