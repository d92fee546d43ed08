"""Ctrl-C in the middle of a long command: what was finished is reported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from attentest.cli.output import Interrupted

Item = TypeVar("Item")


class Interruption:
    """Ends what is going on as if there were no more of it, and the command, later, with the exit code of an interrupt.

    Attributes
    ----------
    done : int
        How many were finished.
    happened : bool
        Whether there was an interrupt.
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
        """End the command if there was an interrupt, and say how much of what was asked for is there."""
        if self.happened:
            raise Interrupted(f"{self.done} of {asked} {called} were finished.")
