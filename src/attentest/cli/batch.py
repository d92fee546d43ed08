"""A run over many image files: its records, its lines of JSON and its tables with their footnotes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from attentest.cli.output import Interruption, print_json, progress_bar, say
from attentest.errors import OutputError, counted, listed, worded
from attentest.files import GrowingFile, free_name, unwritten
from attentest.presentation import rows as tables
from attentest.presentation.footnotes import footnote_marks, interval_notes, row_notes, selection_notes
from attentest.presentation.number_texts import interval_name, is_converged, number_text, range_text, row_texts
from attentest.presentation.rows import Row, pvalues_of
from attentest.presentation.tables import (
    ALWAYS,
    Column,
    FittedTable,
    csv_lines,
    fitted,
    print_notes,
    shown,
    write_csv,
    write_parquet,
)
from attentest.presentation.words import CONTEXT_NOTE, FAR_BELOW, VERDICTS, advice_text, summary_text, verdict_text

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


class BatchOutput:
    """Takes results as they come; a CSV file has them before the run ends, with adjusted p-values in the end.

    Options say what is tested, and what is written and printed of it; ``take`` is called with every record.
    """

    def __init__(
        self, asked: RunOptions, outputs: OutputOptions, take: Callable[[Mapping[str, Any]], None] | None = None
    ) -> None:
        self.asked, self.outputs, self._take = asked, outputs, take
        self._csv = outputs.csv
        self._file: GrowingFile | None = None

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
            log.lines, log.left = write([]), len(places)
            called = worded("image", run.test.pipeline.inputs.dimension)
            with progress_bar(f"testing {counted(len(places), called)}") as progress:
                for _, records in interruption.until(engine.run(run, places, progress)):
                    finished = {record["image"]: tables.rows_of_line(record) for record in records}
                    for name, image_rows in finished.items():
                        rows.set(name, image_rows)
                    with interruption.writing():
                        log.left -= len(records)
                        log.lines = write(records)
                        self._print_records(records)
                        self.write_rows(chain.from_iterable(finished.values()))
            with interruption.writing():
                log.lines = write([])  # notices what was done to the file since the last records
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
            if self._file is not None:
                with suppress(OSError):  # what is left to be written cannot be, either
                    self._file.file.close()
            raise unwritten(f"the table {self._csv}", error) from None

    def _check_table(self, file: GrowingFile) -> None:
        """Raise an error if others removed, replaced or changed the CSV file; rows will then be written elsewhere."""
        if not file.file.closed and (change := file.change()) is not None:
            file.file.close()
            self._csv = free_name(file.path)
            where = "there again" if self._csv == file.path else f"in {self._csv}"
            ended = f"the table {file.path} was {change} while the run wrote to it, so the run has ended"
            raise OutputError(f"{ended}; its rows are {where}.")

    def _print_records(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Print records as JSON, if they are to be, and hand them on; if neither, none is asked for."""
        as_json = self.outputs.as_json
        for record in records if as_json or self._take is not None else ():
            for line in json_lines(record, self.asked.alpha) if as_json else ():
                print_json(line)
            if self._take is not None:
                self._take(record)

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
        first, alpha = list(islice(rows, MOST_ROWS)), self.asked.alpha
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


MOST_DISAGREEMENTS = 10
"""Largest number of certificates that contradict the search of which the numbers are printed."""

NO_VALUE = "-"  # cell of what a row does not have: no cell is empty, so that programs can tell them apart
DIGITS = 4  # significant digits of p-values

RANKS = {
    "component": ALWAYS,
    "class": 4,
    "pixels": 4,
    "difference": 5,
    "estimate": 3,  # valid, as the interval is; difference and naive p are not
    "interval": 2,
    "simultaneous": 2,
    "statistic": 7,
    "naive p": 6,
    "larger than": 1,
    "difference / SD": 7,
    "selective p": ALWAYS,
    "error bar": 8,
    "certified p": 1,  # asked for, and it takes the longest
    "Holm p": ALWAYS,
}
"""The columns of numbers, in order, with their ranks: without room for all, those of great rank are left out first."""


def print_table(
    images: Iterable[Sequence[Row]],
    alpha: float,
    confidence_level: float | None = 0.95,
    complete: Sequence[str] = ("--json",),
    context: bool = False,
) -> None:
    """Print a row per image, or per component of its region, with verdicts at level alpha and footnotes.

    The verdict on a component is that of its p-value adjusted within the image. Without a ``confidence_level``
    intervals are left out. ``complete`` are the options that give all columns, and names in full, to be named where the
    terminal is too narrow for them. ``context`` shows how large differences are within their image, as it is wherever a
    p is tiny.
    """
    rows: list[Row] = []
    groups: list[int] = []
    rejected: list[bool | None] = []
    texts: list[dict[str, str]] = []
    for image in images:
        rows += image
        groups.append(len(image))
        if "error" in image[0]:
            rejected.append(None)
            texts.append({})
            continue
        known, rows_tested = pvalues_of(image), [row for row in image if "error" not in row]
        image_texts = [row_texts(row, DIGITS) for row in rows_tested]
        if "component" in image[0]:
            resolved = all(is_converged(row["status"]) for row in rows_tested)
            for cells, low, high in zip(image_texts, *known.adjusted_bounds("holm"), strict=True):
                cells["Holm p"] = number_text(high, DIGITS) if resolved else range_text(low, high)
        rejected += known.decisions(alpha, "holm" if "component" in image[0] else None)
        texts += image_texts
        for row in image[len(rows_tested) :]:  # components that could not be tested
            rejected.append(None)
            texts.append({"component": str(row["component"])})
    tested = [row for row in rows if "error" not in row]
    simultaneous = bool(tested) and all("simultaneous_low" in row for row in tested)
    interval = "simultaneous" if simultaneous else "interval"
    names = [str(row["image"]) for row in rows]
    held = {name for cells in texts for name in cells}
    hidden = {"interval" if simultaneous else "simultaneous"}
    context = context or any(row["pvalue_high"] < FAR_BELOW for row in tested)
    if not context:
        hidden |= {"larger than", "difference / SD"}
    dimension = next((row["dimension"] for row in tested if "dimension" in row), 2)
    headings = {name: worded(name, dimension) for name in RANKS if name in held - hidden}
    if confidence_level is None:
        headings = {name: heading for name, heading in headings.items() if name not in ("estimate", interval)}
    else:
        headings[interval] = interval_name(confidence_level, interval)

    def table_of(headings: Mapping[str, str], level: float | None) -> tuple[FittedTable, list[str]]:
        """Return the table with columns by their headings, and its footnotes."""
        decided = zip(rows, rejected, strict=True)
        notes = [row_notes(row, verdict, alpha, level, simultaneous=simultaneous) for row, verdict in decided]
        marks = footnote_marks(notes)
        columns = [
            Column(heading=heading, cells=[cells.get(name, NO_VALUE) for cells in texts], rank=RANKS[name])
            for name, heading in headings.items()
        ]
        verdicts = ["not tested" if "error" in row else VERDICTS[rejected[i]] for i, row in enumerate(rows)]
        columns.append(Column(heading=f"verdict at {alpha:g}", cells=verdicts, is_text=True))
        if marks:
            letters = [" ".join(sorted(marks[note] for note in row)) or NO_VALUE for row in notes]
            columns.append(Column(heading="notes", cells=letters, is_text=True))
        marked = [f"{mark}: {note}." for note, mark in marks.items()]
        return fitted(names, columns, groups, worded("image", dimension)), marked

    table, notes = table_of(headings, confidence_level)
    left_out, level = table.left_out, confidence_level
    if headings.get(interval) in left_out:  # notes about it would be about numbers that are not there
        level = None
        headings = {name: heading for name, heading in headings.items() if heading not in left_out}
        table, notes = table_of(headings, level)
    table.print()
    if tested:
        notes += [*selection_notes(tested[0]), *interval_notes(tested[0], level, simultaneous=simultaneous)]
    if context and "larger than" in held:
        notes.append(worded(CONTEXT_NOTE, dimension))
    known = pvalues_of(tested)
    if len(known) == 1 and "component" not in tested[0] and None in known.decisions(alpha):  # else the summary has it
        notes.append(advice_text(known, alpha))
    notes += _disagreements(tested)
    if len(tested) < len(rows):
        where = listed(["the messages on standard error", *complete])
        notes.append(f"not tested: {len(rows) - len(tested)}; see {where} for the reasons.")
    wider = listed(["a wider terminal", *complete])
    if left_out:
        notes.append(f"no room for {', '.join(left_out)}: use {wider}.")
    if table.is_shortened:
        notes.append(f"names are shortened: use {wider} to see all of them.")
    print_notes(notes)


def _disagreements(rows: Iterable[Row]) -> list[str]:
    """Return in words where certificates contradict the search."""
    contradictions = [
        f"{shown(row['image'])}{', component {}'.format(row['component']) if 'component' in row else ''}: "
        f"{row['certificate_summary']}."
        for row in rows
        if not row.get("certificate_agrees", True)
    ]
    more = len(contradictions) - MOST_DISAGREEMENTS
    rest = [f"and {more} more certificates that contradict it."] if more > 0 else []
    return [*contradictions[:MOST_DISAGREEMENTS], *rest]
