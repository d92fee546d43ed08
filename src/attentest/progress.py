"""How far a computation is: reported to a function, or shown as a bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

from attentest.errors import InputError, shortened

Progress: TypeAlias = Callable[[float, "int | None"], None]
"""Called with (images done, number of images or None if unknown); the first has a fraction during a search."""

LabelledProgress: TypeAlias = Callable[[float, float, str], None]
"""Called with the amount of work done, that of all work, and what is being done."""

Item = TypeVar("Item")

ProgressLike: TypeAlias = "bool | Progress | None"
"""Whether to show a bar; or a function to report to."""

KNOWN_TOTAL = "{desc}: {percentage:3.0f}%|{bar}| {n:.1f}/{total_fmt} {unit} [{elapsed}<{remaining}]"
UNKNOWN_TOTAL = "{desc}: {n:.1f} {unit} [{elapsed}]"
"""What a bar shows. A part of an image counts too, so one decimal; the rest of tqdm's own formats is of whole items."""


def check_progress(progress: Any) -> None:
    """Refuse anything but True, False, None and functions."""
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise InputError(
            f"progress must be True for a bar, False for none, or a function of (done, total), got "
            f"{shortened(progress)}."
        )


@contextmanager
def progress_reports(
    progress: ProgressLike, total: int | None, unit: str = "image", doing: str = "testing"
) -> Iterator[Progress | None]:
    """Yield the function to report to, or None; a bar is closed at the end, after an error or an interrupt too.

    Parameters
    ----------
    progress
        True shows a bar on standard error, in notebooks that have widgets a widget; False and None show nothing; a
        function is called with (done, total).
    total
        Number of items in all; None if unknown.
    unit
        What the items are, in the singular.
    doing
        What is done with them, in a word.
    """
    check_progress(progress)
    if progress is not True:
        yield progress if callable(progress) else None
        return
    from tqdm.auto import tqdm  # here because few runs have a bar

    units = unit if total == 1 else f"{unit}s"
    bar_format = UNKNOWN_TOTAL if total is None else KNOWN_TOTAL
    with tqdm(total=total, desc=doing, unit=units, bar_format=bar_format, miniters=0) as bar:
        yield lambda done, _: bar.update(done - bar.n)


def with_progress(run: Callable[..., Iterator[Item]], progress: ProgressLike, total: int | None) -> Iterator[Item]:
    """Yield what ``run(progress=report)`` yields, and show its progress as long as it runs."""
    with progress_reports(progress, total) as report:
        yield from run(progress=report)
