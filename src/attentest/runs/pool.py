"""Workers of an engine: they are kept busy with shards of tasks, and replaced when they are lost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeVar

from attentest.checks import whole_number
from attentest.errors import InputError
from attentest.progress import Progress
from attentest.runs.engine import Item, Task, Work

if TYPE_CHECKING:
    import torch

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

WAIT_SECONDS = 1.0
"""How often the driver looks at the workers; it can be interrupted meanwhile."""

Worker = TypeVar("Worker")


@dataclass(frozen=True)
class Answered:
    """Items of the first of its tasks that a worker has not answered yet; at the start of a worker, none.

    Parameters
    ----------
    items
        What these tasks gave.
    finished
        Whether the worker is ready for other tasks.
    """

    items: list[Any]
    finished: bool


@dataclass(frozen=True)
class Failed:
    """The work raised an error, for this reason; the worker is ready for other tasks."""

    reason: str


@dataclass(frozen=True)
class Lost:
    """The worker has ended, for this reason."""

    reason: str


class Workers(Protocol[Worker]):
    """Starts workers, and speaks with them."""

    def start_worker(self) -> Worker:
        """Start a worker, without waiting for it; its first answer says that it is ready."""
        ...

    def end_worker(self, worker: Worker) -> None:
        """End a worker at once, whatever it is doing; it may have ended by itself."""
        ...

    def start_work(self, work: Any) -> None:
        """Make a work the one whose tasks are sent from now on."""
        ...

    def finish_work(self) -> None:
        """Let the workers forget the work, which is over."""
        ...

    def send(self, worker: Worker, tasks: Sequence[Any]) -> None:
        """Send tasks to a worker that is ready for them."""
        ...

    def answers(self) -> Iterable[tuple[Worker, Answered | Failed | Lost]]:
        """Return what workers answered, after waiting no longer than ``WAIT_SECONDS`` for the first."""
        ...


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
        return list(self.cut(len(self.tasks) // 2))

    def cut(self, count: int) -> tuple[Shard[Task], Shard[Task]]:
        """Return the first tasks, and the others."""
        return Shard(self.tasks[:count], self.tries), Shard(self.tasks[count:], self.tries)


def shard_size(total: int | None, workers: int) -> int:
    """Return how many tasks to send at a time, so that the workers end at about the same time."""
    return DEFAULT_SHARD if total is None else min(DEFAULT_SHARD, -(-total // (SHARDS_PER_WORKER * workers)))


def number_of(tasks: Iterable[Any]) -> int | None:
    """Return the number of tasks, or None if it is not known before they are taken."""
    return len(tasks) if isinstance(tasks, Sized) else None


class Pool(Generic[Worker]):
    """Keeps workers busy with the shards of one work after another, and replaces those that are lost.

    A worker gets its first shard when it is ready: one that a cluster has no room for would keep a shard for ever.
    """

    def __init__(self, workers: Workers[Worker]) -> None:
        self._workers = workers
        self._starting: list[Worker] = []
        self._idle: list[Worker] = []
        self._running: dict[Worker, Shard[Any]] = {}
        self._lost_at_start = 0
        self._has_work = False

    def check_idle(self) -> None:
        """Raise an error if a work is going on: answers would be taken for those of the other."""
        if self._has_work:
            raise InputError(
                "an engine does one work at a time, and this one has not finished the one before: wait until it has, "
                "or use another engine."
            )

    def run(
        self, work: Work[Task, Item], tasks: Iterable[Task], progress: Progress | None, *, workers: int, size: int
    ) -> Iterator[tuple[list[Task], list[Item]]]:
        """Yield tasks and what they gave, as :meth:`Engine.run` does.

        Parameters
        ----------
        work, tasks, progress
            As there.
        workers
            Number of workers; no more are started than there are shards.
        size
            Tasks of a shard.
        """
        self.check_idle()
        total, done = number_of(tasks), 0
        shards = _shards(tasks, size)
        waiting = deque(islice(shards, 1))  # those to be sent next; the others are not made before there is room
        self._has_work = True
        try:
            self._workers.start_work(work)
            self._start(workers if total is None else min(workers, -(-total // size)))
            while waiting or self._running:
                while waiting and self._idle:
                    self._send(waiting.popleft())
                    waiting.extend(islice(shards, 0 if waiting else 1))
                for shard, outcome in self._outcomes():
                    if isinstance(outcome, str) and not shard.is_hopeless:
                        waiting.extend(shard.again())
                        continue
                    items = [work.lost(shard.tasks[0], outcome)] if isinstance(outcome, str) else outcome
                    done += len(items)
                    yield list(shard.tasks), items
                    if progress is not None:
                        progress(done, total)
        finally:
            self._has_work = False
            self._finish()

    def end(self) -> None:
        """End all workers."""
        for worker in (*self._starting, *self._idle, *self._running):
            self._workers.end_worker(worker)
        self._starting, self._idle, self._running = [], [], {}

    def _start(self, count: int) -> None:
        """Start workers until there are so many."""
        for _ in range(count - len(self._starting) - len(self._idle) - len(self._running)):
            self._starting.append(self._workers.start_worker())

    def _send(self, shard: Shard[Any]) -> None:
        worker = self._idle.pop()
        self._running[worker] = shard
        self._workers.send(worker, shard.tasks)

    def _finish(self) -> None:
        """End the workers that are still busy with a work that is over; the others forget it."""
        for worker in self._running:
            self._workers.end_worker(worker)
        self._running = {}
        self._workers.finish_work()

    def _outcomes(self) -> Iterator[tuple[Shard[Any], list[Any] | str]]:
        """Yield tasks with their items, or why there are none; a lost worker is replaced."""
        for worker, answer in self._workers.answers():
            shard = self._running.pop(worker, Shard(()))  # one that has just been started has no tasks
            is_new = worker in self._starting
            for others in (self._starting, self._idle):
                if worker in others:
                    others.remove(worker)
            if isinstance(answer, Lost):
                self._replace(worker, answer.reason, is_new)
                if shard.tasks:
                    yield shard, f"its worker ended {MOST_TRIES} times while it was doing it"
                continue
            self._lost_at_start = 0
            given = answer.items if isinstance(answer, Answered) else []
            reason = answer.reason if isinstance(answer, Failed) else "the work gave nothing for it"
            done, left = shard.cut(len(given))
            finished = isinstance(answer, Failed) or answer.finished
            if finished:
                self._idle.append(worker)
            else:
                self._running[worker] = left
            if given:
                yield done, given
            if finished and left.tasks:
                yield left, reason[:LONGEST_REASON]

    def _replace(self, worker: Worker, reason: str, is_new: bool) -> None:
        self._workers.end_worker(worker)
        self._lost_at_start = self._lost_at_start + 1 if is_new else 0
        if self._lost_at_start == MOST_LOST_AT_START:
            raise InputError(f"{MOST_LOST_AT_START} workers in a row could not be started ({reason}).")
        self._starting.append(self._workers.start_worker())


def _shards(tasks: Iterable[Task], size: int) -> Iterator[Shard[Task]]:
    waiting = iter(tasks)
    while first := tuple(islice(waiting, size)):
        yield Shard(first)


class PooledEngine(ABC, Generic[Worker]):
    """An engine with workers, which are kept from one work to the next as long as it is entered.

    Parameters
    ----------
    workers
        Number of workers; None for as many as there is room for.
    cores
        Cores of each worker; None where that depends on the work.
    shard
        Tasks that are sent to a worker at a time; None where that depends on their number.
    """

    name: ClassVar[str]
    """The name by which the engine is chosen."""

    def __init__(self, *, workers: int | None, cores: int | None, shard: int | None) -> None:
        self.workers = None if workers is None else whole_number(workers, "workers", 1, MOST_WORKERS)
        self.cores = None if cores is None else whole_number(cores, "cores", 1, MOST_CORES)
        self.shard = None if shard is None else whole_number(shard, "shard", 1, LARGEST_SHARD)
        self._entered = 0
        self._pool: Pool[Worker] | None = None
        self._place: tuple[Any, ...] = ()  # for which the workers were started

    def __repr__(self) -> str:
        parameters = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in parameters.items())})"

    def __enter__(self) -> Self:
        self._entered += 1
        return self

    def __exit__(self, *error: object) -> None:
        self._entered -= 1
        if self._entered == 0:
            self._end_workers()

    def run(
        self, work: Work[Task, Item], tasks: Iterable[Task], progress: Progress | None = None
    ) -> Iterator[tuple[list[Task], list[Item]]]:
        """Yield tasks and what they gave, a few at a time as they are finished; see :class:`Engine`."""
        total = number_of(tasks)
        if total == 0:
            return
        with self:
            if self._pool is not None:
                self._pool.check_idle()
            workers, size, place = self._plan(work.device, total)
            if self._pool is None or self._place != place:
                self._end_workers()
                self._pool, self._place = Pool(self._workers(*place)), place
            yield from self._pool.run(work, tasks, progress, workers=workers, size=size)

    def describe(self) -> dict[str, Any]:
        """Return the name and the number of workers, if it was given, JSON-ready."""
        return {"engine": self.name, **({} if self.workers is None else {"workers": self.workers})}

    @abstractmethod
    def _plan(self, device: torch.device, total: int | None) -> tuple[int, int, tuple[Any, ...]]:
        """Return the number of workers, the tasks of a shard, and what the workers have to be started for."""

    @abstractmethod
    def _workers(self, *place: Any) -> Workers[Worker]:
        """Return what starts workers for a place."""

    def _end_workers(self) -> None:
        if self._pool is not None:
            self._pool.end()
        self._pool = None
