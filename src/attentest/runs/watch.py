"""Workers that are watched: one that gives no sign of life is reported, and then ended, so that others do its tasks."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, Self, TypeVar

from attentest.errors import AttentestWarning

WORKER_SECONDS = 60.0
"""By default a worker is ended that has given no sign of life for so long: a large model may hold it up for seconds."""

REPORT_SECONDS = 10.0
"""A worker that is silent for so long is reported, or for half of the time after which it is ended."""

START_SECONDS = 300.0
"""How long a worker may take at least for its first sign: it imports the program, perhaps from a slow disk."""

SIGN_SECONDS = 1.0
"""How often a worker gives a sign of life, and how often the driver looks for them."""

Worker = TypeVar("Worker")


class Watched(Protocol[Worker]):
    """Workers that give signs of life. All of this is called by another thread than that of the engine."""

    def signs(self) -> Mapping[Worker, int]:
        """Return how many signs of life each worker has given; without those that need not give any yet."""
        ...

    def name_of(self, worker: Worker) -> str:
        """Return what to call a worker in a sentence, such as "the worker process 4711"."""
        ...

    def kill(self, worker: Worker) -> None:
        """Let a worker end at once, whatever it is doing, so that its next answer is that it is lost."""
        ...


@dataclass(eq=False)
class Watch(Generic[Worker]):
    """Looks for signs of life while it is entered, in a thread: the driver may wait for a worker that has stopped.

    Parameters
    ----------
    workers
        The workers.
    seconds
        How long a worker may be silent.
    """

    workers: Watched[Worker]
    seconds: float
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
                self.workers.kill(worker)
            silent[worker] = signs, seconds
        self._silent = silent

    def say(self) -> None:
        """Warn of workers that have become silent, in the thread of the caller."""
        while self._reported:
            warnings.warn(self._reported.pop(0), AttentestWarning, stacklevel=2)
