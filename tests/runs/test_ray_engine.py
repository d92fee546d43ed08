"""The engine of Ray: what tests/runs/test_engines_with_workers.py does not test with other engines, too."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from attentest import RayEngine
from attentest.errors import InputError
from attentest.runs.ray_engine import _guarded
from attentest.runs.ray_guard import MARK, members, session_of
from engine_works import Named


def listening() -> list[str]:
    """Return the addresses at which this process and those that it started listen, in the form of /proc/net/tcp."""

    def family(process: str) -> Iterator[str]:
        yield process
        for child in Path(f"/proc/{process}/task/{process}/children").read_text().split():
            yield from family(child)

    folders = [Path(f"/proc/{process}/fd") for process in family(str(os.getpid()))]
    ours = {os.readlink(one) for folder in folders for one in folder.iterdir() if one.is_symlink()}
    tables = [Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6")]
    lines = [line.split() for table in tables for line in table.splitlines()[1:]]
    return [line[1] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in ours]


def told_of_a_local_cluster() -> tuple[set[str], str, list[int]]:
    """Return at which addresses a cluster listens, what it says of work for a GPU, and what became of a SIGTERM."""
    importlib.import_module("ray")  # before the engine, as by a program that uses it for other things
    before, received = listening(), list[int]()
    signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    with RayEngine(workers=1) as engine:
        opened = set(listening()) - set(before)
        signal.raise_signal(signal.SIGTERM)
        try:
            list(engine.run(Named(device=torch.device("cuda")), range(2)))
        except InputError as error:
            return opened, str(error), received
    return opened, "", received


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_local_cluster_listens_to_this_machine_alone_and_leaves_signals_to_the_program() -> None:
    pytest.importorskip("ray")
    # In a process of its own: Ray goes on to take itself for a machine that others cannot reach, and other tests have
    # clusters that can be.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        opened, refusal, received = process.submit(told_of_a_local_cluster).result()
    assert received == [signal.SIGTERM]
    assert "no machine of the Ray cluster has a GPU" in refusal
    assert len(opened) >= 3
    assert not [one for one in opened if "0100007F:" not in one]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_nothing_of_a_cluster_is_left_when_its_driver_is_gone() -> None:
    with _guarded() as mark:
        # Its second process has another environment, as agents that write their names over theirs.
        command = ["sh", "-c", "env -i sleep 60 & echo $!; wait"]
        started: dict[str, Any] = {"env": {**os.environ, **mark}, "stdout": subprocess.PIPE, "start_new_session": True}
        left = subprocess.Popen(command, **started)
        assert left.stdout is not None
        with left.stdout as pipe:
            agent = int(pipe.readline())
        left.send_signal(signal.SIGSTOP)  # it would not end by itself
        other = subprocess.Popen(["sleep", "60"])
    assert left.wait(60) == -signal.SIGKILL
    assert members(mark[MARK], set()) == []
    assert session_of(agent) is None
    assert other.poll() is None
    other.kill()
    other.wait()


def test_what_cannot_be_an_engine() -> None:
    with pytest.raises(InputError, match="workers must be at least 1"):
        RayEngine(workers=0)
    with pytest.raises(InputError, match="shard must be at least 1"):
        RayEngine(shard=0)
    with pytest.raises(InputError, match="address must be a text"):
        RayEngine(address=5)  # type: ignore[arg-type]
    pytest.importorskip("ray")
    for address in ("127.0.0.1:9", "nonsense"):
        with pytest.raises(InputError, match=f"there is no Ray cluster at {address}"), RayEngine(address=address):
            pass
