"""Batches on the workers of a real Ray cluster: the records of the local run, whatever happens to workers and nodes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attentest import AttentionTest, InputError
from attentest.api.batch_run import BatchRun
from attentest.api.engine import LocalEngine
from attentest.api.ray_engine import RayEngine
from attentest.api.shards import MOST_TRIES, Shard
from attentest.images.source import ImageSource
from attentest.pipeline.stream import Progress
from attentest.search import SpectralSearch

COUNT = 9

HEAD = {"num_cpus": 1, "include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
"""The first node, without the processes that nothing here needs."""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two nodes on this machine, with room for one worker each."""
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_worker_niceness", "0")  # or other tests on the same cores delay it for minutes
    from ray.cluster_utils import Cluster

    found = Cluster(initialize_head=True, head_node_args=HEAD)
    found.add_node(num_cpus=1)
    yield found
    found.shutdown()


def made_run(folder: Path, ends_workers: bool = False) -> BatchRun:
    """Return a run over files; images with a great pixel end the first process that tests them, or every one."""

    class Scores:  # local, so that it is sent to the workers by value
        image_shape = (1, 2, 2)
        device = torch.device("cpu")
        batch_size = 8

        def __call__(self, images: torch.Tensor) -> torch.Tensor:
            greatest = float(images.max())
            flag = folder / "once"
            if greatest > 1000 or (greatest > 100 and ends_workers and not flag.exists()):
                if not ends_workers:
                    raise RuntimeError("no such image")
                flag.touch()
                os._exit(1)
            return torch.softmax(torch.tanh(images.flatten(1)), dim=1).unflatten(1, (2, 2))

    for number, image in enumerate(np.random.default_rng(3).normal(size=(COUNT, 2, 2))):
        image[0, 0] += {5: 200.0, 8: 5000.0}.get(number, 0.0)
        np.save(folder / f"{number}.npy", image)
    (folder / "2.npy").write_bytes(b"junk")
    test = AttentionTest(Scores(), noise=1.0, search=SpectralSearch(tol=1e-3), confidence_level=None)
    return BatchRun(test=test, images=[ImageSource(path=folder / f"{number}.npy") for number in range(COUNT)])


def made_work(device_type: str) -> Any:
    """Return work that fails on even tasks."""

    class Work:  # local, so that it is sent to the workers by value
        device = torch.device(device_type)

        def run(self, tasks: Sequence[int], progress: Progress | None = None) -> Iterator[list[str]]:
            for task in tasks:
                if task % 2 == 0:
                    raise ValueError("no such thing")
                yield [f"{task}: done"]

        def lost(self, task: int, reason: str) -> str:
            return f"{task}: {reason}"

    return Work()


def values(rows: list[dict[str, Any]]) -> dict[str, Any]:
    names = [row["image"] for row in rows]
    assert len(names) == len(set(names))  # each image exactly once
    return {row["image"]: row.get("pvalue", "failed") for row in rows}


def assert_same(found: dict[str, Any], local: dict[str, Any]) -> None:
    assert found.keys() == local.keys()
    for name, p in local.items():
        assert found[name] == (p if p == "failed" else pytest.approx(p, abs=1e-9)), name


def test_a_cluster_gives_what_the_local_engine_gives_whatever_it_loses(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One test, because every worker that is started imports torch and transformers, which takes seconds."""
    run = made_run(tmp_path)
    local = values([row for _, rows in LocalEngine().run(run, range(COUNT)) for row in rows])
    images = [np.random.default_rng(number).normal(size=(2, 2)) for number in range(9)]
    with RayEngine(address=cluster.address, workers=2) as engine:
        for shard in (4, 1, 100):
            engine.shard = shard
            assert_same(values([row for _, rows in engine.run(run, range(COUNT)) for row in rows]), local)
        engine.shard = 2
        with pytest.raises(InputError, match="no machine of the Ray cluster has a GPU"):
            list(engine.run(made_work("cuda"), range(COUNT)))
        broken = [row for _, rows in engine.run(made_work("cpu"), range(3)) for row in rows]
        assert sorted(broken) == ["0: ValueError: no such thing", "1: done", "2: ValueError: no such thing"]
        for given in (images, iter(images)):
            results = run.test.map(given, engine=engine)
            assert [result.pvalue for result in results] == pytest.approx(
                [result.pvalue for result in run.test.map(images)], abs=1e-9
            )

        monkeypatch.setattr("attentest.api.shards.MOST_TRIES", 2)
        rows: list[dict[str, Any]] = []
        for _, some in engine.run(made_run(tmp_path, ends_workers=True), range(COUNT)):
            if not rows:
                cluster.remove_node(next(iter(cluster.worker_nodes)))
            rows += some
    failed = {Path(name).stem for name, p in local.items() if p == "failed"}
    assert failed == {"2", "8"}  # the broken file, and the image that ends every worker
    assert_same(values(rows), local)
    assert "its worker ended 2 times" in next(row["error"] for row in rows if row["image"].endswith("8.npy"))


def test_shards_that_ended_their_worker_are_halved_and_a_single_task_is_tried_three_times() -> None:
    assert Shard((1, 2, 3)).again() == [Shard((1,)), Shard((2, 3))]
    shard = Shard((1,))
    for _ in range(MOST_TRIES - 1):
        assert not shard.is_hopeless
        (shard,) = shard.again()
    assert MOST_TRIES == 3
    assert shard.is_hopeless
    assert not Shard((1, 2), tries=MOST_TRIES).is_hopeless


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


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_local_cluster_listens_to_this_machine_alone() -> None:
    pytest.importorskip("ray")  # imported before the engine, as by a program that uses it for other things
    before = listening()
    with RayEngine(workers=1):
        opened = set(listening()) - set(before)
    assert len(opened) >= 3
    assert not [one for one in opened if "0100007F:" not in one]


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
