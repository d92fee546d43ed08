"""What commands print: data on standard output, everything else on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

if TYPE_CHECKING:
    from attentest.result import AttentionTestResult


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[float, float | None], None]]:
    """Show a bar on standard error and yield the callback (done, total) that moves it."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def print_results(results: Iterable[tuple[str, AttentionTestResult]], alpha: float, as_json: bool) -> None:
    """Print named results as a table, or as JSON lines."""
    results = list(results)
    if not as_json:
        return print_table(results, alpha)
    for name, result in results:
        print_json(name, result)


def print_json(name: str, result: AttentionTestResult) -> None:
    """Print one result as a line of JSON."""
    sys.stdout.write(json.dumps({"image": name, **result.to_dict()}, allow_nan=False) + "\n")
    sys.stdout.flush()


def print_table(results: Iterable[tuple[str, AttentionTestResult]], alpha: float) -> None:
    """Print named results as a table with a verdict."""
    from rich.markup import escape

    table = Table()
    for heading in ("image", "statistic", "naive p", "selective p", "error bar", f"verdict at {alpha:g}"):
        table.add_column(heading, justify="right" if heading.endswith((" p", "statistic", "bar")) else "left")
    for name, result in results:
        lower, upper = result.pvalue_bounds
        verdict = "significant" if upper <= alpha else "not significant" if lower > alpha else "undecided"
        if result.status not in ("converged", "decided"):
            verdict += f" ({result.status})"
        numbers = (f"{result.statistic:.4f}", _short(result.naive_pvalue, 3), _short(result.pvalue, 4))
        table.add_row(escape(name), *numbers, f"{upper - lower:.0e}", verdict)
    table_console().print(table)


def _short(p: float, digits: int) -> str:
    return "<1e-307" if p < 1e-307 else f"{p:.{digits}g}"


def table_console() -> Console:
    """Return a console on standard output that is wide enough for tables where it is no terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=max(console.width, 132))


def say(text: str) -> None:
    """Print a line on standard error."""
    typer.echo(text, err=True)


def fail(text: str, code: int) -> None:
    """Say what went wrong and exit."""
    say(f"attentest: {text}")
    raise SystemExit(code)
