"""Work on many workers, with Ray: each worker holds the work, with its model, and is sent a few tasks at a time.

A worker that dies, is lost with its node, or runs out of memory loses only its present tasks. They are sent again, in
smaller shards. A shard counts once what it gave has reached the driver, so that each task counts exactly once.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence, Sized
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from itertools import count, islice
from typing import Any, Generic, Self

from attentest.api.engine import Item, Task, Work
from attentest.checks import whole_number
from attentest.errors import InputError, counted
from attentest.results.failure import reason_of
from attentest.results.progress import Progress

MOST_TRIES = 3
"""A task by itself that ends its worker so many times is reported as failed."""

MOST_LOST_AT_START = 10
"""The run ends when so many workers in a row were lost before they were ready."""

LONGEST_REASON = 500
"""Characters of an error of a worker that are reported; it may have whole tracebacks in it."""

MOST_WORKERS = 10_000
MOST_CORES = 10_000
LARGEST_SHARD = 100_000

DEFAULT_SHARD, SHARDS_PER_WORKER = 32, 4

ONE_MACHINE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""With "0" in this environment variable Ray listens to this machine alone, as it does by default on those systems."""

CONNECT_SECONDS = 5.0
"""How long to wait for an answer at the address of a cluster."""

WAIT_SECONDS = 1.0
"""How often the driver looks at the workers; it can be interrupted meanwhile."""


class RayEngine:
    """Does work on the workers of a Ray cluster.

    Parameters
    ----------
    address
        Address of a running cluster; by default one is started on this machine alone, and ended afterwards.
    workers
        Number of workers; by default as many as the cluster has room for: one for each GPU if the work is on a GPU,
        otherwise one for each group of cores.
    cores
        Cores of each worker.
    shard
        Tasks that are sent to a worker at a time; by default 32, or fewer where each worker would get few shards.
    """

    def __init__(
        self, *, address: str | None = None, workers: int | None = None, cores: int = 1, shard: int | None = None
    ) -> None:
        if address is not None and not isinstance(address, str):
            raise InputError(f"address must be a text such as 'auto' or '10.0.0.1:6379', got {address!r}.")
        self.address = None if address == "local" else address
        self.workers = None if workers is None else whole_number(workers, "workers", 1, MOST_WORKERS)
        self.cores = whole_number(cores, "cores", 1, MOST_CORES)
        self.shard = None if shard is None else whole_number(shard, "shard", 1, LARGEST_SHARD)
        self._stack = ExitStack()
        self._entered = 0
        self._ray: Any = None
        self._pool: _Pool | None = None

    def __repr__(self) -> str:
        chosen = {"address": self.address, "workers": self.workers, "cores": self.cores, "shard": self.shard}
        return f"RayEngine({', '.join(f'{name}={value!r}' for name, value in chosen.items())})"

    def __enter__(self) -> Self:
        if self._entered == 0:
            self._ray = self._stack.enter_context(_connected(self.address))
        self._entered += 1
        return self

    def __exit__(self, *error: object) -> None:
        self._entered -= 1
        if self._entered == 0:
            self._pool = None
            self._stack.close()

    def run(
        self, work: Work[Task, Item], tasks: Iterable[Task], progress: Progress | None = None
    ) -> Iterator[tuple[list[Task], list[Item]]]:
        """Yield tasks and what they gave, a few at a time as they are finished; see :class:`Engine`."""
        total = len(tasks) if isinstance(tasks, Sized) else None
        if total == 0:
            return
        done = 0
        with self:
            pool = self._pool_for(work.device.type == "cuda")
            most = pool.most()
            wanted = self.workers or most
            size = self.shard or _shard_size(total, wanted)
            shards = _shards(tasks, size)
            waiting = deque(islice(shards, 1))  # those to be sent next; the others are not made before there is room
            pool.take_on(work, wanted if total is None else min(wanted, -(-total // size)))
            try:
                while waiting or pool.running:
                    while waiting and pool.idle:
                        pool.send(waiting.popleft())
                        waiting.extend(islice(shards, 0 if waiting else 1))
                    for shard, outcome in pool.finished():
                        if isinstance(outcome, str) and not shard.is_hopeless:
                            waiting.extend(shard.again())
                            continue
                        items = [work.lost(shard.tasks[0], outcome)] if isinstance(outcome, str) else outcome
                        done += len(items)
                        yield list(shard.tasks), items
                        if progress is not None:
                            progress(done, total)
            finally:
                pool.forget()

    def describe(self) -> dict[str, Any]:
        """Return the name and the number of workers, if it was given, JSON-ready."""
        return {"engine": "ray", **({} if self.workers is None else {"workers": self.workers})}

    def _pool_for(self, on_gpu: bool) -> _Pool:
        """Return the workers; those of the last work, if they have the device that is needed."""
        if self._pool is None or self._pool.on_gpu != on_gpu:
            self._pool = _Pool(self._ray, on_gpu=on_gpu, cores=self.cores)
        return self._pool


def _shard_size(total: int | None, workers: int) -> int:
    """Return how many tasks to send at a time, so that the workers end at about the same time."""
    return DEFAULT_SHARD if total is None else min(DEFAULT_SHARD, -(-total // (SHARDS_PER_WORKER * workers)))


@dataclass(frozen=True)
class Shard(Generic[Task]):
    """Tasks that are sent to a worker together, and how often that was tried."""

    tasks: tuple[Task, ...]
    tries: int = 0

    @property
    def is_hopeless(self) -> bool:
        """Whether there is no use in trying again."""
        return len(self.tasks) == 1 and self.tries + 1 >= MOST_TRIES

    def again(self) -> list[Shard[Task]]:
        """Return what to do after a failure: the halves, or the one task again."""
        if len(self.tasks) == 1:
            return [Shard(self.tasks, self.tries + 1)]
        half = len(self.tasks) // 2
        return [Shard(self.tasks[:half]), Shard(self.tasks[half:])]


def _shards(tasks: Iterable[Task], size: int) -> Iterator[Shard[Task]]:
    waiting = iter(tasks)
    while some := tuple(islice(waiting, size)):
        yield Shard(some)


class _Pool:
    """Workers, and the shards that they are busy with.

    A worker gets its first shard when it is ready: one that the cluster has no room for would keep a shard for ever.
    """

    def __init__(self, ray: Any, *, on_gpu: bool, cores: int) -> None:
        self.on_gpu = on_gpu
        self._ray, self._cores = ray, cores
        self._worker = ray.remote(_Worker).options(num_cpus=cores, num_gpus=1 if on_gpu else 0, max_restarts=0)
        self._works = count()
        self._work: tuple[int, list[Any]] = (-1, [])
        self._starting: dict[Any, Any] = {}
        self._lost_at_start = 0
        self.idle: list[Any] = []
        self.running: dict[Any, tuple[Any, Shard[Any]]] = {}

    def most(self) -> int:
        """Return the number of workers that the cluster has room for."""
        found = self._ray.cluster_resources()
        most = int(found.get("GPU", 0) if self.on_gpu else found.get("CPU", 0) // self._cores)
        if most == 0:
            needed = "a GPU" if self.on_gpu else counted(self._cores, "core")
            raise InputError(f"no machine of the Ray cluster has {needed}, which a worker needs: use another device.")
        return most

    def take_on(self, work: Any, count: int) -> None:
        """Make a work the present one, and start workers until there are so many."""
        self._work = next(self._works), [self._ray.put(work)]  # in a list it is passed as a reference
        for _ in range(count - len(self.idle) - len(self.running) - len(self._starting)):
            self._start()

    def forget(self) -> None:
        """Give up the workers that are still busy with a work that is over."""
        for worker, _ in self.running.values():
            self._ray.kill(worker)
        self.running.clear()

    def send(self, shard: Shard[Any]) -> None:
        """Give a shard to an idle worker."""
        worker = self.idle.pop()
        self.running[worker.items.remote(*self._work, shard.tasks)] = (worker, shard)

    def finished(self) -> Iterator[tuple[Shard[Any], list[Any] | str]]:
        """Yield the shards that are finished with their items, or why there are none; a lost worker is replaced."""
        waited = [*self.running, *self._starting]
        ready, _ = self._ray.wait(waited, num_returns=1, timeout=WAIT_SECONDS)
        for reference in ready:
            worker = self._starting.pop(reference, None)
            shard = None
            if worker is None:
                worker, shard = self.running.pop(reference)
            outcome: list[Any] | str = f"its worker ended {MOST_TRIES} times while it was doing it"
            try:
                outcome = self._ray.get(reference)
            except self._ray.exceptions.RayTaskError as error:  # the worker is well, the work is not
                outcome = reason_of(error.cause)[:LONGEST_REASON]
                self.idle.append(worker)
            except self._ray.exceptions.RayError as error:
                self._ray.kill(worker)
                self._lost_at_start = self._lost_at_start + 1 if shard is None else 0
                if self._lost_at_start == MOST_LOST_AT_START:
                    reason = str(error).splitlines()[0]
                    raise InputError(
                        f"{MOST_LOST_AT_START} workers in a row could not be started ({reason})."
                    ) from None
                self._start()
            else:
                self._lost_at_start = 0
                self.idle.append(worker)
            if shard is not None:
                yield shard, outcome

    def _start(self) -> None:
        worker = self._worker.remote(os.getcwd(), self._cores)
        self._starting[worker.__ray_ready__.remote()] = worker


class _Worker:
    """Holds the present work, with its model, in a process of its own."""

    def __init__(self, directory: str, cores: int) -> None:
        import torch

        torch.set_num_threads(cores)
        with suppress(OSError):  # a node without it can do work that needs no files
            os.chdir(directory)  # names of files are relative to that of the driver
        self._number: int | None = None
        self._work: Any = None

    def items(self, number: int, reference: list[Any], tasks: Sequence[Any]) -> list[Any]:
        if number != self._number:
            import ray

            self._work = None  # its memory is needed
            self._work, self._number = ray.get(reference[0]), number
        return [item for items in self._work.run(tasks) for item in items]


@contextmanager
def _connected(address: str | None) -> Iterator[Any]:
    """Connect to a cluster, or start one on this machine that nothing outside can reach, and yield Ray."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody
    with _this_machine_alone() if address is None else nullcontext():
        try:
            import ray
        except ImportError:
            raise InputError("the engine 'ray' needs Ray: pip install 'attentest[ray]'.") from None
        own = not ray.is_initialized()
        try:
            if own:
                _start(ray, address)
            yield ray
        finally:
            if own:
                ray.shutdown()


@contextmanager
def _this_machine_alone() -> Iterator[None]:
    """Let clusters that are started meanwhile listen to this machine alone."""
    before = os.environ.get(ONE_MACHINE)
    os.environ[ONE_MACHINE] = "0"
    constants = sys.modules.get("ray._private.ray_constants")  # of a Ray that was imported before, and read it then
    reachable = getattr(constants, "ENABLE_RAY_CLUSTER", False)
    if reachable:
        vars(constants)["ENABLE_RAY_CLUSTER"] = False
    try:
        yield
    finally:
        if reachable:
            vars(constants)["ENABLE_RAY_CLUSTER"] = True
        if before is None:
            del os.environ[ONE_MACHINE]
        else:
            os.environ[ONE_MACHINE] = before


def _start(ray: Any, address: str | None) -> None:
    local = {"include_dashboard": False} if address is None else {}
    if address is not None and "://" not in address:
        _check_reachable(ray, address)
    try:
        ray.init(address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **local)
    except Exception as error:  # noqa: BLE001  # Ray raises bare exceptions, too
        reason = str(error).splitlines()[0]
        where = "Ray cannot be started on this machine" if address is None else f"there is no Ray cluster at {address}"
        raise InputError(f"{where} ({reason}).") from None
    if address is None and not ip_address(ray.util.get_node_ip_address()).is_loopback:
        raise InputError(
            "this version of Ray could be reached from outside this machine: start a cluster and give its address."
        )


def _check_reachable(ray: Any, address: str) -> None:
    """Refuse the address of a cluster at which nothing listens, for which Ray itself looks for minutes."""
    try:
        place = ray._private.services.canonicalize_bootstrap_address(address)
        host, _, port = str(place).rpartition(":")
        with socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS):
            pass
    except (OSError, ValueError, ConnectionError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"there is no Ray cluster at {address} ({reason}): start one with ray start.") from None
