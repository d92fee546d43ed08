"""What is compared in this process: variants of the test, searches, a forward pass, and the stages of the search."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from inspect import unwrap
from types import CodeType, FrameType
from typing import Any

import numpy as np
import torch

from attentest.attention import ViTScores
from attentest.attention.encoder import Encoder
from attentest.attention.vit import read_encoder
from attentest.errors import counted
from attentest.pipeline.attention_test import AttentionTest
from attentest.results.result import AttentionTestResult
from attentest.search import Fixed, GridSearch, SearchProblem, SpectralSearch
from attentest.search.spectral.cells import inside_and_undecided
from attentest.search.spectral.pieces import Pieces, corrected_pieces, fresh_pieces
from attentest.search.spectral.segments import SegmentTable
from attentest.simulation.images import signal_images
from attentest.studies.benchmark.measurement import (
    Costs,
    NotMeasured,
    Ratio,
    Workload,
    image_costs,
    now,
    ratios,
    side_by_side,
    timed,
)

LEVEL = 0.95
WITH_INTERVAL = f"p and {LEVEL:.0%} interval"
GAMMA = 0.5
WARM_UP_IMAGES = 2


def variant(
    of: str, over: str, changed: Callable[[Workload], AttentionTest], goals: Costs | None = None
) -> Callable[[Workload], Iterator[Ratio]]:
    """Return the comparison of a changed test with the plain one, by their names: time and evaluations per image."""

    def compare(workload: Workload) -> Iterator[Ratio]:
        tests = {of: changed(workload), over: workload.test}
        for test in tests.values():
            test.map(workload.images[:WARM_UP_IMAGES])
        return ratios(workload.costs({name: partial(test.map, workload.images) for name, test in tests.items()}), goals)

    return compare


interval = variant(
    WITH_INTERVAL,
    "p alone",
    lambda workload: workload.test.replace(confidence_level=LEVEL),
    {"seconds": 2.0, "evaluations": 1.8},  # the goal is at most twice the time of p alone
)
precision = variant("mixed precision", "float64", lambda workload: workload.mixed_test)
randomised = variant(
    f"randomised selection, gamma {GAMMA:g}", "the paper's", lambda workload: workload.test.replace(randomise=GAMMA)
)
patches = variant("regions of patches", "pixels", lambda workload: workload.test.replace(region_unit="patches"))

COUNTS = (3, 10, 30, 100, 300, 1000, 3000, 10_000)  # numbers of images that are tested together
SINGLE_IMAGES = 10  # at most this many are tested one by one


def many_images(workload: Workload) -> Iterator[Ratio]:
    """Compare the time per image of growing numbers of images, in the default precision."""
    test, images = workload.test.replace(search=SpectralSearch(tol=workload.settings.tol)), workload.images
    test.map(images[:WARM_UP_IMAGES])
    works: dict[str, Callable[[], Sequence[AttentionTestResult]]] = {
        f"{counted(count, 'image')} together": partial(test.map, images[:count])
        for count in COUNTS
        if count <= len(images)
    }
    works["one by one"] = lambda: [test(image) for image in images[:SINGLE_IMAGES]]
    return ratios({name: {"seconds": costs["seconds"]} for name, costs in workload.costs(works).items()})


NEAREST, FARTHEST = 20.0, 40.0  # bounds of the absolute values of the statistics
GOAL = 2.0  # most of what lies between 0 and such a statistic cannot matter, so it should not be explored


def far_out(workload: Workload) -> Iterator[Ratio]:
    """Compare evaluations of images with a bright square and of null images, for p alone and with an interval."""
    settings = workload.settings
    side = settings.size // 3
    heights = (1.2 * NEAREST / side, 1.2 * FARTHEST / side)  # a region as large as the square has about 1 / 1.2 of it
    drawn, _ = signal_images(np.random.default_rng(settings.seed), 2 * settings.images, settings.size, heights)
    statistics = np.abs([result.statistic for result in workload.test.map(drawn)])
    bright = drawn[(statistics >= NEAREST) & (statistics <= FARTHEST)][: settings.images]
    if not len(bright):
        raise NotMeasured(
            f"none of {len(drawn)} images has a statistic of {NEAREST:g} to {FARTHEST:g}: use more images."
        )
    for name, test in {"p": workload.test, WITH_INTERVAL: workload.test.replace(confidence_level=LEVEL)}.items():
        groups = {f"{name}, |z_obs| {NEAREST:g} to {FARTHEST:g}": bright, "null images": workload.images}
        tested = {group: test.map(images) for group, images in groups.items()}
        counts = {group: np.mean([result.evaluations for result in results]) for group, results in tested.items()}
        yield from ratios(
            {group: {"evaluations": float(mean)} for group, mean in counts.items()}, {"evaluations": GOAL}
        )


EXTRAPOLATED_FROM = 2048
"""Evaluations on which the fixed search is timed on a CPU, where it would take minutes per image."""


def paper_searches(workload: Workload) -> Iterator[Ratio]:
    """Compare time and evaluations per image with the adaptive, the combination and the fixed search."""
    few, spectral, device = workload.few, workload.test, workload.device
    spectral.map(few)
    for name in ("adaptive", "combination", "fixed"):
        costs = workload.costs({"spectral": partial(spectral.map, few)})
        if name == "fixed" and device.type == "cpu":
            costs[f"{name} (extrapolated)"] = _extrapolated(workload)
        else:
            costs[name] = image_costs(*timed(partial(spectral.replace(search=name).map, few), device))
        yield from ratios(costs)


def _extrapolated(workload: Workload) -> Costs:
    """Return the costs of the fixed search, from a coarser one."""
    evaluations = 2 * (GridSearch(step=Fixed()).extent + 3.0) / Fixed().step  # null statistics are about 3
    coarse = workload.test.replace(search=GridSearch(step=Fixed(step=evaluations * Fixed().step / EXTRAPOLATED_FROM)))
    seconds, result = timed(lambda: coarse(workload.images[0]), workload.device)
    return {"seconds": seconds / result.evaluations * evaluations, "evaluations": evaluations}


CPU_GOAL = 1.5  # in float64 on a CPU a forward pass should take at most this many times its matrix products

SMALL_BATCHES = {"cpu": (1, 8), "cuda": (64, 512)}
"""Batches that are compared with the default one, by the type of the device."""

MORE_REPEATS = 3  # a forward pass is quick, so it is timed this many times as often as a test


@torch.no_grad()
def forward_pass(workload: Workload) -> Iterator[Ratio]:
    """Compare the scores of a batch with matrix products alone and with the model's own modules, and batch sizes."""
    device, repeats = workload.device, MORE_REPEATS * workload.settings.repeats
    scores, encoder = ViTScores(workload.model, device=device), read_encoder(workload.model, device=device)
    batch = scores.batch_size
    rng = np.random.default_rng(workload.settings.seed)
    images = torch.from_numpy(rng.normal(size=(batch, *scores.image_shape))).to(device)
    whole = f"batch of {batch}"
    double, single, modules = f"float64, {whole}", f"float32, {whole}", "the model's own modules"
    passes: dict[str, Callable[[], object]] = {
        double: partial(scores, images),
        single: partial(scores.rough, images),
        "products in float64": matrix_products(encoder, batch, torch.float64),
        "products in float32": matrix_products(encoder, batch, torch.float32),
        modules: partial(scores.through_modules, images),
    }
    measured = side_by_side(passes, device, repeats, warm_up=True)
    costs: dict[str, Costs] = {name: {"seconds": seconds / batch} for name, (seconds, _) in measured.items()}
    goals: Costs = {"seconds": CPU_GOAL} if device.type == "cpu" else {}
    yield from ratios({double: costs[double], "its matrix products": costs["products in float64"]}, goals)
    yield from ratios({single: costs[single], "its matrix products": costs["products in float32"]})
    yield from ratios({double: costs[double], modules: costs[modules]})
    for size in SMALL_BATCHES["cuda" if device.type == "cuda" else "cpu"]:
        if size < batch:
            sizes = {f"float64, batch of {size}": size, whole: batch}
            works = {name: partial(scores, images[:count]) for name, count in sizes.items()}
            times = side_by_side(works, device, repeats)
            yield from ratios({name: {"seconds": times[name][0] / count} for name, count in sizes.items()})


def matrix_products(encoder: Encoder, batch: int, dtype: torch.dtype) -> Callable[[], None]:
    """Return a function that computes the matrix products that a batch of evaluations needs, and nothing else.

    Of the last layer the attention of the class token is needed, for which only the keys of all tokens are computed.
    Products with the few numbers of a patch, or for the class token alone, are left out.
    """
    tokens, hidden, inner, heads = encoder.tokens.count, encoder.width, encoder.mlp_width, encoder.heads
    flat = torch.randn(batch * tokens, hidden, dtype=dtype, device=encoder.device)
    square, triple, wide = (flat.new_ones(hidden, width) for width in (hidden, 3 * hidden, inner))
    parts = flat.reshape(batch, tokens, heads, hidden // heads).transpose(1, 2)

    @torch.no_grad()
    def products() -> None:
        for _ in range(encoder.layers - 1):
            flat @ triple  # queries, keys and values
            (parts @ parts.mT) @ parts
            flat @ square
            (flat @ wide) @ wide.T
        flat @ square

    return products


STAGES: dict[str, tuple[Callable[..., Any], ...]] = {
    "model": (SearchProblem.scores_at,),
    "interpolation": (fresh_pieces, corrected_pieces, Pieces.interpolants),
    "roots": (inside_and_undecided,),
    "bookkeeping": tuple(getattr(SegmentTable, name) for name in ("add", "remove", "zones", "log_bounds", "unions")),
}
"""Functions of the spectral search whose time makes up each stage; none of them calls another."""


def stages(workload: Workload) -> Iterator[Ratio]:
    """Compare the time of each stage with that of a test, p alone in float64."""
    test, images, device = workload.test, workload.images, workload.device
    test.map(images[:WARM_UP_IMAGES])
    with stage_times(device) as spent:
        in_all, results = timed(lambda: test.map(images), device)
    evaluations = sum(result.evaluations for result in results)
    spent |= {"the rest": in_all - sum(spent.values()), "p alone": in_all}
    yield from ratios({name: {"seconds": seconds / len(images)} for name, seconds in spent.items()})
    batch = ViTScores(workload.model, device=device).batch_size
    products = matrix_products(read_encoder(workload.model, device=device), batch, torch.float64)
    works: dict[str, Callable[[], object]] = {"test": lambda: test.map(images), "products": products}
    measured = side_by_side(works, device, workload.settings.repeats, warm_up=True)
    per_image = {
        "p alone": measured["test"][0] / len(images),
        "matrix products of its evaluations": measured["products"][0] / batch * evaluations / len(images),
    }
    yield from ratios({name: {"seconds": seconds} for name, seconds in per_image.items()})


@contextmanager
def stage_times(device: torch.device) -> Iterator[dict[str, float]]:
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
            spent[stage] += now(device) * (1 if event == "return" else -1)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield spent
    finally:
        sys.setprofile(before)
