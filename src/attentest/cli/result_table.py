"""Tables of results on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from attentest.cli.output import table_console

if TYPE_CHECKING:
    from attentest.results.batch import ComponentResults, Results

VERDICTS = {True: "significant", False: "not significant", None: "undecided"}


def print_table(results: Results, alpha: float, confidence_level: float | None = 0.95) -> None:
    """Print a row per image, with its verdict; without a confidence level there is no interval."""
    table = _table("image", *_headings(confidence_level), f"verdict at {alpha:g}")
    rows = zip(results.names, _numbers(results, confidence_level), results.decisions(alpha), strict=True)
    for name, numbers, rejected in rows:
        table.add_row(escape(str(name)), *numbers, VERDICTS[rejected])
    table_console().print(table)


def print_component_table(
    regions: Sequence[tuple[str, ComponentResults]], alpha: float, confidence_level: float | None = 0.95
) -> None:
    """Print a row per component of each image's region; the verdict is that of the adjusted p-value."""
    from attentest.results.pvalue_text import number_text, range_text
    from attentest.search import CONVERGED

    headings = ("component", "pixels", *_headings(confidence_level), "Holm p")
    table = _table("image", *headings, f"verdict at {alpha:g}")
    for name, components in regions:
        resolved = all(result.status == CONVERGED for result in components)
        rows = zip(
            components,
            _numbers(components, confidence_level),
            *(ends.tolist() for ends in components.adjusted_pvalue_bounds()),
            components.decisions(alpha),
            strict=True,
        )
        for number, (result, numbers, low, high, rejected) in enumerate(rows):
            table.add_row(
                escape(name) if number == 0 else "",
                str(number + 1),
                str(int(result.part.sum())),
                *numbers,
                number_text(high, 4) if resolved else range_text(low, high, 4),
                VERDICTS[rejected],
                end_section=number == len(components) - 1,
            )
    table_console().print(table)


def _table(*headings: str) -> Table:
    """Return an empty table; columns of words are aligned left, those of numbers right."""
    table = Table()
    for heading in headings:
        table.add_column(heading, justify="left" if heading.startswith(("image", "verdict")) else "right")
    return table


def _headings(confidence_level: float | None) -> tuple[str, ...]:
    interval = () if confidence_level is None else ("estimate", f"{100 * confidence_level:.10g}% interval")
    return "statistic", *interval, "naive p", "selective p", "error bar"


def _numbers(results: Results, confidence_level: float | None) -> list[list[str]]:
    """Return the cells of each result under the headings."""
    from attentest.results.pvalue_text import number_text

    columns = results.table(0.95 if confidence_level is None else confidence_level)
    rows = []
    for i, result in enumerate(results):
        lower, upper = result.pvalue_bounds
        low, high = columns["confidence_low"][i], columns["confidence_high"][i]
        interval = [] if confidence_level is None else [f"{columns['estimate'][i]:.3g}", f"{low:.3g} to {high:.3g}"]
        p = [number_text(result.naive_pvalue), escape(result.pvalue_text(4))]
        rows.append([f"{result.statistic:.4f}", *interval, *p, f"{upper - lower:.0e}"])
    return rows
