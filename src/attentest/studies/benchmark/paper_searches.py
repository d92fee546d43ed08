"""The spectral search over the paper's searches, on the same images."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from attentest.search import Fixed, GridSearch
from attentest.studies.benchmark.image_cost import ImageCost, cost_ratios, image_cost
from attentest.studies.benchmark.ratio import Ratio
from attentest.studies.benchmark.stopwatch import repeated, timed
from attentest.studies.benchmark.workload import Workload

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
