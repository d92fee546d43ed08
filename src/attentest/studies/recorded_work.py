"""Work on many images that is on disk chunk by chunk, where one image that fails does not take others with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeAlias

from attentest.studies.record_file import RecordWriter, Row

Work: TypeAlias = Callable[[list[int]], list[Row]]
"""From numbers of images to their rows, in order."""

CHUNK_SECONDS = 20.0
"""An interruption loses no more work than about this."""

FIRST_CHUNK = {"cpu": 4, "cuda": 500}
LARGEST_CHUNK = 2000


def isolated_rows(work: Work, numbers: list[int]) -> list[Row]:
    """Return the rows of some images; one whose work fails has its error instead.

    Parameters
    ----------
    work
        Is tried on all, and on halves where it fails.
    numbers
        Of the images, at least one.
    """
    try:
        return work(numbers)
    except Exception as error:  # noqa: BLE001  # whichever image it is about, the others are not to suffer
        if len(numbers) == 1:
            return [{"image": numbers[0], "error": f"{type(error).__name__}: {error}", "seconds": 0.0}]
    half = len(numbers) // 2
    return isolated_rows(work, numbers[:half]) + isolated_rows(work, numbers[half:])


def recorded(
    work: Work, numbers: list[int], writer: RecordWriter, device_type: str, together: int | None = None
) -> Iterator[list[Row]]:
    """Yield the rows of images as they reach the disk.

    Parameters
    ----------
    work
        What is done; may isolate failures.
    numbers
        Of the images.
    writer
        Where rows go.
    device_type
        "cpu" or "cuda": how many to begin with.
    together
        So many at a time; by default as many as take some seconds.
    """
    chunk = together or FIRST_CHUNK[device_type]
    while numbers:
        some, numbers = numbers[:chunk], numbers[chunk:]
        start = time.perf_counter()
        rows = work(some)
        writer.add(rows)
        seconds = max(time.perf_counter() - start, 1e-3)
        chunk = together or min(LARGEST_CHUNK, max(1, int(len(some) * CHUNK_SECONDS / seconds)))
        yield rows
