"""Worker processes: what tests/runs/test_engines_with_workers.py does not test with other engines, too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attentest import AttentionTest, ProcessEngine, bundled_model
from attentest.errors import AttentestWarning, InputError
from attentest.runs import process_engine
from attentest.runs.process_engine import _gpu_shard_size, _gpus, _numbers
from engine_works import Device, Large, Named, NotHere, TellsProcess, end_at_once

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")

TESTS = Path(__file__).parents[1]

PROGRAM = """
import multiprocessing, os, signal, sys, threading, time
from attentest import ProcessEngine
from engine_works import TellsProcess

def interrupt_the_start():
    while len(multiprocessing.active_children()) < 2:
        time.sleep(0.01)
    time.sleep(0.1)  # they import this program now
    os.killpg(0, signal.SIGINT)

def main(when, seconds):
    if when == "at once":
        threading.Thread(target=interrupt_the_start).start()
    try:
        for _, items in ProcessEngine(workers=2, shard=1).run(TellsProcess(seconds=float(seconds)), range(1000)):
            print(items, flush=True)
    except KeyboardInterrupt:
        sys.exit(130)

if __name__ == "__main__":
    main(*sys.argv[1:])
"""
"""Does tasks until it is interrupted, or interrupts itself while its workers start."""

UNGUARDED = """
from attentest import ProcessEngine
from engine_works import Named
list(ProcessEngine(workers=2).run(Named(), [1]))
"""
"""Starts workers when it is imported."""

OWN_WORK = """
from attentest import ProcessEngine
from engine_works import Named

print([items for _, items in ProcessEngine(workers=1).run(Named(), [1])])

class Mine(Named):
    pass

list(ProcessEngine(workers=1).run(Mine(), [1]))
"""
"""Has a work that no worker can import, if it comes from standard input."""


def started(*arguments: str) -> subprocess.Popen[str]:
    """Start Python in a process group of its own, as a terminal does."""
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, *arguments],
        **{"stdin": pipe, "stdout": pipe, "stderr": pipe, "text": True},
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
        # A shell that runs the tests in the background has them ignore interrupts, and children inherit that.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.default_int_handler),
        start_new_session=True,
    )


def wait_until_gone(group: int, seconds: float = 60.0) -> None:
    """Wait until no process of a group is left, but for those that have ended and wait for their parent to see it."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        listed = subprocess.run(["ps", "-A", "-o", "pgid=,stat="], check=True, capture_output=True, text=True).stdout
        if not [line for line in listed.splitlines() if line.split()[0] == str(group) and "Z" not in line]:
            return
        time.sleep(0.05)
    raise AssertionError(f"processes of the group {group} are left")


def processes(engine: ProcessEngine, work: TellsProcess, count: int = 8) -> dict[int, Any]:
    """Return what each task says of its process."""
    found = [item for _, items in engine.run(work, range(count)) for item in items]
    assert sorted(task for task, *_ in found) == list(range(count))
    return {task: told for task, *told in found}


@pytest.mark.filterwarnings("ignore:.*has ended while it worked")
def test_workers_are_kept_for_the_next_work_and_import_only_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    with ProcessEngine(workers=2, cores=3, shard=1) as engine:
        first = processes(engine, TellsProcess(seconds=0.3))  # long enough for the second worker to start
        second = processes(engine, TellsProcess())
        used = {process for process, *_ in first.values()}
        assert len(used) == 2
        assert os.getpid() not in used
        assert {process for process, *_ in second.values()} <= used
        assert not any(has_torch for _, has_torch, _ in first.values())
        assert {environment["OMP_NUM_THREADS"] for *_, environment in first.values()} == {"3"}
        assert sorted(item for _, items in engine.run(Named(), iter("ab")) for item in items) == ["a: done", "b: done"]
        os.kill(min(used), signal.SIGKILL)  # while it has nothing to do
        third = processes(engine, TellsProcess(seconds=0.3))
        assert len({process for process, *_ in third.values()} - used) == 1
        for number, _ in enumerate(engine.run(TellsProcess(seconds=0.5), range(100))):
            if number == 1:
                break  # the workers that are busy with the others are ended
        processes(engine, TellsProcess())
    for process in used:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert process_engine.STARTING not in os.environ


def test_one_work_at_a_time_and_a_second_one_is_refused_until_it_is_over() -> None:
    with ProcessEngine(workers=1, shard=1) as engine:
        first = engine.run(Named(), range(3))
        given = [items for _, items in [next(first)]]
        for other in (Named(), Named(device=Device("cuda"))):
            with pytest.raises(InputError, match="an engine does one work at a time"):
                list(engine.run(other, range(2)))
        given += [items for _, items in first]
        assert given == [["0: done"], ["1: done"], ["2: done"]]
        assert [items for _, items in engine.run(Named(), [7])] == [["7: done"]]


def test_a_worker_can_be_ended_twice() -> None:
    """As when a second interrupt comes while the first is being obeyed."""
    workers = process_engine._Processes([], 1)
    worker = workers.start_worker()
    for _ in range(2):
        workers.end_worker(worker)
    assert not worker.process.is_alive()
    assert list(workers.answers()) == []


def test_a_worker_that_is_killed_in_the_middle_loses_only_its_present_task() -> None:

    def killed_once() -> Iterator[Any]:
        for number, (_, items) in enumerate(ProcessEngine(workers=1, shard=6).run(TellsProcess(seconds=0.1), range(6))):
            yield from items
            if number == 2:
                os.kill(items[0][1], signal.SIGKILL)

    with pytest.warns(AttentestWarning, match=r"the worker process \d+ has ended while it worked, .* its tasks go to"):
        done = list(killed_once())
    assert [task for task, *_ in done] == list(range(6))
    assert len({process for _, process, *_ in done}) == 2


def test_a_worker_that_stops_in_the_middle_of_an_answer_is_ended() -> None:
    """The driver then waits for the rest of the answer."""

    def stopped_once() -> Iterator[Any]:
        for number, (_, (item,)) in enumerate(
            ProcessEngine(workers=1, worker_timeout=2.0, shard=3).run(Large(), range(3))
        ):
            yield item
            if number == 0:
                time.sleep(0.5)  # meanwhile the worker waits for the driver to read its next answer
                os.kill(item[1], signal.SIGSTOP)

    with pytest.warns(AttentestWarning, match=r"worker process \d+ has not answered for \d s; after 2 s"):
        done = list(stopped_once())
    assert [task for task, *_ in done] == [0, 1, 2]
    assert len({process for _, process, _ in done}) == 2


@pytest.mark.parametrize("when", ["at once", "later"])
def test_an_interrupt_ends_all_workers_without_a_word(when: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with started(str(program), when, "0.01") as driver:
        if when == "later":
            assert driver.stdout is not None
            assert driver.stdout.readline()
            os.killpg(driver.pid, signal.SIGINT)
        _, error = driver.communicate(timeout=300)
    assert (driver.returncode, error) == (130, "")
    wait_until_gone(driver.pid)


def test_no_worker_outlives_a_driver_that_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with started(str(program), "later", "60") as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline()  # of task 0; the workers are busy with others for a minute
        driver.kill()
        driver.communicate(timeout=300)
    wait_until_gone(driver.pid)


def test_programs_that_workers_cannot_import(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(UNGUARDED)
    with started(str(program)) as unguarded, started("-") as from_input:
        _, error = unguarded.communicate(timeout=300)
        done, own_error = from_input.communicate(OWN_WORK, timeout=300)
    *_, last = error.splitlines()
    assert "InputError: worker processes import the program" in last
    assert 'put the call under if __name__ == "__main__":' in last
    assert error.count("Traceback") == 1  # the workers say nothing
    assert done == "[['1: done']]\n"  # a work that can be imported is done
    *_, last = own_error.splitlines()
    assert "InputError: the worker processes cannot use this work (AttributeError: Can't get attribute 'Mine'" in last
    assert "define what it uses in a module that they can import" in last


def test_works_that_cannot_be_sent_or_received(monkeypatch: pytest.MonkeyPatch) -> None:
    class Local(Named):
        pass

    test = AttentionTest(lambda images: images.mean((1, 2)), image_shape=(1, 2, 2), noise=1.0)
    with ProcessEngine(workers=1) as engine:
        with pytest.raises(InputError, match=r"cannot be sent to other processes .*Local.* use the engine 'local'"):
            list(engine.run(Local(), range(3)))
        with pytest.raises(InputError, match="cannot be sent to other processes"):
            test.map(np.zeros((2, 2, 2)), engine=engine)
        with pytest.raises(InputError, match="cannot be sent to other processes"):
            list(engine.run(Named(), [lambda: None]))
        with pytest.raises(InputError, match=r"processes cannot use this work .*'mean'.*not in a notebook"):
            list(engine.run(NotHere(), range(3)))
        assert list(engine.run(Named(), [])) == []
    monkeypatch.setattr("attentest.runs.process_engine.serve", end_at_once)
    monkeypatch.setattr("attentest.runs.pool.MOST_LOST_AT_START", 2)
    with pytest.raises(InputError, match=r"2 workers in a row could not be started \(exit code 5\)"):
        list(ProcessEngine(workers=1).run(Named(), range(3)))


def test_the_numbers_of_workers_and_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(18)), raising=False)
    assert [_numbers(None, None, 0), _numbers(None, 4, 0), _numbers(3, None, 0)] == [(18, 1), (4, 4), (3, 1)]
    assert _numbers(None, 100, 0) == (1, 100)
    assert [_numbers(None, None, 1), _numbers(None, None, 2), _numbers(3, 2, 2)] == [(4, 4), (8, 2), (3, 2)]
    assert _numbers(40, None, 1) == (40, 1)
    assert [_gpu_shard_size(total, 4) for total in (None, 3, 1000, 2000, 2100)] == [500, 1, 250, 500, 263]


def test_the_gpus_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert _gpus(torch.device("cpu")) == []
    assert _gpus(torch.device("cuda")) == _gpus(torch.device("cuda:0")) == ["0", "1", "2"]
    assert _gpus(torch.device("cuda:2")) == ["2"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-a,6")
    assert _gpus(torch.device("cuda")) == ["4", "GPU-a", "6"]
    with ProcessEngine(workers=5, shard=1) as engine:
        for device, expected in (
            (Device("cuda", 0), {"4,GPU-a,6", "GPU-a,6,4", "6,4,GPU-a"}),
            (Device("cuda", 1), {"4,GPU-a,6"}),
        ):
            told = processes(engine, TellsProcess(device, seconds=0.3), 15)
            assert {environment["CUDA_VISIBLE_DEVICES"] for *_, environment in told.values()} == expected


@pytest.mark.slow
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_workers_that_share_a_gpu_give_what_the_local_engine_gives() -> None:
    images = np.random.default_rng(0).normal(size=(40, 16, 16))
    test = AttentionTest.from_pretrained(bundled_model(), noise=1.0, device="cuda", confidence_level=None)
    local = list(test.map(images))
    with ProcessEngine(workers=2) as engine:
        for _ in range(2):
            shared = list(test.map(images, engine=engine))
            assert [result.statistic for result in shared] == [result.statistic for result in local]
            # A GPU rounds otherwise in batches of another size, so that a search may visit other points.
            for result, alone in zip(shared, local, strict=True):
                assert result.pvalue_bounds[0] <= alone.pvalue_bounds[1]
                assert alone.pvalue_bounds[0] <= result.pvalue_bounds[1]


def test_what_cannot_be_an_engine() -> None:
    for name in ("workers", "cores", "shard"):
        with pytest.raises(InputError, match=f"{name} must be at least 1"):
            ProcessEngine(**{name: 0})
    with pytest.raises(InputError, match="worker_timeout must be"):
        ProcessEngine(worker_timeout=0)
    assert ProcessEngine(workers=3).describe() == {"engine": "processes", "workers": 3}
    assert ProcessEngine().describe() == {"engine": "processes"}
