"""Variants of the test over the plain one: an interval, mixed precision, randomised selection, whole patches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from attentest.api import AttentionTest
from attentest.studies.benchmark.ratio import Ratio
from attentest.studies.benchmark.stopwatch import side_by_side
from attentest.studies.benchmark.workload import Workload

LEVEL = 0.95
GAMMA = 0.5
WARM_UP_IMAGES = 2

INTERVAL_GOALS = (2.0, 1.8)
"""An interval should take at most twice the time of p alone, and 1.8 times its evaluations."""


def interval(workload: Workload) -> Iterator[Ratio]:
    """Compare p with its interval and p alone."""
    with_interval = workload.test.with_confidence_level(LEVEL)
    yield from _over_plain(
        "interval", f"p and {LEVEL:.0%} interval", with_interval, "p alone", workload, INTERVAL_GOALS
    )


def precision(workload: Workload) -> Iterator[Ratio]:
    """Compare mixed precision and float64."""
    yield from _over_plain("precision", "mixed precision", workload.mixed_test, "float64", workload)


def randomised(workload: Workload) -> Iterator[Ratio]:
    """Compare randomised selection and the paper's."""
    test = workload.test.with_randomise(GAMMA)
    yield from _over_plain("randomised", f"randomised selection, gamma {GAMMA:g}", test, "the paper's", workload)


def patches(workload: Workload) -> Iterator[Ratio]:
    """Compare regions of whole patches and of pixels."""
    yield from _over_plain("patches", "regions of patches", workload.test.with_region("patches"), "pixels", workload)


def _over_plain(
    comparison: str,
    of: str,
    test: AttentionTest,
    over: str,
    workload: Workload,
    goals: tuple[float | None, float | None] = (None, None),
) -> Iterator[Ratio]:
    """Yield time and evaluations per image of a test over those of the plain test, with goals for both."""
    images, plain = workload.images, workload.test
    for each in (test, plain):
        each.map(images[:WARM_UP_IMAGES])
    works = {of: lambda: test.map(images), over: lambda: plain.map(images)}
    found = side_by_side(works, workload.device, workload.settings.repeats)
    seconds = [found[name].seconds / len(images) for name in (of, over)]
    evaluations = [float(np.mean([result.evaluations for result in found[name].outcome])) for name in (of, over)]
    for quantity, (numerator, denominator), goal in (
        ("seconds", seconds, goals[0]),
        ("evaluations", evaluations, goals[1]),
    ):
        yield Ratio(
            comparison=comparison,
            of=of,
            over=over,
            quantity=quantity,  # type: ignore[arg-type]  # a literal in a tuple is a str to mypy
            numerator=numerator,
            denominator=denominator,
            goal=goal,
        )
