"""Work by processes on this machine, with nothing but the standard library: each holds the work, with its model.

On a GPU several processes share it: while one of them chooses the next points, another has the GPU.

The driver sends a worker a kind, and with a work or with tasks their pickle as a second message. Everything is pickled
by the plain pickle module: that of multiprocessing would share the memory of tensors with the driver, which may free
it.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from ctypes import c_ulong
from dataclasses import dataclass
from multiprocessing import connection, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import TYPE_CHECKING, Any, Self

from attentest.errors import InputError
from attentest.runs.engine import LONGEST_REASON, Answer, State, reason_of
from attentest.runs.pool import SIGN_SECONDS, WAIT_SECONDS, PooledEngine, environment, shard_size

if TYPE_CHECKING:
    import torch


WORKERS_PER_GPU = 4
"""By default; each works on the host for about half of the time, and four need four models' memory."""

MOST_TOGETHER_ON_GPU = 500
"""Tasks of a shard on a GPU, which many images fill; a worker that is lost takes no more than these with it."""

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Environment variables that say how many threads NumPy and torch use."""

GPUS = "CUDA_VISIBLE_DEVICES"

STARTED_BY_IMPORT = 73
"""Exit code of a worker that would start workers itself, because it has to import a program that does."""

END_SECONDS = 10.0
"""How long to wait for a process that was killed; one that hangs in a driver of the system is left to the system."""

STARTING = "ATTENTEST_WORKER_IS_STARTING"
"""Environment variable of a worker until it is ready: meanwhile it imports the program that started it."""

WORK, TASKS, OVER = b"work", b"tasks", b"over"
"""What the driver sends: a work; tasks of it; or that the work is over."""

NOT_HERE = (AttributeError, ImportError)
"""What pickle raises for a class or a function that this process does not have."""


class ProcessEngine(PooledEngine["_WorkerProcess"]):
    """Does work in worker processes on this machine.

    A program that uses it must do so under ``if __name__ == "__main__":``, because each worker imports the program.

    Parameters
    ----------
    workers
        Number of processes; by default 4 for each GPU if the work is on a GPU, otherwise one for each group of cores.
        For work on "cuda" (or "cuda:0") they are divided evenly among the GPUs that CUDA sees; for work on another GPU
        they are all on that one.
    cores
        Threads of each process; by default 1, or on a GPU an even share of the cores.
    shard
        Tasks that are sent to a process at a time; by default 32, or fewer where each process would get few shards; on
        a GPU an even share of all, but no more than 500.
    worker_timeout
        Seconds after which a process that gives no sign of life is ended, and its tasks are given to another.
    """

    name = "processes"

    def __enter__(self) -> Self:
        if STARTING in os.environ:  # it would go on for ever
            sys.exit(STARTED_BY_IMPORT)
        return super().__enter__()

    def _plan(self, device: torch.device, total: int | None) -> tuple[int, int, tuple[Any, ...]]:
        gpus = _gpus(device)
        workers, cores = _numbers(self.workers, self.cores, len(gpus))
        return workers, self.shard or (_gpu_shard_size if gpus else shard_size)(total, workers), (gpus, cores)

    def _new_workers(self, *place: Any) -> _Processes:
        return _Processes(*place)


def _gpus(device: torch.device) -> list[str]:
    """Return the GPUs that workers share, as CUDA names them; none if the work is not on a GPU."""
    if device.type != "cuda":
        return []
    import torch

    count = torch.cuda.device_count()
    named = os.environ.get(GPUS)
    every = named.split(",")[:count] if named else [str(number) for number in range(count)]
    if device.index in (None, torch.cuda.current_device()):  # a model that was put on "cuda" says "cuda:0"
        return every
    return [every[device.index]]


def _numbers(workers: int | None, cores: int | None, gpus: int) -> tuple[int, int]:
    """Return the number of workers and of the cores of each, where one or both are not given."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if gpus:
        workers = workers or WORKERS_PER_GPU * gpus
        return workers, cores or max(1, usable // workers)
    cores = cores or 1
    return workers or max(1, usable // cores), cores


def _gpu_shard_size(total: int | None, workers: int) -> int:
    """Return how many tasks to send at a time, so that each worker has as many shards, as large as can be."""
    if total is None:
        return MOST_TOGETHER_ON_GPU
    rounds = -(-total // (MOST_TOGETHER_ON_GPU * workers))
    return -(-total // (rounds * workers))


@dataclass(frozen=True, eq=False)
class _WorkerProcess:
    """A process, the connection to it, its signs of life, and the place of its GPU among those of all workers."""

    process: SpawnProcess
    connection: Connection
    signs: c_ulong
    gpu: int


class _Processes:
    """Starts worker processes, and speaks with them."""

    def __init__(self, gpus: list[str], cores: int) -> None:
        self._gpus, self._cores = gpus, cores
        self._living: list[_WorkerProcess] = []
        self._work = b""
        self._informed: set[_WorkerProcess] = set()  # those that have the present work

    def start_worker(self) -> _WorkerProcess:
        context = multiprocessing.get_context("spawn")  # a process that uses CUDA cannot be forked
        taken = Counter(worker.gpu for worker in self._living)
        gpu = min(range(len(self._gpus) or 1), key=lambda place: taken[place])
        ours, theirs = context.Pipe()
        signs = context.RawValue(c_ulong, 0)
        process = context.Process(target=serve, args=(theirs, signs, self._cores), daemon=True)
        with _prepared(self._environment(gpu)):
            process.start()
            worker = _WorkerProcess(process, ours, signs, gpu)
            self._living.append(worker)
        theirs.close()  # or the end of the process would not be seen
        return worker

    def end_worker(self, worker: _WorkerProcess) -> None:
        # In this order it can be done again: a second interrupt may come while the first is being obeyed.
        worker.process.kill()
        worker.connection.close()
        worker.process.join(END_SECONDS)
        self._informed.discard(worker)
        if worker in self._living:
            self._living.remove(worker)

    def signs(self) -> dict[_WorkerProcess, int]:
        return {worker: worker.signs.value for worker in tuple(self._living)}

    def name_of(self, worker: _WorkerProcess) -> str:
        return f"the worker process {worker.process.pid}"

    def kill(self, worker: _WorkerProcess) -> None:
        worker.process.kill()

    def start_work(self, work: Any) -> None:
        self._work = _pickled(work)
        self._informed.clear()

    def finish_work(self) -> None:
        self._work = b""
        for worker in self._informed:
            with suppress(OSError):  # it has ended
                worker.connection.send_bytes(OVER)
        self._informed.clear()

    def send(self, worker: _WorkerProcess, tasks: Sequence[Any]) -> None:
        messages = [TASKS, _pickled(tasks)]
        if worker not in self._informed:
            messages = [WORK, self._work, *messages]
        self._informed.add(worker)
        with suppress(OSError):  # it has ended, which its next answer will say
            for message in messages:
                worker.connection.send_bytes(message)

    def answers(self) -> Iterator[tuple[_WorkerProcess, Answer]]:
        workers = {worker.connection: worker for worker in self._living}
        for ready in connection.wait(list(workers), WAIT_SECONDS):
            worker = workers[ready]  # type: ignore[index]  # only connections were given
            yield worker, _answer_of(worker)

    def _environment(self, gpu: int) -> dict[str, str]:
        """Return the environment of a worker. The work says "cuda:0", so its own GPU has to come first."""
        seen = {GPUS: ",".join(self._gpus[gpu:] + self._gpus[:gpu])} if len(self._gpus) > 1 else {}
        return {STARTING: "1", **dict.fromkeys(THREADS, str(self._cores)), **seen}


def _answer_of(worker: _WorkerProcess) -> Answer:
    try:
        answer: Answer = pickle.loads(worker.connection.recv_bytes())  # noqa: S301  # from our own worker alone
    except (EOFError, OSError):
        worker.process.join(END_SECONDS)
        code = worker.process.exitcode
        if code == STARTED_BY_IMPORT:
            raise InputError(
                "worker processes import the program that starts them, and this one starts workers when it is "
                'imported: put the call under if __name__ == "__main__":.'
            ) from None
        ended = f"exit code {code}" if code is None or code >= 0 else f"ended by signal {-code}"
        return Answer(State.LOST, reason=ended)
    return answer


def _pickled(value: Any) -> bytes:
    """Return a work or tasks as bytes; raise an error that says what to do if they cannot be sent."""
    try:
        return _packed(value)
    except Exception as error:  # whatever its classes raise
        raise InputError(
            f"this work cannot be sent to other processes ({reason_of(error)[:LONGEST_REASON]}): define its functions "
            "in a module, not within a function, or use the engine 'local'."
        ) from error


@contextmanager
def _prepared(variables: dict[str, str]) -> Iterator[None]:
    """Let a process that is started meanwhile have an environment, and no interrupts until it ignores them itself.

    An interrupt of the driver is only delayed. A program on standard input, which has no file that a worker could
    import, is hidden.
    """
    main = vars(sys.modules["__main__"])
    file = main.get("__file__")
    if file is not None and not os.path.exists(file):
        main["__file__"] = None
    can_block = hasattr(signal, "pthread_sigmask")
    if can_block:
        resource_tracker.ensure_running()  # the first process would start it, and it admits interrupts again
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with environment(variables):
            yield
    finally:
        if can_block:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if file is not None:
            main["__file__"] = file


def serve(connection: Connection, signs: c_ulong, cores: int) -> None:
    """Be a worker process: hold the present work, and do what the driver sends until it closes the connection or ends.

    The number of signs of life is in memory that the driver reads: it is not held up by what the connection waits for.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the driver, which ends its workers
    threading.Thread(target=_end_with_driver, daemon=True).start()
    threading.Thread(target=_give_signs, args=(signs,), daemon=True).start()
    os.environ.pop(STARTING, None)
    work: Any = None
    with suppress(EOFError, OSError):  # the driver has closed the connection
        connection.send_bytes(_packed(Answer(State.FREE)))
        while True:
            kind = connection.recv_bytes()
            if kind == TASKS:
                for answer in _answers(work, connection.recv_bytes()):
                    connection.send_bytes(answer)
                continue
            work = None
            _free_memory()
            if kind == WORK:
                try:
                    work = pickle.loads(connection.recv_bytes())  # noqa: S301  # from the driver alone
                    if "torch" in sys.modules:  # it has this number from the environment, which may be overruled
                        sys.modules["torch"].set_num_threads(cores)
                except Exception as error:  # noqa: BLE001  # whatever it is, the driver has to know
                    advice = (
                        ": define what it uses in a module that they can import, not in a notebook or on standard input"
                        if isinstance(error, NOT_HERE)
                        else ""
                    )
                    why = f"the worker processes cannot use this work ({reason_of(error)[:LONGEST_REASON]}){advice}."
                    connection.send_bytes(_packed(Answer(State.UNUSABLE, reason=why)))


def _give_signs(signs: c_ulong) -> None:
    while True:
        signs.value += 1
        time.sleep(SIGN_SECONDS)


def _answers(work: Any, tasks: bytes) -> Iterator[bytes]:
    """Yield answers with the items of tasks as the work yields them, and at last whether they are all done."""
    try:
        for items in work.run(pickle.loads(tasks)):  # noqa: S301  # from the driver alone
            yield _packed(Answer(State.BUSY, items))
    except Exception as error:  # noqa: BLE001  # whatever it is, it is the reason why these tasks are not done
        yield _packed(Answer(State.FREE, reason=reason_of(error)))
    else:
        yield _packed(Answer(State.FREE))


def _packed(value: Any) -> bytes:
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


def _free_memory() -> None:
    """Give back what the last work held, also the memory of the device that torch keeps for later."""
    gc.collect()
    if "torch" in sys.modules:
        sys.modules["torch"].cuda.empty_cache()  # does nothing where CUDA is not in use


def _end_with_driver() -> None:
    """End this process when the driver ends, however it does and whatever is computed here."""
    driver = multiprocessing.parent_process()
    if driver is not None:
        driver.join()
        os._exit(0)
