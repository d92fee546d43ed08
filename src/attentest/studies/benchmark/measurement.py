"""What a benchmark measures, ratios of two costs side by side; its runs, the file of all of them, and their picture."""

from __future__ import annotations

import datetime
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from itertools import cycle
from pathlib import Path
from statistics import median
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from attentest.attention import load_model
from attentest.attention.device import usable_device
from attentest.checks import strictly_between_0_and_1, whole_number
from attentest.errors import InputError, counted
from attentest.files import check_output_path
from attentest.pipeline.attention_test import AttentionTest
from attentest.presentation.figure import PALETTE, draw_grid, make_logarithmic, new_figure
from attentest.progress import LabelledProgress
from attentest.registry import COMPARISONS
from attentest.results.result import AttentionTestResult
from attentest.runs.record_lines import read_lines
from attentest.runs.records import check_numbers, check_texts, described_machine
from attentest.search import SpectralSearch
from attentest.simulation.images import null_images
from attentest.training.bundled import BUNDLED, bundled_model

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SCALING = "scaling"  # the comparison of growing sizes, which has a table and a picture of its own

Quantity: TypeAlias = Literal["seconds", "CPU seconds", "evaluations", "bytes"]

Costs: TypeAlias = Mapping[Quantity, float]
"""What is measured of something, per image where images are tested; or the ratios of two of them that are aimed at."""


class NotMeasured(Exception):
    """Ends a comparison that cannot be made here, with the reason in a sentence."""


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """The cost of one thing over the cost of another; less is better."""

    comparison: str = ""  # name of the comparison that it is part of, which the run adds
    of: str  # what is divided
    over: str  # and by what
    quantity: Quantity  # what is measured of both, per image where images are tested
    numerator: float  # cost of what is divided
    denominator: float
    goal: float | None = None  # the ratio should be at most this; None where nothing is aimed at

    @property
    def ratio(self) -> float:
        """Numerator over denominator."""
        return self.numerator / self.denominator

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What tells it from others in the same run."""
        return self.comparison, self.of, self.over, self.quantity

    def as_dict(self) -> dict[str, Any]:
        """Return all values, and the ratio, JSON-ready."""
        return {**vars(self), "ratio": self.ratio}

    @classmethod
    def from_dict(cls, values: Any) -> Ratio:
        """Return a ratio that was written as JSON; raise a ValueError, TypeError or KeyError if it is damaged."""
        check_texts(values, ("comparison", "of", "over"))
        check_numbers(values, ("numerator", "denominator", *(["goal"] if values.get("goal") is not None else [])))
        if values["quantity"] not in get_args(Quantity):
            raise ValueError(f"quantity must be one of {', '.join(get_args(Quantity))}")
        if not (values["numerator"] > 0 and values["denominator"] > 0):
            raise ValueError("numerator and denominator must be positive")
        return cls(**{field.name: values.get(field.name) for field in fields(cls)})


def ratios(costs: Mapping[str, Costs], goals: Costs | None = None) -> Iterator[Ratio]:
    """Yield all that is measured of things, by their names, over the same of the last of them."""
    *others, (over, denominators) = costs.items()
    for of, numerators in others:
        for quantity, numerator in numerators.items():
            divided: dict[str, Any] = {"numerator": numerator, "denominator": denominators[quantity]}
            yield Ratio(of=of, over=over, quantity=quantity, goal=(goals or {}).get(quantity), **divided)


Outcome = TypeVar("Outcome")


def now(device: torch.device) -> float:
    """Return the time at which the device has finished all work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def timed(work: Callable[[], Outcome], device: torch.device) -> tuple[float, Outcome]:
    """Run a work once, and return its seconds and what it returned."""
    start = now(device)
    outcome = work()
    return now(device) - start, outcome


def side_by_side(
    works: Mapping[str, Callable[[], Outcome]], device: torch.device, repeats: int, *, warm_up: bool = False
) -> dict[str, tuple[float, Outcome]]:
    """Run works one after the other, several times, and return the median time of each and what it returned last.

    With ``warm_up`` each is run once more before, because the first call of anything is slow; works that take long are
    warmed up by their caller, on less.
    """
    if warm_up:
        for work in works.values():
            work()
    runs = [{name: timed(work, device) for name, work in works.items()} for _ in range(repeats)]
    return {name: (median(run[name][0] for run in runs), runs[-1][name][1]) for name in works}


SIZES = tuple(size for architecture, size in BUNDLED if architecture == "base")
"""Sides of the images of the models that can be measured: the bundled ones of the base architecture."""

MOST_IMAGES = 10**7  # upper limit on the number of images, against typing errors


@dataclass(frozen=True, kw_only=True)
class BenchSettings:
    """What to measure on."""

    size: int = 16  # side of the images in pixels, which chooses the bundled model
    images: int = 10  # null images that are tested together
    grid_images: int = 2  # how many of them the paper's searches and the authors' package test
    repeats: int = 3  # how often two things are timed, alternately; searches and packages that take long only once
    tol: float = 1e-4  # width of the error bar of the spectral search
    device: str = "cpu"
    seed: int = 0  # of the images

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise InputError(f"size must be {', '.join(map(str, SIZES[:-1]))} or {SIZES[-1]}, got {self.size}.", "size")
        whole_number(self.images, "images", 1, MOST_IMAGES)
        whole_number(self.grid_images, "grid_images", 1, MOST_IMAGES)
        if self.grid_images > self.images:
            raise InputError(
                f"grid_images must be at most {self.images}, the number of images, got {self.grid_images}.",
                "grid_images",
            )
        whole_number(self.repeats, "repeats", 1, 1000)
        strictly_between_0_and_1(self.tol, "tol")


@dataclass(frozen=True)
class Workload:
    """The model, the images and the tests of a benchmark, each made when it is first used."""

    settings: BenchSettings

    @cached_property
    def device(self) -> torch.device:
        """Where to compute."""
        return usable_device(self.settings.device)

    @cached_property
    def model(self) -> Any:
        """The bundled model, as transformers reads it."""
        return load_model(bundled_model(self.settings.size)).encoder

    @cached_property
    def images(self) -> NDArray[np.float64]:
        """Null images, (images, size, size)."""
        return null_images(np.random.default_rng(self.settings.seed), self.settings.images, self.settings.size)

    @cached_property
    def test(self) -> AttentionTest:
        """The test with the spectral search in float64, p alone."""
        search = SpectralSearch(tol=self.settings.tol, precision="float64")
        return AttentionTest(self.model, noise=1.0, search=search, device=self.device, confidence_level=None)

    @cached_property
    def mixed_test(self) -> AttentionTest:
        """The same in mixed precision."""
        return self.test.replace(search=SpectralSearch(tol=self.settings.tol, precision="mixed"))

    @property
    def few(self) -> NDArray[np.float64]:
        """The images for slow searches."""
        return self.images[: self.settings.grid_images]

    def costs(self, works: Mapping[str, Callable[[], Sequence[AttentionTestResult]]]) -> dict[str, Costs]:
        """Return the mean costs per image of works, run side by side, each of which tests images."""
        measured = side_by_side(works, self.device, self.settings.repeats)
        return {name: image_costs(*work) for name, work in measured.items()}


def image_costs(seconds: float, results: Sequence[AttentionTestResult]) -> Costs:
    """Return the mean costs per image of images that were tested in some seconds."""
    evaluations = float(np.mean([result.evaluations for result in results]))
    return {"seconds": seconds / len(results), "evaluations": evaluations}


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
    for place, name in enumerate(names):
        ratios_there = [ratio for ratio in latest.values() if ratio.comparison == name]
        _draw_comparison(figure.add_subplot(rows, columns, place + 1), name, ratios_there, shown)
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
