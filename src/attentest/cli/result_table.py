"""Tables of results on the terminal, with their footnotes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from attentest.presentation.image_names import shown
from attentest.presentation.rows import Row, pvalues_of
from attentest.presentation.tables import ALWAYS, Column, fitted, print_notes
from attentest.presentation.words import advice_text, component_notes, row_notes

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
    from attentest.statistics.alternative import ONE_SIDED

    if row["region_unit"] == "patches":
        yield "regions consist of whole patches (--region-unit patches)"
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


NO_VALUE = "-"
"""Cell of what a row does not have: no cell is empty, so that programs can tell them apart."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of a table.

    Parameters
    ----------
    row
        Values of an image, of a component of its region, or of an image that could not be tested.
    rejected
        The verdict; None if the error bar does not tell.
    below_alpha
        Whether its own p-value is at most alpha, which is not the verdict if p-values are adjusted.
    holm
        The adjusted p-value of a component.
    """

    row: Row
    rejected: bool | None = None
    below_alpha: bool | None = None
    holm: str = NO_VALUE

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        from attentest.presentation.words import VERDICTS

        return "not tested" if "error" in self.row else VERDICTS[self.rejected]


def print_table(
    rows: Sequence[Row], alpha: float, confidence_level: float | None = 0.95, complete: Sequence[str] = ("--json",)
) -> None:
    """Print a row per image, with its verdict.

    Parameters
    ----------
    rows
        The rows.
    alpha
        Significance level of the verdicts.
    confidence_level
        Level of the confidence intervals; None to leave them out.
    complete
        Options that give all columns, and names in full, to be named where the terminal is too narrow for them.
    """
    known = pvalues_of(rows)
    decisions = known.decisions(alpha, None)
    verdicts = iter(decisions)
    lines = []
    for row in rows:
        rejected = None if "error" in row else next(verdicts)
        lines.append(Line(row=row, rejected=rejected, below_alpha=rejected))
    advice = [advice_text(known, alpha)] if len(known) == 1 and None in decisions else []  # else the summary has it
    _print_lines(lines, [1] * len(lines), alpha, confidence_level, complete, advice)


def print_component_table(
    images: Iterable[Sequence[Row]],
    alpha: float,
    confidence_level: float | None = 0.95,
    complete: Sequence[str] = ("--json",),
) -> None:
    """Print a row per component of each image's region; the verdict is that of the adjusted p-value."""
    from attentest.presentation.words import number_text, range_text
    from attentest.search import CONVERGED

    lines, groups = [], []
    for rows in images:
        groups.append(len(rows))
        if "error" in rows[0]:
            lines.append(Line(row=rows[0]))
            continue
        known = pvalues_of(rows)
        resolved = all(row["status"] == CONVERGED for row in rows)
        ends = (each.tolist() for each in known.adjusted_bounds("holm"))
        decisions = (known.decisions(alpha, method) for method in ("holm", None))
        lines += [
            Line(
                row=row,
                rejected=rejected,
                below_alpha=below_alpha,
                holm=number_text(high, 4) if resolved else range_text(low, high),
            )
            for row, low, high, rejected, below_alpha in zip(rows, *ends, *decisions, strict=True)
        ]
    _print_lines(lines, groups, alpha, confidence_level, complete, [])


def _print_lines(
    lines: Sequence[Line],
    groups: Sequence[int],
    alpha: float,
    confidence_level: float | None,
    complete: Sequence[str],
    advice: Sequence[str],
) -> None:
    """Print a table and its footnotes."""
    columns = _columns(lines, alpha, confidence_level)
    names = [str(line.row["image"]) for line in lines]
    marks, notes = _marks(lines, alpha, confidence_level)
    table = fitted(names, [*columns, *marks], groups)
    left_out, interval = table.left_out, _interval_heading(lines, confidence_level)
    if interval in left_out:  # notes about it would be about numbers that are not there
        columns = [column for column in columns if column.heading not in left_out]
        marks, notes = _marks(lines, alpha, None)
        table = fitted(names, [*columns, *marks], groups)
    table.print()
    tested = [line.row for line in lines if "error" not in line.row]
    if tested:
        notes += shared_notes(tested[0], None if interval in left_out else confidence_level, _simultaneous(lines))
    notes += [*advice, *disagreements(tested)]
    if len(tested) < len(lines):
        where = _alternatives(["the messages on standard error", *complete])
        notes.append(f"not tested: {len(lines) - len(tested)}; see {where} for the reasons.")
    wider = _alternatives(["a wider terminal", *complete])
    if left_out:
        notes.append(f"no room for {', '.join(left_out)}: use {wider}.")
    if table.is_shortened:
        notes.append(f"names are shortened: use {wider} to see all of them.")
    print_notes(notes)


def _alternatives(texts: Sequence[str]) -> str:
    return f"{', '.join(texts[:-1])} or {texts[-1]}"


def _marks(lines: Sequence[Line], alpha: float, interval_level: float | None) -> tuple[list[Column], list[str]]:
    """Return the column of the marks of footnotes, if there are any, and the footnotes."""
    marks, notes = marked(
        [
            component_notes(line.row, line.rejected, alpha, interval_level)
            if _simultaneous(lines)
            else row_notes(line.row, line.below_alpha, alpha, interval_level)
            for line in lines
        ]
    )
    column = Column(heading="notes", cells=[some or NO_VALUE for some in marks], is_text=True)
    return [column] if notes else [], notes


def _columns(lines: Sequence[Line], alpha: float, confidence_level: float | None) -> list[Column]:
    """Return the columns after the names, in order; their ranks say which are left out first."""
    from attentest.presentation.words import estimate_text, number_text, range_text
    from attentest.search import CONVERGED

    def column(heading: str, rank: int, cell: Callable[[Row], str]) -> Column:
        cells = [NO_VALUE if "error" in line.row else cell(line.row) for line in lines]
        return Column(heading=heading, cells=cells, rank=rank)

    def pvalue(row: Row) -> str:
        ends = row["pvalue_low"], row["pvalue_high"]
        return number_text(row["pvalue"], 4) if row["status"] == CONVERGED else range_text(*ends)

    def estimate(row: Row) -> str:
        return estimate_text(row["estimate"], (row["estimate_low"], row["estimate_high"]), row["status"])

    def certified(row: Row) -> str:
        return f"{row['certificate_pvalue']:.4g}" if "certificate_pvalue" in row else NO_VALUE

    columns = []
    if any("component" in line.row for line in lines):
        columns.append(column("component", ALWAYS, lambda row: str(row["component"])))
    columns.append(column("pixels", 2, lambda row: f"{row['part_pixels']} of {row['seen_pixels']}"))
    columns.append(column("difference", 3, lambda row: f"{row['difference']:.3g}"))
    if confidence_level is not None:
        columns.append(column("estimate", 6, estimate))
        which = "simultaneous" if _simultaneous(lines) else "confidence"
        columns.append(
            column(
                _interval_heading(lines, confidence_level),
                4,
                lambda row: f"{row[f'{which}_low']:.3g} to {row[f'{which}_high']:.3g}",
            )
        )
    columns.append(column("statistic", 7, lambda row: f"{row['statistic']:.4f}"))
    columns.append(column("naive p", 5, lambda row: number_text(row["naive_pvalue"])))
    columns.append(column("selective p", ALWAYS, pvalue))
    columns.append(column("error bar", 8, lambda row: f"{row['pvalue_high'] - row['pvalue_low']:.0e}"))
    if any("certificate_pvalue" in line.row for line in lines):
        columns.append(column("certified p", 1, certified))  # asked for, and it takes the longest
    if any("component" in line.row for line in lines):
        columns.append(Column(heading="Holm p", cells=[line.holm for line in lines]))
    columns.append(Column(heading=f"verdict at {alpha:g}", cells=[line.verdict for line in lines], is_text=True))
    return columns


def _interval_heading(lines: Sequence[Line], confidence_level: float | None) -> str:
    what = "simultaneous" if _simultaneous(lines) else "interval"
    return "" if confidence_level is None else f"{100 * confidence_level:.10g}% {what}"


def _simultaneous(lines: Sequence[Line]) -> bool:
    """Return whether the lines are of components, which have simultaneous intervals."""
    tested = [line.row for line in lines if "error" not in line.row]
    return bool(tested) and all("simultaneous_low" in row for row in tested)
