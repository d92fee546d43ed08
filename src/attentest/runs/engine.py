"""Where many tasks are done: in this process, by others on this machine, or on the workers of a cluster."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, Self, TypeAlias, TypeVar, get_args, runtime_checkable

from attentest.errors import AttentestError, InputError
from attentest.progress import Progress
from attentest.registry import ENGINES

if TYPE_CHECKING:
    import torch


Task = TypeVar("Task")
Item = TypeVar("Item")
TaskOfWork = TypeVar("TaskOfWork", contravariant=True)


class Work(Protocol[TaskOfWork, Item]):
    """What is to be done with each of many tasks, such as testing image files.

    Engines with workers send it to each of them once, so what it holds must be fit for that, the model included.
    """

    @property
    def device(self) -> torch.device:
        """The device that the work needs."""
        ...

    def run(self, tasks: Sequence[TaskOfWork], progress: Progress | None = None) -> Iterator[list[Item]]:
        """Yield what the tasks give, one item for each in the same order, a few at a time."""
        ...

    def lost(self, task: TaskOfWork, reason: str) -> Item:
        """Return the item of a task that cannot be done, for a reason that is not its own."""
        ...


@runtime_checkable
class Engine(Protocol):
    """Does work. Within ``with engine:`` its workers, if it has any, are kept from one work to the next."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def run(
        self, work: Work[Task, Item], tasks: Iterable[Task], progress: Progress | None = None
    ) -> Iterator[tuple[list[Task], list[Item]]]:
        """Yield tasks and what they gave, a few at a time as they are finished; each task exactly once.

        Parameters
        ----------
        work
            What is to be done.
        tasks
            The tasks; they are taken one after the other as there is room for them.
        progress
            Called with (tasks done, number of tasks or None if it is unknown).
        """
        ...

    def describe(self) -> dict[str, Any]:
        """Return the name and the number of workers, if it was given, JSON-ready."""
        ...


class LocalEngine:
    """Does work in this process, in the order of the tasks."""

    def __repr__(self) -> str:
        return "LocalEngine()"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def run(
        self, work: Work[Task, Item], tasks: Iterable[Task], progress: Progress | None = None
    ) -> Iterator[tuple[list[Task], list[Item]]]:
        """Yield tasks and what they gave, a few at a time; see :class:`Engine`."""
        every = list(tasks)
        if not every:
            return
        waiting = iter(every)
        for items in work.run(every, progress):
            yield [next(waiting) for _ in items], items

    def describe(self) -> dict[str, Any]:
        """Return the name."""
        return {"engine": "local"}


def timed_batches(
    tasks: Sequence[Task], batches: Iterator[list[Item]]
) -> Iterator[tuple[list[Task], list[Item], float]]:
    """Yield with each batch its tasks and the time at which it was begun, by ``time.perf_counter``."""
    waiting = iter(tasks)
    while True:
        start = time.perf_counter()
        batch = next(batches, None)
        if batch is None:
            return
        yield [next(waiting) for _ in batch], batch, start


def as_engine(engine: str | Engine) -> Engine:
    """Return the engine of a name, or a configured engine as it is."""
    if isinstance(engine, str):
        named: Engine = ENGINES.load(engine)()
        return named
    if isinstance(engine, Engine) and not isinstance(engine, type):
        return engine
    raise InputError(f"engine must be a name or an engine such as ProcessEngine(workers=4), got {engine!r}.")


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
class Given:
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

    def start(self) -> Worker:
        """Start a worker, without waiting for it; its first answer says that it is ready."""
        ...

    def end(self, worker: Worker) -> None:
        """End a worker at once, whatever it is doing; it may have ended by itself."""
        ...

    def take_on(self, work: Any) -> None:
        """Make a work the one whose tasks are sent from now on."""
        ...

    def put_down(self) -> None:
        """Let the workers forget the work, which is over."""
        ...

    def send(self, worker: Worker, tasks: Sequence[Any]) -> None:
        """Send tasks to a worker that is ready for them."""
        ...

    def answers(self) -> Iterable[tuple[Worker, Given | Failed | Lost]]:
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
        """Refuse a second work while the first is going on: answers would be taken for those of the other."""
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
            self._workers.take_on(work)
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
            self._workers.end(worker)
        self._starting, self._idle, self._running = [], [], {}

    def _start(self, count: int) -> None:
        """Start workers until there are so many."""
        for _ in range(count - len(self._starting) - len(self._idle) - len(self._running)):
            self._starting.append(self._workers.start())

    def _send(self, shard: Shard[Any]) -> None:
        worker = self._idle.pop()
        self._running[worker] = shard
        self._workers.send(worker, shard.tasks)

    def _finish(self) -> None:
        """End the workers that are still busy with a work that is over; the others forget it."""
        for worker in self._running:
            self._workers.end(worker)
        self._running = {}
        self._workers.put_down()

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
            given = answer.items if isinstance(answer, Given) else []
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
        self._workers.end(worker)
        self._lost_at_start = self._lost_at_start + 1 if is_new else 0
        if self._lost_at_start == MOST_LOST_AT_START:
            raise InputError(f"{MOST_LOST_AT_START} workers in a row could not be started ({reason}).")
        self._starting.append(self._workers.start())


def _shards(tasks: Iterable[Task], size: int) -> Iterator[Shard[Task]]:
    waiting = iter(tasks)
    while some := tuple(islice(waiting, size)):
        yield Shard(some)


OnError: TypeAlias = Literal["raise", "row"]
"""What to do with an image that cannot be tested: stop, or go on and report it in its place."""


@dataclass(frozen=True, kw_only=True)
class FailedImage:
    """An image that could not be tested.

    Parameters
    ----------
    number
        Number of the image among those given, from 0.
    reason
        Why, in one sentence.
    """

    number: int
    reason: str


def check_on_error(on_error: str) -> None:
    """Refuse anything but "raise" and "row"."""
    if on_error not in get_args(OnError):
        raise InputError(f"on_error must be 'raise' or 'row', got {on_error!r}.")


def reason_of(error: Exception) -> str:
    """Return the reason for a failure: the message of an error of attentest, and the kind of any other error too."""
    text = " ".join(str(error).split())
    return text if isinstance(error, AttentestError) else f"{type(error).__name__}: {text}"
