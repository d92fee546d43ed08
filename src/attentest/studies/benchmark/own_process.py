"""What is measured in processes of its own: large images, growing sizes, starting up, and the authors' package."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attentest.attention import ViTScores
from attentest.attention.aggregation import Rollout, Tokens
from attentest.attention.device import usable_device
from attentest.errors import counted
from attentest.images.preprocessing import Preprocessing
from attentest.pipeline.attention_test import AttentionTest
from attentest.presentation.figure import BLUE, VERMILION, draw_grid, make_logarithmic, new_figure
from attentest.runs.process_engine import ProcessEngine
from attentest.search import SpectralSearch
from attentest.simulation.images import null_images
from attentest.studies.benchmark.measurement import (
    SCALING,
    BenchSettings,
    NotMeasured,
    Quantity,
    Ratio,
    Run,
    Workload,
    ratios,
    side_by_side,
    timed,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FRESH = (sys.executable, "-P")  # a new interpreter, which does not import from the current directory


def measured_alone(measure: Callable[..., dict[str, Any]], settings: BenchSettings, *arguments: int) -> dict[str, Any]:
    """Return what a function returns in a process that computes nothing else."""
    function = f"{measure.__module__}:{measure.__name__}"
    command = [*FRESH, "-m", __name__, function, json.dumps([asdict(settings), *arguments])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise NotMeasured(f"a process of its own failed ({reason}).")
    values: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return values


INPUT = 224  # side of the model's input
SHAPES = ((480, 640), (2000, 3000))  # heights and widths of the images


def large_images(workload: Workload) -> Iterator[Ratio]:
    """Compare memory with the image's own bytes, and time with that of an image of the size of the model's input."""
    for height, width in SHAPES:
        measured = measured_alone(measure_large_image, workload.settings, height, width)
        name, small = f"{height}x{width} RGB", f"{INPUT}x{INPUT}"
        yield from ratios({name: {"seconds": measured["seconds"]}, small: {"seconds": measured["small_seconds"]}})
        for what, taken in measured["memory"].items():
            if taken:  # not 0 either: what was freed before was enough
                yield from ratios({f"{what} for {name}": {"bytes": taken}, "the image": {"bytes": measured["image"]}})


def measure_large_image(settings: BenchSettings, height: int, width: int) -> dict[str, Any]:
    """Return the seconds of a p-value, the bytes that it takes at most, and those of the 8-bit image."""
    device = usable_device(settings.device)
    preprocessing = Preprocessing(resize=(INPUT, INPUT), rescale=1 / 255, mean=(0.5,) * 3, std=(0.5,) * 3)
    test = random_test(settings, noise=10.0, preprocessing=preprocessing, image_size=INPUT)
    rng = np.random.default_rng(settings.seed)
    small, image = scene(rng, INPUT, INPUT), scene(rng, height, width)
    test(small)  # the first call of anything is slow, and takes memory once and for all
    seconds, memory = with_memory(lambda: test(image), device)
    small_seconds, _ = timed(lambda: test(small), device)
    return {"seconds": seconds, "small_seconds": small_seconds, "memory": memory, "image": image.nbytes}


def random_test(
    settings: BenchSettings, *, noise: float = 1.0, preprocessing: Preprocessing | None = None, **config: int
) -> AttentionTest:
    """Return the test of p alone in float64 of a small model with random weights, by values of its configuration."""
    from transformers import ViTConfig, ViTModel

    torch.manual_seed(settings.seed)
    small = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 96}
    return AttentionTest(
        ViTModel(ViTConfig(**{**small, "initializer_range": 0.1, **config})),
        noise=noise,
        preprocessing=preprocessing,
        search=SpectralSearch(tol=settings.tol, precision="float64"),
        confidence_level=None,
        device=usable_device(settings.device),
    )


def scene(rng: np.random.Generator, height: int, width: int) -> NDArray[np.uint8]:
    """Draw smooth blobs of colour with noise of standard deviation 10 on top, in 8 bits."""
    rows, columns = np.arange(height)[:, None], np.arange(width)
    image = np.full((height, width, 3), 110.0)
    for _ in range(12):
        centre, spread = rng.uniform(0, (height, width)), rng.uniform(0.05, 0.2) * min(height, width)
        blob = np.exp(-((rows - centre[0]) ** 2 + (columns - centre[1]) ** 2) / (2 * spread**2))
        image += blob[:, :, None] * rng.uniform(-60, 60, size=3)
    noisy: NDArray[np.float64] = image + rng.normal(scale=10, size=image.shape)
    return noisy.clip(0, 255).astype(np.uint8)


def with_memory(work: Callable[[], object], device: torch.device) -> tuple[float, dict[str, int | None]]:
    """Run a work; return its seconds, and the bytes that it takes at most beyond those that were taken before.

    Those of the process are None where the system does not tell, and those of the GPU without one.
    """

    def status(name: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))

    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
    allocated = torch.cuda.memory_allocated(device) if on_gpu else 0
    try:
        Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
        resident: int | None = status("VmRSS")
    except OSError:  # only Linux tells
        resident = None
    seconds, _ = timed(work, device)
    of_process = None if resident is None else max(0, status("VmHWM") - resident)
    of_device = torch.cuda.max_memory_allocated(device) - allocated if on_gpu else None
    return seconds, {"memory": of_process, "memory of the device": of_device}


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
    """Compare seconds and memory of each size with those of the smallest, which `growths` puts together again."""
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


STARTS = {
    "import AttentionTest": ("-c", "import attentest; attentest.AttentionTest"),
    "attentest --help": ("-m", "attentest", "--help"),
    "import torch": ("-c", "import torch"),
}
"""Arguments of Python, by what a table calls them; all are compared with the last."""


def start_up(workload: Workload) -> Iterator[Ratio]:
    """Compare the CPU seconds of new interpreters, which do not depend on what else the machine does."""
    for arguments in STARTS.values():
        _cpu_seconds(arguments)  # the files are read from the disk, and compiled, once
    runs = [
        {name: _cpu_seconds(arguments) for name, arguments in STARTS.items()} for _ in range(workload.settings.repeats)
    ]
    seconds = {name: median(run[name] for run in runs) for name in STARTS}
    if not min(seconds.values()) > 0:
        raise NotMeasured("this system does not tell the CPU time of processes that have ended.")
    yield from ratios({name: {"CPU seconds": cost} for name, cost in seconds.items()})


def _cpu_seconds(arguments: tuple[str, ...]) -> float:
    """Return the CPU seconds of a new interpreter."""
    before = os.times()
    subprocess.run([*FRESH, *arguments], capture_output=True, check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


PACKAGE = "si4attention"
"""The later package of the paper's authors; importing it changes torch's settings and random state."""

GOAL = 1 / 150  # on a CPU, p alone should take at most this share of the time


def authors_package(workload: Workload) -> Iterator[Ratio]:
    """Compare p-values of the same images, one by one; both with the same float64 forward pass of the same model.

    The package, on which attentest does not depend, interpolates attention between the outermost pixels instead of the
    centres of patches, so that its regions, statistics and p-values are others.
    """
    if find_spec(PACKAGE) is None:
        raise NotMeasured(f"{PACKAGE} is not installed: pip install {PACKAGE} 'sicore<3' in an environment to compare.")
    if workload.device.type != "cpu":
        raise NotMeasured(f"{PACKAGE} computes on the CPU only.")
    try:
        costs = measured_alone(measure_authors_package, workload.settings)
    except NotMeasured as reason:
        raise NotMeasured(f"{reason} {PACKAGE} 1.0.0 needs sicore older than 3.") from None
    yield from ratios(costs, {"seconds": GOAL})


class LayerWeights(Rollout):
    """Leaves the attention weights of the layers as they are, with the heads averaged."""

    class_row_of_last = False

    def scores(self, taken: Sequence[Tensor], tokens: Tokens) -> Tensor:
        """Return the weights (m, layers, N, N)."""
        return torch.stack(list(taken), dim=1)


class TheirModel(torch.nn.Module):
    """The interface through which the package asks a model for attention weights; it counts the evaluations."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self._weights = ViTScores(model, attention=LayerWeights())
        self.evaluations = 0

    def extract_weights(self, images: Tensor) -> Tensor:
        """Return the attention weights (m, layers, N, N) of images (m, 1, H, W)."""
        self.evaluations += len(images)
        return self._weights(images)


def measure_authors_package(settings: BenchSettings) -> dict[str, dict[str, float]]:
    """Return mean seconds and evaluations of p-values by each method, image after image, the package's last."""
    from si4attention import test_attention_map  # type: ignore[import-not-found]  # it need not be installed

    workload = Workload(settings)
    their_model = TheirModel(workload.model)
    tests = {"spectral, float64": workload.test, "spectral, mixed precision": workload.mixed_test}
    costs: dict[str, list[tuple[float, int]]] = {name: [] for name in (*tests, PACKAGE)}
    for test in tests.values():
        test(workload.images[0])
    for image in workload.few:
        data = torch.from_numpy(image)[None, None]
        before = their_model.evaluations
        seconds, _ = timed(partial(test_attention_map, their_model, data, 1.0), workload.device)
        costs[PACKAGE].append((seconds, their_model.evaluations - before))
        works = {name: partial(test, image) for name, test in tests.items()}
        for name, (seconds, result) in side_by_side(works, workload.device, settings.repeats).items():
            costs[name].append((seconds, result.evaluations))
    means = {name: np.mean(values, axis=0).tolist() for name, values in costs.items()}
    return {name: dict(zip(("seconds", "evaluations"), mean, strict=True)) for name, mean in means.items()}


if __name__ == "__main__":
    settings, *arguments = json.loads(sys.argv[2])
    print(json.dumps(resolve_name(sys.argv[1])(BenchSettings(**settings), *arguments)))
