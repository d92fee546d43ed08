"""Many tests, batch by batch: of many images, here or on the workers of an engine, or of one with other noise."""

from __future__ import annotations

import math
import os
from collections.abc import Generator, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from attentest.checks import float_array
from attentest.errors import InputError
from attentest.images.sample import ImageLike, channels_last
from attentest.noise.model import TOO_SMOOTH, NearlySingularError, complete
from attentest.pipeline.inputs import Identity, Input, NumberedImage, batches, numbered_images
from attentest.pipeline.run import Pipeline, Request
from attentest.presentation.sensitivity import Sensitivity
from attentest.progress import Progress, ProgressLike, check_progress, progress_reports
from attentest.results.result import AttentionTestResult
from attentest.runs.engine import Engine, FailedImage, LocalEngine, OnError, as_engine, check_on_error, reason_of
from attentest.search import Report
from attentest.statistics.inference import confidence_intervals_of, estimates_of
from attentest.statistics.noise_factor import SensitivityCurve
from attentest.statistics.pvalue import LogPvalues

Tested: TypeAlias = "list[AttentionTestResult] | FailedImage"
"""The results of one image: of its region, or of the components of it."""

OUT_OF_MEMORY = (torch.OutOfMemoryError, MemoryError)

REITERABLE = (Sequence, np.ndarray, torch.Tensor)  # containers that can be iterated twice


def stream_batches(
    pipeline: Pipeline,
    images: Iterable[ImageLike],
    request: Request,
    progress: ProgressLike = None,
    *,
    references: Iterable[ImageLike] | None = None,
    names: Iterable[Identity] | None = None,
    on_error: OnError = "raise",
    engine: str | Engine = "local",
) -> Generator[list[Tested], None, None]:
    """Yield lists of the results of images that were tested together; those of an image are a list again.

    It has one result, or one for each connected component of its region if that is requested. The other parameters are
    those of :meth:`AttentionTest.map`.
    """
    for listed, name in ((images, "images"), (references, "references")):
        none_needed = listed is None and name == "references"
        if isinstance(listed, (str, os.PathLike)) or not (none_needed or isinstance(listed, Iterable)):
            raise InputError(
                f"{name} must be an iterable of images, got {type(listed).__name__}: for one, call the test."
            )
    check_progress(progress)
    check_on_error(on_error)
    pipeline.check(request)
    total = len(images) if isinstance(images, REITERABLE) else None
    if (
        on_error == "raise"
        and total is not None
        and all(listed is None or isinstance(listed, REITERABLE) for listed in (references, names))
    ):
        # Find a bad image before hours of computation, not after.
        pipeline.inputs.check_each(numbered_images(images, references, names))
    work = ImageTests(pipeline=pipeline, request=request, on_error=on_error, total=total)
    return _stream(work, as_engine(engine), numbered_images(images, references, names), progress)


def _stream(
    work: ImageTests, engine: Engine, tasks: Iterable[NumberedImage], progress: ProgressLike
) -> Generator[list[Tested], None, None]:
    """Yield the results of images in their order; those that failed have their numbers."""
    done, local = 0, isinstance(engine, LocalEngine)
    with progress_reports(progress, work.total) as report:
        for batch in work.run(tasks, report) if local else _in_order(engine, work, tasks, report):
            yield [
                replace(tested, number=number) if isinstance(tested, FailedImage) else tested
                for number, tested in enumerate(batch, start=done)
            ]
            done += len(batch)
            del batch  # large images must not live on while the next are read
    if done == 0:
        raise InputError("there are no images to test: the iterable is empty.")


def _in_order(
    engine: Engine, work: ImageTests, tasks: Iterable[NumberedImage], progress: Progress
) -> Iterator[list[Tested]]:
    """Yield the results of images that workers test, as soon as all before them are known."""
    finished: dict[int, Tested] = {}
    done = 0
    on_workers = replace(work, on_error="row")
    for tested_tasks, results in engine.run(on_workers, tasks if work.total is None else list(tasks), progress):
        finished.update((number, tested) for (number, _), tested in zip(tested_tasks, results, strict=True))
        ready = []
        while done in finished:
            tested = finished.pop(done)
            if work.on_error == "raise" and isinstance(tested, FailedImage):
                raise InputError(f"image {done}: {tested.reason}")
            ready.append(tested)
            done += 1
        if ready:
            yield ready


@dataclass(frozen=True, kw_only=True)
class ImageTests:
    """Tests of numbered images, for an engine."""

    pipeline: Pipeline
    """The test."""
    request: Request
    """What is asked about each image."""
    on_error: OnError
    """What to do with an image that cannot be tested."""
    total: int | None = None
    """Number of images, where it is not that of the tasks."""

    @property
    def device(self) -> torch.device:
        """The device of the test."""
        return self.pipeline.scores.device

    def run(self, tasks: Iterable[NumberedImage], progress: Progress | None = None) -> Iterator[list[Tested]]:
        """Yield the results of images, batch by batch."""
        total = len(tasks) if isinstance(tasks, Sized) else self.total
        return self.results(self.pipeline.inputs.each(tasks, self.on_error), total, progress)

    def lost(self, task: NumberedImage, reason: str) -> Tested:
        """Return an image as a failed one."""
        return FailedImage(number=task[0], reason=reason)

    def results(
        self, inputs: Iterable[Input | FailedImage], total: int | None, progress: Progress | None
    ) -> Iterator[list[Tested]]:
        """Yield the results of ``total`` inputs, batch by batch, as many at a time as fit in memory."""
        pipeline, certification = self.pipeline, self.request.certification
        together = pipeline.search.images_together(pipeline.scores.batch_size)
        if certification is not None:
            together = min(together, certification.images_together(pipeline.scores.batch_size))
        if total:  # batches of about the same size: a small one takes longer per image
            together = math.ceil(total / math.ceil(total / together))
        done = 0
        for batch in batches(inputs, together, pipeline.memory // 2):

            def report(share: float, start: int = done, count: int = len(batch)) -> None:
                if progress is not None:
                    progress(start + share * count, total)

            results = iter(self._tested([item for item in batch if isinstance(item, Input)], report))
            yield [item if isinstance(item, FailedImage) else next(results) for item in batch]
            done += len(batch)
            report(0.0, start=done)
            del batch, results  # large images must not live on while the next are read

    def _tested(self, inputs: Sequence[Input], report: Report) -> list[Tested]:
        """Return the results of each input, or the failure of it.

        An image without a region fails by itself. A batch that fails otherwise is tried again in halves, down to the
        image that is the cause; one that takes too much memory is halved in any case.
        """
        if not inputs:
            return []
        failed: dict[int, InputError] | None = None if self.on_error == "raise" else {}
        try:
            results = self.pipeline.run(inputs, self.request, report, failed)
            # Failed components come last: if the first one failed, so did the image.
            tested: list[Any] = [
                parts[0] if isinstance(next(iter(parts), None), FailedImage) else parts for parts in results
            ]
            for index, error in (failed or {}).items():
                tested[index] = FailedImage(number=0, reason=reason_of(error))
            return tested
        except Exception as error:
            if len(inputs) == 1 or not (self.on_error == "row" or _out_of_memory(error)):
                if self.on_error == "raise":
                    raise
                return [FailedImage(number=0, reason=reason_of(error))]
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        half = len(inputs) // 2
        return [*self._tested(inputs[:half], report), *self._tested(inputs[half:], report)]


def _out_of_memory(error: BaseException | None) -> bool:
    """Return whether an error, or the one that it is about, is a lack of memory."""
    return error is not None and (isinstance(error, OUT_OF_MEMORY) or _out_of_memory(error.__cause__))


STRETCHES = (0.5, 0.5**0.5, 1.0, 2.0**0.5, 2.0)  # multiples of the correlation length that was assumed
LENGTHS = (0.0, 0.5, 1.0, 2.0, 4.0)  # correlation lengths in pixels, where pixels were assumed to be independent
LEFT_OUT = "Correlation lengths are left out"  # beginning of the note where there are none


def sensitivity_of(
    pipeline: Pipeline,
    tested: Input,
    result: AttentionTestResult | None,
    *,
    lengths: ArrayLike | None,
    factors: ArrayLike,
    alpha: float,
    report: Progress,
) -> Sensitivity:
    """Return how the result of an image depends on the noise; see :meth:`attentest.AttentionTest.sensitivity`."""
    if result is not None and not np.array_equal(result.image, channels_last(tested.image.pixels)):
        raise InputError("the result is of another image: leave it out, or give that of this image.")
    tried, note = _tried_lengths(tested, lengths)
    first, others = int(result is None), max(len(tried) - 1, 0)

    def tell(done: float, _: int | None = None, before: int = 0) -> None:
        report((before + done) / max(first + others, 1), 1)

    if result is None:
        result = pipeline.run([tested], Request(), tell)[0][0]
    by_factor = replace(result.sensitivity(alpha=alpha, factors=factors), note=note)
    if not len(tried):
        return by_factor
    assumed = complete(tested.noise).correlation_length()
    inputs = [_with_length(tested, assumed, length) for length in tried if length != assumed]
    try:
        tests = ImageTests(pipeline=pipeline, request=Request(), on_error="raise")
        batches = list(tests.results(inputs, None, partial(tell, before=first)))
    except NearlySingularError:
        if lengths is not None:
            raise
        return replace(by_factor, note=f"{LEFT_OUT}: {TOO_SMOOTH}. A test without randomised selection has them.")
    other_results = (tested[0] for batch in batches for tested in batch if not isinstance(tested, FailedImage))
    results = [result if length == assumed else next(other_results) for length in tried]
    logs = [(varied.log_pvalue, *varied.log_pvalue_bounds) for varied in results]
    return replace(
        by_factor,
        lengths=SensitivityCurve(
            values=tried,
            standard_errors=np.array([varied.standard_error for varied in results]),
            log_pvalues=LogPvalues(*np.array(logs).T),
            estimates=estimates_of(results),
            intervals=confidence_intervals_of(results, by_factor.confidence_level),
        ),
        assumed_length=assumed,
        evaluations=sum(varied.evaluations for varied in results if varied is not result),
    )


def _tried_lengths(tested: Input, lengths: ArrayLike | None) -> tuple[NDArray[np.float64], str | None]:
    """Return the correlation lengths to be tested, in order, that of the noise among them; or why there are none."""
    if lengths is not None and not np.size(lengths):
        return np.empty(0), None
    try:
        assumed = complete(tested.noise).correlation_length()
        if tested.reference_noise is not None:
            complete(tested.reference_noise).correlation_length()
    except InputError as error:
        if lengths is not None:
            raise
        return np.empty(0), f"{LEFT_OUT}: {error}"
    if lengths is None:
        return np.array([assumed * stretch for stretch in STRETCHES] if assumed else LENGTHS), None
    asked = float_array(lengths, "lengths")
    if asked.ndim != 1 or not np.all((asked >= 0) & np.isfinite(asked)):
        raise InputError(f"lengths must be a list of correlation lengths in pixels, 0 or more, got {lengths!r}.")
    return np.unique([*asked, assumed]), None


def _with_length(tested: Input, assumed: float, length: float) -> Input:
    """Return an image with noise of another correlation length, and with the same noise added to it."""
    shape, reference_noise = tested.geometry.shape, tested.reference_noise
    if reference_noise is not None:
        of_reference = complete(reference_noise).correlation_length()
        stretched = length if of_reference == assumed else of_reference * (length / assumed if assumed else 1.0)
        reference_noise = complete(reference_noise).with_correlation_length(stretched, shape)
    return replace(
        tested,
        noise=complete(tested.noise).with_correlation_length(length, shape),
        reference_noise=reference_noise,
        selection_noise=tested.noise,
    )
