"""Work on many workers, with Ray: each worker holds the work, with its model, and is sent shards of tasks."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from ipaddress import ip_address
from itertools import count
from threading import Lock, current_thread, main_thread
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from attentest.checks import whole_number
from attentest.errors import InputError, counted, required
from attentest.runs import ray_guard
from attentest.runs.engine import Answer, State, reason_of
from attentest.runs.pool import MOST_CORES, WAIT_SECONDS, WORKER_SECONDS, PooledEngine, environment, shard_size

if TYPE_CHECKING:
    import torch

ONE_MACHINE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""With "0" in this environment variable Ray listens to this machine alone, as it does by default on those systems."""

SIGNS = "signs"  # name of the thread of a worker that gives signs of life while another does tasks

INSTALL_FAILURE_HANDLER = "_ZN3ray6RayLog27InstallFailureSignalHandlerEPKcb"
"""The function of Ray's library that installs its handler of SIGTERM and of crashes, by its symbol."""

CONNECT_SECONDS = 5.0  # how long to wait for an answer at the address of a cluster


class RayEngine(PooledEngine[Any]):
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
    worker_timeout
        Seconds after which a worker that gives no sign of life is ended, and its tasks are given to another.
    """

    name = "ray"
    cores: int

    def __init__(
        self,
        *,
        address: str | None = None,
        workers: int | None = None,
        cores: int = 1,
        shard: int | None = None,
        worker_timeout: float = WORKER_SECONDS,
    ) -> None:
        if address is not None and not isinstance(address, str):
            raise InputError(f"address must be a text such as 'auto' or '10.0.0.1:6379', got {address!r}.", "address")
        self.address = None if address == "local" else address
        cores = whole_number(cores, "cores", 1, MOST_CORES)
        super().__init__(workers=workers, cores=cores, shard=shard, worker_timeout=worker_timeout)
        self._stack = ExitStack()
        self._ray: Any = None

    def __enter__(self) -> Self:
        if self._entered == 0:
            self._ray = self._stack.enter_context(_connected(self.address))
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        if self._entered == 0:
            self._stack.close()

    def _plan(self, device: torch.device, total: int | None) -> tuple[int, int, tuple[Any, ...]]:
        on_gpu, resources = device.type == "cuda", self._ray.cluster_resources()
        most = int(resources.get("GPU", 0) if on_gpu else resources.get("CPU", 0) // self.cores)
        if most == 0:
            needed = "a GPU" if on_gpu else counted(self.cores, "core")
            raise InputError(f"no machine of the Ray cluster has {needed}, which a worker needs: use another device.")
        workers = self.workers or most
        return workers, self.shard or shard_size(total, workers), (on_gpu,)

    def _new_workers(self, *place: Any) -> _RayWorkers:
        (on_gpu,) = place
        return _RayWorkers(self._ray, on_gpu=on_gpu, cores=self.cores)


class _RayWorkers:
    """Starts actors, and speaks with them."""

    def __init__(self, ray: Any, *, on_gpu: bool, cores: int) -> None:
        self._ray, self._cores = ray, cores
        options = {"num_cpus": cores, "num_gpus": 1 if on_gpu else 0, "max_restarts": 0}
        self._worker = ray.remote(**options, concurrency_groups={SIGNS: 1})(_Worker)
        self._works = count()
        self._work: tuple[int, list[Any]] = (-1, [])
        self._asked: dict[Any, Any] = {}  # the worker of each answer that is to come
        self._signs: dict[Any, tuple[int, Any]] = {}  # of each worker, and the next one that it was asked for
        self._names: dict[Any, str] = {}
        self._lock = Lock()  # signs are looked for by another thread

    def start_worker(self) -> Any:
        worker = self._worker.remote(os.getcwd(), self._cores)
        self._asked[worker.no_items.remote()] = worker
        return worker

    def end_worker(self, worker: Any) -> None:
        with self._lock:
            self._signs.pop(worker, None)
        self._asked = {answer: asked for answer, asked in self._asked.items() if asked is not worker}
        self._ray.kill(worker)

    def signs(self) -> dict[Any, int]:
        with self._lock:
            for worker, (number, sign) in self._signs.items():
                if self._ray.wait([sign], timeout=0)[0]:
                    with suppress(self._ray.exceptions.RayError):  # it is lost, as its next answer says
                        self._names[worker] = self._ray.get(sign)
                    self._signs[worker] = number + 1, self._asked_for_sign(worker)
            return {worker: number for worker, (number, _) in self._signs.items()}

    def name_of(self, worker: Any) -> str:
        return self._names.get(worker, "a worker")

    def kill(self, worker: Any) -> None:
        self._ray.kill(worker)

    def _asked_for_sign(self, worker: Any) -> Any:
        return worker.name.options(concurrency_group=SIGNS).remote()

    def start_work(self, work: Any) -> None:
        self._work = next(self._works), [self._ray.put(work)]  # in a list it is passed as a reference

    def finish_work(self) -> None:
        self._work = (-1, [])

    def send(self, worker: Any, tasks: Sequence[Any]) -> None:
        self._asked[worker.items.remote(*self._work, tasks)] = worker

    def answers(self) -> Iterator[tuple[Any, Answer]]:
        ready, _ = self._ray.wait([*self._asked], num_returns=1, timeout=WAIT_SECONDS)
        for answer in ready:
            worker = self._asked.pop(answer)
            with self._lock:  # one that is not ready yet may wait for room in the cluster
                self._signs.setdefault(worker, (1, self._asked_for_sign(worker)))
            yield worker, self._got(answer)

    def _got(self, answer: Any) -> Answer:
        try:
            return Answer(State.FREE, self._ray.get(answer))
        except self._ray.exceptions.RayTaskError as error:  # the worker is well, the work is not
            return Answer(State.FREE, reason=reason_of(error.cause))
        except self._ray.exceptions.RayError as error:
            return Answer(State.LOST, reason=str(error).splitlines()[0])


class _Worker:
    """Holds the present work, with its model, in a process of its own."""

    def __init__(self, directory: str, cores: int) -> None:
        import torch

        torch.set_num_threads(cores)
        with suppress(OSError):  # a node without it can do work that needs no files
            os.chdir(directory)  # names of files are relative to that of the driver
        self._number: int | None = None
        self._work: Any = None

    def name(self) -> str:
        return f"the worker process {os.getpid()} on {socket.gethostname()}"

    def no_items(self) -> list[Any]:
        return []  # as soon as it can answer at all

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
    with ExitStack() as stack:
        if address is None:
            stack.enter_context(_this_machine_alone())
        ray = required("ray", "the engine 'ray' needs Ray", "ray")
        if not ray.is_initialized():
            mark = stack.enter_context(_guarded()) if address is None else {}
            stack.callback(_shut_down, ray)
            with _own_signals(ray), environment(mark):
                _start(ray, address)
        yield ray


@contextmanager
def _guarded() -> Iterator[dict[str, str]]:
    """Let nothing be left of a cluster that is started with these environment variables, however this process ends."""
    if sys.platform != "linux":  # Ray's processes end by themselves, after seconds
        yield {}
        return
    mark = uuid4().hex
    command = [sys.executable, "-I", "-S", ray_guard.__file__, mark]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as guard:  # it is waited for
        yield {ray_guard.MARK: mark}
        assert guard.stdin is not None
        with suppress(OSError):
            guard.stdin.write(b"ended")


@contextmanager
def _own_signals(ray: Any) -> Iterator[None]:
    """Let Ray start without answering SIGTERM in place of this program, and without being sent its signals.

    Ray sets a handler in Python that exits with code 15, then one in C++ that prints its stack and aborts.
    """
    handler, utils, services = signal.getsignal(signal.SIGTERM), ray._private.utils, ray._private.services
    if handler is None or current_thread() is not main_thread() or sys.platform == "win32":  # it cannot be set
        yield
        return
    before = utils.set_sigterm_handler, services.ConsolePopen
    utils.set_sigterm_handler = lambda _: None
    services.ConsolePopen = partial(services.ConsolePopen, start_new_session=True)
    try:
        with suppress(AttributeError, OSError):  # it is installed once: with ours after it, never without ours
            ctypes.CDLL(ray._raylet.__file__)[INSTALL_FAILURE_HANDLER](None, False)
        signal.signal(signal.SIGTERM, handler)
        yield
    finally:
        utils.set_sigterm_handler, services.ConsolePopen = before
        signal.signal(signal.SIGTERM, handler)


def _shut_down(ray: Any) -> None:
    """End a cluster, and answer signals meanwhile: when Ray closes its log, SIGTERM has its default action again."""
    handler, state = signal.getsignal(signal.SIGTERM), ray._private.state.state
    if handler is None or current_thread() is not main_thread():  # it cannot be set
        ray.shutdown()
        return
    disconnect = state.disconnect

    def answering() -> None:  # called after the log is closed, and before the processes are ended, which takes a second
        signal.signal(signal.SIGTERM, handler)
        disconnect()

    state.disconnect = answering
    try:
        ray.shutdown()
    finally:
        state.disconnect = disconnect
        signal.signal(signal.SIGTERM, handler)


@contextmanager
def _this_machine_alone() -> Iterator[None]:
    """Let clusters that are started meanwhile listen to this machine alone."""
    constants = sys.modules.get("ray._private.ray_constants")  # of a Ray that was imported before, and read it then
    reachable = getattr(constants, "ENABLE_RAY_CLUSTER", False)
    if reachable:
        vars(constants)["ENABLE_RAY_CLUSTER"] = False
    try:
        with environment({ONE_MACHINE: "0"}):
            yield
    finally:
        if reachable:
            vars(constants)["ENABLE_RAY_CLUSTER"] = True


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
    """Raise an error if nothing listens at the address of a cluster, for which Ray itself looks for minutes."""
    try:
        place = ray._private.services.canonicalize_bootstrap_address(address)
        host, _, port = str(place).rpartition(":")
        with socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS):
            pass
    except (OSError, ValueError, ConnectionError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"there is no Ray cluster at {address} ({reason}): start one with ray start.") from None
