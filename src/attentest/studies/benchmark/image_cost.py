"""What the test of an image costs: seconds and evaluations of the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from attentest.results.result import AttentionTestResult
from attentest.studies.benchmark.ratio import Ratio
from attentest.studies.benchmark.stopwatch import Timed


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
