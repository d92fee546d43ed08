"""What a worker process does: it holds the present work, and answers tasks until the driver is gone.

The driver sends a kind, and with a work or with tasks their pickle as a second message. Everything is pickled by the
plain pickle module: that of multiprocessing would share the memory of tensors with the driver, which may free it.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from attentest.runs.engine import reason_of

STARTING = "ATTENTEST_WORKER_IS_STARTING"
"""Environment variable of a worker until it is ready: meanwhile it imports the program that started it."""

WORK, TASKS, OVER = b"work", b"tasks", b"over"
"""What the driver sends: a work; tasks of it; or that the work is over."""

ITEMS, FINISHED, FAILED, UNUSABLE = "items", "finished", "failed", "unusable"
"""What a worker answers, with a value: items of the next tasks; all tasks are done; the work raised an error; or it
cannot be unpickled here."""

NOT_HERE = (AttributeError, ImportError)
"""What pickle raises for a class or a function that this process does not have."""


def serve(connection: Connection, cores: int) -> None:
    """Do what the driver sends until it closes the connection or ends.

    Parameters
    ----------
    connection
        To the driver.
    cores
        Number of threads to compute with.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the driver, which ends its workers
    threading.Thread(target=_end_with_driver, daemon=True).start()
    os.environ.pop(STARTING, None)
    work: Any = None
    with suppress(EOFError, OSError):  # the driver has closed the connection
        connection.send_bytes(_answer(FINISHED))
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
                    work = _unpickled(connection.recv_bytes(), cores)
                except Exception as error:  # noqa: BLE001  # whatever it is, the driver has to know
                    connection.send_bytes(_answer(UNUSABLE, (reason_of(error), isinstance(error, NOT_HERE))))


def _answers(work: Any, tasks: bytes) -> Iterator[bytes]:
    """Yield answers with the items of tasks as the work yields them, and at last whether they are all done."""
    try:
        for items in work.run(pickle.loads(tasks)):  # noqa: S301  # from the driver alone
            yield _answer(ITEMS, items)
    except Exception as error:  # noqa: BLE001  # whatever it is, it is the reason why these tasks are not done
        yield _answer(FAILED, reason_of(error))
    else:
        yield _answer(FINISHED)


def _answer(kind: str, value: Any = None) -> bytes:
    return pickle.dumps((kind, value), pickle.HIGHEST_PROTOCOL)


def _unpickled(work: bytes, cores: int) -> Any:
    found = pickle.loads(work)  # noqa: S301  # from the driver alone
    if "torch" in sys.modules:  # it has this number from the environment, which the program may have overruled
        sys.modules["torch"].set_num_threads(cores)
    return found


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
