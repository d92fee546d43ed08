"""Output of the commands: data on standard output, everything else on standard error; what Ctrl-C leaves."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from attentest.errors import counted

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


def say(text: str) -> None:
    """Print a line on standard error."""
    typer.echo(text, err=True)


def fail(text: str, code: int) -> None:
    """Print an error message and exit."""
    say(f"attentest: {text}")
    raise SystemExit(code)


Item = TypeVar("Item")


class Interruption:
    """Ends a loop at Ctrl-C, and later the command with the exit code of an interrupt.

    Attributes
    ----------
    done : int
        Number of finished items.
    happened : bool
        Whether Ctrl-C was pressed.
    """

    def __init__(self) -> None:
        self.done = 0
        self.happened = False

    def until(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield items up to the first interrupt."""
        try:
            for item in items:
                self.done += 1
                yield item
        except KeyboardInterrupt:
            self.happened = True

    def finish(self, asked: int, called: str) -> None:
        """End the command if Ctrl-C was pressed, with a message about the number of finished items.

        Parameters
        ----------
        asked
            Number of items that were to be done.
        called
            What an item is called, such as "image".
        """
        if self.happened:
            were = "was" if asked == 1 else "were"
            raise Interrupted(f"{self.done:,} of {counted(asked, called)} {were} finished.")


@contextmanager
def on_interrupt(kept: str) -> Iterator[None]:
    """Let Ctrl-C end the command with a sentence.

    Parameters
    ----------
    kept
        What is kept of the work so far.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(kept) from None


def usually_kept(parameters: Iterable[Any]) -> str:
    """Return what is kept by a command with these parameters that does not say more about it."""
    folder = any("--out" in each.opts and each.metavar == "FOLDER" for each in parameters)
    return f"what was printed{', and what is in an --out directory,' if folder else ''} is complete."


def print_findings(summary: Mapping[str, Any], findings: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    """Print the statements with data, verdicts and numbers as a table, or all with the summary as one JSON object."""
    from attentest.presentation.tables import Column, print_table
    from attentest.studies.document import split_by_data, summary_text

    if as_json:
        sys.stdout.write(summary_text({**summary, "findings": findings}))
        return
    with_data, without_data = split_by_data(findings)
    headings = {"statement": "statement", "where": "in the paper", "verdict": "verdict", "numbers": "numbers"}
    columns = [
        Column(heading=heading, cells=[finding[name] for finding in with_data], is_text=True)
        for name, heading in headings.items()
    ]
    print_table(columns, separated=True)
    if without_data:
        say(f"{counted(len(without_data), 'other statement')}: no data")
