"""Many image files: each is a record as soon as it is tested, and a file that cannot be tested is a record too."""

from __future__ import annotations

import hashlib
import io
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

import numpy as np
import torch

from attentest.files import make_directory, write_complete
from attentest.images.image_source import ImageSource
from attentest.images.sample import ImageLike, as_sample
from attentest.pipeline.attention_test import AttentionTest
from attentest.pipeline.many_images import Tested, stream_batches
from attentest.pipeline.noise_sensitivity import LEFT_OUT
from attentest.pipeline.run import Request
from attentest.presentation.report.tested_batch import PICTURES
from attentest.progress import Progress
from attentest.results.batch import small_picture
from attentest.results.components import component_records
from attentest.results.result import AttentionTestResult, records_of
from attentest.runs.engine import FailedImage, reason_of, timed_batches
from attentest.runs.records import Records, Row

SUFFIXES = {"masks": ".png", "regions": ".npy", "maps": ".npy", PICTURES: ".npz"}
"""What can be saved of an image, and the suffix of its file."""


@dataclass(frozen=True, kw_only=True)
class SavedArrays:
    """Saves regions, attention maps and small pictures of images in folders of a directory.

    Parameters
    ----------
    directory
        The directory.
    kinds
        What is saved, from ``SUFFIXES``.
    optional
        Kinds that are saved of images that are tested, and for whose sake no image is tested again.
    """

    directory: Path
    kinds: Sequence[str]
    optional: Sequence[str] = ()

    def has(self, saved: Any) -> bool:
        """Return whether all that must be there was saved, given the files by their kinds, if there are any."""
        needed = set(self.kinds) - set(self.optional)
        return not needed or (isinstance(saved, dict) and needed <= set(saved))

    def save(self, image: ImageSource, results: Sequence[AttentionTestResult]) -> dict[str, str]:
        """Save what was asked for of an image, and return the files by their kinds, relative to the directory.

        ``results`` are those of its region, or of the components of it.
        """
        saved = {}
        for kind in self.kinds:
            path = Path(kind) / f"{file_stem(image.name)}{SUFFIXES[kind]}"
            make_directory(self.directory / kind)
            write_complete(self.directory / path, _content(kind, results), f"the {kind}")
            saved[kind] = str(path)
        return saved


def file_stem(name: str) -> str:
    """Return a file name for an image: the end of its own name in safe characters, and a digest of all of it."""
    digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=6).hexdigest()
    readable = quote(name.encode("utf-8", "surrogateescape").split(b"/")[-1], safe="")[-60:]
    return f"{readable}-{digest}"


def _content(kind: str, results: Sequence[AttentionTestResult]) -> bytes:
    if kind == PICTURES:
        return small_picture(results).to_bytes()
    if kind == "masks":
        return _picture(results[0].region)
    return _array(results[0].attention if kind == "maps" else results[0].region)


def _array(values: Any) -> bytes:
    content = io.BytesIO()
    np.save(content, values)
    return content.getvalue()


def _picture(mask: Any) -> bytes:
    from PIL import Image

    content = io.BytesIO()
    Image.fromarray(np.where(mask, 255, 0).astype(np.uint8)).save(content, "PNG")
    return content.getvalue()


TESTED_SHARE = 0.2
"""Share of the work on an image that its test is, where four more are made for its sensitivity to the noise."""

Keep: TypeAlias = Callable[[ImageSource, "list[AttentionTestResult]"], None]


@dataclass(frozen=True, kw_only=True)
class BatchRun:
    """Tests of image files.

    The line of an image has its name, the seconds that it took, size and time of change of its file, and under
    "results" the record of its result (``result.to_dict()``), or those of the components of its region; or under
    "error" the reason why it could not be tested.

    Parameters
    ----------
    test
        The test.
    images
        The images.
    references
        Their reference images: none, one for all, or one for each.
    confidence_level
        Level of the confidence intervals in the records.
    request
        What is asked about each image.
    sensitivity
        Significance level of the sensitivity to the noise that each record has under "sensitivity"
        (:meth:`AttentionTest.sensitivity`); None for none. For whole regions.
    save
        What to save of each image, if anything; the record has the files under "saved".
    keep
        Called with every image that was tested and its results, one or one for each component of its region, before
        they are dropped; in the process that tests it.
    """

    test: AttentionTest
    images: Sequence[ImageSource]
    references: Sequence[ImageSource] = ()
    confidence_level: float = 0.95
    request: Request = field(default_factory=Request)
    sensitivity: float | None = None
    save: SavedArrays | None = None
    keep: Keep | None = None

    def describe(self) -> dict[str, Any]:
        """Return what the records of one directory have in common, apart from the test, JSON-ready."""
        return asdict(self.request)

    def missing(self, records: Records, retry: bool = False) -> list[int]:
        """Return the places of the images to be tested.

        They have no record, one of another file or reference of that name, or one without what it is to have: the
        arrays to be saved, the sensitivity at this level.
        """
        return [
            place
            for place, image in enumerate(self.images)
            if (record := records.rows.get(image.name)) is None
            or record.get("file") != _stamp(image)
            or record.get("reference") != self._reference_name(place)
            or (retry and "error" in record)
            or (
                self.sensitivity is not None
                and "error" not in record
                and record.get("sensitivity", {}).get("alpha") != self.sensitivity
            )
            or (self.save is not None and "error" not in record and not self.save.has(record.get("saved")))
        ]

    @property
    def device(self) -> torch.device:
        """The device of the test."""
        return self.test.device

    def run(self, tasks: Sequence[int], progress: Progress | None = None) -> Iterator[list[Row]]:
        """Yield the records of images, given by their places, batch by batch."""
        bar = _Bar(progress=progress, total=len(tasks), tested_share=1.0 if self.sensitivity is None else TESTED_SHARE)
        images, references = [self.images[place] for place in tasks], self._references(tasks)
        batches = stream_batches(
            self.test.pipeline, images, self.request, bar.tested, references=references, on_error="row"
        )
        for some, batch, start in timed_batches(tasks, batches):
            values = self._values(batch)
            for number, (place, tested, found) in enumerate(zip(some, batch, values, strict=True)):
                if isinstance(tested, FailedImage):
                    continue
                if self.sensitivity is not None:
                    varied = partial(bar.varied, len(batch), number)
                    found["sensitivity"] = self._sensitivity(place, tested[0], self.sensitivity, varied)
                if self.save is not None:
                    found["saved"] = self.save.save(self.images[place], tested)
                if self.keep is not None:
                    self.keep(self.images[place], tested)
            bar.finished += len(batch)
            seconds = (time.perf_counter() - start) / len(batch)
            yield [self._record(place, found, seconds) for place, found in zip(some, values, strict=True)]

    def lost(self, task: int, reason: str) -> Row:
        """Return the record of an image, given by its place, that could not be tested for a reason outside the test."""
        return self._record(task, {"error": reason}, 0.0)

    def _values(self, batch: Sequence[Tested]) -> list[dict[str, Any]]:
        """Return the records of each image of a batch, or the reason of its failure."""
        regions = [list(tested) for tested in batch if not isinstance(tested, FailedImage)]
        if self.request.connectivity is None:
            records = [[record] for record in records_of([each for (each,) in regions], self.confidence_level)]
        else:
            records = component_records(regions, self.confidence_level)
        values = iter([record.to_dict() for record in some] for some in records)
        return [
            {"error": tested.reason} if isinstance(tested, FailedImage) else {"results": next(values)}
            for tested in batch
        ]

    def _sensitivity(self, place: int, result: AttentionTestResult, alpha: float, progress: Progress) -> dict[str, Any]:
        """Return the sensitivity of a tested image as JSON-ready values, without correlation lengths if they fail."""
        given: dict[str, Any] = {"reference": self._reference(place), "result": result, "alpha": alpha}
        try:
            found = self.test.sensitivity(self.images[place], **given, progress=progress)
        except Exception as error:  # noqa: BLE001  # whatever the error is, the image was tested and the others go on
            found = replace(result.sensitivity(alpha=alpha), note=f"{LEFT_OUT}: {reason_of(error)}")
        return found.to_dict()

    def _record(self, place: int, values: dict[str, Any], seconds: float) -> Row:
        image = self.images[place]
        which = {"image": image.name, "seconds": round(seconds, 6), "file": _stamp(image)}
        reference = self._reference_name(place)
        return {**which, **({} if reference is None else {"reference": reference}), **values}

    def _references(self, places: Sequence[int]) -> list[ImageLike] | None:
        """Return the reference of each image; one for all is read once."""
        if not self.references:
            return None
        if len(self.references) == 1:
            return [as_sample(self.references[0])] * len(places)
        return [self.references[place] for place in places]

    def _reference(self, place: int) -> ImageSource | None:
        return self.references[place if len(self.references) > 1 else 0] if self.references else None

    def _reference_name(self, place: int) -> str | None:
        reference = self._reference(place)
        return None if reference is None else reference.name


@dataclass(kw_only=True)
class _Bar:
    """Divides the progress of each image between its test and what is done with its result."""

    progress: Progress | None
    total: int
    tested_share: float
    finished: int = 0

    def tested(self, done: float, total: int | None) -> None:
        """Report how many images are tested, of which those of this batch are not finished yet."""
        self._move(self.finished + self.tested_share * (done - self.finished))

    def varied(self, count: int, number: int, share: float, total: int | None) -> None:
        """Report how much is done of one of the images of a batch that is tested."""
        self._move(self.finished + self.tested_share * count + (1 - self.tested_share) * (number + share))

    def _move(self, done: float) -> None:
        if self.progress is not None:
            self.progress(done, self.total)


def _stamp(image: ImageSource) -> list[int] | None:
    try:
        return image.stamp()
    except OSError:  # there is no such file any more, and the record says so
        return None
