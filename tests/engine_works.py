"""Works for engines with workers, which have to import them; without torch, so that a worker starts quickly."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch


class Device(NamedTuple):
    """A device as an engine looks at it."""

    type: str = "cpu"
    index: int | None = None


CPU = Device()


@dataclass(frozen=True)
class Named:
    """Returns each task as a text, after which the process that did it can be asked for."""

    device: Any = CPU

    def run(self, tasks: Sequence[int], progress: Any = None) -> Iterator[list[Any]]:
        for task in tasks:
            yield [self.item(task)]

    def item(self, task: int) -> Any:
        return f"{task}: done"

    def lost(self, task: int, reason: str) -> str:
        return f"{task}: {reason}"


@dataclass(frozen=True)
class FailsOnEven(Named):
    """Raises an error at even tasks."""

    def item(self, task: int) -> Any:
        if task % 2 == 0:
            raise ValueError("no such thing")
        return super().item(task)


@dataclass(frozen=True)
class EndsWorkers(Named):
    """Ends the worker at task 5 once, and at task 8 always."""

    folder: Path = Path()

    def item(self, task: int) -> Any:
        flag = self.folder / "once"
        if task == 8 or (task == 5 and not flag.exists()):
            flag.touch()
            os._exit(1)
        return super().item(task)


@dataclass(frozen=True)
class StopsWorker(Named):
    """Stops the worker at task 2 once."""

    folder: Path = Path()

    def item(self, task: int) -> Any:
        flag = self.folder / "stopped"
        if task == 2 and not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGSTOP)
        return super().item(task)


@dataclass(frozen=True)
class Large(Named):
    """Returns more than a connection holds."""

    def item(self, task: int) -> Any:
        return task, os.getpid(), bytes(10_000_000)


@dataclass(frozen=True)
class TellsProcess(Named):
    """Returns what the process is that does a task; every task but 0 takes so many seconds."""

    seconds: float = 0.0

    def item(self, task: int) -> Any:
        time.sleep(self.seconds if task else 0.0)
        variables = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
        return task, os.getpid(), "torch" in sys.modules, {name: os.environ.get(name) for name in variables}


@dataclass(frozen=True)
class ForgetsSome(Named):
    """Gives nothing for the tasks after the first of those that it is sent."""

    def run(self, tasks: Sequence[int], progress: Any = None) -> Iterator[list[Any]]:
        yield [self.item(tasks[0])]


class NotHere:
    """Can be sent, and not be received."""

    device = CPU

    def __reduce__(self) -> tuple[Any, ...]:
        return _missing, ()


def _missing() -> None:
    raise AttributeError("Can't get attribute 'mean' on <module '__main__'>")


def end_at_once(*_: object) -> None:
    """End a worker before it is ready."""
    os._exit(5)


class Scores:
    """The scores of images of 2x2 pixels; an image with a great pixel cannot be tested."""

    image_shape = (1, 2, 2)
    batch_size = 8

    @property
    def device(self) -> torch.device:
        import torch

        return torch.device("cpu")

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        import torch

        if float(images.max()) > 1000:
            raise RuntimeError("no such image")
        return torch.softmax(torch.tanh(images.flatten(1)), dim=1).unflatten(1, (2, 2))
