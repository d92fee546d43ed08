"""Tables of results on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from attentest.cli.output import table_console

if TYPE_CHECKING:
    from attentest.results.batch import ComponentResults, Results
    from attentest.results.result import AttentionTestResult

VERDICTS = {True: "significant", False: "not significant", None: "undecided"}

DISAGREES = "*"
"""Mark of a certified p-value that contradicts the search."""


def print_table(results: Results, alpha: float, confidence_level: float | None = 0.95) -> None:
    """Print a row per image, with its verdict; without a confidence level there is no interval."""
    certified = _any_certificate(results)
    table = _table("image", *_headings(confidence_level, certified), f"verdict at {alpha:g}")
    rows = zip(results.names, _numbers(results, confidence_level, certified), results.decisions(alpha), strict=True)
    for name, numbers, rejected in rows:
        table.add_row(escape(str(name)), *numbers, VERDICTS[rejected])
    table_console().print(table)
    _print_notes(results[0])
    if len(results) == 1 and None in results.decisions(alpha):  # of several, the summary says it
        table_console().print(results.advice(alpha), soft_wrap=True)
    _print_disagreements(zip(map(str, results.names), results, strict=True))


def print_component_table(
    regions: Sequence[tuple[str, ComponentResults]], alpha: float, confidence_level: float | None = 0.95
) -> None:
    """Print a row per component of each image's region; the verdict is that of the adjusted p-value."""
    from attentest.results.pvalue_text import number_text, range_text
    from attentest.search import CONVERGED

    certified = any(_any_certificate(components) for _, components in regions)
    headings = ("component", "pixels", *_headings(confidence_level, certified), "Holm p")
    table = _table("image", *headings, f"verdict at {alpha:g}")
    for name, components in regions:
        resolved = all(result.status == CONVERGED for result in components)
        rows = zip(
            components,
            _numbers(components, confidence_level, certified),
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
    _print_notes(regions[0][1][0])
    _print_disagreements(
        (f"{name}, component {number}", result)
        for name, components in regions
        for number, result in enumerate(components, start=1)
    )


def _table(*headings: str) -> Table:
    """Return an empty table; columns of words are aligned left, those of numbers right."""
    table = Table()
    for heading in headings:
        table.add_column(heading, justify="left" if heading.startswith(("image", "verdict")) else "right")
    return table


def _any_certificate(results: Results) -> bool:
    return any(result.certificate is not None for result in results)


def _print_notes(result: AttentionTestResult) -> None:
    """Say how regions were chosen, where it is not as in the paper, and whether the noise is approximate."""
    settings = result.settings
    notes = []
    if settings.get("region_unit") == "patches":
        notes.append("regions consist of whole patches (--region patches)")
    if (randomisation := settings.get("randomisation")) is not None:
        gamma, seed = randomisation["gamma"], randomisation["seed"]
        option = "--randomise" if seed is None else f"--randomise, --randomise-seed {seed}"
        notes.append(f"regions were chosen on the images plus noise of {gamma:g} times their own ({option})")
    if settings["noise"].get("approximate"):
        notes.append("approximate: the noise was estimated from the tested images themselves (--noise)")
    for note in notes:
        table_console().print(note, soft_wrap=True)


def _print_disagreements(named: Iterable[tuple[str, AttentionTestResult]]) -> None:
    """Say in words where a certificate contradicts the search."""
    for name, result in named:
        if result.certificate is not None and not result.certificate.agrees:
            table_console().print(
                f"{DISAGREES} {escape(name)}: {escape(result.certificate.summary())}.", soft_wrap=True
            )


def _headings(confidence_level: float | None, certified: bool) -> tuple[str, ...]:
    interval = () if confidence_level is None else ("estimate", f"{100 * confidence_level:.10g}% interval")
    return "statistic", *interval, "naive p", "selective p", "error bar", *(("certified p",) if certified else ())


def _numbers(results: Results, confidence_level: float | None, certified: bool) -> list[list[str]]:
    """Return the cells of each result under the headings."""
    from attentest.results.pvalue_text import estimate_text, number_text
    from attentest.results.result import estimates_of

    estimates = estimates_of(results)
    columns = results.table(0.95 if confidence_level is None else confidence_level)
    rows = []
    for i, result in enumerate(results):
        lower, upper = result.pvalue_bounds
        low, high = columns["confidence_low"][i], columns["confidence_high"][i]
        estimate = estimate_text(estimates.best[i], (estimates.low[i], estimates.high[i]), result.status)
        interval = [] if confidence_level is None else [estimate, f"{low:.3g} to {high:.3g}"]
        p = [number_text(result.naive_pvalue), escape(result.pvalue_text(4))]
        certificate = [_certified(result)] if certified else []
        rows.append([f"{result.statistic:.4f}", *interval, *p, f"{upper - lower:.0e}", *certificate])
    return rows


def _certified(result: AttentionTestResult) -> str:
    if result.certificate is None:
        return ""
    return f"{result.certificate.pvalue:.4g}" + ("" if result.certificate.agrees else f" {DISAGREES}")
