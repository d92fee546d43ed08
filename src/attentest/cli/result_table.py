"""Tables of results on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from attentest.cli.output import table_console

if TYPE_CHECKING:
    from attentest.results.rows import Row

VERDICTS = {True: "significant", False: "not significant", None: "undecided"}

DISAGREES = "*"
"""Mark of a certified p-value that contradicts the search."""


def print_table(rows: Sequence[Row], alpha: float, confidence_level: float | None = 0.95) -> None:
    """Print a row per image, with its verdict; without a confidence level there is no interval."""
    from attentest.results.rows import pvalues_of

    tested = [row for row in rows if "error" not in row]
    certified = any("certificate_pvalue" in row for row in tested)
    headings = _headings(confidence_level, certified)
    table = _table("image", *headings, f"verdict at {alpha:g}")
    known = pvalues_of(tested)
    decisions = known.decisions(alpha, None)
    verdicts = iter(decisions)
    for row in rows:
        name = escape(shown(row["image"]))
        if "error" in row:
            table.add_row(name, *([""] * len(headings)), "not tested")
        else:
            table.add_row(name, *_numbers(row, confidence_level, certified), VERDICTS[next(verdicts)])
    table_console().print(table)
    if tested:
        _print_notes(tested[0])
    if len(tested) == 1 and None in decisions:  # of several, the summary says it
        table_console().print(known.advice(alpha), soft_wrap=True)
    _print_disagreements(tested)


def print_component_table(images: Iterable[Sequence[Row]], alpha: float, confidence_level: float | None = 0.95) -> None:
    """Print a row per component of each image's region; the verdict is that of the adjusted p-value."""
    from attentest.results.pvalue_text import number_text, range_text
    from attentest.results.rows import pvalues_of
    from attentest.search import CONVERGED

    regions = list(images)
    certified = any("certificate_pvalue" in row for rows in regions for row in rows)
    headings = ("component", "pixels", *_headings(confidence_level, certified), "Holm p")
    table = _table("image", *headings, f"verdict at {alpha:g}")
    for rows in regions:
        if "error" in rows[0]:
            cells = [""] * len(headings)
            table.add_row(escape(shown(rows[0]["image"])), *cells, "not tested", end_section=True)
            continue
        known = pvalues_of(rows)
        resolved = all(row["status"] == CONVERGED for row in rows)
        ends = (each.tolist() for each in known.adjusted_bounds("holm"))
        for number, (row, low, high, rejected) in enumerate(
            zip(rows, *ends, known.decisions(alpha, "holm"), strict=True)
        ):
            table.add_row(
                escape(shown(row["image"])) if number == 0 else "",
                str(row["component"]),
                str(row["part_pixels"]),
                *_numbers(row, confidence_level, certified),
                number_text(high, 4) if resolved else range_text(low, high, 4),
                VERDICTS[rejected],
                end_section=number == len(rows) - 1,
            )
    table_console().print(table)
    tested = [row for rows in regions for row in rows if "error" not in row]
    if tested:
        _print_notes(tested[0])
    _print_disagreements(tested)


def shown(name: object) -> str:
    """Return the name of an image for the terminal: bytes that are not text, and what controls it, are escaped."""
    text = str(name).encode("utf-8", "backslashreplace").decode()
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def _table(*headings: str) -> Table:
    """Return an empty table; columns of words are aligned left, those of numbers right."""
    table = Table()
    for heading in headings:
        table.add_column(heading, justify="left" if heading.startswith(("image", "verdict")) else "right")
    return table


def _print_notes(row: Row) -> None:
    """Say how regions were chosen, where it is not as in the paper, and whether the noise is approximate."""
    notes = []
    if row["region_unit"] == "patches":
        notes.append("regions consist of whole patches (--region patches)")
    if row["gamma"]:
        seed = row["randomise_seed"]
        option = "--randomise" if seed is None else f"--randomise, --randomise-seed {seed}"
        notes.append(f"regions were chosen on the images plus noise of {row['gamma']:g} times their own ({option})")
    if row["approximate_noise"]:
        notes.append("approximate: the noise was estimated from the tested images themselves (--noise)")
    for note in notes:
        table_console().print(note, soft_wrap=True)


def _print_disagreements(rows: Iterable[Row]) -> None:
    """Say in words where a certificate contradicts the search."""
    for row in rows:
        if not row.get("certificate_agrees", True):
            component = f", component {row['component']}" if "component" in row else ""
            text = f"{DISAGREES} {shown(row['image'])}{component}: {row['certificate_summary']}."
            table_console().print(escape(text), soft_wrap=True)


def _headings(confidence_level: float | None, certified: bool) -> tuple[str, ...]:
    interval = () if confidence_level is None else ("estimate", f"{100 * confidence_level:.10g}% interval")
    return "statistic", *interval, "naive p", "selective p", "error bar", *(("certified p",) if certified else ())


def _numbers(row: Row, confidence_level: float | None, certified: bool) -> list[str]:
    """Return the cells of a row under the headings."""
    from attentest.results.pvalue_text import estimate_text, number_text, pvalue_text

    bounds = row["pvalue_low"], row["pvalue_high"]
    estimate = estimate_text(row["estimate"], (row["estimate_low"], row["estimate_high"]), row["status"])
    ends = f"{row['confidence_low']:.3g} to {row['confidence_high']:.3g}"
    interval = [] if confidence_level is None else [estimate, ends]
    p = [number_text(row["naive_pvalue"]), escape(pvalue_text(row["pvalue"], bounds, row["status"], 4))]
    certificate = [_certified(row)] if certified else []
    return [f"{row['statistic']:.4f}", *interval, *p, f"{bounds[1] - bounds[0]:.0e}", *certificate]


def _certified(row: Row) -> str:
    if "certificate_pvalue" not in row:
        return ""
    return f"{row['certificate_pvalue']:.4g}" + ("" if row["certificate_agrees"] else f" {DISAGREES}")
