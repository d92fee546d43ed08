"""What became of a statement, and the numbers that say so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

Outcome: TypeAlias = Literal["holds", "differs", "not enough data"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)

NOT_IN_THE_PAPER = "not in the paper"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What became of a statement, and the numbers, as a sentence."""

    outcome: Outcome
    numbers: str


NO_DATA = Verdict(outcome="not enough data", numbers="There are no data.")
