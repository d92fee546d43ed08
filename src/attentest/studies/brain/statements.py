"""The paper's statements about brain images, some that we added, and the rules that decide whether the data agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from attentest.studies.brain.condition import PAPER, Condition
from attentest.studies.document import NO_DATA, NOT_IN_THE_PAPER, Verdict, rate_text

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
    return next((tested for tested in summary["conditions"] if tested["name"] == condition.name), None)


def class_rate(tested: Summary, name: str, test: str = "selective") -> Any:
    """Return how often a test rejects slices of a class under a condition, None if there are no such slices."""
    return tested["classes"][name]["rates"][test][LEVEL] if name in tested["classes"] else None


def findings(summary: Summary) -> list[dict[str, Any]]:
    """Return every statement with its rule, its verdict and the numbers, JSON-ready.

    Statements about our tests are left out where there are no data of them.
    """
    judged = []
    for statement in STATEMENTS:
        if not statement.conditions[0].ours or condition_of(summary, statement.conditions[0]) is not None:
            outcome, numbers = _verdict(statement, summary)
            entry = {"statement": statement.text, "where": statement.where, "rule": statement.rule}
            judged.append({**entry, "verdict": outcome, "numbers": numbers})
    return judged


def _verdict(statement: Statement, summary: Summary) -> Verdict:
    enough, rates, sentences = True, [], []
    for name, condition in zip(statement.classes, statement.conditions, strict=False):
        tested = condition_of(summary, condition)
        rate = tested and class_rate(tested, name, statement.test)
        if not tested or not rate:
            return NO_DATA
        slices = tested["classes"][name]
        enough = enough and slices["images"] >= FEWEST_IMAGES and slices["patients"] >= FEWEST_PATIENTS
        failed = f" ({slices['failed']:,} could not be tested)" if slices["failed"] else ""
        share = f"{rate['count']:,} of {slices['images']:,} slices {CLASS_NAMES[name]}"
        under = "" if condition == PAPER else f" ({condition.name})"
        sentences.append(f"{share}{under} have a {statement.test} p of at most {LEVEL}{failed}: {rate_text(rate)}.")
        rates.append(rate)
    return Verdict.of(" ".join(sentences), holds=enough and statement.holds(*rates), differs=enough)
