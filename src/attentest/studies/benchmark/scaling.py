"""How the cost of p alone grows with pixels, tokens, layers, images, draws and workers, and the exponents of it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from attentest.attention.device import usable_device
from attentest.errors import counted
from attentest.images.preprocessing import Preprocessing
from attentest.presentation.figure import BLUE, VERMILION, make_logarithmic, new_figure
from attentest.runs.process_engine import ProcessEngine
from attentest.simulation.images import null_images
from attentest.studies.benchmark.measurement import (
    SCALING,
    BenchSettings,
    Quantity,
    Ratio,
    Workload,
    ratios,
    side_by_side,
)
from attentest.studies.benchmark.own_process import measured_alone, random_test, with_memory
from attentest.studies.rate_figures import draw_grid

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attentest.studies.benchmark.history import Run

SIDE = 48  # of the model's input
PATCH = 6  # side of its patches, where tokens do not grow
IMAGES = 4  # images that are tested together where their number does not grow
GAMMA = 0.5
SIDES = (48, 96, 192, 384)  # of images that are resized to the model's input
PATCHES = (12, 6, 4, 3)  # sides of patches: 17 to 257 tokens with that of the class
LAYERS = (1, 2, 4)
COUNTS = (4, 8, 16)  # numbers of images; workers share the last
DRAWS = (1, 2, 4)
WORKERS = (1, 2, 4)


def scaling(workload: Workload) -> Iterator[Ratio]:
    """Compare seconds and memory of each size with those of the smallest, which :func:`growths` puts together again."""
    for against, costs in measured_alone(measure_scaling, workload.settings).items():
        yield from ratios({f"{against}: {size}": costs[size] for size in reversed(costs)})


def measure_scaling(settings: BenchSettings) -> dict[str, dict[str, dict[Quantity, float]]]:
    """Return seconds, and bytes where they can be told, of all images of each size, by what grows and its size."""
    device = usable_device(settings.device)
    measured: dict[str, dict[str, dict[Quantity, float]]] = {}
    for against, works in growing_works(settings).items():
        next(iter(works.values()))()  # the first call of anything is slow
        times = side_by_side(works, device, settings.repeats)
        measured[against] = {size: {"seconds": seconds} for size, (seconds, _) in times.items()}
        memory = {size: _bytes(work, device) for size, work in works.items()}
        if all(memory.values()):
            for size, taken in memory.items():
                measured[against][size]["bytes"] = taken
    test = random_test(settings, image_size=SIDE, patch_size=PATCH, num_channels=1)
    images = null_images(np.random.default_rng(settings.seed), COUNTS[-1], SIDE)
    measured["workers"] = {}
    for workers in WORKERS:
        with ProcessEngine(workers=workers) as engine:
            work = partial(test.map, images, engine=engine)
            ((seconds, _),) = side_by_side({"": work}, device, settings.repeats, warm_up=True).values()  # starts them
        measured["workers"][str(workers)] = {"seconds": seconds}
    return measured


def growing_works(settings: BenchSettings) -> dict[str, dict[str, Callable[[], object]]]:
    """Return the tests whose cost in this process is measured, by what grows and its size, from the smallest on."""
    rng = np.random.default_rng(settings.seed)
    make = partial(random_test, settings, image_size=SIDE, num_channels=1)
    test, resizing = make(patch_size=PATCH), make(patch_size=PATCH, preprocessing=Preprocessing(resize=(SIDE, SIDE)))
    images = null_images(rng, max(IMAGES, COUNTS[-1]), SIDE)
    few = images[:IMAGES]
    return {
        "pixels": {str(side**2): partial(resizing.map, null_images(rng, IMAGES, side)) for side in SIDES},
        "tokens": {str((SIDE // patch) ** 2 + 1): partial(make(patch_size=patch).map, few) for patch in PATCHES},
        "layers": {str(n): partial(make(patch_size=PATCH, num_hidden_layers=n).map, few) for n in LAYERS},
        "images": {str(count): partial(test.map, images[:count]) for count in COUNTS},
        "draws": {str(draws): partial(test.replace(randomise=GAMMA, draws=draws).map, few) for draws in DRAWS},
    }


def _bytes(work: Callable[[], object], device: torch.device) -> int:
    """Return the bytes that a work takes at most, of the device where it has a memory of its own; 0 if unknown."""
    with suppress(AttributeError, OSError, TypeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)  # or what earlier works freed would be enough, and nothing be counted
    _, memory = with_memory(work, device)
    return memory["memory of the device"] or memory["memory"] or 0


class Growth(NamedTuple):
    """How a cost grows with a size: about as factor * size ** exponent."""

    against: str  # what grows
    quantity: Quantity  # what is measured
    sizes: tuple[int, ...]
    costs: tuple[float, ...]  # of each size
    exponent: float
    error: float  # standard error of the exponent
    factor: float

    @property
    def power(self) -> str:
        """The exponent, and in brackets its standard error."""
        return f"{self.exponent:.2f} ({self.error:.2f})"


def fitted(against: str, quantity: Quantity, costs: Mapping[int, float]) -> Growth:
    """Return the growth that fits costs, by their sizes, best: least squares in logarithms, of three sizes or more."""
    sizes, in_order = zip(*sorted(costs.items()), strict=True)
    (exponent, level), covariance = np.polyfit(np.log(sizes), np.log(in_order), 1, cov=True)
    error, factor = np.sqrt(covariance[0, 0]), np.exp(level)
    return Growth(against, quantity, sizes, in_order, float(exponent), float(error), float(factor))


def growths(run: Run) -> list[Growth]:
    """Return what a run measured of growing sizes, and the exponents."""
    costs: dict[tuple[str, Quantity], dict[int, float]] = {}
    for ratio in run.ratios:
        if ratio.comparison == SCALING:
            for name, cost in ((ratio.of, ratio.numerator), (ratio.over, ratio.denominator)):
                against, size = name.split(": ")
                costs.setdefault((against, ratio.quantity), {})[int(size)] = cost
    return [fitted(against, quantity, by_size) for (against, quantity), by_size in costs.items()]


def scaling_figure(run: Run) -> Figure:
    """Draw seconds against each size that grows, with the fitted lines; memory, where it is known, on the right."""
    measured = growths(run)
    names = list(dict.fromkeys(growth.against for growth in measured))
    figure = new_figure(11.0, 6.5)
    for place, name in enumerate(names):
        axes = figure.add_subplot(-(-len(names) // 3), 3, place + 1)
        titles = []
        for growth in (growth for growth in measured if growth.against == name):
            panel, colour, unit, label = axes, BLUE, 1.0, "seconds"
            if growth.quantity == "bytes":
                panel, colour, unit, label = axes.twinx(), VERMILION, 2.0**20, "MiB"
            sizes = np.array(growth.sizes)
            panel.plot(sizes, np.array(growth.costs) / unit, "o", color=colour, ms=5)
            panel.plot(sizes, growth.factor * sizes**growth.exponent / unit, color=colour, lw=1.2)
            panel.set_ylabel(label, color=colour)
            make_logarithmic(panel, "y")
            titles.append(f"{label}: exponent {growth.power}")
        axes.set_title("\n".join(titles), fontsize=9)
        axes.set_xlabel(name)
        make_logarithmic(axes, "x")
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        draw_grid(axes)
    figure.suptitle(f"p alone, random weights: {run.machine['device']}, {counted(run.machine['threads'], 'thread')}")
    return figure
