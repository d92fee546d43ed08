"""Tests of many images, batch by batch, in this process or on the workers of an engine."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
import torch

from attentest.errors import InputError
from attentest.images.sample import ImageLike
from attentest.pipeline.inputs import Input, batches, paired
from attentest.pipeline.run import Pipeline, Request
from attentest.progress import Progress, ProgressLike, check_progress, with_progress
from attentest.results.result import AttentionTestResult
from attentest.runs.engine import Engine, FailedImage, LocalEngine, OnError, as_engine, check_on_error, reason_of
from attentest.search import Report

Tested: TypeAlias = "list[AttentionTestResult] | FailedImage"
"""The results of one image: of its region, or of the components of it."""

NO_IMAGES = "there are no images to test: the iterable is empty."

OUT_OF_MEMORY = (torch.OutOfMemoryError, MemoryError)

REITERABLE = (Sequence, np.ndarray, torch.Tensor)
"""Containers that can be iterated twice."""


def stream_batches(
    pipeline: Pipeline,
    images: Iterable[ImageLike],
    request: Request,
    progress: ProgressLike = None,
    *,
    references: Iterable[ImageLike] | None = None,
    on_error: OnError = "raise",
    engine: str | Engine = "local",
) -> Iterator[list[Tested]]:
    """Yield lists of the results of images that were tested together; those of an image are a list again.

    Parameters
    ----------
    pipeline
        The test.
    request
        What is asked about each image: it has one result, or one for each connected component of its region.
    images, progress, references, on_error, engine
        As in :meth:`AttentionTest.map`.
    """
    for listed, name in ((images, "images"), (references, "references")):
        none_needed = listed is None and name == "references"
        if isinstance(listed, (str, os.PathLike)) or not (none_needed or isinstance(listed, Iterable)):
            raise InputError(
                f"{name} must be an iterable of images, got {type(listed).__name__}: for one, call the test."
            )
    check_progress(progress)
    check_on_error(on_error)
    total = len(images) if isinstance(images, REITERABLE) else None
    if on_error == "raise" and total is not None and (references is None or isinstance(references, REITERABLE)):
        pipeline.inputs.check_each(images, references)  # find a bad image before hours of computation, not after
    where = as_engine(engine)
    run = _in_this_process if isinstance(where, LocalEngine) else partial(_on_workers, where)
    stream = partial(run, pipeline, request, images, references, total=total, on_error=on_error)
    return with_progress(stream, progress, total)


def _in_this_process(
    pipeline: Pipeline,
    request: Request,
    images: Iterable[ImageLike],
    references: Iterable[ImageLike] | None,
    *,
    total: int | None,
    progress: Progress | None,
    on_error: OnError,
) -> Iterator[list[Tested]]:
    """Yield the results of ``total`` images, batch by batch."""
    together = pipeline.search.images_together(pipeline.scores.batch_size)
    if request.certification is not None:
        together = min(together, request.certification.images_together(pipeline.scores.batch_size))
    if total:  # batches of about the same size: a small one takes longer per image
        together = math.ceil(total / math.ceil(total / together))
    done = 0
    for batch in batches(pipeline.inputs.each(images, references, on_error), together, pipeline.memory // 2):
        testable = [item for item in batch if isinstance(item, Input)]

        def report(share: float, start: int = done, count: int = len(batch)) -> None:
            if progress is not None:
                progress(start + share * count, total)

        results = iter(_results(pipeline, testable, request, done, report, on_error))
        outcomes = [item if isinstance(item, FailedImage) else next(results) for item in batch]
        yield [
            FailedImage(number=number, reason=outcome) if isinstance(outcome, str) else outcome
            for number, outcome in enumerate(outcomes, start=done)
        ]
        done += len(batch)
        report(0.0, start=done)
        del batch, testable, results, outcomes  # large images must not live on while the next are read
    if done == 0:
        raise InputError(NO_IMAGES)


def _results(
    pipeline: Pipeline, inputs: Sequence[Input], request: Request, first: int, report: Report, on_error: OnError
) -> list[list[AttentionTestResult] | str]:
    """Return the results of each input, or the reason for its failure.

    A batch that fails is tried again in halves, down to the image that is the cause. A batch that takes too much memory
    is halved in any case.
    """
    if not inputs:
        return []
    try:
        return list(pipeline.run(inputs, request, first if on_error == "raise" else None, report))
    except Exception as error:
        halved = len(inputs) > 1 and (on_error == "row" or _out_of_memory(error))
        if on_error == "raise" and not halved:
            raise
        if not halved:
            return [reason_of(error)]
    _free_memory()
    half = len(inputs) // 2
    return [
        *_results(pipeline, inputs[:half], request, first, report, on_error),
        *_results(pipeline, inputs[half:], request, first + half, report, on_error),
    ]


def _out_of_memory(error: BaseException | None) -> bool:
    """Return whether an error, or the one that it is about, is a lack of memory."""
    return error is not None and (isinstance(error, OUT_OF_MEMORY) or _out_of_memory(error.__cause__))


def _free_memory() -> None:
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


class NumberedImage(NamedTuple):
    """An image with its number among all images, and its reference."""

    number: int
    image: ImageLike
    reference: ImageLike | None


@dataclass(frozen=True, kw_only=True)
class ImageTests:
    """Tests of numbered images, for an engine; an image that cannot be tested is a failed one."""

    pipeline: Pipeline
    request: Request

    @property
    def device(self) -> torch.device:
        """The device of the test."""
        return self.pipeline.scores.device

    def run(self, tasks: Sequence[NumberedImage], progress: Progress | None = None) -> Iterator[list[Tested]]:
        """Yield the results of images, batch by batch."""
        waiting = iter(tasks)
        # All images have a reference, or none has.
        references = [task.reference for task in tasks if task.reference is not None] or None
        images = [task.image for task in tasks]
        for batch in stream_batches(
            self.pipeline, images, self.request, progress, references=references, on_error="row"
        ):
            yield [
                replace(tested, number=task.number) if isinstance(tested, FailedImage) else tested
                for tested, task in zip(batch, waiting, strict=False)
            ]

    def lost(self, task: NumberedImage, reason: str) -> Tested:
        """Return an image as a failed one."""
        return FailedImage(number=task.number, reason=reason)


def _on_workers(
    engine: Engine,
    pipeline: Pipeline,
    request: Request,
    images: Iterable[ImageLike],
    references: Iterable[ImageLike] | None,
    *,
    total: int | None,
    progress: Progress | None,
    on_error: OnError,
) -> Iterator[list[Tested]]:
    """Yield the results of images in their order as soon as all before them are known."""
    numbered: Iterable[NumberedImage] = (
        NumberedImage(number, image, reference) for number, (image, reference) in enumerate(paired(images, references))
    )
    work = ImageTests(pipeline=pipeline, request=request)
    finished: dict[int, Tested] = {}
    done = 0
    for tasks, results in engine.run(work, numbered if total is None else list(numbered), progress):
        finished.update((task.number, tested) for task, tested in zip(tasks, results, strict=True))
        ready = []
        while done in finished:
            ready.append(finished.pop(done))
            done += 1
        failed = next((tested for tested in ready if isinstance(tested, FailedImage)), None)
        if on_error == "raise" and failed is not None:
            raise InputError(f"image {failed.number}: {failed.reason}")
        if ready:
            yield ready
    if done == 0:
        raise InputError(NO_IMAGES)
