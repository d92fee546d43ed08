"""Rows that an engine makes, on disk as they arrive, with a header that says where they were made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from attentest.api.engine import Engine, Work
from attentest.results.records import RecordFile, Row
from attentest.training.provenance import described_machine


def recorded(
    work: Work[int, Row],
    numbers: list[int],
    file: RecordFile,
    header: Mapping[str, Any],
    engine: Engine,
    retry: bool = False,
) -> Iterator[list[Row]]:
    """Yield the rows of images as they reach the disk, in any order; only this process writes.

    Parameters
    ----------
    work
        Makes rows of images.
    numbers
        Numbers of the images. Those that the file has by now, because another run made them, are left out.
    file
        Where the rows go.
    header
        What the rows have in common. It is written with this machine and the engine, which may differ within a file.
    engine
        Does the work.
    retry
        Whether images whose rows are errors are among those to be done.
    """
    where = {**described_machine(work.device), **engine.describe()}
    with file.writing({**header, **where}) as writer:
        for _, rows in engine.run(work, writer.records.missing(numbers, retry)):
            writer.add(rows)
            yield rows
