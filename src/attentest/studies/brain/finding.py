"""What the paper says of brain images, and what the data say of it, by rules that do not depend on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from attentest.studies.brain.condition import PAPER, Condition
from attentest.studies.document import rate_text
from attentest.studies.verdict import NO_DATA, NOT_IN_THE_PAPER, Outcome, Verdict

LEVEL = "0.05"

FEWEST_IMAGES = 10
"""Slices of a class below which nothing is said of it."""

FEWEST_PATIENTS = 5
"""Patients of a class below which intervals over patients say nothing."""

NEARLY_ALL = 0.95
MOST = 0.5

CLASS_NAMES: Mapping[str, str] = {"tumour": "with tumour", "free": "without tumour"}

Classes: TypeAlias = Mapping[str, Mapping[str, Any]]
"""The numbers of the classes of one condition, by name."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A statement and what decides on it.

    Parameters
    ----------
    statement
        In our own words.
    where
        In the paper.
    rule
        When it holds, in words.
    needs
        Classes of slices that decide.
    judge
        From their numbers to the verdict.
    """

    statement: str
    where: str
    rule: str
    needs: tuple[str, ...]
    judge: Callable[[Classes], Verdict]


def condition_of(summary: Mapping[str, Any], condition: Condition = PAPER) -> Mapping[str, Any] | None:
    """Return the numbers of a condition, None where it was not tried."""
    found = (one for one in summary["conditions"] if one["name"] == condition.name)
    return next(found, None)


def findings(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every statement with its verdict, the rule and our numbers, JSON-ready."""
    paper = condition_of(summary)
    classes: Classes = {} if paper is None else paper["classes"]
    found = []
    for finding in FINDINGS:
        verdict = _judged(finding, classes)
        found.append(
            {
                "statement": finding.statement,
                "where": finding.where,
                "rule": finding.rule,
                "verdict": verdict.outcome,
                "numbers": verdict.numbers,
            }
        )
    return found


def _judged(finding: Finding, classes: Classes) -> Verdict:
    if any(name not in classes for name in finding.needs):
        return NO_DATA
    verdict = finding.judge(classes)
    needed = [classes[name] for name in finding.needs]
    if any(one["images"] < FEWEST_IMAGES or one["patients"] < FEWEST_PATIENTS for one in needed):
        return Verdict(outcome="not enough data", numbers=verdict.numbers)
    return verdict


def _rate(classes: Classes, name: str, test: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = classes[name]["rates"][test][LEVEL]
    return found


def _sentence(classes: Classes, name: str, test: str) -> str:
    rate, images = _rate(classes, name, test), classes[name]["images"]
    slices = f"{rate['count']:,} of {images:,} slices {CLASS_NAMES[name]}"
    failed = classes[name]["failed"]
    also = f" ({failed:,} could not be tested)" if failed else ""
    return f"{slices} have a {test} p of at most {LEVEL}{also}: {rate_text(rate)}."


def _outcome(holds: bool) -> Outcome:
    return "holds" if holds else "differs"


def _naive_small(classes: Classes) -> Verdict:
    return Verdict(
        outcome=_outcome(_rate(classes, "free", "naive")["value"] >= NEARLY_ALL),
        numbers=_sentence(classes, "free", "naive"),
    )


def _selective_large(classes: Classes) -> Verdict:
    return Verdict(
        outcome=_outcome(_rate(classes, "free", "selective")["low"] <= float(LEVEL)),
        numbers=_sentence(classes, "free", "selective"),
    )


def _selective_small(classes: Classes) -> Verdict:
    return Verdict(
        outcome=_outcome(_rate(classes, "tumour", "selective")["value"] >= MOST),
        numbers=_sentence(classes, "tumour", "selective"),
    )


def _smaller_with_tumour(classes: Classes) -> Verdict:
    tumour, free = (_rate(classes, name, "selective") for name in CLASS_NAMES)
    return Verdict(
        outcome=_outcome(tumour["low"] > free["high"]),
        numbers=f"With tumour {rate_text(tumour)}, without {rate_text(free)} of the slices have a selective p of at "
        f"most {LEVEL}.",
    )


WHERE = "section 4, real data experiments"

FINDINGS: tuple[Finding, ...] = (
    Finding(
        statement="The naive p-values remain small even for images without tumours.",
        where=WHERE,
        rule=f"At least {NEARLY_ALL:.0%} of the tested slices without tumour have a naive p of at most {LEVEL}.",
        needs=("free",),
        judge=_naive_small,
    ),
    Finding(
        statement="The selective p-values are large for images without tumours.",
        where=WHERE,
        rule=f"The share of slices without tumour with a selective p of at most {LEVEL} is compatible with {LEVEL}: "
        "the lower end of its interval is not above it.",
        needs=("free",),
        judge=_selective_large,
    ),
    Finding(
        statement="The selective p-values are small for images with tumours.",
        where=WHERE,
        rule=f"At least half of the slices with tumour have a selective p of at most {LEVEL}.",
        needs=("tumour",),
        judge=_selective_small,
    ),
    Finding(
        statement="The selective p-values are smaller with a tumour than without.",
        where=NOT_IN_THE_PAPER,
        rule=f"Of the shares with a selective p of at most {LEVEL}, the interval with tumour lies above that without.",
        needs=("tumour", "free"),
        judge=_smaller_with_tumour,
    ),
)
