"""The benchmark: what a p-value costs with each search, side by side in one run."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray

from attentest.api import AttentionTest
from attentest.attention import ViTScores, load_model
from attentest.attention.device import usable_device
from attentest.checks import whole_number
from attentest.results.result import AttentionTestResult
from attentest.search import Fixed, GridSearch, SearchProblem, SpectralSearch, spectral
from attentest.search.spectral.pieces import Pieces
from attentest.search.spectral.segments import SegmentTable
from attentest.simulation.synthetic_images import null_images
from attentest.training.bundled import BUNDLED, bundled_model
from attentest.training.provenance import described_machine

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SLICE = 2048
"""Evaluations on which the fixed search is timed where it is not run to its end."""

ONE_BY_ONE = 10
"""Images that are tested one at a time."""

STAGES: dict[str, tuple[tuple[Any, str], ...]] = {
    "model": ((SearchProblem, "scores_at"),),
    "interpolation": ((spectral, "fresh_pieces"), (spectral, "corrected_pieces"), (Pieces, "interpolants")),
    "roots": ((spectral, "inside_and_undecided"),),
    "bookkeeping": tuple((SegmentTable, name) for name in ("add", "remove", "zones", "log_bounds", "sets")),
}
"""Functions of the spectral search whose time makes up each stage."""

Progress = Callable[[float, float], None]


@dataclass(frozen=True, kw_only=True)
class BenchSettings:
    """What to run.

    Parameters
    ----------
    sizes
        (architecture, side) of the bundled models to use.
    images
        Null images for ``map`` with the spectral search.
    grid_images
        How many of them the adaptive and the combination search get.
    fixed_images
        How many of them the fixed search is run on to its end, to compare p with; with none its time is extrapolated
        from a slice and there is nothing to compare with.
    tol
        Width of the error bar of the spectral search.
    device
        Where to compute.
    seed
        Of the images.
    """

    sizes: tuple[tuple[str, int], ...] = BUNDLED
    images: int = 100
    grid_images: int = 2
    fixed_images: int = 1
    tol: float = 1e-4
    device: str = "cpu"
    seed: int = 0

    def __post_init__(self) -> None:
        whole_number(self.images, "images", 1, 10**7)
        whole_number(self.grid_images, "grid_images", 1, self.images)
        whole_number(self.fixed_images, "fixed_images", 0, self.images)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One search on one model."""

    model: str
    pixels: int
    parameters: int
    search: str
    images: int
    evaluations: float
    seconds: float
    extrapolated: bool
    largest_difference: float | None
    median_difference: float | None
    peak_mebibytes: float | None


@dataclass(frozen=True, kw_only=True)
class Report:
    """All that was measured, JSON-ready."""

    machine: dict[str, Any]
    settings: dict[str, Any]
    rows: list[Row]
    growth: list[dict[str, float]]
    stages: dict[str, float]

    def to_json(self) -> str:
        """Return the report as JSON."""
        return json.dumps(asdict(self), indent=2, allow_nan=False) + "\n"


def run_benchmark(settings: BenchSettings, progress: Progress | None = None) -> Report:
    """Measure everything; takes a quarter of an hour on two cores."""
    device = usable_device(settings.device)
    rows: list[Row] = []
    steps = 6 * len(settings.sizes) + 2
    done = 0

    def advance() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, steps)

    for architecture, size in settings.sizes:
        for row in _rows_of_model(settings, device, architecture, size):
            rows.append(row)
            advance()
    growth = _growth(settings, device)
    advance()
    stages = _stages(settings, device)
    advance()
    return Report(
        machine=described_machine(device),
        settings=asdict(settings),
        rows=rows,
        growth=growth,
        stages=stages,
    )


def _rows_of_model(settings: BenchSettings, device: torch.device, architecture: str, size: int) -> Iterator[Row]:
    model = load_model(bundled_model(size, architecture)).encoder
    images = null_images(np.random.default_rng(settings.seed), settings.images, size)

    def a_test(search: Any) -> AttentionTest:
        return AttentionTest(model, noise=1.0, search=search, device=device, confidence_level=None)

    exact = a_test(SpectralSearch(tol=settings.tol, precision="float64"))
    mixed = a_test(SpectralSearch(tol=settings.tol, precision="mixed"))
    exact.map(images[:2])
    mixed.map(images[:2])  # the first call of anything is slow
    fixed_seconds, truth = _fixed(settings, a_test("fixed"), images)

    def row(name: str, count: int, work: Callable[[], Sequence[AttentionTestResult]]) -> Row:
        with _peak_memory(device) as peak:
            seconds, results = _timed(work, device)
        compared = [abs(r.pvalue - p) for r, p in zip(results, truth, strict=False)]
        return Row(
            model=f"{architecture} {size}x{size}",
            pixels=size * size,
            parameters=sum(p.numel() for p in model.parameters()),
            search=name,
            images=count,
            evaluations=float(np.mean([r.evaluations for r in results])),
            seconds=seconds / count,
            extrapolated=False,
            largest_difference=max(compared, default=None),
            median_difference=float(np.median(compared)) if compared else None,
            peak_mebibytes=peak(),
        )

    few = images[: settings.grid_images]
    single = images[: min(ONE_BY_ONE, settings.images)]
    first = row("spectral, one by one", len(single), lambda: [exact(image) for image in single])
    yield first
    yield row(f"spectral, map of {len(images)}", len(images), lambda: exact.map(images))
    with_interval = exact.with_confidence_level(0.95)
    yield row(f"spectral and 95% interval, map of {len(images)}", len(images), lambda: with_interval.map(images))
    yield row(f"spectral mixed, map of {len(images)}", len(images), lambda: mixed.map(images))
    yield row("adaptive", len(few), lambda: a_test("adaptive").map(few))
    yield row("combination", len(few), lambda: a_test("combination").map(few))
    yield Row(
        model=first.model,
        pixels=first.pixels,
        parameters=first.parameters,
        search="fixed",
        images=settings.fixed_images,
        evaluations=fixed_seconds[1],
        seconds=fixed_seconds[0],
        extrapolated=settings.fixed_images == 0,
        largest_difference=None,
        median_difference=None,
        peak_mebibytes=None,
    )


def _fixed(
    settings: BenchSettings, test: AttentionTest, images: NDArray[np.float64]
) -> tuple[tuple[float, float], list[float]]:
    """Return (seconds, evaluations) an image of the fixed search, and the p-values it found."""
    device = test.device
    if settings.fixed_images:
        some = images[: settings.fixed_images]
        seconds, results = _timed(lambda: test.map(some), device)
        evaluations = float(np.mean([r.evaluations for r in results]))
        return (seconds / len(some), evaluations), [r.pvalue for r in results]
    full = GridSearch(step=Fixed())
    evaluations = 2 * (full.extent + 3.0) / Fixed().step  # null statistics are about 3
    coarse = GridSearch(step=Fixed(step=evaluations * Fixed().step / SLICE))
    seconds, results = _timed(lambda: [test.with_search(coarse)(images[0])], device)
    return (seconds / results[0].evaluations * evaluations, evaluations), []


def _growth(settings: BenchSettings, device: torch.device) -> list[dict[str, float]]:
    """Return seconds an image of the spectral search for more and more images together."""
    architecture, size = settings.sizes[min(2, len(settings.sizes) - 1)]
    test = AttentionTest.from_pretrained(
        bundled_model(size, architecture),
        noise=1.0,
        search=SpectralSearch(tol=settings.tol),
        confidence_level=None,
        device=device,
    )
    images = null_images(np.random.default_rng(settings.seed + 1), settings.images, size)
    test.map(images[:2])
    counts = [count for count in (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000) if count <= settings.images]
    return [
        {"images": count, "seconds": _timed(lambda n=count: test.map(images[:n]), device)[0] / count}  # type: ignore[misc]
        for count in counts
    ]


def _stages(settings: BenchSettings, device: torch.device) -> dict[str, float]:
    """Return where the seconds an image of the spectral search in float64 go, and what matrix products alone take."""
    architecture, size = settings.sizes[min(2, len(settings.sizes) - 1)]
    model = load_model(bundled_model(size, architecture)).encoder
    search = SpectralSearch(tol=settings.tol, precision="float64")
    test = AttentionTest(model, noise=1.0, search=search, device=device, confidence_level=None)
    images = null_images(np.random.default_rng(settings.seed), settings.images, size)
    test.map(images[:2])
    with _stopwatches(device) as spent:
        seconds, results = _timed(lambda: test.map(images), device)
    count = len(images)
    stages = {name: total / count for name, total in spent.items()}
    stages["the rest"] = seconds / count - sum(stages.values())
    stages["in all"] = seconds / count
    evaluations = float(np.mean([r.evaluations for r in results]))
    stages["floor: matrix products of the evaluations"] = evaluations * _matrix_products(model, device)
    return stages


@contextmanager
def _stopwatches(device: torch.device) -> Iterator[dict[str, float]]:
    """Yield the seconds spent in each stage while the context lasts; the device is waited for at their ends."""
    spent = dict.fromkeys(STAGES, 0.0)

    def timing(stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **options: Any) -> Any:
            _timed(lambda: None, device)  # what others have left the device to do is not this stage's
            seconds, result = _timed(lambda: function(*arguments, **options), device)
            spent[stage] += seconds
            return result

        return timed

    with ExitStack() as stack:
        for stage, functions in STAGES.items():
            for owner, name in functions:
                stack.enter_context(patch.object(owner, name, timing(stage, getattr(owner, name))))
        yield spent


@torch.no_grad()
def _matrix_products(model: Any, device: torch.device) -> float:
    """Return the seconds that the matrix products of one evaluation take in a batch, and nothing else."""
    config = model.config
    batch = ViTScores(model, device=device).batch_size
    tokens = (config.image_size // config.patch_size) ** 2 + 1
    hidden, inner, heads = config.hidden_size, config.intermediate_size, config.num_attention_heads
    flat = torch.randn(batch * tokens, hidden, dtype=torch.float64, device=device)
    square, wide = flat.new_ones(hidden, hidden), flat.new_ones(hidden, inner)
    parts = flat.reshape(batch * heads, tokens, hidden // heads)

    def products() -> None:
        for _ in range(config.num_hidden_layers):
            for _ in range(4):
                flat @ square
            (flat @ wide) @ wide.T
            torch.bmm(torch.bmm(parts, parts.transpose(1, 2)), parts)

    products()
    return min(_timed(products, device)[0] for _ in range(5)) / batch


def _timed(work: Callable[[], Any], device: torch.device) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start, result


@contextmanager
def _peak_memory(device: torch.device) -> Iterator[Callable[[], float | None]]:
    """Yield a function that returns the peak of memory since then in MiB: of the GPU, or of the process on Linux."""
    status, reset = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        yield lambda: torch.cuda.max_memory_allocated(device) / 2**20
        return
    try:
        reset.write_text("5")  # starts the high-water mark anew
        readable = "VmHWM" in status.read_text()
    except OSError:
        readable = False

    def peak() -> float | None:
        if not readable:
            return None
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024

    yield peak


def benchmark_figure(report: Report) -> Figure:
    """Draw seconds an image by model and search, and how they grow with the number of images."""
    from attentest.results.plots import new_figure

    figure = new_figure(13.0, 4.4)
    bars, line = figure.subplots(1, 2, width_ratios=[2, 1])
    models = list(dict.fromkeys(row.model for row in report.rows))
    searches = list(dict.fromkeys(row.search for row in report.rows))
    width = 0.8 / len(searches)
    for place, search in enumerate(searches):
        chosen = {row.model: row for row in report.rows if row.search == search}
        extrapolated = any(row.extrapolated for row in chosen.values())
        bars.bar(
            [index + (place - (len(searches) - 1) / 2) * width for index in range(len(models))],
            [chosen[model].seconds for model in models],
            width,
            label=search + (" (extrapolated)" if extrapolated else ""),
        )
    bars.set_yscale("log")
    bars.set_xticks(range(len(models)), models)
    bars.set_ylabel("seconds an image")
    bars.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=3, frameon=False)
    bars.set_title(f"a p-value with an error bar of {report.settings['tol']:g}; {report.machine['device']}")
    line.loglog([point["images"] for point in report.growth], [point["seconds"] for point in report.growth], "o-")
    line.set_xlabel("images together")
    line.set_ylabel("seconds an image, spectral")
    line.set_title("more images at a time")
    return figure


def ratio_to_adaptive(rows: Sequence[Row], row: Row) -> float:
    """Return how many times faster than adaptive a row of the same model is."""
    adaptive = next(other for other in rows if other.model == row.model and other.search == "adaptive")
    return adaptive.seconds / row.seconds
