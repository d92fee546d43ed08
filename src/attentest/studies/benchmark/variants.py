"""Variants of the test over the plain one, in seconds and evaluations of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from attentest.errors import counted
from attentest.pipeline.attention_test import AttentionTest
from attentest.results.result import AttentionTestResult
from attentest.search import Fixed, GridSearch
from attentest.simulation.images import signal_images
from attentest.studies.benchmark.measurement import NotMeasured, Quantity, Ratio, Timed, Workload, side_by_side, timed

COUNTS = (3, 10, 30, 100, 300, 1000, 3000, 10_000)
"""Numbers of images that are tested together."""

SINGLE_IMAGES = 10
"""At most this many are tested one by one."""


def many_images(workload: Workload) -> Iterator[Ratio]:
    """Compare the time per image of growing numbers of images, in the default precision."""
    test, images = workload.default_test, workload.images
    single = images[:SINGLE_IMAGES]
    test.map(images[:WARM_UP_IMAGES])
    works: dict[str, Callable[[], Sequence[AttentionTestResult]]] = {
        f"{counted(count, 'image')} together": partial(test.map, images[:count])
        for count in COUNTS
        if count <= len(images)
    }
    works["one by one"] = lambda: [test(image) for image in single]
    measured = side_by_side(works, workload.device, workload.settings.repeats)
    seconds = {name: work.seconds / len(work.outcome) for name, work in measured.items()}
    over = seconds.pop("one by one")
    yield from (Ratio.between("seconds", {name: cost, "one by one": over}) for name, cost in seconds.items())


@dataclass(frozen=True, kw_only=True)
class ImageCost:
    """Means per image."""

    seconds: float
    evaluations: float

    @classmethod
    def of(cls, measured: Timed[Sequence[AttentionTestResult]]) -> ImageCost:
        """Return the cost of images that were tested together."""
        results = measured.outcome
        return cls(seconds=measured.seconds / len(results), evaluations=mean_evaluations(results))


def mean_evaluations(results: Sequence[AttentionTestResult]) -> float:
    """Return the evaluations per image."""
    return float(np.mean([result.evaluations for result in results]))


Goals = Mapping[Quantity, float]


def cost_ratios(costs: Mapping[str, ImageCost], goals: Goals | None = None) -> Iterator[Ratio]:
    """Yield the ratio of the seconds of two costs, by their names, and that of their evaluations."""
    goals = goals or {}
    seconds = {name: cost.seconds for name, cost in costs.items()}
    yield Ratio.between("seconds", seconds, goals.get("seconds"))
    evaluations = {name: cost.evaluations for name, cost in costs.items()}
    yield Ratio.between("evaluations", evaluations, goals.get("evaluations"))


LEVEL = 0.95
WITH_INTERVAL = f"p and {LEVEL:.0%} interval"
GAMMA = 0.5
WARM_UP_IMAGES = 2

INTERVAL_GOALS: Goals = {"seconds": 2.0, "evaluations": 1.8}
"""An interval should take at most twice the time of p alone, and 1.8 times its evaluations."""


def interval(workload: Workload) -> Iterator[Ratio]:
    """Compare p with its interval and p alone."""
    test = workload.test.replace(confidence_level=LEVEL)
    return _over_plain(workload, WITH_INTERVAL, test, "p alone", INTERVAL_GOALS)


def precision(workload: Workload) -> Iterator[Ratio]:
    """Compare mixed precision and float64."""
    return _over_plain(workload, "mixed precision", workload.mixed_test, "float64")


def randomised(workload: Workload) -> Iterator[Ratio]:
    """Compare randomised selection and the paper's."""
    test = workload.test.replace(randomise=GAMMA)
    return _over_plain(workload, f"randomised selection, gamma {GAMMA:g}", test, "the paper's")


def patches(workload: Workload) -> Iterator[Ratio]:
    """Compare regions of whole patches and of pixels."""
    return _over_plain(workload, "regions of patches", workload.test.replace(region_unit="patches"), "pixels")


def _over_plain(
    workload: Workload, of: str, test: AttentionTest, over: str, goals: Goals | None = None
) -> Iterator[Ratio]:
    """Yield time and evaluations per image of a test over those of the plain test."""
    tests = {of: test, over: workload.test}
    for variant in tests.values():
        variant.map(workload.images[:WARM_UP_IMAGES])
    works = {name: partial(variant.map, workload.images) for name, variant in tests.items()}
    measured = side_by_side(works, workload.device, workload.settings.repeats)
    yield from cost_ratios({name: ImageCost.of(work) for name, work in measured.items()}, goals)


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
    for name, test in {"p": workload.test, WITH_INTERVAL: workload.test.replace(confidence_level=LEVEL)}.items():
        of = f"{name}, |z_obs| {NEAREST:g} to {FARTHEST:g}"
        groups = {of: bright, "null images": workload.images}
        costs = {group: mean_evaluations(test.map(images)) for group, images in groups.items()}
        yield Ratio.between("evaluations", costs, GOAL)


EXTRAPOLATED_FROM = 2048
"""Evaluations on which the fixed search is timed on a CPU, where it would take minutes per image."""


def paper_searches(workload: Workload) -> Iterator[Ratio]:
    """Compare time and evaluations per image with the adaptive, the combination and the fixed search."""
    few, spectral, device = workload.few(), workload.test, workload.device
    spectral.map(few)
    for name in ("adaptive", "combination", "fixed"):
        measured = side_by_side({"spectral": partial(spectral.map, few)}, device, workload.settings.repeats)
        if name == "fixed" and device.type == "cpu":
            over, cost = f"{name} (extrapolated)", _extrapolated(workload)
        else:
            over, cost = name, ImageCost.of(timed(partial(spectral.replace(search=name).map, few), device))
        yield from cost_ratios({"spectral": ImageCost.of(measured["spectral"]), over: cost})


def _extrapolated(workload: Workload) -> ImageCost:
    """Return the cost of the fixed search, from a coarser one."""
    evaluations = 2 * (GridSearch(step=Fixed()).extent + 3.0) / Fixed().step  # null statistics are about 3
    coarse = workload.test.replace(search=GridSearch(step=Fixed(step=evaluations * Fixed().step / EXTRAPOLATED_FROM)))
    measured = timed(lambda: coarse(workload.images[0]), workload.device)
    return ImageCost(seconds=measured.seconds / measured.outcome.evaluations * evaluations, evaluations=evaluations)
