"""Tables of results on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from attentest.cli.output import table_console

if TYPE_CHECKING:
    from attentest.results.batch import ComponentResults, Results
    from attentest.results.result import AttentionTestResult


def print_table(results: Results, alpha: float, confidence_level: float | None = 0.95) -> None:
    """Print a row per image, with its verdict; without a confidence level there is no interval."""
    table = _table("image", *_headings(confidence_level), f"verdict at {alpha:g}")
    for name, result, numbers in zip(results.names, results, _numbers(results, confidence_level), strict=True):
        table.add_row(escape(str(name)), *numbers, _verdict(result, *result.pvalue_bounds, alpha))
    table_console().print(table)


def print_component_table(
    regions: Sequence[tuple[str, ComponentResults]], alpha: float, confidence_level: float | None = 0.95
) -> None:
    """Print a row per component of each image's region; the verdict is that of the adjusted p-value."""
    headings = ("component", "pixels", *_headings(confidence_level), "Holm p")
    table = _table("image", *headings, f"verdict at {alpha:g}")
    for name, components in regions:
        rows = zip(components, _numbers(components, confidence_level), components.adjusted_pvalues(), strict=True)
        lower, upper = _holm_bounds(components)
        for number, (result, numbers, adjusted) in enumerate(rows):
            table.add_row(
                escape(name) if number == 0 else "",
                str(number + 1),
                str(int(result.part.sum())),
                *numbers,
                _short(adjusted, 4),
                _verdict(result, lower[number], upper[number], alpha),
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
    columns = results.table(0.95 if confidence_level is None else confidence_level)
    rows = []
    for i, result in enumerate(results):
        lower, upper = result.pvalue_bounds
        low, high = columns["confidence_low"][i], columns["confidence_high"][i]
        interval = [] if confidence_level is None else [f"{columns['estimate'][i]:.3g}", f"{low:.3g} to {high:.3g}"]
        p = [_short(result.naive_pvalue, 3), _short(result.pvalue, 4)]
        rows.append([f"{result.statistic:.4f}", *interval, *p, f"{upper - lower:.0e}"])
    return rows


def _holm_bounds(components: ComponentResults) -> tuple[list[float], list[float]]:
    """Return the bounds on the adjusted p-values, which are those of the bounds: adjustment is monotone."""
    import numpy as np

    from attentest.statistics.multiplicity import adjusted_pvalues

    lower, upper = (
        adjusted_pvalues(np.array([result.log_pvalue_bounds[end] for result in components]), "holm") for end in (0, 1)
    )
    return lower.tolist(), upper.tolist()


def _verdict(result: AttentionTestResult, lower: float, upper: float, alpha: float) -> str:
    verdict = "significant" if upper <= alpha else "not significant" if lower > alpha else "undecided"
    return verdict if result.status in ("converged", "decided") else f"{verdict} ({result.status})"


def _short(p: float, digits: int) -> str:
    return "<1e-307" if p < 1e-307 else f"{p:.{digits}g}"
