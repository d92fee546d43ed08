"""The stages of the spectral search and of a forward pass, over the matrix products in them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
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
from attentest.search import SearchProblem
from attentest.search.spectral.cells import inside_and_undecided
from attentest.search.spectral.fresh_pieces import fresh_pieces
from attentest.search.spectral.pieces import Pieces, corrected_pieces
from attentest.search.spectral.segment_table import SegmentTable
from attentest.studies.benchmark.measurement import Ratio, Workload, now, side_by_side, timed

CPU_GOAL = 1.5
"""In float64 on a CPU a forward pass should take at most this many times its matrix products."""

CPU_BATCHES = (1, 8)
CUDA_BATCHES = (64, 512)
"""Batches that are compared with the default one."""

MORE_REPEATS = 3
"""A forward pass is quick, so it is timed this many times as often as a test."""


@torch.no_grad()
def forward_pass(workload: Workload) -> Iterator[Ratio]:
    """Compare the scores of a batch with matrix products alone and with the model's own modules, and batch sizes."""
    device, repeats = workload.device, MORE_REPEATS * workload.settings.repeats
    scores, encoder = ViTScores(workload.model, device=device), read_encoder(workload.model, device=device)
    batch = scores.batch_size
    rng = np.random.default_rng(workload.settings.seed)
    images = torch.from_numpy(rng.normal(size=(batch, *scores.image_shape))).to(device)

    passes: dict[str, Callable[[], object]] = {
        "float64": partial(scores, images),
        "float32": partial(scores.rough, images),
        "products in float64": matrix_products(encoder, batch, torch.float64),
        "products in float32": matrix_products(encoder, batch, torch.float32),
        "modules": partial(scores.through_modules, images),
    }
    measured = side_by_side(passes, device, repeats, warm_up=True)
    times = {name: work.seconds / batch for name, work in measured.items()}

    whole = f"batch of {batch}"
    for precision, goal in (("float64", CPU_GOAL if device.type == "cpu" else None), ("float32", None)):
        products = times[f"products in {precision}"]
        costs = {f"{precision}, {whole}": times[precision], "its matrix products": products}
        yield Ratio.between("seconds", costs, goal)
    yield Ratio.between("seconds", {f"float64, {whole}": times["float64"], "the model's own modules": times["modules"]})
    for size in CUDA_BATCHES if device.type == "cuda" else CPU_BATCHES:
        if size < batch:
            works = {size: partial(scores, images[:size]), batch: partial(scores, images)}
            few, every = (work.seconds / count for count, work in side_by_side(works, device, repeats).items())
            yield Ratio.between("seconds", {f"float64, batch of {size}": few, whole: every})


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
    test.map(images[:2])
    with stage_times(device) as spent:
        profiled = timed(lambda: test.map(images), device)
    in_all, evaluations = profiled.seconds, sum(result.evaluations for result in profiled.outcome)
    spent["the rest"] = in_all - sum(spent.values())
    for name, seconds in spent.items():
        yield Ratio.between("seconds", {name: seconds / len(images), "p alone": in_all / len(images)})
    batch = ViTScores(workload.model, device=device).batch_size
    products = matrix_products(read_encoder(workload.model, device=device), batch, torch.float64)
    works: dict[str, Callable[[], object]] = {"test": lambda: test.map(images), "products": products}
    measured = side_by_side(works, device, workload.settings.repeats, warm_up=True)
    per_image = {
        "p alone": measured["test"].seconds / len(images),
        "matrix products of its evaluations": measured["products"].seconds / batch * evaluations / len(images),
    }
    yield Ratio.between("seconds", per_image)


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
