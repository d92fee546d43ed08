"""Output of the commands: data on standard output, everything else on standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

SOME_FAILED = 1
"""Exit code if some images could not be tested."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, by convention; also that of Typer for an interrupt that was not caught."""


class Interrupted(Exception):  # not an error
    """Ends a command after Ctrl-C, with the rest of its message."""


class Move(Protocol):
    """Callback that moves a progress bar and sets its label."""

    def __call__(self, done: float, total: float | None, label: str | None = None, /) -> None:
        """Set the amount done and the total, None if unknown; without a label the last one stays."""


@contextmanager
def progress_bar(label: str) -> Iterator[Move]:
    """Show a progress bar on standard error and yield the callback that moves it."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(label, total=None)

        def move(done: float, total: float | None, label: str | None = None, /) -> None:
            bar.update(task, completed=done, total=total, description=label)

        yield move


def print_json(values: dict[str, Any]) -> None:
    """Print values as one line of JSON."""
    sys.stdout.write(json.dumps(values, allow_nan=False) + "\n")
    sys.stdout.flush()


def table_console() -> Console:
    """Return a console on standard output, wide enough for tables if it is not a terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=max(console.width, 160))


def table_width() -> int | None:
    """Return the width for tables of images: that of the terminal, or COLUMNS; None, any, if it goes to a file."""
    console, given = Console(), os.environ.get("COLUMNS", "")
    return console.width if console.is_terminal or (given.isdigit() and int(given) > 0) else None


def say(text: str) -> None:
    """Print a line on standard error."""
    typer.echo(text, err=True)


def fail(text: str, code: int) -> None:
    """Print an error message and exit."""
    say(f"attentest: {text}")
    raise SystemExit(code)
