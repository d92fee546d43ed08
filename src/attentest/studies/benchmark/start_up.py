"""What is paid before anything is computed: imports and the help of the command line, over importing torch."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from statistics import median

from attentest.studies.benchmark.child_process import FRESH
from attentest.studies.benchmark.ratio import NotMeasured, Ratio
from attentest.studies.benchmark.workload import Workload

TORCH = "import torch"
STARTS = {
    TORCH: ("-c", "import torch"),
    "import AttentionTest": ("-c", "import attentest; attentest.AttentionTest"),
    "attentest --help": ("-m", "attentest", "--help"),
}
"""Arguments of Python, by what a table calls them."""


def start_up(workload: Workload) -> Iterator[Ratio]:
    """Compare the CPU seconds of new interpreters, which do not depend on what else the machine does."""
    for arguments in STARTS.values():
        _cpu_seconds(arguments)  # the files are read from the disk, and compiled, once
    runs = [
        {name: _cpu_seconds(arguments) for name, arguments in STARTS.items()} for _ in range(workload.settings.repeats)
    ]
    times = {name: median(run[name] for run in runs) for name in STARTS}
    if not times[TORCH] > 0:
        raise NotMeasured("this system does not tell the CPU time of processes that have ended.")
    for name in STARTS:
        if name != TORCH:
            yield Ratio(
                comparison="start-up",
                of=name,
                over=TORCH,
                quantity="CPU seconds",
                numerator=times[name],
                denominator=times[TORCH],
            )


def _cpu_seconds(arguments: tuple[str, ...]) -> float:
    """Return the CPU seconds of a new interpreter."""
    before = os.times()
    subprocess.run([*FRESH, *arguments], capture_output=True, check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system
