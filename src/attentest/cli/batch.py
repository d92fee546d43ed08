"""A run over many image files: what an earlier run left in the same directory is not computed again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from attentest.cli.batch_output import BatchOutput
from attentest.cli.interruption import Interruption
from attentest.cli.option_names import own_options, with_option_names
from attentest.cli.output import progress_bar
from attentest.cli.record_header import record_header
from attentest.errors import counted
from attentest.files import make_directory
from attentest.results.rows import ImageRows, Row, rows_of_record

if TYPE_CHECKING:
    from attentest.pipeline.file_run import BatchRun
    from attentest.runs.engine import Engine

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
                for record in records:
                    if "error" in record:
                        record["error"] = with_option_names(record["error"], own_options())
                write(records)
                found = [(record["image"], rows_of_record(record)) for record in records]
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
        rows.set(record["image"], rows_of_record(record))
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
