"""Trials in chunks: large enough to be computed together, small enough that an interruption loses little.

Failures are isolated here and not by the test of images, because a trial can be more than that: permutations, curves,
the same image in two precisions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeAlias

from attentest.results.records import Row

Work: TypeAlias = Callable[[list[int]], list[Row]]
"""Maps image numbers to their rows, in the same order."""

CHUNK_SECONDS = 20.0  # about what a chunk takes
FIRST_CHUNK = {"cpu": 4, "cuda": 500}  # images, before anything has been timed
LARGEST_CHUNK = 2000  # images, however fast they are


def rows_in_chunks(
    work: Work, numbers: list[int], device_type: str, together: int | None = None
) -> Iterator[list[Row]]:
    """Yield the rows of images in chunks of a given size, or of about CHUNK_SECONDS; a failed trial is a row too."""
    chunk = together or FIRST_CHUNK[device_type]
    while numbers:
        some, numbers = numbers[:chunk], numbers[chunk:]
        start = time.perf_counter()
        rows = _isolated_rows(work, some)
        seconds = max(time.perf_counter() - start, 1e-3)
        chunk = together or min(LARGEST_CHUNK, max(1, int(len(some) * CHUNK_SECONDS / seconds)))
        yield rows


def failed_row(number: int, reason: str) -> Row:
    """Return the row of a trial that failed."""
    return {"image": number, "error": reason, "seconds": 0.0}


def _isolated_rows(work: Work, numbers: list[int]) -> list[Row]:
    """Return the rows of images; failing work is repeated on halves, down to the image whose row is its error."""
    try:
        return work(numbers)
    except Exception as error:  # noqa: BLE001  # whatever the error is, the other images have their rows
        if len(numbers) == 1:
            return [failed_row(numbers[0], f"{type(error).__name__}: {error}")]
    half = len(numbers) // 2
    return _isolated_rows(work, numbers[:half]) + _isolated_rows(work, numbers[half:])
