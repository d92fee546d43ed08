"""The verdict on a statement of the paper: whether the data agree with it, and the numbers that decide."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias, get_args

Outcome: TypeAlias = Literal["holds", "differs", "not enough data"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)

NOT_IN_THE_PAPER = "not in the paper"
"""Place in the paper of a statement that we added."""


class Verdict(NamedTuple):
    """Whether the data agree with a statement, and a sentence with the numbers."""

    outcome: Outcome
    numbers: str


NO_DATA = Verdict(outcome="not enough data", numbers="There are no data.")
