"""Synthetic results of slices, and a substitute for the tests that make them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.results.result import AttentionTestResult
from attentest.runs.engine import FailedImage
from attentest.studies.brain.condition import Condition, Split
from attentest.studies.brain.dataset import SIDE, Slices
from attentest.studies.brain.summary import Gallery
from truncated import known_set, normal


def result(index: int = 0, p: float = 0.02) -> AttentionTestResult:
    """The result of a slice; the region is a square."""
    region = np.zeros((SIDE, SIDE), dtype=bool)
    region[10 + index : 30, 12:40] = True
    return AttentionTestResult(
        law=normal(40.0),
        standard_error=0.8,
        region=region,
        part=region,
        image=np.zeros((SIDE, SIDE)),
        attention=region * 0.9,
        seen=np.ones_like(region),
        selectable=region.size,
        truncation_set=known_set(np.array([[30.0, 50.0]])),
        log_pvalue=float(np.log(p)),
        log_pvalue_bounds=(float(np.log(p)), float(np.log(p))),
        naive_log_pvalue=-800.0,
        bonferroni_log_pvalue=0.0,
        alternative="two-sided",
        alpha=None,
        evaluations=100,
        status="converged",
        settings={
            "alternative": "two-sided",
            "contrast": {"name": "background"},
            "noise": {},
            "components": None,
            "confidence_level": 0.95,
        },
    )


def gallery(count: int = 8) -> Gallery:
    rng = np.random.default_rng(0)
    mask = np.zeros((count, SIDE, SIDE), dtype=bool)
    mask[:, 40:50, 40:45] = True
    flair = rng.integers(0, 256, (count, SIDE, SIDE), dtype=np.uint8)
    return Gallery(slices_of(flair, mask), tuple(result(index) for index in range(count)))


def slices_of(flair: NDArray[np.uint8], mask: NDArray[np.bool_], tumour: NDArray[np.bool_] | None = None) -> Slices:
    """Slices of as many patients; with tumour where there is a mask, unless something else is given."""
    count = len(flair)
    return Slices(
        flair=flair,
        mask=mask,
        tumour=mask.any(axis=(1, 2)) if tumour is None else tumour,
        patient=np.array([f"P{index}" for index in range(count)]),
        number=np.arange(count),
    )


class FakeTests:
    """Replaces the study's tests: identifies a slice by its first pixel, and fails on one."""

    def __init__(self, bad: int | None = None) -> None:
        self.bad = bad
        self.asked: list[Condition] = []

    def attention_test(self, condition: Condition) -> Any:
        self.asked.append(condition)
        return self

    def stream(self, images: list[Any], *, on_error: str) -> list[AttentionTestResult | FailedImage]:
        assert on_error == "row"
        return [
            FailedImage(number=number, reason="no") if image[0, 0] == self.bad else result(int(image[0, 0]))
            for number, image in enumerate(images)
        ]


def split(count: int = 12) -> Split:
    flair = np.zeros((count, SIDE, SIDE), dtype=np.uint8)
    flair[:, 0, 0] = np.arange(count)
    slices = slices_of(flair, np.zeros(flair.shape, dtype=bool), np.arange(count) % 3 == 0)
    nothing = np.empty(0, dtype=np.int64)
    return Split(slices=slices, noise=nothing, training=nothing, test=np.arange(count), seed=3, sha256="x", total=count)
