"""The spectral search over the paper's searches, on the same images."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from attentest.search import Fixed, GridSearch
from attentest.studies.benchmark.ratio import Ratio
from attentest.studies.benchmark.stopwatch import timed
from attentest.studies.benchmark.workload import Workload

EXTRAPOLATED_FROM = 2048
"""Evaluations on which the fixed search is timed on a CPU, where it would take minutes per image."""


def paper_searches(workload: Workload) -> Iterator[Ratio]:
    """Compare time and evaluations per image with the adaptive, the combination and the fixed search."""
    few, spectral = workload.few(), workload.test
    spectral.map(few)
    for name in ("adaptive", "combination", "fixed"):
        ours = timed(lambda: spectral.map(few), workload.device)
        our_evaluations = float(np.mean([result.evaluations for result in ours.outcome]))
        if name == "fixed" and workload.device.type == "cpu":
            over = "fixed (extrapolated)"
            their_seconds, their_evaluations = _extrapolated(workload)
        else:
            over = name
            test = spectral.with_search(name)
            theirs = timed(partial(test.map, few), workload.device)
            their_seconds = theirs.seconds / len(few)
            their_evaluations = float(np.mean([result.evaluations for result in theirs.outcome]))
        yield Ratio(
            comparison="paper",
            of="spectral",
            over=over,
            quantity="seconds",
            numerator=ours.seconds / len(few),
            denominator=their_seconds,
        )
        yield Ratio(
            comparison="paper",
            of="spectral",
            over=over,
            quantity="evaluations",
            numerator=our_evaluations,
            denominator=their_evaluations,
        )


def _extrapolated(workload: Workload) -> tuple[float, float]:
    """Return seconds and evaluations per image of the fixed search, from a coarser one."""
    evaluations = 2 * (GridSearch(step=Fixed()).extent + 3.0) / Fixed().step  # null statistics are about 3
    coarse = workload.test.with_search(GridSearch(step=Fixed(step=evaluations * Fixed().step / EXTRAPOLATED_FROM)))
    found = timed(lambda: coarse(workload.images[0]), workload.device)
    return found.seconds / found.outcome.evaluations * evaluations, evaluations
