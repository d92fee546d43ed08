"""A run over many image files: its records, tables and lines of JSON, and the images that are finished already."""

from __future__ import annotations

import csv
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO, TypeAlias

import typer

from attentest.cli.output import Interruption, print_json, progress_bar, say
from attentest.cli.result_table import print_component_table, print_table
from attentest.errors import AttentestWarning, InputError, counted
from attentest.files import make_directory
from attentest.presentation.image_names import shown
from attentest.presentation.rows import COLUMNS, ImageRows, Row, pvalues_of, rows_of_line
from attentest.presentation.tables import csv_cell
from attentest.presentation.words import component_notes, row_notes, summary_text

if TYPE_CHECKING:
    from attentest.pipeline.attention_test import AttentionTest
    from attentest.pipeline.file_run import BatchRun
    from attentest.runs.engine import Engine


def json_lines(record: Mapping[str, Any], alpha: float) -> list[dict[str, Any]]:
    """Return what is printed of a record as JSON: an object for the image, or one for each component."""
    which = {name: record[name] for name in ("image", "reference") if name in record}
    if "error" in record:
        return [{**which, "error": record["error"], "alpha": alpha, "reject": None}]
    rows = rows_of_line(record)
    if "component" not in rows[0]:
        (values,) = record["results"]
        sensitivity = {"sensitivity": record["sensitivity"]} if "sensitivity" in record else {}
        rejected = pvalues_of(rows).decisions(alpha)[0]
        notes = row_notes(rows[0], rejected, alpha, values["settings"]["confidence_level"])
        return [{**which, **values, **sensitivity, "alpha": alpha, "reject": rejected, "footnotes": notes}]
    decisions = pvalues_of(rows).decisions(alpha, "holm")
    return [
        {
            **which,
            "component": row["component"],
            "pvalue_holm": row["pvalue_holm"],
            **values,
            "alpha": alpha,
            "reject": rejected,
            "footnotes": component_notes(row, rejected, alpha, values["settings"]["confidence_level"]),
        }
        for row, values, rejected in zip(rows, record["results"], decisions, strict=True)
    ]


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


MOST_ROWS = 200
"""Largest number of images in the table that is printed; files have all of them."""

COMPLETE = ("--csv", "--json")
"""Options that give every number of every image."""

MOST_REASONS = 10
"""Largest number of images that could not be tested whose reasons are printed."""


def write_tables(rows: ImageRows, components: bool, csv: Path | None, parquet: Path | None) -> None:
    """Write the table of all images, with adjusted p-values: those of components are adjusted within their image."""
    from attentest.presentation.rows import columns_of, pvalues_of, with_adjusted
    from attentest.presentation.tables import write_csv, write_parquet

    if csv is None and parquet is None:
        return
    columns = columns_of(rows.all() if components else with_adjusted(rows.all(), pvalues_of(rows.all())))
    for path, write in ((csv, write_csv), (parquet, write_parquet)):
        if path is not None:
            write(columns, path)
            say(f"table: {path}")


def print_results(rows: ImageRows, components: bool, alpha: float, confidence_level: float | None) -> None:
    """Print the table and, of several images, a summary."""
    from attentest.presentation.rows import pvalues_of

    first = list(islice(rows, MOST_ROWS))
    if components:
        print_component_table(first, alpha, confidence_level, COMPLETE)
        return
    print_table([row for some in first for row in some], alpha, confidence_level, COMPLETE)
    if len(rows) > len(first):
        say(f"attentest: note: the table has the first {len(first)} of {len(rows)} images; --csv has all.")
    known = pvalues_of(rows.all())
    if len(known) > 1:
        typer.echo(summary_text(known, alpha))


def say_failures(failed: Sequence[Row], count: int, stack: bool) -> None:
    """Say which images could not be tested, and why."""
    from attentest.images.image_source import looks_like_a_stack

    for row in failed[:MOST_REASONS]:
        name, reason = shown(row["image"]), shown(row["error"])
        say(f"attentest: {reason if reason.startswith(name) else f'{name}: {reason}'}")
    if failed and count > 1:
        say(f"attentest: {len(failed)} of {count} images could not be tested; the rows of --csv and --json say why.")
    if not stack and any(looks_like_a_stack(Path(row["image"])) for row in failed):
        say("attentest: note: a file that holds several images needs --stack.")


class RunLog:
    """Takes note of the warnings of attentest for as long as the context lasts; they are shown as before."""

    def __init__(self) -> None:
        self._started, self._clock = datetime.now(UTC), time.monotonic()
        self._warnings: list[str] = []
        self._show = warnings.showwarning

    def __enter__(self) -> Self:
        def show(message: Warning | str, category: type[Warning], *where: Any, **also: Any) -> None:
            if issubclass(category, AttentestWarning) and str(message) not in self._warnings:
                self._warnings.append(str(message))
            self._show(message, category, *where, **also)

        warnings.showwarning = show
        return self

    def __exit__(self, *_: object) -> None:
        warnings.showwarning = self._show

    @contextmanager
    def written_to(self, directory: Path | None) -> Iterator[None]:
        """Add this run to the list of runs in a directory, if there is one, when the context ends, however it does."""
        try:
            yield
        finally:
            if directory is not None:
                from attentest.runs.records import record_run

                record_run(
                    directory,
                    {
                        "command": shlex.join(["attentest", *sys.argv[1:]]),
                        "started": self._started.strftime("%Y-%m-%d %H:%M UTC"),
                        "seconds": round(time.monotonic() - self._clock, 3),
                        "warnings": self._warnings,
                    },
                )


def record_header(test: AttentionTest, series: dict[str, Any], engine: Engine, seed: int = 0) -> dict[str, Any]:
    """Return what the records of one file have in common, and where they were made, which may differ within a file.

    Parameters
    ----------
    test
        The test.
    series
        What else distinguishes these records from others.
    engine
        Where the work is done.
    seed
        Seed of the images, if they are drawn.
    """
    from attentest.training.classifier import described_machine

    return {
        "series": {**series, **test.identity},
        "seed": seed,
        "model_sha256": test.model_sha256,
        "settings": test.settings,
        **described_machine(test.device),
        **engine.describe(),
    }


Write: TypeAlias = Callable[[Sequence[Row]], None]


def tested_rows(
    run: BatchRun, engine: Engine, output: BatchOutput, interruption: Interruption, *, out: Path | None, retry: bool
) -> ImageRows:
    """Test images and return their rows.

    Records are on disk, where they are to be, before they are printed, and are then dropped: their rows are all that is
    kept in memory.

    Parameters
    ----------
    run
        What is to be tested, and how.
    engine
        Where it is done.
    output
        Takes the results as they come.
    interruption
        Ends the run at Ctrl-C.
    out
        Directory of the records, if they are to be kept.
    retry
        Whether to try the images again that could not be tested.
    """
    rows = ImageRows(image.name for image in run.images)
    with _recorded(run, engine, rows, out, retry) as (earlier, places, write):
        output.write_rows(rows.all())
        output.print_records(earlier)
        with progress_bar(f"testing {counted(len(places), 'image')}") as progress:
            for _, records in interruption.until(engine.run(run, places, progress)):
                write(records)
                found = [(record["image"], rows_of_line(record)) for record in records]
                for name, some in found:
                    rows.set(name, some)
                output.write_rows(row for _, some in found for row in some)
                output.print_records(records)
    output.close()
    return rows


@contextmanager
def _recorded(
    run: BatchRun, engine: Engine, rows: ImageRows, out: Path | None, retry: bool
) -> Iterator[tuple[Iterable[Row], list[int], Write]]:
    """Take the rows that a directory has; yield their records, the places of other images, and what adds records.

    Without a directory there are none, and nothing is written. A directory of another test is refused.
    """
    if out is None:
        yield [], list(range(len(run.images))), lambda records: None
        return
    from attentest.runs.records import RESULTS, RecordFile, alone_in

    header = record_header(run.test, run.describe(), engine)

    def keep(record: Row) -> Row:
        rows.set(record["image"], rows_of_line(record))
        kept: Row = {name: record[name] for name in ("file", "reference", "error", "saved") if name in record}
        if "sensitivity" in record:
            kept["sensitivity"] = {"alpha": record["sensitivity"]["alpha"]}
        return kept

    make_directory(out)
    file = RecordFile(out / RESULTS)
    with alone_in(out), file.writing(header, keep) as writer:
        places = run.missing(writer.records, retry)
        for place in places:  # their rows are of other files of these names, or of failures to be tried again
            rows.set(run.images[place].name, [])
        yield file.rows_at(writer.records.places[name] for name in rows.names), places, writer.add
