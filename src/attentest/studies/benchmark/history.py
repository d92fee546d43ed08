"""Runs of the benchmark, the file of all of them with one line of JSON for each, what became slower, and a picture."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import cycle
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attentest.errors import InputError, counted
from attentest.files import check_output_path
from attentest.presentation.figure import PALETTE, make_logarithmic, new_figure
from attentest.progress import LabelledProgress
from attentest.registry import COMPARISONS
from attentest.runs.record_lines import read_lines
from attentest.runs.records import described_machine
from attentest.studies.benchmark.measurement import SCALING, BenchSettings, NotMeasured, Ratio, Workload
from attentest.studies.rate_figures import draw_grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MACHINE = ("device", "device_type", "threads", "processor", "cores")
"""What tells machines from each other; versions of packages, which change speeds too, are recorded beside it."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a run measured, and on what."""

    date: datetime.datetime  # when it ended, with its time zone
    machine: dict[str, Any]  # description of the machine, JSON-ready
    settings: dict[str, Any]  # those of the benchmark, JSON-ready
    ratios: tuple[Ratio, ...]  # all that was measured
    left_out: dict[str, str]  # the comparisons that could not be made, and why

    @property
    def conditions(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Machine and settings: runs in which they are equal can be compared."""
        return {name: self.machine.get(name) for name in MACHINE}, self.settings

    def as_dict(self) -> dict[str, Any]:
        """Return everything, JSON-ready."""
        ratios = [ratio.as_dict() for ratio in self.ratios]
        return {**vars(self), "date": self.date.isoformat(timespec="seconds"), "ratios": ratios}

    @classmethod
    def from_dict(cls, values: Any) -> Run:
        """Return a run that was written as JSON; raise a ValueError, TypeError or LookupError if it is damaged."""
        ratios: Sequence[Any] = values["ratios"]
        if not isinstance(ratios, list) or not all(isinstance(values[name], dict) for name in ("machine", "settings")):
            raise ValueError("machine, settings and ratios must be two objects and a list")
        date = datetime.datetime.fromisoformat(values["date"])
        if date.tzinfo is None:
            raise ValueError("the date has no time zone")
        measured = tuple(Ratio.from_dict(ratio) for ratio in ratios)
        return cls(date=date, machine=values["machine"], settings=values["settings"], ratios=measured, left_out={})


def run_benchmark(
    settings: BenchSettings, only: Sequence[str] = (), progress: LabelledProgress = lambda done, total, label: None
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
            ratios.extend(replace(ratio, comparison=name) for ratio in measure(workload))
        except NotMeasured as reason:
            left_out[name] = str(reason)
    date = datetime.datetime.now(datetime.UTC)
    return Run(date=date, machine=machine, settings=asdict(settings), ratios=tuple(ratios), left_out=left_out)


def _processor() -> str:
    """Return the name of the processor, as far as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line for line in lines if line.lower().startswith(("model name", "cpu part")))
    return " ".join(next(named, platform.processor() or platform.machine()).split())


SLOWER_TIME = 1.25
SLOWER_COUNT = 1.10
"""A time, or memory, that grew by more than this factor is called slower, and so is a count of evaluations."""

MOST_NAMED = 10  # most damaged lines whose numbers a note lists


class Change(NamedTuple):
    """A ratio now and in the last run under the same conditions."""

    now: Ratio
    before: Ratio

    @property
    def factor(self) -> float:
        """How it changed: a count by itself, a time by its ratio, from which the load of the machine cancels."""
        if self.now.quantity == "evaluations":
            return self.now.numerator / self.before.numerator
        return self.now.ratio / self.before.ratio

    @property
    def slower(self) -> bool:
        """Whether it is clearly slower: not if only what it is compared with became faster."""
        limit = SLOWER_COUNT if self.now.quantity == "evaluations" else SLOWER_TIME
        return min(self.factor, self.now.numerator / self.before.numerator) > limit

    def as_dict(self) -> dict[str, Any]:
        """Return which ratio it is, what it was before and how it changed, JSON-ready."""
        which = {name: getattr(self.now, name) for name in ("comparison", "of", "over", "quantity")}
        before = {"ratio_before": self.before.ratio, "numerator_before": self.before.numerator}
        return {**which, **before, "factor": self.factor, "slower": self.slower}


def damage_note(path: Path, damaged: Mapping[int, str]) -> str:
    """Return a sentence about all damaged lines of a file, by their numbers: which, why, and what to do."""
    numbers, (reason, *_) = list(damaged), damaged.values()
    if len(numbers) == 1:
        return f"line {numbers[0]} of {path} is damaged ({reason}) and is skipped: remove it to silence this note."
    more = ", ..." if len(numbers) > MOST_NAMED else ""
    return (
        f"{len(numbers):,} lines of {path} are damaged ({', '.join(map(str, numbers[:MOST_NAMED]))}{more}; the first: "
        f"{reason}) and are skipped: remove them to silence this note."
    )


def changes(run: Run, earlier: Sequence[Run]) -> dict[tuple[str, ...], Change]:
    """Return the changes of all ratios since they were last measured under the same conditions, by their keys."""
    last = {ratio.key: ratio for before in earlier if before.conditions == run.conditions for ratio in before.ratios}
    return {ratio.key: Change(ratio, last[ratio.key]) for ratio in run.ratios if ratio.key in last}


def check_history_path(path: Path) -> None:
    """Check that a run can be added to a file, before anything is measured; its directory is created."""
    check_output_path(path, "the history", (".jsonl",))
    if path.exists() and not os.access(path, os.W_OK):
        raise InputError(f"the history {path} cannot be written to: give another --history.")


def read_history(path: Path) -> tuple[list[Run], dict[int, str]]:
    """Return the runs in a file, oldest first, and by its number why each damaged line is none; no file has none."""
    runs: list[Run] = []
    damaged: dict[int, str] = {}
    read_lines(path, lambda values, _: runs.append(Run.from_dict(values)), damaged.__setitem__)
    return runs, damaged


MARKERS = "os^Dv<>"
COLUMNS = 4
MOST_DATES = 4
"""Dates below a panel; more would overlap."""

TITLE_LETTERS = 45  # letters of the title above each column
MARGIN = 1.25  # panels reach this factor beyond what is in them, so that mere noise does not look like a change
LOGARITHMIC = 4.0  # from this ratio of its ends on, an axis is logarithmic


def history_figure(runs: Sequence[Run]) -> Figure:
    """Draw the ratios of the last run, and of earlier ones on the same machine with the same settings."""
    shown = [run for run in runs if run.conditions == runs[-1].conditions]
    latest = {ratio.key: ratio for run in shown for ratio in run.ratios if ratio.comparison != SCALING}
    names = [name for name in COMPARISONS if any(ratio.comparison == name for ratio in latest.values())]
    columns = max(1, min(COLUMNS, len(names)))
    rows = max(1, -(-len(names) // columns))
    figure = new_figure(3.9 * columns, 3.7 * rows)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, name in zip(panels, names, strict=False):
        _draw_comparison(axes, name, [ratio for ratio in latest.values() if ratio.comparison == name], shown)
    for axes in panels[len(names) :]:
        axes.remove()
    settings, machine = runs[-1].settings, runs[-1].machine
    size = settings["size"]
    title = (
        f"ratios of {counted(len(shown), 'run')} of attentest bench, less is better (dashed: goals): {size}x{size} "
        f"model, {counted(settings['images'], 'image')}, {machine['device']}, {counted(machine['threads'], 'thread')}"
    )
    figure.suptitle(fill(title, TITLE_LETTERS * columns), fontsize=11)
    return figure


def _draw_comparison(axes: Axes, name: str, ratios: Sequence[Ratio], runs: Sequence[Run]) -> None:
    """Draw the ratios of one comparison against the number of the run, with dashed goals."""
    heights = [ratio.goal for ratio in ratios if ratio.goal is not None]
    for ratio, colour, marker in zip(ratios, cycle(PALETTE), cycle(MARKERS), strict=False):
        points = [
            (place, other.ratio) for place, run in enumerate(runs) for other in run.ratios if other.key == ratio.key
        ]
        heights += [height for _, height in points]
        label = f"{ratio.of} / {ratio.over}: {ratio.quantity}"
        axes.plot(*zip(*points, strict=True), f"{marker}-", color=colour, ms=4, lw=1.2, label=label)
        if ratio.goal is not None:
            axes.axhline(ratio.goal, color=colour, lw=1, ls="--", zorder=1)
    axes.set_title(f"{name}: {COMPARISONS[name].summary}", fontsize=8)
    places = np.unique(np.linspace(0, len(runs) - 1, min(MOST_DATES, len(runs))).round().astype(int))
    axes.set_xticks(places, [f"{runs[place].date:%Y-%m-%d\n%H:%M}" for place in places])
    axes.set_xlim(-0.5, len(runs) - 0.5)
    axes.tick_params(labelsize=7)
    low, high = min(heights) / MARGIN, max(heights) * MARGIN
    axes.set_ylim(low, high)
    if high > LOGARITHMIC * low:
        make_logarithmic(axes, "y")
    draw_grid(axes)
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.18), fontsize=6.5, frameon=False, borderaxespad=0)
