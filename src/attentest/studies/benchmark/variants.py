"""Variants of the test over the plain one: an interval, mixed precision, randomised selection, whole patches."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from attentest.api import AttentionTest
from attentest.studies.benchmark.image_cost import cost_ratios, image_cost
from attentest.studies.benchmark.ratio import Ratio
from attentest.studies.benchmark.stopwatch import side_by_side
from attentest.studies.benchmark.workload import Workload

LEVEL = 0.95
GAMMA = 0.5
WARM_UP_IMAGES = 2

INTERVAL_GOALS = {"seconds_goal": 2.0, "evaluations_goal": 1.8}
"""An interval should take at most twice the time of p alone, and 1.8 times its evaluations."""


def interval(workload: Workload) -> Iterator[Ratio]:
    """Compare p with its interval and p alone."""
    test = workload.test.with_confidence_level(LEVEL)
    yield from _over_plain("interval", f"p and {LEVEL:.0%} interval", test, "p alone", workload, **INTERVAL_GOALS)


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
    comparison: str, of: str, test: AttentionTest, over: str, workload: Workload, **goals: float
) -> Iterator[Ratio]:
    """Yield time and evaluations per image of a test over those of the plain test, with goals for both."""
    tests = {of: test, over: workload.test}
    for each in tests.values():
        each.map(workload.images[:WARM_UP_IMAGES])
    works = {name: partial(each.map, workload.images) for name, each in tests.items()}
    found = side_by_side(works, workload.device, workload.settings.repeats)
    yield from cost_ratios(comparison, of, image_cost(found[of]), over, image_cost(found[over]), **goals)
