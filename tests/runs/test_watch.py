"""The watch over workers: what is said of silence, and when it ends."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from attentest.errors import AttentestWarning
from attentest.runs.pool import START_SECONDS, Watch


@dataclass
class Told:
    """Workers, by their names, that have given so many signs of life; and those that were ended."""

    given: dict[str, int]
    killed: list[str] = field(default_factory=list)

    def signs(self) -> dict[str, int]:
        return dict(self.given)

    def name_of(self, worker: str) -> str:
        return worker

    def kill(self, worker: str) -> None:
        self.killed.append(worker)
        del self.given[worker]


def said(watch: Watch[str]) -> list[str]:
    with pytest.warns(AttentestWarning) as warned:
        watch.say()
    return [str(warning.message) for warning in warned]


def test_a_silent_worker_is_reported_once_and_then_ended() -> None:
    workers = Told({"A": 1, "B": 1})
    watch = Watch(workers, 60.0)
    for second in range(10):
        workers.given["A"] = second
        watch.look(1.0)
    watch.say()  # of nothing
    for second in range(10, 60):
        workers.given["A"] = second
        watch.look(1.0)
    assert said(watch) == ["B has not answered for 10 s; after 60 s its tasks go to another."]
    assert workers.killed == []
    watch.look(1.0)
    assert workers.killed == ["B"]
    watch.look(1.0)
    assert workers.killed == ["B"]


def test_a_short_time_is_reported_at_its_half_and_a_start_may_take_longer() -> None:
    workers = Told({"A": 1, "starting": 0})
    watch = Watch(workers, 4.0)
    for _ in range(3):
        watch.look(1.0)
    assert said(watch) == ["A has not answered for 2 s; after 4 s its tasks go to another."]
    for _ in range(int(START_SECONDS)):
        watch.look(1.0)
    assert said(watch) == ["starting has not answered for 150 s; after 300 s its tasks go to another."]
    assert workers.killed == ["A", "starting"]
