"""What engines with workers have in common: the records of the local run, whatever happens to the workers."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import engine_works
from attentest import AttentionTest, ProcessEngine, RayEngine
from attentest.errors import AttentestWarning
from attentest.images.image_source import ImageSource
from attentest.pipeline.file_run import BatchRun
from attentest.runs.engine import LocalEngine
from attentest.runs.pool import MOST_TRIES, Shard, shard_size
from attentest.search import SpectralSearch
from engine_works import EndsWorkers, FailsOnEven, ForgetsSome, Scores, StopsWorker, TellsProcess

COUNT = 9
HEAD = {"num_cpus": 1, "include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
"""The first node, without the processes that nothing here needs."""


class WithWorkers(NamedTuple):
    """An engine with two workers, and how one of them is lost."""

    engine: Any
    lose: Callable[[], None]


@pytest.fixture(params=["processes", "ray"])
def with_workers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[WithWorkers]:
    if request.param == "processes":
        engine = ProcessEngine(workers=2)

        def kill() -> None:
            (_, items), *_ = engine.run(TellsProcess(), [0])
            os.kill(items[0][1], signal.SIGKILL)

        yield WithWorkers(engine, kill)
        return
    ray = pytest.importorskip("ray")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_worker_niceness", "0")  # or other tests on the same cores delay it for minutes
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args=HEAD)  # two nodes on this machine, a worker on each
    cluster.add_node(num_cpus=1)
    ray.cloudpickle.register_pickle_by_value(engine_works)  # the nodes do not have the folder of the tests
    yield WithWorkers(
        RayEngine(address=cluster.address, workers=2),
        lambda: cluster.remove_node(next(iter(cluster.worker_nodes))),
    )
    ray.cloudpickle.unregister_pickle_by_value(engine_works)
    cluster.shutdown()


def made_run(folder: Path) -> BatchRun:
    """Return a run over files, one of which is broken and one of which cannot be tested."""
    for number, image in enumerate(np.random.default_rng(3).normal(size=(COUNT, 2, 2))):
        np.save(folder / f"{number}.npy", image + (5000.0 if number == 8 else 0.0))
    (folder / "2.npy").write_bytes(b"junk")
    test = AttentionTest(Scores(), noise=1.0, search=SpectralSearch(tol=1e-3), confidence_level=None)
    return BatchRun(test=test, images=[ImageSource(path=folder / f"{number}.npy") for number in range(COUNT)])


def values(rows: list[dict[str, Any]]) -> dict[str, Any]:
    names = [row["image"] for row in rows]
    assert len(names) == len(set(names))  # each image exactly once
    return {row["image"]: "failed" if "error" in row else row["results"][0]["pvalue"] for row in rows}


def assert_same(found: dict[str, Any], local: dict[str, Any]) -> None:
    assert found.keys() == local.keys()
    for name, p in local.items():
        assert found[name] == (p if p == "failed" else pytest.approx(p, abs=1e-9)), name


@pytest.mark.filterwarnings("ignore:.*has ended while it worked")
def test_workers_give_what_the_local_engine_gives_whatever_is_lost(
    with_workers: WithWorkers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One test, because every worker that is started imports torch, which takes seconds."""
    run = made_run(tmp_path)
    local = values([row for _, rows in LocalEngine().run(run, range(COUNT)) for row in rows])
    assert {Path(name).stem for name, p in local.items() if p == "failed"} == {"2", "8"}
    images = [np.random.default_rng(number).normal(size=(2, 2)) for number in range(9)]
    monkeypatch.setattr("attentest.runs.pool.MOST_TRIES", 2)
    with with_workers.engine as engine:
        for shard in (4, 1, 100):
            engine.shard = shard
            assert_same(values([row for _, rows in engine.run(run, range(COUNT)) for row in rows]), local)
        engine.shard = 2
        broken = [item for _, items in engine.run(FailsOnEven(), range(3)) for item in items]
        assert sorted(broken) == ["0: ValueError: no such thing", "1: done", "2: ValueError: no such thing"]
        forgotten = [item for _, items in engine.run(ForgetsSome(), range(3)) for item in items]
        assert sorted(forgotten) == ["0: done", "1: done", "2: done"]
        for given in (images, iter(images)):
            results = run.test.map(given, engine=engine)
            assert [result.pvalue for result in results] == pytest.approx(
                [result.pvalue for result in run.test.map(images)], abs=1e-9
            )
        usual, engine.worker_timeout = engine.worker_timeout, 4.0
        with pytest.warns(AttentestWarning) as warned:
            resumed = [item for _, items in engine.run(StopsWorker(folder=tmp_path), range(4)) for item in items]
        engine.worker_timeout = usual  # a worker that imports torch may be silent for seconds
        silent = {str(warning.message) for warning in warned}  # of one worker, or of others, too, if they import slowly
        pattern = re.compile(r"the worker process \d+.* has not answered for \d+ s; after 4 s its tasks go to another")
        assert all(pattern.match(message) for message in silent)
        assert sorted(resumed) == [f"{number}: done" for number in range(4)]
        done: list[str] = []
        seen: list[tuple[float, int | None]] = []
        with_workers.lose()
        for tasks, items in engine.run(EndsWorkers(folder=tmp_path), range(COUNT), lambda *one: seen.append(one)):
            assert [item.split(":")[0] for item in items] == [str(task) for task in tasks]
            done += items
    expected = [f"{number}: done" for number in range(COUNT - 1)]
    assert sorted(done) == [*expected, "8: its worker ended 2 times while it was doing it"]
    assert seen[-1] == (COUNT, COUNT)


def test_shards_that_ended_their_worker_are_halved_and_a_single_task_is_tried_three_times() -> None:
    assert Shard((1, 2, 3)).again() == [Shard((1,)), Shard((2, 3))]
    shard = Shard((1,))
    for _ in range(MOST_TRIES - 1):
        assert not shard.is_hopeless
        (shard,) = shard.again()
    assert MOST_TRIES == 3
    assert shard.is_hopeless
    assert not Shard((1, 2), tries=MOST_TRIES).is_hopeless


def test_each_worker_gets_several_shards() -> None:
    assert [shard_size(total, 4) for total in (None, 1, 16, 100, 10_000)] == [32, 1, 1, 7, 32]
