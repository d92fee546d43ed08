"""An engine that does with work what a cluster does, in the test's own process."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterable, Iterator
from typing import Any, Self

from attentest.pipeline.many_images import Progress
from attentest.runs.engine import Item, Task, Work


class ShuffledEngine:
    """Gives tasks in random shards to copies of the work, and returns what they gave in a random order."""

    def __init__(self, seed: int = 0) -> None:
        self.works: list[Any] = []
        """Each work that was run."""
        self.not_kept = 0
        """How often workers would have been started for one work alone."""
        self._random, self._entered = random.Random(seed), 0

    def __enter__(self) -> Self:
        self._entered += 1
        return self

    def __exit__(self, *error: object) -> None:
        self._entered -= 1

    def describe(self) -> dict[str, Any]:
        """Return the name."""
        return {"engine": "shuffled"}

    def run(
        self, work: Work[Task, Item], tasks: Iterable[Task], progress: Progress | None = None
    ) -> Iterator[tuple[list[Task], list[Item]]]:
        """Yield tasks and what they gave."""
        self.not_kept += not self._entered
        self.works.append(work)
        left = list(tasks)
        total, sent = len(left), pickle.dumps(work)
        self._random.shuffle(left)
        while left:
            count = self._random.randint(1, 3)
            shard, left = left[:count], left[count:]
            worker: Work[Task, Item] = pickle.loads(sent)  # noqa: S301  # made above
            items = [item for some in worker.run(shard) for item in some]
            assert len(items) == len(shard)
            yield shard, items
            if progress is not None:
                progress(total - len(left), total)
