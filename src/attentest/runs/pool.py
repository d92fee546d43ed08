"""Workers of an engine: they are kept busy with shards of tasks, watched for signs of life, and replaced when lost."""

from __future__ import annotations

import os
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeVar

from attentest.checks import positive_number, whole_number
from attentest.errors import AttentestWarning, InputError
from attentest.progress import Progress
from attentest.runs.engine import LONGEST_REASON, Answer, Item, State, Task, Work

if TYPE_CHECKING:
    import torch

MOST_TRIES = 3  # a task by itself that ends its worker so many times is reported as failed
MOST_LOST_AT_START = 10  # the run ends when so many workers in a row were lost before they were ready

MOST_WORKERS = 10_000
MOST_CORES = 10_000
LARGEST_SHARD = 100_000

DEFAULT_SHARD, SHARDS_PER_WORKER = 32, 4

WAIT_SECONDS = 1.0  # how often the driver looks at the workers; it can be interrupted meanwhile

WORKER_SECONDS = 60.0
"""By default a worker is ended that has given no sign of life for so long: a large model may hold it up for seconds."""

REPORT_SECONDS = 10.0
"""A worker that is silent for so long is reported, or for half of the time after which it is ended."""

START_SECONDS = 300.0
"""How long a worker may take at least for its first sign: it imports the program, perhaps from a slow disk."""

SIGN_SECONDS = 1.0  # how often a worker gives a sign of life, and how often the driver looks for them

Worker = TypeVar("Worker")


class Workers(Protocol[Worker]):
    """Starts workers, which give signs of life, and speaks with them."""

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

    def answers(self) -> Iterable[tuple[Worker, Answer]]:
        """Return what workers answered, after waiting no longer than ``WAIT_SECONDS`` for the first."""
        ...

    def signs(self) -> Mapping[Worker, int]:
        """Return how many signs of life each worker has given; without those that need not give any yet.

        This, the name and the end of a worker are asked for by another thread than that of the engine.
        """
        ...

    def name_of(self, worker: Worker) -> str:
        """Return what to call a worker in a sentence, such as "the worker process 4711"."""
        ...

    def kill(self, worker: Worker) -> None:
        """Let a worker end at once, whatever it is doing, so that its next answer is that it is lost."""
        ...


@dataclass(eq=False)
class Watch(Generic[Worker]):
    """Looks for signs of life while it is entered, in a thread: the driver may wait for a worker that has stopped."""

    workers: Workers[Worker]
    """The workers."""
    seconds: float
    """How long a worker may be silent."""
    ended: set[Worker] = field(default_factory=set, init=False)
    """Workers that were ended because they were silent."""
    _silent: dict[Worker, tuple[int, float]] = field(default_factory=dict, init=False)  # signs, and since when none
    _reported: list[str] = field(default_factory=list, init=False)  # sentences that are not said yet
    _over: threading.Event = field(default_factory=threading.Event, init=False)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._look_until_over, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _look_until_over(self) -> None:
        before = time.monotonic()
        while not self._over.wait(SIGN_SECONDS):
            now = time.monotonic()
            # Of the time in which this process itself was suspended no more than a moment counts.
            self.look(min(now - before, 2 * SIGN_SECONDS))
            before = now

    def look(self, elapsed: float) -> None:
        """Count the silence of each worker after so many seconds; report those that are silent, then end them."""
        silent = {}
        for worker, signs in self.workers.signs().items():
            known, seconds = self._silent.get(worker, (-1, 0.0))
            seconds = seconds + elapsed if signs == known else 0.0
            limit = self.seconds if signs else max(self.seconds, START_SECONDS)
            report = min(REPORT_SECONDS, limit / 2) if signs else limit / 2
            if seconds >= report > seconds - elapsed and seconds > 0:
                self._reported.append(
                    f"{self.workers.name_of(worker)} has not answered for {seconds:.0f} s; after {limit:g} s its tasks "
                    "go to another."
                )
            if seconds >= limit:
                self.ended.add(worker)
                self.workers.kill(worker)
            silent[worker] = signs, seconds
        self._silent = silent

    def say(self) -> None:
        """Warn of workers that have become silent, in the thread of the caller."""
        while self._reported:
            warnings.warn(self._reported.pop(0), AttentestWarning, stacklevel=2)


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


class PooledEngine(ABC, Generic[Worker]):
    """An engine with workers, which are kept from one work to the next as long as it is entered.

    They are kept busy with shards of tasks, and replaced when they are lost. By default there are as many workers as
    there is room for, and cores of each and tasks of a shard depend on the work. A worker that gives no sign of life
    for ``worker_timeout`` seconds is ended, and its tasks are given to another.
    """

    name: ClassVar[str]
    """The name by which the engine is chosen."""

    def __init__(
        self,
        *,
        workers: int | None = None,
        cores: int | None = None,
        shard: int | None = None,
        worker_timeout: float = WORKER_SECONDS,
    ) -> None:
        self.workers = None if workers is None else whole_number(workers, "workers", 1, MOST_WORKERS)
        self.cores = None if cores is None else whole_number(cores, "cores", 1, MOST_CORES)
        self.shard = None if shard is None else whole_number(shard, "shard", 1, LARGEST_SHARD)
        self.worker_timeout = positive_number(worker_timeout, "worker_timeout")
        self._entered = 0
        self._place: tuple[Any, ...] = ()  # for which the workers were started
        self._workers: Workers[Worker] | None = None
        self._starting: list[Worker] = []
        self._idle: list[Worker] = []
        self._running: dict[Worker, Shard[Any]] = {}
        self._lost_at_start = 0
        self._has_work = False

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
        total, done = len(tasks) if isinstance(tasks, Sized) else None, 0
        if total == 0:
            return
        with self, ExitStack() as stack:
            if self._has_work:  # answers would be taken for those of the other
                raise InputError(
                    "an engine does one work at a time, and this one has not finished the one before: wait until it "
                    "has, or use another engine."
                )
            count, size, place = self._plan(work.device, total)
            if self._workers is None or self._place != place:
                self._end_workers()
                self._workers, self._place = self._new_workers(*place), place
            workers, untaken = self._workers, iter(tasks)
            shards = (Shard(shard) for shard in iter(lambda: tuple(islice(untaken, size)), ()))
            waiting = deque(islice(shards, 1))  # those to be sent next; the others are not made before there is room
            watch = stack.enter_context(Watch(workers, self.worker_timeout))
            self._has_work = True
            try:
                workers.start_work(work)
                wanted = count if total is None else min(count, -(-total // size))  # no more than there are shards
                for _ in range(wanted - len(self._starting) - len(self._idle) - len(self._running)):
                    self._starting.append(workers.start_worker())
                while waiting or self._running:
                    watch.say()
                    # A worker gets its first shard when it is ready: one that a cluster has no room for would keep it.
                    while waiting and self._idle:
                        worker = self._idle.pop()
                        self._running[worker] = waiting.popleft()
                        workers.send(worker, self._running[worker].tasks)
                        waiting.extend(islice(shards, 0 if waiting else 1))
                    for shard, outcome in self._outcomes(workers, watch):
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
                for worker in self._running:  # those that are still busy with a work that is over
                    workers.end_worker(worker)
                self._running = {}
                workers.finish_work()

    def describe(self) -> dict[str, Any]:
        """Return the name and the number of workers, if it was given, JSON-ready."""
        return {"engine": self.name, **({} if self.workers is None else {"workers": self.workers})}

    @abstractmethod
    def _plan(self, device: torch.device, total: int | None) -> tuple[int, int, tuple[Any, ...]]:
        """Return the number of workers, the tasks of a shard, and what the workers have to be started for."""

    @abstractmethod
    def _new_workers(self, *place: Any) -> Workers[Worker]:
        """Return what starts workers for a place."""

    def _outcomes(self, workers: Workers[Worker], watch: Watch[Worker]) -> Iterator[tuple[Shard[Any], list[Any] | str]]:
        """Yield tasks with their items, or why there are none; a lost worker is replaced."""
        for worker, answer in workers.answers():
            if answer.state is State.UNUSABLE:
                raise InputError(answer.reason)
            shard = self._running.pop(worker, Shard(()))  # one that has just been started has no tasks
            is_new, reason = worker in self._starting, answer.reason[:LONGEST_REASON]
            for others in (self._starting, self._idle):
                if worker in others:
                    others.remove(worker)
            finished, left = shard.cut(len(answer.items))
            if answer.state is State.LOST:
                workers.end_worker(worker)
                self._lost_at_start = self._lost_at_start + 1 if is_new else 0
                if left.tasks and worker not in watch.ended:
                    said = f"{workers.name_of(worker)} has ended while it worked, as one does when memory is short"
                    warnings.warn(f"{said}: its tasks go to another.", AttentestWarning, stacklevel=2)
                if self._lost_at_start == MOST_LOST_AT_START:
                    raise InputError(f"{MOST_LOST_AT_START} workers in a row could not be started ({reason}).")
                self._starting.append(workers.start_worker())
                reason = f"its worker ended {MOST_TRIES} times while it was doing it"
            else:
                self._lost_at_start = 0
                if answer.state is State.FREE:
                    self._idle.append(worker)
                else:
                    self._running[worker] = left
            if answer.items:
                yield finished, answer.items
            if answer.state is not State.BUSY and left.tasks:
                yield left, reason

    def _end_workers(self) -> None:
        if self._workers is not None:
            for worker in (*self._starting, *self._idle, *self._running):
                self._workers.end_worker(worker)
        self._workers, self._starting, self._idle, self._running, self._lost_at_start = None, [], [], {}, 0


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for as long as the context lasts."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
