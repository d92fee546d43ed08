"""The records of a run over many images as rows of a table and as lines of JSON, written as they come."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from attentest.cli.option_names import own_options, with_option_names
from attentest.cli.output import print_json
from attentest.errors import InputError
from attentest.presentation.tables import csv_cell
from attentest.presentation.words import component_notes, row_notes
from attentest.results.rows import COLUMNS, Row, pvalues_of, rows_of_record


def json_lines(record: Mapping[str, Any], alpha: float) -> list[dict[str, Any]]:
    """Return what is printed of a record as JSON: an object for the image, or one for each component."""
    which = {name: record[name] for name in ("image", "reference") if name in record}
    if "error" in record:
        return [{**which, "error": record["error"], "alpha": alpha, "reject": None}]
    rows = rows_of_record(record)
    if "component" not in rows[0]:
        values = {name: value for name, value in record.items() if name not in ("seconds", "file", "saved")}
        rejected = pvalues_of(rows).decisions(alpha, None)[0]
        notes = row_notes(rows[0], rejected, alpha, record["confidence_level"])
        return [{**values, "alpha": alpha, "reject": rejected, "footnotes": _for_options(notes)}]
    decisions = pvalues_of(rows).decisions(alpha, "holm")
    return [
        {
            **which,
            "component": row["component"],
            "pvalue_holm": row["pvalue_holm"],
            **values,
            "alpha": alpha,
            "reject": rejected,
            "footnotes": _for_options(component_notes(row, rejected, alpha, values["confidence_level"])),
        }
        for row, values, rejected in zip(rows, record["components"], decisions, strict=True)
    ]


def _for_options(notes: Sequence[str]) -> list[str]:
    """Return footnotes that name options in place of parameters."""
    return [with_option_names(note, own_options()) for note in notes]


@dataclass(kw_only=True)
class BatchOutput:
    """Takes results as they come; a CSV file has them before the run ends, with adjusted p-values in the end.

    Parameters
    ----------
    alpha
        Level of the verdicts that are printed.
    csv
        The CSV file, if there is to be one.
    as_json
        Whether to print the records.
    take
        Called with every record, if given.
    """

    alpha: float
    csv: Path | None = None
    as_json: bool = False
    take: Callable[[Mapping[str, Any]], None] | None = None
    _file: TextIO | None = field(default=None, init=False)

    def write_rows(self, rows: Iterable[Row]) -> None:
        """Add rows to the CSV file, if there is to be one."""
        if self.csv is None:
            return
        try:
            begun = self._file is not None
            if self._file is None:
                self._file = open(self.csv, "w", encoding="utf-8", errors="backslashreplace", newline="")  # noqa: SIM115
            writer = csv.writer(self._file, lineterminator="\n")
            if not begun:
                writer.writerow(COLUMNS)
            writer.writerows([csv_cell(row.get(name)) for name in COLUMNS] for row in rows)
            self._file.flush()
        except OSError as error:
            raise InputError(f"the table {self.csv} cannot be written to ({error.strerror}).") from None

    def print_records(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Print records as JSON, if they are to be, and hand them on; if neither, none is asked for."""
        if self.as_json or self.take is not None:
            for record in records:
                for line in json_lines(record, self.alpha) if self.as_json else ():
                    print_json(line)
                if self.take is not None:
                    self.take(record)

    def close(self) -> None:
        """Close the CSV file."""
        if self._file is not None:
            self._file.close()
