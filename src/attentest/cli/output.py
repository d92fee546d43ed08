"""What commands print: data on standard output, everything else on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

INTERRUPTED = 130
"""Exit code after Ctrl-C, by convention; Typer turns an interrupt that nobody caught into it."""


class Interrupted(Exception):  # not an error
    """Ends a command after Ctrl-C, with what there is to say of it."""


class Move(Protocol):
    """Moves a progress bar, and says what is being done."""

    def __call__(self, done: float, total: float | None, label: str | None = None, /) -> None:
        """Say that so much of so much is done; without a label the last one stays."""


@contextmanager
def progress_bar(label: str) -> Iterator[Move]:
    """Show a bar on standard error and yield the callback (done, total) that moves it."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)

        def move(done: float, total: float | None, label: str | None = None, /) -> None:
            bar.update(task, completed=done, total=total, description=label)

        yield move


def print_json(values: dict[str, Any]) -> None:
    """Print values as a line of JSON."""
    sys.stdout.write(json.dumps(values, allow_nan=False) + "\n")
    sys.stdout.flush()


def table_console() -> Console:
    """Return a console on standard output that is wide enough for tables where it is no terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=max(console.width, 160))


def say(text: str) -> None:
    """Print a line on standard error."""
    typer.echo(text, err=True)


def fail(text: str, code: int) -> None:
    """Say what went wrong and exit."""
    say(f"attentest: {text}")
    raise SystemExit(code)
