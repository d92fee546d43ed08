"""Statistics far out in the tail of their law over those of null images."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from attentest.simulation.synthetic_images import signal_images
from attentest.studies.benchmark.image_cost import mean_evaluations
from attentest.studies.benchmark.ratio import NotMeasured, Ratio
from attentest.studies.benchmark.variants import LEVEL
from attentest.studies.benchmark.workload import Workload

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
