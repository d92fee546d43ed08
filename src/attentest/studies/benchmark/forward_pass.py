"""A forward pass of the model over the matrix products in it, which are the least that it can take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from attentest.attention import ViTScores
from attentest.studies.benchmark.ratio import Ratio
from attentest.studies.benchmark.stopwatch import side_by_side
from attentest.studies.benchmark.workload import Workload

CPU_GOAL = 1.5
"""In float64 on a CPU a forward pass should take at most this many times its matrix products."""

CPU_BATCHES = (1, 8)
CUDA_BATCHES = (64, 512)
"""Batches that are compared with the default one."""

MORE_REPEATS = 3
"""A forward pass is quick, so it is timed this many times as often as a test."""


@torch.no_grad()
def forward_pass(workload: Workload) -> Iterator[Ratio]:
    """Compare the scores of a batch with matrix products alone, and batch sizes with each other."""
    device, repeats = workload.device, MORE_REPEATS * workload.settings.repeats
    scores = ViTScores(workload.model, device=device)
    batch = scores.batch_size
    rng = np.random.default_rng(workload.settings.seed)
    images = torch.from_numpy(rng.normal(size=(batch, *scores.image_shape))).to(device)
    passes: dict[str, Callable[[], Any]] = {
        "float64": partial(scores, images),
        "float32": partial(scores.rough, images),
        "modules": partial(scores.through_modules, images),
        "products in float64": matrix_products(workload.model, batch, torch.float64, device),
        "products in float32": matrix_products(workload.model, batch, torch.float32, device),
    }
    times = {name: each.seconds / batch for name, each in side_by_side(passes, device, repeats, warm_up=True).items()}

    def ratio(of: str, over: str, numerator: float, denominator: float, goal: float | None = None) -> Ratio:
        return Ratio(
            comparison="model",
            of=of,
            over=over,
            quantity="seconds",
            numerator=numerator,
            denominator=denominator,
            goal=goal,
        )

    for precision, goal in (("float64", CPU_GOAL if device.type == "cpu" else None), ("float32", None)):
        products = times[f"products in {precision}"]
        yield ratio(f"{precision}, batch of {batch}", "its matrix products", times[precision], products, goal)
    yield ratio(f"float64, batch of {batch}", "the model's own modules", times["float64"], times["modules"])
    for size in CUDA_BATCHES if device.type == "cuda" else CPU_BATCHES:
        if size < batch:
            works = {"few": partial(scores, images[:size]), "all": partial(scores, images)}
            found = side_by_side(works, device, repeats)
            few, every = found["few"].seconds / size, found["all"].seconds / batch
            yield ratio(f"float64, batch of {size}", f"batch of {batch}", few, every)


def matrix_products(model: Any, batch: int, dtype: torch.dtype, device: torch.device) -> Callable[[], None]:
    """Return a function that computes the matrix products of a batch of evaluations, and nothing else.

    Of the last layer only the queries, the keys and the products of both are needed.
    """
    config = model.config
    tokens = (config.image_size // config.patch_size) ** 2 + 1
    hidden, inner, heads = config.hidden_size, config.intermediate_size, config.num_attention_heads
    flat = torch.randn(batch * tokens, hidden, dtype=dtype, device=device)
    square, wide = flat.new_ones(hidden, hidden), flat.new_ones(hidden, inner)
    parts = flat.reshape(batch, tokens, heads, hidden // heads).transpose(1, 2)

    @torch.no_grad()
    def products() -> None:
        for layer in range(config.num_hidden_layers):
            last = layer == config.num_hidden_layers - 1
            for _ in range(2 if last else 4):
                flat @ square
            attention = parts @ parts.mT
            if not last:
                attention @ parts
                (flat @ wide) @ wide.T

    return products
