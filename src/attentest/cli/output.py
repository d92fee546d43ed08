"""Output of the commands: data on standard output, everything else on standard error; what Ctrl-C leaves."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from attentest.errors import AttentestError, counted
from attentest.markup import plain
from attentest.progress import LONG_SECONDS, Forecast, duration, remaining_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.text import Text

SOME_FAILED = 1  # exit code if some images could not be tested

OUTPUT_CHANGED = 3
"""Exit code if a file was removed, replaced or changed by others while the command wrote to it."""

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
    """Show a progress bar on standard error, with a forecast, and yield the callback that moves it.

    Where standard error is no terminal, one line says how long it will take, as soon as that is known to be long.
    """
    remaining = TextColumn("{task.fields[remaining]}")
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), remaining)
    console = Console(stderr=True)
    start, is_said, forecast, now_doing = monotonic(), console.is_terminal, Forecast(), label
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(label, total=None, remaining="")

        def move(done: float, total: float | None, label_now: str | None = None, /) -> None:
            nonlocal is_said, now_doing
            elapsed, now_doing = monotonic() - start, label_now or now_doing
            left = forecast.seconds_left(done, total, elapsed)
            bar.update(task, completed=done, total=total, description=label_now, remaining=remaining_text(left))
            if left is not None and elapsed + left > LONG_SECONDS and not is_said:
                say(f"{now_doing}: about {duration(elapsed + left, 0)} in all")
                is_said = True

        yield move


def print_json(values: dict[str, Any]) -> None:
    """Print values as one line of JSON."""
    sys.stdout.write(json.dumps(values, allow_nan=False) + "\n")
    sys.stdout.flush()


def say(text: str) -> None:
    """Print a line on standard error."""
    typer.echo(plain(text), err=True)  # the name of a file may have line ends


def fail(text: str, code: int) -> None:
    """Print an error message and exit."""
    say(f"attentest: {text}")
    raise SystemExit(code)


Item = TypeVar("Item")


@dataclass(eq=False)
class Interruption:
    """Ends a loop at Ctrl-C, or when its output cannot be written, and later the command with the exit code for it."""

    done: int = 0
    """Number of finished items."""
    happened: bool = False
    """Whether Ctrl-C was pressed."""
    error: AttentestError | None = None
    """Why the output cannot be written."""

    def until(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield items up to the first interrupt, or until there is an error."""
        try:
            for item in items:
                self.done += 1
                yield item
                if self.error is not None:
                    return
        except KeyboardInterrupt:
            self.happened = True

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keep an error of what is written for the end of the command: what was computed is shown first."""
        try:
            yield
        except AttentestError as error:
            self.error = self.error or error

    def finish(self, asked: int, called: str, kept: bool = False) -> None:
        """End the command if it was interrupted, after Ctrl-C with a message about the number of finished items.

        So many were asked for, and ``called`` is what one of them is called, such as "image". Those that are finished
        may be kept in a directory.
        """
        if self.error is not None:
            raise self.error
        if self.happened:
            were = "was" if asked == 1 else "were"
            onwards = "; the same command goes on from there" if kept else ""
            raise Interrupted(f"{self.done:,} of {counted(asked, called)} {were} finished{onwards}.")


@contextmanager
def on_interrupt(kept: str) -> Iterator[None]:
    """Let Ctrl-C end the command with a sentence that says what is kept of the work so far."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(kept) from None


def usually_kept(parameters: Iterable[Any]) -> str:
    """Return what is kept by a command with these parameters that does not say more about it."""
    folder = any("--out" in parameter.opts and parameter.metavar == "FOLDER" for parameter in parameters)
    return f"what was printed{', and what is in an --out directory,' if folder else ''} is complete."


def print_columns(columns: Mapping[str, Sequence[str | Text]], texts: Collection[str], **layout: Any) -> None:
    """Print a table with columns by their headings, those of texts aligned left, laid out as by its parameters."""
    from attentest.presentation.tables import Column, print_table

    print_table(
        [Column(heading=heading, cells=cells, is_text=heading in texts) for heading, cells in columns.items()], **layout
    )


def print_findings(summary: Mapping[str, Any], findings: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    """Print the statements with data, verdicts and numbers as a table, or all with the summary as one JSON object."""
    from attentest.studies.document import split_by_data, summary_text

    if as_json:
        sys.stdout.write(summary_text({**summary, "findings": findings}))
        return
    with_data, without_data = split_by_data(findings)
    headings = {"statement": "statement", "in the paper": "where", "verdict": "verdict", "numbers": "numbers"}
    columns = {heading: [finding[name] for finding in with_data] for heading, name in headings.items()}
    print_columns(columns, headings, separated=True)
    if without_data:
        say(f"{counted(len(without_data), 'other statement')}: no data")


def is_folder(place: str) -> bool:
    """Return whether a text names a folder: one that is there, or any that ends with a slash."""
    return place.endswith(("/", os.sep)) or Path(place).is_dir()


def check_figure(path: Path | None, inputs: Iterable[Path] = ()) -> None:
    """Raise an error for a file to which no figure can be written, or that is an input; None is no file."""
    if path is not None:
        from attentest.presentation.figure import check_figure_path

        check_figure_path(path, inputs)


def write_figure(path: Path | None, draw: Callable[[], Figure]) -> None:
    """Draw a figure into a checked file, if there is one, and say where it is."""
    if path is not None:
        from attentest.presentation.figure import save_figure

        save_figure(draw(), path)
        say(f"figure: {path}")
