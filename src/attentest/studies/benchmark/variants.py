"""Variants of the test over the plain one, in seconds and evaluations of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from attentest.errors import counted
from attentest.pipeline.attention_test import AttentionTest
from attentest.results.result import AttentionTestResult
from attentest.search import Fixed, GridSearch
from attentest.simulation.images import signal_images
from attentest.studies.benchmark.measurement import NotMeasured, Ratio, Timed, Workload, repeated, side_by_side, timed

COUNTS = (3, 10, 30, 100, 300, 1000, 3000, 10_000)
"""Numbers of images that are tested together."""

ONE = 1
ONE_BY_ONE = 10
"""At most this many are tested one by one."""


def many_images(workload: Workload) -> Iterator[Ratio]:
    """Compare the time per image of growing numbers of images, in the default precision."""
    test, images = workload.default_test, workload.images
    single = images[:ONE_BY_ONE]
    test.map(images[:2])
    works: dict[int, Callable[[], Sequence[AttentionTestResult]]] = {
        count: partial(test.map, images[:count]) for count in COUNTS if count <= len(images)
    }
    works[ONE] = lambda: [test(image) for image in single]
    found = side_by_side(works, workload.device, workload.settings.repeats)
    for count in [count for count in works if count != ONE]:
        yield Ratio(
            comparison="many-images",
            of=f"{counted(count, 'image')} together",
            over="one by one",
            quantity="seconds",
            numerator=found[count].seconds / count,
            denominator=found[ONE].seconds / len(single),
        )


@dataclass(frozen=True, kw_only=True)
class ImageCost:
    """Means per image."""

    seconds: float
    evaluations: float


def mean_evaluations(results: Sequence[AttentionTestResult]) -> float:
    """Return the evaluations per image."""
    return float(np.mean([result.evaluations for result in results]))


def image_cost(found: Timed[Sequence[AttentionTestResult]]) -> ImageCost:
    """Return the cost of images that were tested together."""
    results = found.outcome
    return ImageCost(seconds=found.seconds / len(results), evaluations=mean_evaluations(results))


def cost_ratios(
    comparison: str,
    of: str,
    cost: ImageCost,
    over: str,
    other: ImageCost,
    *,
    seconds_goal: float | None = None,
    evaluations_goal: float | None = None,
) -> Iterator[Ratio]:
    """Yield the ratio of the seconds of two costs, and that of their evaluations, with goals if there are some."""
    yield Ratio(
        comparison=comparison,
        of=of,
        over=over,
        quantity="seconds",
        numerator=cost.seconds,
        denominator=other.seconds,
        goal=seconds_goal,
    )
    yield Ratio(
        comparison=comparison,
        of=of,
        over=over,
        quantity="evaluations",
        numerator=cost.evaluations,
        denominator=other.evaluations,
        goal=evaluations_goal,
    )


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


NEAREST, FARTHEST = 20.0, 40.0
"""Bounds of the absolute values of the statistics."""

GOAL = 2.0
"""Most of what lies between 0 and such a statistic cannot matter, so it should not be explored."""


def far_out(workload: Workload) -> Iterator[Ratio]:
    """Compare evaluations of images with a bright square and of null images, for p alone and with an interval."""
    settings = workload.settings
    side = settings.size // 3
    heights = (1.2 * NEAREST / side, 1.2 * FARTHEST / side)  # a region as large as the square has about 1 / 1.2 of it
    drawn, _ = signal_images(np.random.default_rng(settings.seed), 2 * settings.images, settings.size, heights)
    statistics = np.abs([result.statistic for result in workload.test.map(drawn)])
    bright = drawn[(statistics >= NEAREST) & (statistics <= FARTHEST)][: settings.images]
    if not len(bright):
        raise NotMeasured(
            f"none of {len(drawn)} images has a statistic of {NEAREST:g} to {FARTHEST:g}: use more images."
        )
    for name, test in (
        ("p", workload.test),
        (f"p and {LEVEL:.0%} interval", workload.test.with_confidence_level(LEVEL)),
    ):
        yield Ratio(
            comparison="far-out",
            of=f"{name}, |z_obs| {NEAREST:g} to {FARTHEST:g}",
            over="null images",
            quantity="evaluations",
            numerator=mean_evaluations(test.map(bright)),
            denominator=mean_evaluations(test.map(workload.images)),
            goal=GOAL,
        )


EXTRAPOLATED_FROM = 2048
"""Evaluations on which the fixed search is timed on a CPU, where it would take minutes per image."""


def paper_searches(workload: Workload) -> Iterator[Ratio]:
    """Compare time and evaluations per image with the adaptive, the combination and the fixed search."""
    few, spectral, device = workload.few(), workload.test, workload.device
    spectral.map(few)
    for name in ("adaptive", "combination", "fixed"):
        ours = image_cost(repeated(partial(spectral.map, few), device, workload.settings.repeats))
        if name == "fixed" and device.type == "cpu":
            over, theirs = f"{name} (extrapolated)", _extrapolated(workload)
        else:
            over, theirs = name, image_cost(timed(partial(spectral.with_search(name).map, few), device))
        yield from cost_ratios("paper", "spectral", ours, over, theirs)


def _extrapolated(workload: Workload) -> ImageCost:
    """Return the cost of the fixed search, from a coarser one."""
    evaluations = 2 * (GridSearch(step=Fixed()).extent + 3.0) / Fixed().step  # null statistics are about 3
    coarse = workload.test.with_search(GridSearch(step=Fixed(step=evaluations * Fixed().step / EXTRAPOLATED_FROM)))
    found = timed(lambda: coarse(workload.images[0]), workload.device)
    return ImageCost(seconds=found.seconds / found.outcome.evaluations * evaluations, evaluations=evaluations)
