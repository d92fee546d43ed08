"""Ctrl-C during a long command: the results so far are reported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from attentest.cli.output import Interrupted

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
            What the items are called, such as "images".
        """
        if self.happened:
            raise Interrupted(f"{self.done} of {asked} {called} were finished.")
