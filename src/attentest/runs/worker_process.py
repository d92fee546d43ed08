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
import time
from collections.abc import Iterator
from contextlib import suppress
from ctypes import c_ulong
from multiprocessing.connection import Connection
from typing import Any

from attentest.runs.engine import LONGEST_REASON, Answer, State, reason_of
from attentest.runs.watch import SIGN_SECONDS

STARTING = "ATTENTEST_WORKER_IS_STARTING"
"""Environment variable of a worker until it is ready: meanwhile it imports the program that started it."""

WORK, TASKS, OVER = b"work", b"tasks", b"over"
"""What the driver sends: a work; tasks of it; or that the work is over."""

NOT_HERE = (AttributeError, ImportError)
"""What pickle raises for a class or a function that this process does not have."""


def serve(connection: Connection, signs: c_ulong, cores: int) -> None:
    """Do what the driver sends until it closes the connection or ends.

    Parameters
    ----------
    connection
        To the driver.
    signs
        Number of signs of life, in memory that the driver reads: it is not held up by what the connection waits for.
    cores
        Number of threads to compute with.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the driver, which ends its workers
    threading.Thread(target=_end_with_driver, daemon=True).start()
    threading.Thread(target=_give_signs, args=(signs,), daemon=True).start()
    os.environ.pop(STARTING, None)
    work: Any = None
    with suppress(EOFError, OSError):  # the driver has closed the connection
        connection.send_bytes(_pickled(Answer(State.FREE)))
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
                    connection.send_bytes(_pickled(Answer(State.UNUSABLE, reason=why)))


def _give_signs(signs: c_ulong) -> None:
    while True:
        signs.value += 1
        time.sleep(SIGN_SECONDS)


def _answers(work: Any, tasks: bytes) -> Iterator[bytes]:
    """Yield answers with the items of tasks as the work yields them, and at last whether they are all done."""
    try:
        for items in work.run(pickle.loads(tasks)):  # noqa: S301  # from the driver alone
            yield _pickled(Answer(State.BUSY, items))
    except Exception as error:  # noqa: BLE001  # whatever it is, it is the reason why these tasks are not done
        yield _pickled(Answer(State.FREE, reason=reason_of(error)))
    else:
        yield _pickled(Answer(State.FREE))


def _pickled(answer: Answer) -> bytes:
    return pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)


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
