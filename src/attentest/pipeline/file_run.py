"""Many image files: each is a record as soon as it is tested, and a file that cannot be tested is a record too."""

from __future__ import annotations

import hashlib
import io
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

import numpy as np
import torch

from attentest.errors import AttentestWarning, InputError, counted, worded
from attentest.files import make_directory, write_complete
from attentest.images.dicom_series import affine_of_series
from attentest.images.image_source import ImageSource, told_apart
from attentest.images.mask import Masks
from attentest.images.nifti import is_nifti, nifti_like
from attentest.images.sample import ImageLike, as_sample
from attentest.pipeline.attention_test import AttentionTest
from attentest.pipeline.inputs import numbered_images
from attentest.pipeline.many_images import LEFT_OUT, ImageTests, Tested
from attentest.pipeline.run import Request
from attentest.presentation.rows import ImageRows, rows_of_line
from attentest.presentation.small_picture import content_digest
from attentest.presentation.tested_batch import PICTURES, saved_file
from attentest.progress import Progress
from attentest.results.batch import small_picture
from attentest.results.components import component_records
from attentest.results.result import AttentionTestResult, records_of
from attentest.runs.engine import Engine, FailedImage, reason_of, timed_batches
from attentest.runs.record_lines import alone_in
from attentest.runs.records import RESULTS, RecordFile, Records, Row, record_header

SUFFIXES = {"masks": ".png", "regions": ".npy", "maps": ".npy", PICTURES: ".npz"}
"""What can be saved of an image, and the suffix of its file."""


@dataclass(frozen=True, kw_only=True)
class SavedArrays:
    """Saves regions, attention maps and small pictures of images in folders of a directory."""

    directory: Path
    """The directory."""
    kinds: Sequence[str]
    """What is saved, from ``SUFFIXES``."""
    optional: Sequence[str] = ()
    """Kinds that are saved of images that are tested, and for whose sake no image is tested again."""

    def has(self, record: Row) -> bool:
        """Return whether all that must be there of an image was saved and still is."""
        files = [saved_file(record, kind)[0] for kind in self.kinds if kind not in self.optional]
        return all(name and (self.directory / name).is_file() for name in files)

    def save(self, image: ImageSource, results: Sequence[AttentionTestResult]) -> dict[str, dict[str, Any]]:
        """Save what was asked for of an image, and return what its record says of it, by kind.

        These are under "saved" the files, relative to the directory, with hashes of their content, and under "unsaved"
        the reasons why others could not be saved: the image was tested all the same. ``results`` are those of its
        region, or of the components of it.
        """
        saved: dict[str, dict[str, Any]] = {"saved": {}}
        for kind in self.kinds:
            path = Path(kind) / f"{file_stem(image.name)}{SUFFIXES[kind]}"
            content = _content(kind, results)
            try:
                make_directory(self.directory / kind)
                write_complete(self.directory / path, content, f"the {kind}")
                in_space = _placed(kind, image, results[0])
                if in_space is not None:
                    write_complete(self.directory / path.with_suffix(".nii"), in_space, f"the {kind}")
            except InputError as error:
                saved.setdefault("unsaved", {})[kind] = str(error)
            else:
                saved["saved"][kind] = {"file": str(path), "blake2b": content_digest(content)}
        return saved

    def check(self, records: Iterable[Row]) -> list[str]:
        """Return why some that is optional was not saved; raise an error if something else was not."""
        reasons = [of_kind for record in records for of_kind in record.get("unsaved", {}).items()]
        for kind, reason in reasons:
            if kind not in self.optional:
                raise InputError(reason)
        return [reason for _, reason in reasons]


def file_stem(name: str) -> str:
    """Return a file name for an image: the end of its own name in safe characters, and a digest of all of it."""
    digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=6).hexdigest()
    readable = quote(name.encode("utf-8", "surrogateescape").split(b"/")[-1], safe="")[-60:]
    return f"{readable}-{digest}"


def _tested(results: Sequence[AttentionTestResult]) -> list[AttentionTestResult]:
    """Return the results of an image without the components of its region that could not be tested."""
    return [result for result in results if isinstance(result, AttentionTestResult)]


def _untested(results: Sequence[Any]) -> dict[str, list[str]]:
    """Return the reasons of the other components, if there are any."""
    reasons = [result.reason for result in results if isinstance(result, FailedImage)]
    return {"untested": reasons} if reasons else {}


SHOWN = {"maps": "attention", "regions": "region"}  # names of what is saved as an array


def _placed(kind: str, image: ImageSource, result: AttentionTestResult) -> bytes | None:
    """Return the map or region of a volume as a NIfTI file that a viewer lays over it; None of anything else."""
    if kind not in SHOWN or result.region.ndim != 3 or not (image.slices or is_nifti(image.path)):
        return None
    source = affine_of_series(image.slices) if image.slices else image.path
    return None if source is None else nifti_like(source, result.shown()[SHOWN[kind]])


def _content(kind: str, results: Sequence[AttentionTestResult]) -> bytes:
    if kind == PICTURES:
        return small_picture(results).to_bytes()
    content, shown = io.BytesIO(), results[0].shown()
    if kind == "masks":
        from PIL import Image

        region = shown["region"]
        rows = region.reshape(-1, region.shape[-1])  # a signal is a row, and slices of a volume are below each other
        Image.fromarray(np.where(rows, 255, 0).astype(np.uint8)).save(content, "PNG")
    else:
        np.save(content, shown[SHOWN[kind]])
    return content.getvalue()


TESTED_SHARE = 0.2
"""Share of the work on an image that its test is, where four more are made for its sensitivity to the noise."""

READ = ("file", "reference", "reference_file", "mask")
"""What a record says about the files that were read: hashes of image, reference and mask, and a name."""

Keep: TypeAlias = Callable[[ImageSource, "list[AttentionTestResult]"], None]


@dataclass(frozen=True, kw_only=True)
class BatchRun:
    """Tests of image files.

    The line of an image has its name, the seconds that it took, a hash of its file and of its reference, and under
    "results" the record of its result (``result.to_dict()``), or those of the components of its region, and under
    "untested" the reasons why other components could not be tested; or under "error" why the image could not.
    """

    test: AttentionTest
    """The test."""
    images: Sequence[ImageSource]
    """The images."""
    references: Sequence[ImageSource] = ()
    """Their reference images: none, one for all, or one for each."""
    confidence_level: float | None = 0.95
    """Level of the confidence intervals in the records; None for none."""
    request: Request = field(default_factory=Request)
    """What is asked about each image."""
    sensitivity: float | None = None
    """Significance level of the sensitivity to the noise that each record has under "sensitivity"
    (:meth:`AttentionTest.sensitivity`); None for none. For whole regions."""
    save: SavedArrays | None = None
    """What to save of each image, if anything; the record has the files under "saved". Where something that is not
    optional cannot be saved, adding the record raises an error after it is written."""
    keep: Keep | None = None
    """Called with every image that was tested and its results, one or one for each component of its region, before they
    are dropped; in the process that tests it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "images", told_apart(self.images))
        self.test.pipeline.check(self.request)

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
            or {name: record.get(name) for name in READ} != self._read(place, is_image="error" not in record)
            or (retry and "error" in record)
            or (
                self.sensitivity is not None
                and "error" not in record
                and record.get("sensitivity", {}).get("alpha") != self.sensitivity
            )
            or (self.save is not None and "error" not in record and not self.save.has(record))
        ]

    @contextmanager
    def recorded(
        self, engine: Engine, rows: ImageRows, out: Path | None, retry: bool
    ) -> Iterator[tuple[Iterable[Row], list[int], Callable[[Sequence[Row]], int | None]]]:
        """Take the rows that a directory has; yield their records, the places of other images, and what adds records.

        Without a directory there are none, and nothing is written. A directory of another test raises an error. What
        adds records returns the number of lines that their file has then.
        """
        if out is None:
            yield [], list(range(len(self.images))), lambda records: None
            return

        def keep(record: Row) -> Row:
            rows.set(record["image"], rows_of_line(record))
            kept: Row = {name: record[name] for name in (*READ, "error", "saved") if name in record}
            if "sensitivity" in record:
                kept["sensitivity"] = {"alpha": record["sensitivity"]["alpha"]}
            return kept

        make_directory(out)
        file = RecordFile(out / RESULTS)
        header = record_header(self.test, self.describe(), engine)
        with alone_in(out), file.writing(header, keep) as writer:
            places = self.missing(writer.records, retry)
            if places and (others := len(writer.records.places.keys() - {image.name for image in self.images})):
                said = (
                    f"{out} has the results of {counted(others, 'other image')}, and those of "
                    f"{counted(len(places), 'image')} are added: a report or a cohort of this folder is about all."
                )
                warnings.warn(worded(said, self.test.pipeline.inputs.dimension), AttentestWarning, stacklevel=2)
            for place in places:  # their rows are of other files of these names, or of failures to be tried again
                rows.set(self.images[place].name, [])
            unsaved: list[str] = []

            def add(records: Sequence[Row]) -> int:
                lines = writer.add(records)
                if self.save is not None:
                    unsaved.extend(self.save.check(records))
                return lines

            yield file.rows_at(writer.records.places[name] for name in rows.names), places, add
            if unsaved:
                warnings.warn(
                    f"{counted(len(unsaved), 'image')} without a picture in reports: {unsaved[0]}",
                    AttentestWarning,
                    stacklevel=2,
                )

    @property
    def device(self) -> torch.device:
        """The device of the test."""
        return self.test.device

    def run(self, tasks: Sequence[int], progress: Progress | None = None) -> Iterator[list[Row]]:
        """Yield the records of images, given by their places, batch by batch."""
        share, finished = 1.0 if self.sensitivity is None else TESTED_SHARE, 0

        def tell(before: float, weight: float, done: float, _: int | None) -> None:
            if progress is not None:
                progress(before + weight * done, len(tasks))

        found: dict[int, list[Any]] = {}

        def images() -> Iterator[ImageSource]:
            for place in tasks:
                found[place] = self._status(place)
                yield self.images[place]

        tests = ImageTests(pipeline=self.test.pipeline, request=self.request, on_error="row", total=len(tasks))
        batches = tests.run(
            numbered_images(images(), self._references(tasks)),
            # Images of a batch that is tested are not finished yet.
            lambda done, total: tell(finished, share, done - finished, total),
        )
        for places, batch, start in timed_batches(tasks, batches):
            values = self._values(batch)
            for number, (place, tested, record) in enumerate(zip(places, batch, values, strict=True)):
                if isinstance(tested, FailedImage):
                    continue
                tested = _tested(tested)
                if self.sensitivity is not None:
                    before = finished + share * len(batch) + (1 - share) * number
                    varied = partial(tell, before, 1 - share)
                    record["sensitivity"] = self._sensitivity(place, tested[0], self.sensitivity, varied)
                if self.save is not None:
                    record |= self.save.save(self.images[place], tested)
                if self.keep is not None:
                    self.keep(self.images[place], tested)
            finished += len(batch)
            seconds = (time.perf_counter() - start) / len(batch)
            yield [
                # What was changed since it was read is another image.
                self._record(place, record, seconds, changed=found.pop(place) != self._status(place))
                for place, record in zip(places, values, strict=True)
            ]

    def lost(self, task: int, reason: str) -> Row:
        """Return the record of an image, given by its place, that could not be tested for a reason outside the test."""
        return self._record(task, {"error": reason}, 0.0)

    def _values(self, batch: Sequence[Tested]) -> list[dict[str, Any]]:
        """Return the records of each image of a batch, or the reason of its failure."""
        regions = [_tested(tested) for tested in batch if not isinstance(tested, FailedImage)]
        if self.request.connectivity is None:
            records = [[record] for record in records_of([result for (result,) in regions], self.confidence_level)]
        else:
            records = component_records(regions, self.confidence_level)
        values = iter([record.to_dict() for record in of_image] for of_image in records)
        return [
            {"error": tested.reason}
            if isinstance(tested, FailedImage)
            else {"results": next(values)} | _untested(tested)
            for tested in batch
        ]

    def _sensitivity(self, place: int, result: AttentionTestResult, alpha: float, progress: Progress) -> dict[str, Any]:
        """Return the sensitivity of a tested image as JSON-ready values, without correlation lengths if they fail."""
        image, reference = self.images[place], self._reference(place)
        try:
            curves = self.test.sensitivity(image, reference=reference, result=result, alpha=alpha, progress=progress)
        except Exception as error:  # noqa: BLE001  # whatever the error is, the image was tested and the others go on
            curves = replace(result.sensitivity(alpha=alpha), note=f"{LEFT_OUT}: {reason_of(error)}")
        return curves.to_dict()

    def _record(self, place: int, values: dict[str, Any], seconds: float, changed: bool = False) -> Row:
        which = {"image": self.images[place].name, "seconds": round(seconds, 6)}
        read = {} if changed else self._read(place, is_image="error" not in values)
        return {**which, **{name: value for name, value in read.items() if value is not None}, **values}

    def _status(self, place: int) -> list[Any]:
        """Return what changes whenever a file does that is read for the test of an image."""
        reference = self._reference(place)
        return [None if source is None else source.status() for source in (self.images[place], reference)]

    def _read(self, place: int, is_image: bool) -> dict[str, Any]:
        """Return what is read for the test of an image, as it is now; it is known again by its content."""
        reference, masks, own_mask = self._reference(place), self.test.definition.mask, None
        with suppress(InputError):  # without a mask of its own the image could not be tested, as its record says
            own_mask = masks.of(self.images[place].identity).sha256 if isinstance(masks, Masks) else None
        stamps = (
            self.images[place].stamp(is_image=is_image),
            *((None, None) if reference is None else (reference.name, reference.stamp(is_image=is_image))),
            own_mask,
        )
        return dict(zip(READ, stamps, strict=True))

    def _references(self, places: Sequence[int]) -> list[ImageLike] | None:
        """Return the reference of each image; one for all is read once."""
        if not self.references:
            return None
        if len(self.references) == 1:
            return [as_sample(self.references[0], len(self.test.pipeline.scores.image_shape) - 1)] * len(places)
        return [self.references[place] for place in places]

    def _reference(self, place: int) -> ImageSource | None:
        return self.references[place if len(self.references) > 1 else 0] if self.references else None
