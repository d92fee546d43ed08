"""The paper's statements about brain images, and the rules that decide whether the data agree with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from attentest.studies.brain.condition import PAPER, Condition
from attentest.studies.document import NO_DATA, NOT_IN_THE_PAPER, Outcome, Verdict, rate_text

Summary: TypeAlias = Mapping[str, Any]

LEVEL = "0.05"
CLASS_NAMES: Mapping[str, str] = {"tumour": "with tumour", "free": "without tumour"}

FEWEST_IMAGES = 10
FEWEST_PATIENTS = 5
"""Slices and patients of a class below which no statement about it is judged."""


class Statement(NamedTuple):
    """A statement about rates of rejection, and the rule that decides on it."""

    text: str
    rule: str
    classes: tuple[str, ...]
    holds: Callable[..., bool]
    """Takes the rate of each of the classes."""
    test: str = "selective"
    where: str = "section 4, real data experiments"
    conditions: tuple[Condition, ...] = (PAPER, PAPER)
    """That of each rate."""


CORRELATED = Condition(noise="stationary")
OURS: Mapping[str, Mapping[str, Any]] = {
    "randomised selection (gamma 1)": {"randomise": 1.0},
    "a region of whole patches": {"region": "patches"},
}

STATEMENTS = (
    Statement(
        "The naive p-values remain small even for images without tumours.",
        f"At least 95% of the tested slices without tumour have a naive p of at most {LEVEL}.",
        ("free",),
        lambda free: free["value"] >= 0.95,
        test="naive",
    ),
    Statement(
        "The selective p-values are large for images without tumours.",
        f"The share of slices without tumour with a selective p of at most {LEVEL} is compatible with {LEVEL}: "
        "the lower end of its interval is not above it.",
        ("free",),
        lambda free: free["low"] <= float(LEVEL),
    ),
    Statement(
        "The selective p-values are small for images with tumours.",
        f"At least half of the slices with tumour have a selective p of at most {LEVEL}.",
        ("tumour",),
        lambda tumour: tumour["value"] >= 0.5,
    ),
    Statement(
        "The selective p-values are smaller with a tumour than without.",
        f"Of the shares with a selective p of at most {LEVEL}, the interval with tumour lies above that without.",
        ("tumour", "free"),
        lambda tumour, free: tumour["low"] > free["high"],
        where=NOT_IN_THE_PAPER,
    ),
    *(
        Statement(
            f"With correlated noise, {what} finds differences in slices with tumour that the paper's test does not.",
            f"Of the shares of slices with tumour with a selective p of at most {LEVEL} under the stationary noise, "
            f"the interval with {what} lies above that with the paper's selection.",
            ("tumour", "tumour"),
            lambda ours, paper: ours["low"] > paper["high"],
            where=f"ours, {NOT_IN_THE_PAPER}",
            conditions=(replace(CORRELATED, **options), CORRELATED),
        )
        for what, options in OURS.items()
    ),
)


def condition_of(summary: Summary, condition: Condition = PAPER) -> Summary | None:
    """Return the numbers of a condition, None if it was not tested."""
    return next((one for one in summary["conditions"] if one["name"] == condition.name), None)


def class_rate(found: Summary, name: str, test: str = "selective") -> Any:
    """Return how often a test rejects slices of a class under a condition, None if there are no such slices."""
    return found["classes"][name]["rates"][test][LEVEL] if name in found["classes"] else None


def findings(summary: Summary) -> list[dict[str, Any]]:
    """Return every statement with its rule, its verdict and the numbers, JSON-ready."""
    return [
        {"statement": one.text, "where": one.where, "rule": one.rule, "verdict": outcome, "numbers": numbers}
        for one in STATEMENTS
        # Earlier data have none of our conditions, and then nothing is said about them.
        if not one.conditions[0].ours or condition_of(summary, one.conditions[0]) is not None
        for outcome, numbers in [_verdict(one, summary)]
    ]


def _verdict(statement: Statement, summary: Summary) -> Verdict:
    found = [condition_of(summary, one) or {"classes": {}} for one in statement.conditions]
    judged_by = list(zip(statement.classes, found, statement.conditions, strict=False))
    rates = [class_rate(one, name, statement.test) for name, one, _ in judged_by]
    if None in rates:
        return NO_DATA
    enough, sentences = True, []
    for (name, numbers, condition), rate in zip(judged_by, rates, strict=True):
        one = numbers["classes"][name]
        enough = enough and one["images"] >= FEWEST_IMAGES and one["patients"] >= FEWEST_PATIENTS
        failed = f" ({one['failed']:,} could not be tested)" if one["failed"] else ""
        share = f"{rate['count']:,} of {one['images']:,} slices {CLASS_NAMES[name]}"
        under = "" if condition == PAPER else f" ({condition.name})"
        sentences.append(f"{share}{under} have a {statement.test} p of at most {LEVEL}{failed}: {rate_text(rate)}.")
    judged: Outcome = "holds" if statement.holds(*rates) else "differs"
    return Verdict(judged if enough else "not enough data", " ".join(sentences))
