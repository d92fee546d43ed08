"""The table of a run of the benchmark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from attentest.cli.output import table_console
from attentest.errors import counted

if TYPE_CHECKING:
    from attentest.studies.benchmark.history import Change, Run
    from attentest.studies.benchmark.measurement import Quantity, Ratio

UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))

SMALL_RATIO = 0.05
"""A ratio below this is printed as a fraction such as 1/39."""


def print_run(run: Run, changes: dict[tuple[str, ...], Change]) -> None:
    """Print what a run measured, beside what it should be and what it was the last time."""
    settings, machine = run.settings, run.machine
    size = settings["size"]
    table = Table(
        box=SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
        title=f"{size}x{size} model, {counted(settings['images'], 'image')}, tol {settings['tol']:g}; "
        f"{machine['device']}, {counted(machine['threads'], 'thread')}",
        title_justify="left",
        title_style="",
        caption="Costs are per image, those of a forward pass per evaluation, and less is better.",
        caption_justify="left",
        caption_style="",
    )
    table.add_column("what / over what")
    for heading in ("cost", "over", "ratio", "goal", "change"):
        table.add_column(heading, justify="right", no_wrap=True)
    before: Ratio | None = None
    for ratio in run.ratios:
        if before is not None and before.comparison != ratio.comparison:
            table.add_row()
        change = changes.get(ratio.key)
        table.add_row(
            "" if before is not None and before.key[:3] == ratio.key[:3] else f"{ratio.of} / {ratio.over}",
            amount(ratio.numerator, ratio.quantity),
            amount(ratio.denominator, ratio.quantity),
            Text(shown_ratio(ratio.ratio), style=_style(ratio)),
            "" if ratio.goal is None else shown_ratio(ratio.goal) + ("" if ratio.ratio <= ratio.goal else ", missed"),
            "" if change is None else _shown_change(change),
        )
        before = ratio
    table_console().print(table)


def amount(value: float, quantity: Quantity) -> str:
    """Return a cost with its unit."""
    if quantity == "evaluations":
        return f"{value:,.0f} eval."
    if quantity == "bytes":
        mebibytes = value / 2**20
        return f"{mebibytes:,.0f} MiB" if mebibytes >= 100 else f"{mebibytes:.3g} MiB"
    unit, size = next((unit, size) for unit, size in UNITS if value >= size or unit == "us")
    return f"{value / size:.3g} {unit}"


def shown_ratio(ratio: float) -> str:
    """Return a ratio, as a fraction such as 1/39 if it is small."""
    return f"1/{1 / ratio:.0f}" if ratio < SMALL_RATIO else f"{ratio:.3g}"


def _style(ratio: Ratio) -> str:
    return "" if ratio.goal is None else "green" if ratio.ratio <= ratio.goal else "yellow"


def _shown_change(change: Change) -> Text:
    """Return how a ratio changed since the last run."""
    percent = f"{100 * (change.factor - 1):+.0f}%"
    return Text(f"slower {percent}", style="bold red") if change.slower else Text(percent)
