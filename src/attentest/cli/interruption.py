"""Ctrl-C during a long command: the results so far are reported, and what is kept of them is said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from attentest.cli.output import Interrupted
from attentest.errors import counted

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
