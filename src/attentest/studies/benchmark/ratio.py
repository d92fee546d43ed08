"""A ratio of two costs that were measured side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from attentest.results.records import check_numbers, check_texts

Quantity: TypeAlias = Literal["seconds", "CPU seconds", "evaluations", "bytes"]


class NotMeasured(Exception):
    """Ends a comparison that cannot be made here, with the reason in a sentence."""


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """The cost of one thing over the cost of another; less is better.

    Parameters
    ----------
    comparison
        Name of the comparison that it is part of.
    of, over
        What is divided, and by what.
    quantity
        What is measured of both, per image where images are tested.
    numerator, denominator
        Cost of each.
    goal
        The ratio should be at most this; None where nothing is aimed at.
    """

    comparison: str
    of: str
    over: str
    quantity: Quantity
    numerator: float
    denominator: float
    goal: float | None = None

    @property
    def ratio(self) -> float:
        """Numerator over denominator."""
        return self.numerator / self.denominator

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What tells it from others in the same run."""
        return self.comparison, self.of, self.over, self.quantity

    def as_dict(self) -> dict[str, Any]:
        """Return all values, and the ratio, JSON-ready."""
        return {**vars(self), "ratio": self.ratio}

    @classmethod
    def from_dict(cls, values: Any) -> Ratio:
        """Return a ratio that was written as JSON; raise a ValueError, TypeError or KeyError if it is damaged."""
        check_texts(values, ("comparison", "of", "over"))
        check_numbers(values, ("numerator", "denominator", *(["goal"] if values.get("goal") is not None else [])))
        if values["quantity"] not in get_args(Quantity):
            raise ValueError(f"quantity must be one of {', '.join(get_args(Quantity))}")
        if not (values["numerator"] > 0 and values["denominator"] > 0):
            raise ValueError("numerator and denominator must be positive")
        names = ("comparison", "of", "over", "quantity", "numerator", "denominator", "goal")
        return cls(**{name: values.get(name) for name in names})
