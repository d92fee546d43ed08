"""Tables as CSV and Parquet files."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from attentest.errors import InputError
from attentest.files import check_output_path, write_complete

FORMULA_BEGINNINGS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Characters with which a spreadsheet takes a cell for a formula; the last four are the wide forms of the first."""


def as_text(cell: Any) -> Any:
    """Return a cell; names of files that are not UTF-8, which cannot be written, have their bytes as escapes."""
    return cell.encode("utf-8", "backslashreplace").decode() if isinstance(cell, str) else cell


def csv_cell(cell: Any) -> Any:
    """Return a cell of a CSV file: a text that a spreadsheet would take for a formula has a quotation mark before it.

    A file may be called ``=HYPERLINK(...)``, and spreadsheets run what begins like this. A single quotation mark tells
    them that it is text, as OWASP recommends ("CSV Injection"). Numbers, negative ones too, are left as they are.
    """
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA_BEGINNINGS) else cell


def write_csv(table: Mapping[str, Sequence[Any]], path: Path) -> None:
    """Write columns of equal length as CSV, numbers exact to the last bit, texts as in :func:`csv_cell`."""
    write_complete(path, _csv_lines(table), "the table")


def write_parquet(table: Mapping[str, Sequence[Any]], path: Path) -> None:
    """Write columns of equal length, each of one type, as Parquet."""
    pa, pq = _pyarrow()
    content = io.BytesIO()
    columns = {name: [as_text(cell) for cell in cells] for name, cells in table.items()}
    pq.write_table(pa.table(columns), content)
    write_complete(path, content.getvalue(), "the table")


def check_csv_path(path: Path, inputs: Iterable[Path] = ()) -> None:
    """Refuse a path that cannot become a CSV file, before anything is computed."""
    check_output_path(path, "the table", (".csv",), inputs)


def check_parquet_path(path: Path, inputs: Iterable[Path] = ()) -> None:
    """Refuse a path that cannot become a Parquet file, before anything is computed."""
    check_output_path(path, "the table", (".parquet",), inputs)
    _pyarrow()


def _csv_lines(table: Mapping[str, Sequence[Any]]) -> Iterator[bytes]:
    """Yield the lines of a CSV file one by one: the text of a long table takes more memory than the table."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for cells in chain([table], zip(*table.values(), strict=True)):
        writer.writerow(map(csv_cell, cells))
        yield text.getvalue().encode("utf-8", "backslashreplace")
        text.seek(0)
        text.truncate()


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise InputError("Parquet files need pyarrow: pip install 'attentest[tables]'.") from None
    return pa, pq
