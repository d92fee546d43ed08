"""Tests of many images, batch by batch, in this process or on the workers of an engine."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias, overload

import numpy as np
import torch
from numpy.typing import NDArray

from attentest.checks import optional_level
from attentest.contrast import as_connectivity
from attentest.errors import InputError
from attentest.images.sample import ImageLike
from attentest.pipeline.inputs import Input, Inputs, batches, paired
from attentest.pipeline.run import Pipeline
from attentest.progress import Progress, ProgressLike, check_progress, with_progress
from attentest.results.batch import Results
from attentest.results.components import ComponentResults
from attentest.results.result import AttentionTestResult
from attentest.runs.engine import Engine, FailedImage, LocalEngine, OnError, as_engine, check_on_error, reason_of
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


REITERABLE = (Sequence, np.ndarray, torch.Tensor)
"""Containers that can be iterated twice."""


class ManyImages:
    """What a test does with many images."""

    _inputs: Inputs
    _pipeline: Pipeline

    def map(
        self,
        images: Iterable[ImageLike],
        progress: ProgressLike = None,
        *,
        references: Iterable[ImageLike] | None = None,
        on_error: OnError = "raise",
        alpha: float | None = None,
        certification: Certification | None = None,
        engine: str | Engine = "local",
    ) -> Results:
        """Test many images and return their results in order; they equal those of one by one to within the error bars.

        Parameters
        ----------
        images
            Any iterable of images, or of paths of image files; only one batch of them is held at a time.
        progress
            True for a progress bar, in terminals and notebooks; or a function, which is called with (images done,
            images in all or None).
        references
            Each image's own reference, for the contrast ``Reference()``.
        on_error
            What to do with an image that cannot be read or tested: "raise", stop with an error; "row", go on with the
            others and report it in ``results.failures`` and as a row with its reason in ``results.table()``.
        alpha, certification
            As in calling the test.
        engine
            Where the images are tested: "local", in this process; "processes", by processes on this machine, one for
            each core or four for each GPU; "ray", on workers, one for each core or GPU; or ``ProcessEngine(...)`` or
            ``RayEngine(...)``.
        """
        return Results(
            self.stream(
                images,
                progress,
                references=references,
                on_error=on_error,
                alpha=alpha,
                certification=certification,
                engine=engine,
            )
        )

    def map_components(
        self,
        images: Iterable[ImageLike],
        progress: ProgressLike = None,
        *,
        references: Iterable[ImageLike] | None = None,
        connectivity: int = 1,
        alpha: float | None = None,
        certification: Certification | None = None,
        engine: str | Engine = "local",
    ) -> list[ComponentResults]:
        """Test each connected component of the regions of many images: :meth:`components`, as :meth:`map` does."""
        return list(
            self.stream_components(
                images,
                progress,
                references=references,
                connectivity=connectivity,
                alpha=alpha,
                certification=certification,
                engine=engine,
            )
        )

    @overload
    def stream(
        self,
        images: Iterable[ImageLike],
        progress: ProgressLike = None,
        *,
        references: Iterable[ImageLike] | None = None,
        on_error: Literal["raise"] = "raise",
        alpha: float | None = None,
        certification: Certification | None = None,
        engine: str | Engine = "local",
    ) -> Iterator[AttentionTestResult]: ...
    @overload
    def stream(
        self,
        images: Iterable[ImageLike],
        progress: ProgressLike = None,
        *,
        references: Iterable[ImageLike] | None = None,
        on_error: OnError,
        alpha: float | None = None,
        certification: Certification | None = None,
        engine: str | Engine = "local",
    ) -> Iterator[AttentionTestResult | FailedImage]: ...
    def stream(
        self,
        images: Iterable[ImageLike],
        progress: ProgressLike = None,
        *,
        references: Iterable[ImageLike] | None = None,
        on_error: OnError = "raise",
        alpha: float | None = None,
        certification: Certification | None = None,
        engine: str | Engine = "local",
    ) -> Iterator[AttentionTestResult | FailedImage]:
        """Yield the results of :meth:`map` batch by batch, so that an interruption loses no finished batch.

        With ``on_error="row"`` an image that cannot be tested is a :class:`FailedImage` in its place.
        """
        given: dict[str, Any] = {"references": references, "on_error": on_error, "alpha": alpha}
        for batch in self.stream_batches(images, progress, **given, certification=certification, engine=engine):
            yield from (tested if isinstance(tested, FailedImage) else tested[0] for tested in batch)

    @overload
    def stream_components(
        self,
        images: Iterable[ImageLike],
        progress: ProgressLike = None,
        *,
        references: Iterable[ImageLike] | None = None,
        on_error: Literal["raise"] = "raise",
        connectivity: int = 1,
        alpha: float | None = None,
        certification: Certification | None = None,
        engine: str | Engine = "local",
    ) -> Iterator[ComponentResults]: ...
    @overload
    def stream_components(
        self,
        images: Iterable[ImageLike],
        progress: ProgressLike = None,
        *,
        references: Iterable[ImageLike] | None = None,
        on_error: OnError,
        connectivity: int = 1,
        alpha: float | None = None,
        certification: Certification | None = None,
        engine: str | Engine = "local",
    ) -> Iterator[ComponentResults | FailedImage]: ...
    def stream_components(
        self,
        images: Iterable[ImageLike],
        progress: ProgressLike = None,
        *,
        references: Iterable[ImageLike] | None = None,
        on_error: OnError = "raise",
        connectivity: int = 1,
        alpha: float | None = None,
        certification: Certification | None = None,
        engine: str | Engine = "local",
    ) -> Iterator[ComponentResults | FailedImage]:
        """Yield the results of :meth:`map_components` batch by batch; failures are those of :meth:`stream`."""
        given: dict[str, Any] = {"references": references, "on_error": on_error, "alpha": alpha}
        given |= {"connectivity": as_connectivity(connectivity), "certification": certification}
        for batch in self.stream_batches(images, progress, **given, engine=engine):
            yield from (tested if isinstance(tested, FailedImage) else ComponentResults(tested) for tested in batch)

    def attention_maps(self, images: Iterable[ImageLike]) -> NDArray[np.float64]:
        """Return the attention maps (k, H, W), from 0 to 1, of images of one size as they are; nothing is tested.

        Parameters
        ----------
        images
            As in :meth:`map`.
        """
        maps = []
        batch_size, memory = self._pipeline.scores.batch_size, self._pipeline.memory // 2
        for batch in batches(self._inputs.each(images, None), batch_size, memory):
            inputs = [each for each in batch if isinstance(each, Input)]
            pixels = np.stack([each.image.pixels for each in inputs])
            maps.append(self._pipeline.observe(pixels, inputs[0].geometry, 0).maps_on_images())
        if not maps:
            raise InputError("there are no images to look at: the iterable is empty.")
        return np.concatenate(maps)

    def stream_batches(
        self,
        images: Iterable[ImageLike],
        progress: ProgressLike = None,
        *,
        references: Iterable[ImageLike] | None = None,
        on_error: OnError = "raise",
        connectivity: int | None = None,
        alpha: float | None = None,
        certification: Certification | None = None,
        engine: str | Engine = "local",
    ) -> Iterator[list[Tested]]:
        """Yield lists of the results of images that were tested together; those of an image are a list again.

        It has one result, or with ``connectivity`` one for each connected component of the region. Parameters are those
        of :meth:`stream` and :meth:`stream_components`.
        """
        for given, name in ((images, "images"), (references, "references")):
            none_needed = given is None and name == "references"
            if isinstance(given, (str, os.PathLike)) or not (none_needed or isinstance(given, Iterable)):
                raise InputError(
                    f"{name} must be an iterable of images, got {type(given).__name__}: for one, call the test."
                )
        check_progress(progress)
        check_on_error(on_error)
        chosen_level, chosen = optional_level(alpha), checked_certification(certification)
        total = len(images) if isinstance(images, REITERABLE) else None
        if on_error == "raise" and total is not None and (references is None or isinstance(references, REITERABLE)):
            self._inputs.check_each(images, references)  # find a bad image before hours of computation, not after
        joined = None if connectivity is None else as_connectivity(connectivity)
        where = as_engine(engine)
        settings: dict[str, Any] = {"alpha": chosen_level, "connectivity": joined, "certification": chosen}
        if isinstance(where, LocalEngine):
            run = partial(stream, self._pipeline, self._inputs, **settings)
        else:
            run = partial(_on_workers, where, ImageTests(test=self, **settings))
        return with_progress(partial(run, images, references, total=total, on_error=on_error), progress, total)


class NumberedImage(NamedTuple):
    """An image with its number among those given, and its reference."""

    number: int
    image: ImageLike
    reference: ImageLike | None


@dataclass(frozen=True, kw_only=True)
class ImageTests:
    """Tests of numbered images, for an engine; an image that cannot be tested is a failed one."""

    test: ManyImages
    alpha: float | None
    connectivity: int | None
    certification: Certification | None

    @property
    def device(self) -> torch.device:
        """The device of the test."""
        return self.test._pipeline.scores.device

    def run(self, tasks: Sequence[NumberedImage], progress: Progress | None = None) -> Iterator[list[Tested]]:
        """Yield the results of images, batch by batch."""
        waiting = iter(tasks)
        for batch in self.test.stream_batches(
            [task.image for task in tasks],
            progress,
            references=[task.reference for task in tasks if task.reference is not None] or None,  # all or none have one
            on_error="row",
            alpha=self.alpha,
            connectivity=self.connectivity,
            certification=self.certification,
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
    work: ImageTests,
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
    finished: dict[int, Tested] = {}
    done = 0
    for tasks, found in engine.run(work, numbered if total is None else list(numbered), progress):
        finished.update((task.number, tested) for task, tested in zip(tasks, found, strict=True))
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


def checked_certification(certification: Any) -> Certification | None:
    """Return how to certify, or None; refuse anything else."""
    if certification is None or isinstance(certification, Certification):
        return certification
    raise InputError(f"certification must be Certification(draws=99, ...) or None, got {certification!r}.")
