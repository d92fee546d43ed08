"""The benchmark: the cost of a p-value with each search, side by side in one run."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from inspect import unwrap
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attentest.api import AttentionTest
from attentest.attention import ViTScores, load_model
from attentest.attention.device import usable_device
from attentest.checks import whole_number
from attentest.results.result import AttentionTestResult
from attentest.search import Fixed, GridSearch, SearchProblem, SpectralSearch
from attentest.search.spectral.cells import inside_and_undecided
from attentest.search.spectral.pieces import Pieces, corrected_pieces, fresh_pieces
from attentest.search.spectral.segments import SegmentTable
from attentest.simulation.synthetic_images import null_images
from attentest.training.bundled import BUNDLED, bundled_model
from attentest.training.classifier import Progress
from attentest.training.provenance import described_machine

EXTRAPOLATED_FROM = 2048  # evaluations on which the fixed search is timed if it is not run to its end
ONE_BY_ONE = 10  # images that are tested one at a time
COUNTS = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)  # numbers of images tested together

STAGES: dict[str, tuple[Callable[..., Any], ...]] = {
    "model": (SearchProblem.scores_at,),
    "interpolation": (fresh_pieces, corrected_pieces, Pieces.interpolants),
    "roots": (inside_and_undecided,),
    "bookkeeping": tuple(getattr(SegmentTable, name) for name in ("add", "remove", "zones", "log_bounds", "sets")),
}
"""Functions of the spectral search whose time makes up each stage; none of them calls another."""


@dataclass(frozen=True, kw_only=True)
class BenchSettings:
    """What to measure, on bundled models given as (architecture, side).

    Of the null images ``images`` go to ``map`` with the spectral search, whose error bar has the width ``tol``, and
    ``grid_images`` to the adaptive and the combination search. The fixed search is run to its end on ``fixed_images``,
    to compare p with; if that is 0, its time is extrapolated from a few evaluations.
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
    """One search on one model: means per image, and differences from the p-values of the fixed search."""

    model: str
    pixels: int
    parameters: int
    search: str
    images: int
    evaluations: float
    seconds: float
    extrapolated: bool = False
    largest_difference: float | None = None
    median_difference: float | None = None
    peak_mebibytes: float | None = None


@dataclass(frozen=True, kw_only=True)
class Report:
    """All measurements, JSON-ready; times are seconds per image."""

    machine: dict[str, Any]
    settings: dict[str, Any]
    rows: list[Row]
    growth: list[dict[str, float]]
    stages: dict[str, float]

    def to_json(self) -> str:
        """Return the report as JSON."""
        return json.dumps(asdict(self), indent=2, allow_nan=False) + "\n"


def run_benchmark(settings: BenchSettings, progress: Progress = lambda done, total: None) -> Report:
    """Measure everything; takes a quarter of an hour on two cores."""
    device = usable_device(settings.device)
    steps = 7 * len(settings.sizes) + 2
    rows: list[Row] = []
    for architecture, size in settings.sizes:
        for row in _rows_of_model(settings, device, architecture, size):
            rows.append(row)
            progress(len(rows), steps)
    architecture, size = settings.sizes[min(2, len(settings.sizes) - 1)]
    model = load_model(bundled_model(size, architecture)).encoder
    images = null_images(np.random.default_rng(settings.seed), settings.images, size)
    search = SpectralSearch(tol=settings.tol)
    test = AttentionTest(model, noise=1.0, search=search, device=device, confidence_level=None)
    growth = _growth(test, images)
    progress(steps - 1, steps)
    stages = _stages(test.with_search(replace(search, precision="float64")), images, model)
    progress(steps, steps)
    machine = described_machine(device)
    return Report(machine=machine, settings=asdict(settings), rows=rows, growth=growth, stages=stages)


def _rows_of_model(settings: BenchSettings, device: torch.device, architecture: str, size: int) -> Iterator[Row]:
    model = load_model(bundled_model(size, architecture)).encoder
    images = null_images(np.random.default_rng(settings.seed), settings.images, size)
    parameters = sum(p.numel() for p in model.parameters())
    new_row = partial(Row, model=f"{architecture} {size}x{size}", pixels=size * size, parameters=parameters)

    def a_test(search: Any) -> AttentionTest:
        return AttentionTest(model, noise=1.0, search=search, device=device, confidence_level=None)

    exact = a_test(SpectralSearch(tol=settings.tol, precision="float64"))
    mixed = a_test(SpectralSearch(tol=settings.tol, precision="mixed"))
    exact.map(images[:2])
    mixed.map(images[:2])  # the first call of anything is slow
    fixed, truth = _fixed(a_test("fixed"), images, settings.fixed_images)

    def row(name: str, count: int, work: Callable[[], Sequence[AttentionTestResult]]) -> Row:
        peak = _peak_memory(device)
        seconds, results = _timed(work, device)
        compared = [abs(r.pvalue - p) for r, p in zip(results, truth, strict=False)]
        return new_row(
            search=name,
            images=count,
            evaluations=float(np.mean([r.evaluations for r in results])),
            seconds=seconds / count,
            largest_difference=max(compared, default=None),
            median_difference=float(np.median(compared)) if compared else None,
            peak_mebibytes=peak(),
        )

    few = images[: settings.grid_images]
    single = images[:ONE_BY_ONE]
    with_interval = exact.with_confidence_level(0.95)
    yield row("spectral, one by one", len(single), lambda: [exact(image) for image in single])
    yield row(f"spectral, map of {len(images)}", len(images), lambda: exact.map(images))
    yield row(f"spectral and 95% interval, map of {len(images)}", len(images), lambda: with_interval.map(images))
    yield row(f"spectral mixed, map of {len(images)}", len(images), lambda: mixed.map(images))
    yield row("adaptive", len(few), lambda: a_test("adaptive").map(few))
    yield row("combination", len(few), lambda: a_test("combination").map(few))
    yield new_row(search="fixed", images=settings.fixed_images, extrapolated=settings.fixed_images == 0, **fixed)


def _fixed(test: AttentionTest, images: NDArray[np.float64], count: int) -> tuple[dict[str, Any], list[float]]:
    """Return the seconds and evaluations per image of the fixed search, and its p-values on the first images."""
    if count:
        seconds, results = _timed(lambda: test.map(images[:count]), test.device)
        evaluations = float(np.mean([r.evaluations for r in results]))
        return {"seconds": seconds / count, "evaluations": evaluations}, [r.pvalue for r in results]
    evaluations = 2 * (GridSearch(step=Fixed()).extent + 3.0) / Fixed().step  # null statistics are about 3
    coarse = GridSearch(step=Fixed(step=evaluations * Fixed().step / EXTRAPOLATED_FROM))
    seconds, result = _timed(lambda: test.with_search(coarse)(images[0]), test.device)
    return {"seconds": seconds / result.evaluations * evaluations, "evaluations": evaluations}, []


def _growth(test: AttentionTest, images: NDArray[np.float64]) -> list[dict[str, float]]:
    """Return the seconds per image for growing numbers of images tested together."""
    test.map(images[:2])
    counts = [count for count in COUNTS if count <= len(images)]
    return [{"images": n, "seconds": _timed(partial(test.map, images[:n]), test.device)[0] / n} for n in counts]


def _stages(test: AttentionTest, images: NDArray[np.float64], model: Any) -> dict[str, float]:
    """Return the seconds per image of each stage of the spectral search, and of matrix products alone."""
    test.map(images[:2])
    with _stage_times(test.device) as spent:
        seconds, results = _timed(lambda: test.map(images), test.device)
    stages = {name: total / len(images) for name, total in spent.items()}
    in_all = seconds / len(images)
    floor = float(np.mean([r.evaluations for r in results])) * _matrix_products(model, test.device)
    rest = in_all - sum(stages.values())
    return {**stages, "the rest": rest, "in all": in_all, "floor: matrix products of the evaluations": floor}


@contextmanager
def _stage_times(device: torch.device) -> Iterator[dict[str, float]]:
    """Yield the seconds spent in each stage while the context lasts, by Python's own profiling hook.

    The device is waited for when a stage begins, so that earlier work is not counted, and when it ends.
    """
    stage_of: dict[CodeType, str] = {
        unwrap(function).__code__: stage for stage, functions in STAGES.items() for function in functions
    }
    spent = dict.fromkeys(STAGES, 0.0)

    def profile(frame: FrameType, event: str, _: Any) -> None:
        stage = stage_of.get(frame.f_code)
        if stage is not None and event in ("call", "return"):
            spent[stage] += _now(device) * (1 if event == "return" else -1)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield spent
    finally:
        sys.setprofile(before)


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


def _now(device: torch.device) -> float:
    """Return the time at which the device has finished all work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _timed(work: Callable[[], Any], device: torch.device) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work()
    return _now(device) - start, result


def _peak_memory(device: torch.device) -> Callable[[], float | None]:
    """Return a function that returns the peak of memory from now on in MiB: of the GPU, or of the process on Linux."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return lambda: torch.cuda.max_memory_allocated(device) / 2**20
    try:
        Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    except OSError:
        return lambda: None

    def peak() -> float | None:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), None)

    return peak
