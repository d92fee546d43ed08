"""A run over many image files: its records, tables and lines of JSON, and the images that are finished already."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from attentest.cli.output import Interruption, print_json, progress_bar, say
from attentest.cli.result_table import print_table
from attentest.errors import InputError, OutputError, counted, worded
from attentest.files import GrowingFile, free_name
from attentest.presentation import rows as tables
from attentest.presentation.footnotes import row_notes
from attentest.presentation.image_names import shown
from attentest.presentation.tables import csv_lines, write_csv, write_parquet
from attentest.presentation.words import VERDICTS, summary_text, verdict_text

if TYPE_CHECKING:
    from attentest.cli.output_options import OutputOptions, RunOptions
    from attentest.pipeline.file_run import BatchRun
    from attentest.runs.engine import Engine
    from attentest.runs.records import RunLog


MOST_ROWS = 200  # largest number of images in the table that is printed; files have all of them
COMPLETE = ("--csv", "--json")  # options that give every number of every image
MOST_REASONS = 10  # largest number of images that could not be tested whose reasons are printed


def json_lines(record: Mapping[str, Any], alpha: float) -> list[dict[str, Any]]:
    """Return what is printed of a record as JSON: an object for the image, or one for each component."""
    which = {name: record[name] for name in ("image", "reference") if name in record}
    unknown = {"alpha": alpha, "reject": None, "verdict": None}
    if "error" in record:
        return [{**which, "error": record["error"], **unknown}]
    results = tables.records_of_line(record)
    rows = tables.rows_of_records(record["image"], results)
    of_components = "component" in rows[0]
    decisions = tables.pvalues_of(rows).decisions(alpha, "holm" if of_components else None)
    sensitivity = {"sensitivity": record["sensitivity"]} if "sensitivity" in record else {}
    lines = []
    for row, result, values, rejected in zip(rows, results, record["results"], decisions, strict=True):
        component = {name: row[name] for name in ("component", "pvalue_holm") if of_components}
        notes = row_notes(row, rejected, alpha, values["settings"]["confidence_level"], simultaneous=of_components)
        words = verdict_text(result, alpha)
        if len(rows) > 1:
            words += f" By Holm's method, over the {len(rows)} components of the region, it is {VERDICTS[rejected]}."
        verdict = {"alpha": alpha, "reject": rejected, "verdict": words, "footnotes": notes}
        lines.append({**which, **component, **values, **sensitivity, **verdict})
    untested = tables.rows_of_line(record)[len(rows) :] if "untested" in record else []
    return [*lines, *({**which, "component": row["component"], "error": row["error"], **unknown} for row in untested)]


@dataclass(kw_only=True)
class BatchOutput:
    """Takes results as they come; a CSV file has them before the run ends, with adjusted p-values in the end."""

    asked: RunOptions
    outputs: OutputOptions
    """What is tested, and what is written and printed of it."""
    take: Callable[[Mapping[str, Any]], None] | None = None
    """Called with every record, if given."""
    _csv: Path | None = field(init=False)
    _file: GrowingFile | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._csv = self.outputs.csv

    def tested_rows(
        self, run: BatchRun, engine: Engine, interruption: Interruption, log: RunLog, out: Path | None
    ) -> tables.ImageRows:
        """Test images and return their rows.

        Records are on disk, where they are to be (``out``), before they are printed, and are then dropped: their rows
        are all that is kept in memory. The log takes note of the number of their lines. The run ends at Ctrl-C, and
        when what is finished cannot be written.
        """
        rows = tables.ImageRows(image.name for image in run.images)
        with run.recorded(engine, rows, out, self.outputs.retry) as (earlier, places, write):
            self.write_rows(rows.all())
            self._print_records(earlier)
            called = worded("image", run.test.pipeline.inputs.dimension)
            with progress_bar(f"testing {counted(len(places), called)}") as progress:
                for _, records in interruption.until(engine.run(run, places, progress)):
                    finished = {record["image"]: tables.rows_of_line(record) for record in records}
                    for name, image_rows in finished.items():
                        rows.set(name, image_rows)
                    with interruption.writing():
                        log.lines = write(records)
                        self.write_rows(chain.from_iterable(finished.values()))
                    self._print_records(records)
            with interruption.writing():
                write([])  # notices what was done to the file since the last records
        with interruption.writing():
            self.close()
        return rows

    def write_rows(self, rows: Iterable[tables.Row]) -> None:
        """Add rows to the CSV file, if there is to be one."""
        if self._csv is None:
            return
        cells: Iterable[Iterable[Any]] = ([row.get(name) for name in tables.COLUMNS] for row in rows)
        try:
            if self._file is None:
                self._file = GrowingFile(self._csv, open(self._csv, "wb"))  # noqa: SIM115
                cells = chain([tables.COLUMNS], cells)
            self._check_table(self._file)
            self._file.append(b"".join(csv_lines(cells)))
        except OSError as error:
            raise InputError(f"the table {self._csv} cannot be written to ({error.strerror}).") from None

    def _check_table(self, file: GrowingFile) -> None:
        """Raise an error if others removed, replaced or changed the CSV file; rows will then be written elsewhere."""
        if not file.file.closed and (change := file.change()) is not None:
            file.file.close()
            self._csv = free_name(file.path)
            where = "there again" if self._csv == file.path else f"in {self._csv}"
            raise OutputError(
                f"the table {file.path} was {change} while the run wrote to it, so the run has ended; its rows are "
                f"{where}."
            )

    def _print_records(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Print records as JSON, if they are to be, and hand them on; if neither, none is asked for."""
        as_json = self.outputs.as_json
        if as_json or self.take is not None:
            for record in records:
                for line in json_lines(record, self.asked.alpha) if as_json else ():
                    print_json(line)
                if self.take is not None:
                    self.take(record)

    def close(self) -> None:
        """Close the CSV file."""
        if self._file is not None:
            self._check_table(self._file)
            self._file.file.close()

    def write_tables(self, rows: tables.ImageRows) -> None:
        """Write the table of all images, with adjusted p-values; those of components are adjusted in their image."""
        parquet = self.outputs.parquet
        if self._csv is None and parquet is None:
            return
        columns = tables.columns_of(
            rows.all() if self.asked.components else tables.with_adjusted(rows.all(), tables.pvalues_of(rows.all()))
        )
        for path, write in ((self._csv, write_csv), (parquet, write_parquet)):
            if path is not None:
                write(columns, path)
                say(f"table: {path}")

    def print_results(self, rows: tables.ImageRows) -> None:
        """Print the table and, of several images, a summary."""
        first = list(islice(rows, MOST_ROWS))
        alpha = self.asked.alpha
        print_table(first, alpha, self.asked.searched_level, COMPLETE, self.outputs.in_image)
        if self.asked.components:
            return
        dimension = next((row.get("dimension", 2) for row in rows.all() if "error" not in row), 2)
        if len(rows) > len(first):
            few = f"attentest: note: the table has the first {len(first)} of {len(rows)} images; --csv has all."
            say(worded(few, dimension))
        known = tables.pvalues_of(rows.all())
        if len(known) > 1:
            typer.echo(worded(summary_text(known, alpha), dimension))


def say_failures(failed: Sequence[tables.Row], count: int, dimension: int, stack: bool) -> None:
    """Say which images could not be tested, and why; ``stack`` says whether their files are stacks."""
    from attentest.images.image_source import looks_like_a_stack

    for row in failed[:MOST_REASONS]:
        name, reason = shown(row["image"]), shown(row["error"])
        name += f", component {row['component']}" if "component" in row else ""
        say(f"attentest: {reason if reason.startswith(name) else f'{name}: {reason}'}")
    if len(failed) > MOST_REASONS:
        say(f"attentest: and {len(failed) - MOST_REASONS} more, whose reasons are not printed here.")
    lost = sum("component" not in row for row in failed)
    if lost and count > 1:
        called = worded("images", dimension)
        say(f"attentest: {lost} of {count} {called} could not be tested; the rows of --csv and --json say why.")
    if not stack and any(looks_like_a_stack(Path(row["image"]), dimension) for row in failed):
        say(worded("attentest: note: a file that holds several images needs --stack.", dimension))
