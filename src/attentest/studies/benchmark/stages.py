"""The stages of the spectral search over all of it, and all of it over the matrix products of its evaluations."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import unwrap
from types import CodeType, FrameType
from typing import Any

import torch

from attentest.attention import ViTScores
from attentest.attention.vit import read_encoder
from attentest.search import SearchProblem
from attentest.search.spectral.cells import inside_and_undecided
from attentest.search.spectral.corrected_pieces import corrected_pieces
from attentest.search.spectral.fresh_pieces import fresh_pieces
from attentest.search.spectral.pieces import Pieces
from attentest.search.spectral.segment_table import SegmentTable
from attentest.studies.benchmark.forward_pass import matrix_products
from attentest.studies.benchmark.ratio import Ratio
from attentest.studies.benchmark.stopwatch import now, side_by_side, timed
from attentest.studies.benchmark.workload import Workload

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
        yield Ratio(
            comparison="stages",
            of=name,
            over="p alone",
            quantity="seconds",
            numerator=seconds / len(images),
            denominator=in_all / len(images),
        )
    batch = ViTScores(workload.model, device=device).batch_size
    products = matrix_products(read_encoder(workload.model, device=device), batch, torch.float64)
    works: dict[str, Callable[[], object]] = {"test": lambda: test.map(images), "products": products}
    found = side_by_side(works, device, workload.settings.repeats, warm_up=True)
    yield Ratio(
        comparison="stages",
        of="p alone",
        over="matrix products of its evaluations",
        quantity="seconds",
        numerator=found["test"].seconds / len(images),
        denominator=found["products"].seconds / batch * evaluations / len(images),
    )


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
