"""Many images, batch by batch: a batch that does not fit is halved, an image that fails need not stop the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import torch

from attentest.errors import InputError
from attentest.images.sample import ImageLike
from attentest.pipeline.inputs import Input, Inputs, batches
from attentest.pipeline.run import Pipeline
from attentest.results.failure import FailedImage, OnError, reason_of
from attentest.results.progress import Progress
from attentest.results.result import AttentionTestResult
from attentest.search import Certification, Report

Tested: TypeAlias = "list[AttentionTestResult] | FailedImage"
"""The results of one image: of its region, or of the components of it."""

Run: TypeAlias = Callable[[Sequence[Input], Report], list[list[AttentionTestResult]]]

NO_IMAGES = "there are no images to test: the iterable is empty."

OUT_OF_MEMORY = (torch.OutOfMemoryError, MemoryError)


def stream(
    pipeline: Pipeline,
    inputs: Inputs,
    images: Iterable[ImageLike],
    references: Iterable[ImageLike] | None,
    *,
    total: int | None,
    progress: Progress | None,
    on_error: OnError,
    alpha: float | None,
    connectivity: int | None,
    certification: Certification | None,
) -> Iterator[list[Tested]]:
    """Yield the results of ``total`` images, batch by batch; other arguments are as in ``AttentionTest.stream``."""
    together = pipeline.search.images_together(pipeline.scores.batch_size)
    if certification is not None:
        together = min(together, certification.images_together(pipeline.scores.batch_size))
    if total:  # batches of about the same size: a small one takes longer per image
        together = math.ceil(total / math.ceil(total / together))
    done = 0
    for batch in batches(inputs.each(images, references, on_error), together, pipeline.memory // 2):
        testable = [each for each in batch if isinstance(each, Input)]

        def run(
            some: Sequence[Input], report: Report, first: int | None = done if on_error == "raise" else None
        ) -> list[list[AttentionTestResult]]:
            return pipeline.run(
                some,
                first_number=first,
                alpha=alpha,
                connectivity=connectivity,
                certification=certification,
                report=report,
            )

        def report(share: float, start: int = done, count: int = len(batch)) -> None:
            if progress is not None:
                progress(start + share * count, total)

        found = iter(_results(run, testable, report, on_error))
        outcomes = [each if isinstance(each, FailedImage) else next(found) for each in batch]
        yield [
            FailedImage(number=number, reason=outcome) if isinstance(outcome, str) else outcome
            for number, outcome in enumerate(outcomes, start=done)
        ]
        done += len(batch)
        report(0.0, start=done)
        del batch, testable, found, outcomes  # large images must not live on while the next are read
    if done == 0:
        raise InputError(NO_IMAGES)


def _results(
    run: Run, inputs: Sequence[Input], report: Report, on_error: OnError
) -> list[list[AttentionTestResult] | str]:
    """Return the results of each input, or the reason for its failure.

    A batch that fails is tried again in halves, down to the image that is the cause. A batch that takes too much memory
    is halved in any case.
    """
    if not inputs:
        return []
    try:
        return list(run(inputs, report))
    except Exception as error:
        halved = len(inputs) > 1 and (on_error == "row" or _out_of_memory(error))
        if on_error == "raise" and not halved:
            raise
        if not halved:
            return [reason_of(error)]
    _free_memory()
    half = len(inputs) // 2
    return [each for some in (inputs[:half], inputs[half:]) for each in _results(run, some, report, on_error)]


def _out_of_memory(error: BaseException | None) -> bool:
    """Return whether an error, or the one that it is about, is a lack of memory."""
    return error is not None and (isinstance(error, OUT_OF_MEMORY) or _out_of_memory(error.__cause__))


def _free_memory() -> None:
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
