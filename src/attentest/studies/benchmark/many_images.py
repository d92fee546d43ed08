"""Images tested together over images tested one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from attentest.errors import counted
from attentest.results.result import AttentionTestResult
from attentest.studies.benchmark.ratio import Ratio
from attentest.studies.benchmark.stopwatch import side_by_side
from attentest.studies.benchmark.workload import Workload

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
