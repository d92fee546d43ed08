"""Where the records of a run over many images go: to a directory, to a CSV file, to standard output, as they come."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

from attentest.cli.output import print_json
from attentest.errors import InputError
from attentest.files import make_directory
from attentest.results.rows import COLUMNS, Row, columns_of, failed_row, pvalues_of, row_of, with_adjusted

if TYPE_CHECKING:
    from attentest.api.batch_run import BatchRun

RECORDS = "results.jsonl"
"""Name of the file of records in an output directory."""

Write: TypeAlias = Callable[[Sequence[Row]], None]


@contextmanager
def recorded_run(
    run: BatchRun, out: Path | None, retry: bool
) -> Iterator[tuple[dict[int | str, Row], list[int], Write]]:
    """Yield the records that a directory has, the places of the images that it lacks, and a function that adds records.

    Without a directory there are none, and nothing is written. A directory of another test is refused.
    """
    if out is None:
        yield {}, list(range(len(run.images))), lambda rows: None
        return
    from attentest.results.records import RecordFile, alone_in
    from attentest.training.provenance import described_machine

    header = {
        "series": run.describe(),
        "seed": 0,  # seeds are among the settings
        "model_sha256": run.test.model_sha256,
        "settings": run.test.settings,
        **described_machine(run.test.device),
    }
    make_directory(out)
    with alone_in(out), RecordFile(out / RECORDS).writing(header) as writer:
        places = run.missing(writer.records, retry)
        again = {run.images[place].name for place in places}
        known = {name: row for name, row in writer.records.rows.items() if name not in again}
        yield known, places, writer.add


def rows_of_record(record: Mapping[str, Any]) -> list[Row]:
    """Return the rows of a record: one, or one for each component, with p-values adjusted within the image."""
    name = record["image"]
    if "error" in record:
        return [failed_row(name, record["error"])]
    if not isinstance(record["components"], list):  # in the settings of a whole region it is None
        return [row_of(name, record)]
    rows = [{"component": number, **row_of(name, one)} for number, one in enumerate(record["components"], start=1)]
    return with_adjusted(rows)


def table_of(records: Sequence[Mapping[str, Any]], components: bool) -> dict[str, list[Any]]:
    """Return the table of records as columns, with adjusted p-values."""
    rows = [row for record in records for row in rows_of_record(record)]
    return columns_of(rows if components else with_adjusted(rows))


def json_lines(record: Mapping[str, Any], alpha: float) -> list[dict[str, Any]]:
    """Return what is printed of a record as JSON: an object for the image, or one for each component."""
    which = {name: record[name] for name in ("image", "reference") if name in record}
    if "error" in record:
        return [{**which, "error": record["error"], "alpha": alpha, "reject": None}]
    rows = rows_of_record(record)
    if "component" not in rows[0]:
        values = {name: value for name, value in record.items() if name not in ("seconds", "file", "saved")}
        return [{**values, "alpha": alpha, "reject": pvalues_of(rows).decisions(alpha, None)[0]}]
    decisions = pvalues_of(rows).decisions(alpha, "holm")
    return [
        {
            **which,
            "component": row["component"],
            "pvalue_holm": row["pvalue_holm"],
            **values,
            "alpha": alpha,
            "reject": rejected,
        }
        for row, values, rejected in zip(rows, record["components"], decisions, strict=True)
    ]


@dataclass(kw_only=True)
class BatchOutput:
    """Takes records as they come; a CSV file has them before the run ends, with adjusted p-values in the end.

    Parameters
    ----------
    alpha
        Level of the verdicts that are printed.
    csv
        The CSV file, if there is to be one.
    as_json
        Whether to print the records.
    """

    alpha: float
    csv: Path | None = None
    as_json: bool = False
    _file: TextIO | None = field(default=None, init=False)

    def add(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Write records."""
        if self.csv is not None:
            text = io.StringIO()
            writer = csv.writer(text, lineterminator="\n")
            if self._file is None:
                self._file = _opened(self.csv)
                writer.writerow(COLUMNS)
            for record in records:
                writer.writerows([row.get(name) for name in COLUMNS] for row in rows_of_record(record))
            try:
                self._file.write(text.getvalue())
                self._file.flush()
            except OSError as error:
                raise InputError(f"the table {self.csv} cannot be written to ({error.strerror}).") from None
        if self.as_json:
            for record in records:
                for line in json_lines(record, self.alpha):
                    print_json(line)

    def close(self) -> None:
        """Close the CSV file."""
        if self._file is not None:
            self._file.close()


def _opened(path: Path) -> TextIO:
    try:
        return open(path, "w", encoding="utf-8", errors="surrogateescape", newline="")
    except OSError as error:
        raise InputError(f"the table {path} cannot be written ({error.strerror}).") from None
