"""Footnotes of tables of results: what a number needs to be read rightly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from attentest.cli.image_names import shown

if TYPE_CHECKING:
    from attentest.statistics.alternative import ONE_SIDED
from attentest.results.rows import Row

MOST_DISAGREEMENTS = 10
"""Largest number of certificates that contradict the search of which the numbers are printed."""

MARKS = "abcdefghijklmnopqrstuvwxyz"


def marked(notes: Sequence[Sequence[str]]) -> tuple[list[str], list[str]]:
    """Return the marks of each row, given its notes, and each note once, with its mark before it."""
    marks = dict(zip(dict.fromkeys(note for some in notes for note in some), MARKS, strict=False))
    return [" ".join(sorted(marks[note] for note in some)) for some in notes], [
        f"{mark}: {note}." for note, mark in marks.items()
    ]


def shared_notes(row: Row, interval_level: float | None, simultaneous: bool) -> Iterator[str]:
    """Yield what must be said of the test that all rows share: how regions were chosen, which noise was assumed.

    Parameters
    ----------
    row
        One of the rows.
    interval_level
        Level of the confidence intervals that are shown; None if none are.
    simultaneous
        Whether they are those that cover together.
    """
    if row["region_unit"] == "patches":
        yield "regions consist of whole patches (--region patches)"
    if row["gamma"]:
        seed = row["randomise_seed"]
        option = "--randomise" if seed is None else f"--randomise, --randomise-seed {seed}"
        yield f"regions were chosen on the images plus noise of {row['gamma']:g} times their own ({option})"
    if row["approximate_noise"]:
        yield "approximate: the noise was estimated from the tested images themselves (--noise)"
    if row["alternative"] == "equal-tailed":
        yield "p is twice the probability of the smaller tail (--alternative equal-tailed)"
    if interval_level is not None and simultaneous:
        yield (
            f"intervals are simultaneous: those of an image all cover together with {100 * interval_level:.10g}% "
            "(Bonferroni); each by itself is in --json and --csv"
        )
    if interval_level is not None and row["alternative"] in ONE_SIDED:
        yield f"intervals have one end, as the alternative is one-sided (--alternative {row['alternative']})"


def disagreements(rows: Iterable[Row]) -> list[str]:
    """Return in words where certificates contradict the search."""
    found = []
    for row in rows:
        if not row.get("certificate_agrees", True):
            component = f", component {row['component']}" if "component" in row else ""
            found.append(f"{shown(row['image'])}{component}: {row['certificate_summary']}.")
    more = len(found) - MOST_DISAGREEMENTS
    return found if more <= 0 else [*found[:MOST_DISAGREEMENTS], f"and {more} more certificates that contradict it."]
