"""Some test slices, chosen without regard to their results: their results, and the slack of their statistics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attentest.api import AttentionTest
from attentest.errors import AttentestError
from attentest.results.result import AttentionTestResult
from attentest.studies.brain.cohort import Cohort
from attentest.studies.brain.condition import PAPER, Condition
from attentest.studies.brain.slice_tests import SliceTests
from attentest.studies.brain.slices import Slices
from attentest.studies.brain.summary import CLASSES

COUNT = 12
"""Number of slices of each class."""

SLACK_CONDITIONS = (
    PAPER,
    Condition(contrast="reference"),
    Condition(noise="stationary"),
    Condition(noise="stationary", contrast="reference"),
)
"""Independent and correlated noise, each with the paper's contrast and with the one that allows for anatomy."""

Results = tuple[AttentionTestResult | None, ...]
"""The result of each slice, None if it could not be tested."""


class Gallery(NamedTuple):
    """Slices of one class, at least one, and the result of each."""

    slices: Slices
    results: Results


def example_galleries(tests: SliceTests, cohort: Cohort, count: int) -> dict[str, Gallery]:
    """Return, for each class, the first slices in the random order of the study, tested under the paper's condition."""
    order = cohort.test_order()
    chosen = {name: cohort.slices.take(order[tumour][:count]) for name, tumour in CLASSES.items()}
    test = tests.attention_test(PAPER)
    return {name: Gallery(some, _results(test, list(some.flair))) for name, some in chosen.items() if len(some)}


def _results(test: AttentionTest, images: list[NDArray[np.uint8]]) -> Results:
    """Return the results of slices (H, W); a slice that fails does not affect the others."""
    try:
        return tuple(test.map(images))
    except AttentestError:  # is about one slice, whose picture will say that it could not be tested
        if len(images) == 1:
            return (None,)
    return tuple(result for image in images for result in _results(test, [image]))


def slack_of(result: AttentionTestResult) -> float:
    """Return the length of the interval around the statistic on which the region stays, in standard errors.

    Inside an interval the normal density falls like exp(-abs(z) t), so over one of length w by exp(-abs(z) w): p can
    be small only if that product is well above 1. If it is far below 1, p is uniform whatever the signal.
    """
    low, high = result.intervals.T
    around = (low <= result.statistic) & (result.statistic <= high)
    return float((high - low)[around].max())


def slacks_of(tests: SliceTests, galleries: Mapping[str, Gallery]) -> list[dict[str, Any]]:
    """Return the slack of the slices of galleries under SLACK_CONDITIONS, JSON-ready, with a column per value.

    Columns have the names of the first version of the summary: ``room`` is the slack in standard errors,
    ``room_in_grey_levels`` that in the units of the pixels, and ``fall`` the slack times the statistic.
    """
    images = [image for gallery in galleries.values() for image in gallery.slices.flair]
    found = []
    for condition in SLACK_CONDITIONS:
        results = [result for result in _results(tests.attention_test(condition), images) if result is not None]
        values = [(slack_of(one), one.standard_error, abs(one.statistic), one.pvalue) for one in results]
        slack, error, statistic, p = np.array(values).reshape(-1, 4).T
        columns = {"room": slack, "room_in_grey_levels": slack * error, "fall": slack * statistic, "p": p}
        rounded = {name: [float(f"{value:.4g}") for value in column] for name, column in columns.items()}
        found.append({"name": condition.name, **condition.describe(), **rounded})
    return found
