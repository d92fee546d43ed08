"""A run of the benchmark."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from attentest.registry import COMPARISONS
from attentest.studies.benchmark.measurement import BenchSettings, NotMeasured, Ratio, Workload
from attentest.training.classifier import described_machine

Progress = Callable[[float, float, str], None]

MACHINE = ("device", "device_type", "threads", "processor", "cores")
"""What tells machines from each other; versions of packages, which change speeds too, are recorded beside it."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a run measured, and on what.

    Parameters
    ----------
    date
        When it ended, with its time zone.
    machine
        Description of the machine, JSON-ready.
    settings
        Those of the benchmark, JSON-ready.
    ratios
        All that was measured.
    left_out
        The comparisons that could not be made, and why.
    """

    date: datetime.datetime
    machine: dict[str, Any]
    settings: dict[str, Any]
    ratios: tuple[Ratio, ...]
    left_out: dict[str, str]

    @property
    def conditions(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Machine and settings: runs in which they are equal can be compared."""
        return {name: self.machine.get(name) for name in MACHINE}, self.settings

    def as_dict(self) -> dict[str, Any]:
        """Return everything, JSON-ready."""
        return {
            "date": self.date.isoformat(timespec="seconds"),
            "machine": self.machine,
            "settings": self.settings,
            "ratios": [one.as_dict() for one in self.ratios],
            "left_out": self.left_out,
        }


def run_benchmark(
    settings: BenchSettings, only: Sequence[str] = (), progress: Progress = lambda done, total, label: None
) -> Run:
    """Make comparisons, by default all, and return what they measured."""
    comparisons = {name: COMPARISONS.load(name) for name in only or COMPARISONS}
    workload = Workload(settings)
    machine = {**described_machine(workload.device), "processor": _processor(), "cores": os.cpu_count()}
    ratios: list[Ratio] = []
    left_out: dict[str, str] = {}
    for place, (name, measure) in enumerate(comparisons.items()):
        progress(place, len(comparisons), name)
        try:
            ratios.extend(measure(workload))
        except NotMeasured as reason:
            left_out[name] = str(reason)
    return Run(
        date=datetime.datetime.now(datetime.UTC),
        machine=machine,
        settings=asdict(settings),
        ratios=tuple(ratios),
        left_out=left_out,
    )


def _processor() -> str:
    """Return the name of the processor, as far as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line for line in lines if line.lower().startswith(("model name", "cpu part")))
    return " ".join(next(named, platform.processor() or platform.machine()).split())
