"""Batches on many workers, with Ray: each worker holds the model, and is sent the places of a few images at a time.

A worker that dies, is lost with its node, or runs out of memory loses only its present images. They are sent again, in
smaller shards. A shard counts once its records have reached the driver, so that each image has exactly one record.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from attentest.api.batch_run import BatchRun
from attentest.checks import whole_number
from attentest.errors import InputError
from attentest.pipeline.stream import Progress
from attentest.results.records import Row

MOST_TRIES = 3
"""An image by itself that ends its worker so many times is reported as failed."""

MOST_WORKERS = 10_000
LARGEST_SHARD = 100_000

WAIT_SECONDS = 1.0
"""How often the driver looks at the workers; it can be interrupted meanwhile."""


@dataclass(frozen=True)
class Shard:
    """Places of images that are tested together, and how often that was tried."""

    places: tuple[int, ...]
    tries: int = 0

    def again(self) -> list[Shard]:
        """Return what to do after a worker was lost: the halves, or the one image again."""
        if len(self.places) == 1:
            return [Shard(self.places, self.tries + 1)]
        half = len(self.places) // 2
        return [Shard(self.places[:half]), Shard(self.places[half:])]


@dataclass(frozen=True, kw_only=True)
class RayEngine:
    """Runs batches on the workers of a Ray cluster.

    Parameters
    ----------
    address
        Address of a running cluster; by default one is started on this machine alone, and ended afterwards.
    workers
        Number of workers; by default one for each GPU if the test is on a GPU, and for each core otherwise.
    shard
        Images that are sent to a worker at a time.
    """

    address: str | None = None
    workers: int | None = None
    shard: int = 32

    def __post_init__(self) -> None:
        if self.workers is not None:
            whole_number(self.workers, "workers", 1, MOST_WORKERS)
        whole_number(self.shard, "shard", 1, LARGEST_SHARD)

    def records(self, run: BatchRun, places: Sequence[int], progress: Progress | None = None) -> Iterator[list[Row]]:
        """Yield the records of images, given by their places, shard by shard as they are finished."""
        size = self.shard
        todo = deque(Shard(tuple(places[start : start + size])) for start in range(0, len(places), size))
        with _connected(self.address) as ray:
            shared = ray.put(run)
            pool = _Pool(ray, shared, on_gpu=run.test.device.type == "cuda")
            pool.start(min(self.workers or pool.most(), len(todo)))
            done = 0
            while todo or pool.running:
                while todo and pool.idle:
                    pool.send(todo.popleft())
                for shard, rows in pool.finished():
                    if rows is None and shard.tries + 1 >= MOST_TRIES and len(shard.places) == 1:
                        rows = [run.lost(shard.places[0], f"its worker ended {MOST_TRIES} times while testing it")]
                    if rows is None:
                        todo.extend(shard.again())
                        continue
                    done += len(shard.places)
                    yield rows
                    if progress is not None:
                        progress(done, len(places))


class _Pool:
    """Workers, and the shards that they are busy with.

    A worker gets its first shard when it is ready: one that the cluster has no room for would keep a shard for ever.
    """

    def __init__(self, ray: Any, run: Any, on_gpu: bool) -> None:
        self._ray, self._run = ray, run
        self._resource = "GPU" if on_gpu else "CPU"
        self._worker = ray.remote(_Worker).options(num_cpus=1, num_gpus=1 if on_gpu else 0, max_restarts=0)
        self._starting: dict[Any, Any] = {}
        self.idle: list[Any] = []
        self.running: dict[Any, tuple[Any, Shard]] = {}

    def most(self) -> int:
        """Return the number of workers that the cluster has room for."""
        return max(1, int(self._ray.cluster_resources().get(self._resource, 1)))

    def start(self, count: int) -> None:
        """Start workers."""
        for _ in range(count):
            worker = self._worker.remote(self._run, os.getcwd())
            self._starting[worker.__ray_ready__.remote()] = worker

    def send(self, shard: Shard) -> None:
        """Give a shard to an idle worker."""
        worker = self.idle.pop()
        self.running[worker.records.remote(shard.places)] = (worker, shard)

    def finished(self) -> Iterator[tuple[Shard, list[Row] | None]]:
        """Yield the shards that are finished with their records, or None if their worker is lost and was replaced."""
        waited = [*self.running, *self._starting]
        ready, _ = self._ray.wait(waited, num_returns=1, timeout=WAIT_SECONDS)
        for reference in ready:
            worker = self._starting.pop(reference, None)
            shard = None
            if worker is None:
                worker, shard = self.running.pop(reference)
            try:
                rows = self._ray.get(reference)
            except self._ray.exceptions.RayError:
                self._ray.kill(worker)
                self.start(1)
                rows = None
            else:
                self.idle.append(worker)
            if shard is not None:
                yield shard, rows


class _Worker:
    """Holds a run, with its model, in a process of its own."""

    def __init__(self, run: BatchRun, directory: str) -> None:
        import torch

        torch.set_num_threads(1)
        os.chdir(directory)  # names of files are relative to that of the driver
        self._run = run

    def records(self, places: Sequence[int]) -> list[Row]:
        return [row for rows in self._run.records(places) for row in rows]


@contextmanager
def _connected(address: str | None) -> Iterator[Any]:
    """Connect to a cluster, or start one on this machine that nothing outside can reach, and yield Ray."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody
    try:
        import ray
    except ImportError:
        raise InputError("the engine 'ray' needs Ray: pip install 'attentest[ray]'.") from None
    own = not ray.is_initialized()
    if own:
        local = {"include_dashboard": False, "_node_ip_address": "127.0.0.1"} if address is None else {}
        try:
            ray.init(address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **local)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise InputError(f"there is no Ray cluster at {address} ({str(error).splitlines()[0]}).") from None
    try:
        yield ray
    finally:
        if own:
            ray.shutdown()
