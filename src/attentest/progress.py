"""How far a computation is: reported to a function, or shown as a bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from attentest.errors import InputError, shortened

Progress: TypeAlias = Callable[[float, "int | None"], None]
"""Called with (images done, number of images or None if unknown); the first has a fraction during a search."""

LabelledProgress: TypeAlias = Callable[[float, float, str], None]
"""Called with the amount of work done, that of all work, and what is being done."""

ProgressLike: TypeAlias = "bool | Progress | None"  # whether to show a bar; or a function to report to

KNOWN_TOTAL = "{desc}: {percentage:3.0f}%|{bar}| {n:.1f}/{total_fmt} {unit} [{elapsed}<{remaining}]"
UNKNOWN_TOTAL = "{desc}: {n:.1f} {unit} [{elapsed}]"
"""What a bar shows. A part of an image counts too, so one decimal; the rest of tqdm's own formats is of whole items."""


def check_progress(progress: Any) -> None:
    """Raise an error for anything but True, False, None and functions."""
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise InputError(
            f"progress must be True for a bar, False for none, or a function of (done, total), got "
            f"{shortened(progress)}."
        )


LONG_SECONDS = 10.0  # what takes longer says how long it will take

LEAST_SECONDS, LEAST_SHARE, LEAST_REPORTS = 5.0, 0.01, 3
"""A forecast is made after so long, so much of the work or one item, and so many reports: before it is a guess."""

STEADY = 2.0  # it is made while the pace of late and that of all the work differ by less than this factor

MOST_REPORTS, SHORTEST = 1000, 1e-6
"""Most reports that are kept of a stage, and the shortest time between two in seconds."""


class Forecast:
    """How long work will take, by its pace since the last stage of it began.

    A stage begins with its first report, so that what went before, such as imports or another stage, does not count.
    Work that has just begun can be slow, so nothing is said until the pace is steady.
    """

    def __init__(self) -> None:
        self._reports: list[tuple[float, float]] = []
        self._total: float | None = None

    def seconds_left(self, done: float, total: float | None, now: float) -> float | None:
        """Return how many seconds the rest will take; None where that is not known.

        Of all work of this stage, whose total is None if unknown, so much is done at a time in seconds.
        """
        reports = self._reports
        if total != self._total or (reports and done < reports[-1][1]):
            self._total = total
            reports.clear()
        if not reports or done > reports[-1][1]:
            reports.append((now, done))
        if len(reports) > MOST_REPORTS:
            del reports[1::2]
        start, first = reports[0]
        gained = done - first
        if not total or len(reports) <= LEAST_REPORTS or now - start < LEAST_SECONDS:
            return None
        if gained < min(1.0, LEAST_SHARE * total):
            return None
        since, before = next(report for report in reports if report[0] >= (start + now) / 2 or report is reports[-2])
        pace, of_late = gained / (now - start), (done - before) / max(now - since, SHORTEST)
        steady = pace / STEADY <= of_late <= pace * STEADY
        return max(total - done, 0.0) / pace if steady else None


def remaining_text(seconds: float | None) -> str:
    """Return how long the rest of the work will take, in words; empty where it is not known."""
    return "" if seconds is None else f"about {duration(seconds, 0)} left"


def duration(seconds: float | None, digits: int = 1) -> str:
    """Return a time in a unit that suits it."""
    if seconds is None:
        return "-"
    for size, unit in ((86_400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.{digits}f} {unit}"
    return f"{seconds:.{digits}f} s"


@contextmanager
def progress_reports(
    progress: ProgressLike, total: int | None, unit: str = "image", doing: str = "testing"
) -> Iterator[Progress]:
    """Yield the function to report to; a bar is closed at the end, after an error or an interrupt too.

    True shows a bar on standard error, in notebooks that have widgets a widget; False and None show nothing; a function
    is called with (done, total), where the total is None if it is unknown. Unit and doing say what the items are, in
    the singular, and what is done with them, in a word.
    """
    check_progress(progress)
    if progress is not True:
        yield progress if callable(progress) else lambda done, total: None
        return
    from tqdm.auto import tqdm  # here because few runs have a bar

    units = unit if total == 1 else f"{unit}s"
    bar_format = UNKNOWN_TOTAL if total is None else KNOWN_TOTAL
    with tqdm(total=total, desc=doing, unit=units, bar_format=bar_format, miniters=0) as bar:
        yield lambda done, _: bar.update(done - bar.n)
