"""Where many tasks are done: work, the engines that do it, and tasks that fail."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeAlias, TypeVar, get_args, runtime_checkable

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

        Tasks are taken one after the other as there is room for them. ``progress`` is called with (tasks done, number
        of tasks or None if it is unknown).
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
        listed = list(tasks)
        if listed:
            for done, items, _ in timed_batches(listed, work.run(listed, progress)):
                yield done, items

    def describe(self) -> dict[str, Any]:
        """Return the name."""
        return {"engine": "local"}


LONGEST_REASON = 500  # characters of an error of a worker that are reported; it may have whole tracebacks in it


class State(Enum):
    """How it is with a worker that has answered."""

    BUSY = auto()  # with its other tasks
    FREE = auto()  # ready for other tasks
    LOST = auto()  # it has ended
    UNUSABLE = auto()  # it cannot use the work


@dataclass(frozen=True)
class Answer:
    """What a worker answers."""

    state: State
    """How it is with the worker; the first answer says that it is ready."""
    items: list[Any] = field(default_factory=list)
    """What the first of its tasks gave that it has not answered yet."""
    reason: str = "the work gave nothing for it"
    """Why its other tasks gave nothing, if it does not go on with them; or why it cannot use the work, in a
    sentence."""


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


OnError: TypeAlias = Literal["raise", "row"]
"""What to do with an image that cannot be tested: stop, or go on and report it in its place."""


@dataclass(frozen=True, kw_only=True)
class FailedImage:
    """An image that could not be tested."""

    number: int
    """Number of the image among those given, from 0."""
    reason: str
    """Why, in one sentence."""

    def __getattr__(self, name: str) -> Any:
        private = name.startswith("_")  # copies look for such names before there is a reason
        why = "" if private else f"image {self.number} has no {name}: it could not be tested, because {self.reason}"
        raise AttributeError(why or name)


def check_on_error(on_error: str) -> None:
    """Check that it is "raise" or "row"."""
    if on_error not in get_args(OnError):
        raise InputError(f"on_error must be 'raise' or 'row', got {on_error!r}.")


def reason_of(error: Exception) -> str:
    """Return the reason for a failure: the message of an error of attentest, and the kind of any other error too."""
    text = " ".join(str(error).split())
    return text if isinstance(error, AttentestError) else f"{type(error).__name__}: {text}"
