"""Tables of results on the terminal, with their footnotes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from attentest.errors import worded
from attentest.presentation import words
from attentest.presentation.footnotes import footnote_marks, interval_notes, row_notes, selection_notes
from attentest.presentation.image_names import shown
from attentest.presentation.rows import Row, pvalues_of
from attentest.presentation.tables import ALWAYS, Column, FittedTable, fitted, print_notes

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
        image_texts = [words.row_texts(row, DIGITS) for row in rows_tested]
        if "component" in image[0]:
            resolved = all(words.is_converged(row["status"]) for row in rows_tested)
            for cells, low, high in zip(image_texts, *known.adjusted_bounds("holm"), strict=True):
                cells["Holm p"] = words.number_text(high, DIGITS) if resolved else words.range_text(low, high)
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
    context = context or any(row["pvalue_high"] < words.FAR_BELOW for row in tested)
    if not context:
        hidden |= {"larger than", "difference / SD"}
    dimension = next((row["dimension"] for row in tested if "dimension" in row), 2)
    headings = {name: worded(name, dimension) for name in RANKS if name in held - hidden}
    if confidence_level is None:
        headings = {name: heading for name, heading in headings.items() if name not in ("estimate", interval)}
    else:
        headings[interval] = words.interval_name(confidence_level, interval)

    def table_of(headings: Mapping[str, str], level: float | None) -> tuple[FittedTable, list[str]]:
        """Return the table with columns by their headings, and its footnotes."""
        decided = zip(rows, rejected, strict=True)
        notes = [row_notes(row, verdict, alpha, level, simultaneous=simultaneous) for row, verdict in decided]
        marks = footnote_marks(notes)
        columns = [
            Column(heading=heading, cells=[cells.get(name, NO_VALUE) for cells in texts], rank=RANKS[name])
            for name, heading in headings.items()
        ]
        verdicts = ["not tested" if "error" in row else words.VERDICTS[rejected[i]] for i, row in enumerate(rows)]
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
        notes.append(worded(words.CONTEXT_NOTE, dimension))
    known = pvalues_of(tested)
    if len(known) == 1 and "component" not in tested[0] and None in known.decisions(alpha):  # else the summary has it
        notes.append(words.advice_text(known, alpha))
    notes += _disagreements(tested)
    if len(tested) < len(rows):
        where = _alternatives(["the messages on standard error", *complete])
        notes.append(f"not tested: {len(rows) - len(tested)}; see {where} for the reasons.")
    wider = _alternatives(["a wider terminal", *complete])
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


def _alternatives(texts: Sequence[str]) -> str:
    return f"{', '.join(texts[:-1])} or {texts[-1]}"
