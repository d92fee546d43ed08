"""Some test slices, chosen without regard to their results, and their results."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attentest.api import AttentionTest
from attentest.results.failure import FailedImage
from attentest.results.result import AttentionTestResult
from attentest.studies.brain.cohort import Cohort
from attentest.studies.brain.condition import PAPER
from attentest.studies.brain.slice_tests import SliceTests
from attentest.studies.brain.slices import Slices
from attentest.studies.brain.summary import CLASSES

COUNT = 12
"""Number of slices of each class."""

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
    """Return the results of slices (H, W); the picture of one that fails will say that it could not be tested."""
    found = test.stream(images, on_error="row")
    return tuple(None if isinstance(tested, FailedImage) else tested for tested in found)
