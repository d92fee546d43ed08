"""Work on many workers, with Ray: each worker holds the work, with its model, and is sent shards of tasks."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from ipaddress import ip_address
from itertools import count
from typing import TYPE_CHECKING, Any, Self

from attentest.checks import whole_number
from attentest.errors import InputError, counted
from attentest.runs.engine import reason_of
from attentest.runs.pool import MOST_CORES, WAIT_SECONDS, Answered, Failed, Lost, PooledEngine, shard_size

if TYPE_CHECKING:
    import torch

ONE_MACHINE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""With "0" in this environment variable Ray listens to this machine alone, as it does by default on those systems."""

CONNECT_SECONDS = 5.0
"""How long to wait for an answer at the address of a cluster."""


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
    """

    name = "ray"
    cores: int

    def __init__(
        self, *, address: str | None = None, workers: int | None = None, cores: int = 1, shard: int | None = None
    ) -> None:
        if address is not None and not isinstance(address, str):
            raise InputError(f"address must be a text such as 'auto' or '10.0.0.1:6379', got {address!r}.", "address")
        self.address = None if address == "local" else address
        super().__init__(workers=workers, cores=whole_number(cores, "cores", 1, MOST_CORES), shard=shard)
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
        on_gpu = device.type == "cuda"
        most = _most_workers(self._ray, on_gpu, self.cores)
        workers = self.workers or most
        return workers, self.shard or shard_size(total, workers), (on_gpu,)

    def _workers(self, *place: Any) -> _RayWorkers:
        (on_gpu,) = place
        return _RayWorkers(self._ray, on_gpu=on_gpu, cores=self.cores)


def _most_workers(ray: Any, on_gpu: bool, cores: int) -> int:
    """Return the number of workers that the cluster has room for."""
    found = ray.cluster_resources()
    most = int(found.get("GPU", 0) if on_gpu else found.get("CPU", 0) // cores)
    if most == 0:
        needed = "a GPU" if on_gpu else counted(cores, "core")
        raise InputError(f"no machine of the Ray cluster has {needed}, which a worker needs: use another device.")
    return most


class _RayWorkers:
    """Starts actors, and speaks with them."""

    def __init__(self, ray: Any, *, on_gpu: bool, cores: int) -> None:
        self._ray, self._cores = ray, cores
        self._worker = ray.remote(_Worker).options(num_cpus=cores, num_gpus=1 if on_gpu else 0, max_restarts=0)
        self._works = count()
        self._work: tuple[int, list[Any]] = (-1, [])
        self._asked: dict[Any, Any] = {}  # the worker of each answer that is to come

    def start_worker(self) -> Any:
        worker = self._worker.remote(os.getcwd(), self._cores)
        self._asked[worker.no_items.remote()] = worker
        return worker

    def end_worker(self, worker: Any) -> None:
        self._asked = {answer: asked for answer, asked in self._asked.items() if asked is not worker}
        self._ray.kill(worker)

    def start_work(self, work: Any) -> None:
        self._work = next(self._works), [self._ray.put(work)]  # in a list it is passed as a reference

    def finish_work(self) -> None:
        self._work = (-1, [])

    def send(self, worker: Any, tasks: Sequence[Any]) -> None:
        self._asked[worker.items.remote(*self._work, tasks)] = worker

    def answers(self) -> Iterator[tuple[Any, Answered | Failed | Lost]]:
        ready, _ = self._ray.wait([*self._asked], num_returns=1, timeout=WAIT_SECONDS)
        for answer in ready:
            worker = self._asked.pop(answer)
            yield worker, self._got(answer)

    def _got(self, answer: Any) -> Answered | Failed | Lost:
        try:
            return Answered(self._ray.get(answer), finished=True)
        except self._ray.exceptions.RayTaskError as error:  # the worker is well, the work is not
            return Failed(reason_of(error.cause))
        except self._ray.exceptions.RayError as error:
            return Lost(str(error).splitlines()[0])


class _Worker:
    """Holds the present work, with its model, in a process of its own."""

    def __init__(self, directory: str, cores: int) -> None:
        import torch

        torch.set_num_threads(cores)
        with suppress(OSError):  # a node without it can do work that needs no files
            os.chdir(directory)  # names of files are relative to that of the driver
        self._number: int | None = None
        self._work: Any = None

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
    """Raise an error if nothing listens at the address of a cluster, for which Ray itself looks for minutes."""
    try:
        place = ray._private.services.canonicalize_bootstrap_address(address)
        host, _, port = str(place).rpartition(":")
        with socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS):
            pass
    except (OSError, ValueError, ConnectionError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"there is no Ray cluster at {address} ({reason}): start one with ray start.") from None
