"""A tested batch as a report needs it: from results in memory, or from a folder of records."""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attentest.errors import InputError
from attentest.presentation.picture import displayed
from attentest.results.components import values_of_components
from attentest.results.result import AttentionTestResult, values_of
from attentest.results.rows import Row, rows_of_record
from attentest.results.sensitivity.noise_factor import SHOWN_FACTORS, NoiseFactors
from attentest.results.sensitivity.sensitivity import Sensitivity, factor_sensitivity
from attentest.runs.engine import FailedImage
from attentest.runs.records import RESULTS, RUNS, RecordFile, read_runs, versions
from attentest.statistics.alternative import as_alternative
from attentest.statistics.law import Law
from attentest.statistics.randomised_law import law_from_values
from attentest.statistics.truncated_law import TruncatedNormal
from attentest.statistics.truncation_set import TruncationSet

LONGEST_SIDE = 512
"""Most pixels of a copy on a side; a larger image is shown smaller."""


MOST_PARTS = 65_535
"""Most components of a region whose numbers are kept: what 16 bits can hold."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SmallPicture:
    """A tested image with its attention map and the compared parts of its region, all of one small size.

    Parameters
    ----------
    image : (h, w) or (h, w, 3) uint8
        The image, as it is shown.
    attention : (h, w) uint8
        The attention map: 255 is its maximum.
    parts : (h, w) uint16
        The number of the compared part at each pixel, from 1, and 0 outside of the region.
    """

    image: NDArray[np.uint8]
    attention: NDArray[np.uint8]
    parts: NDArray[np.uint16]

    def __post_init__(self) -> None:
        shape = self.attention.shape
        if not (
            len(shape) == 2
            and 1 <= max(shape) <= LONGEST_SIDE
            and self.parts.shape == shape
            and self.image.shape in (shape, (*shape, 3))
            and [array.dtype.name for array in (self.image, self.attention, self.parts)] == ["uint8", "uint8", "uint16"]
        ):
            raise ValueError("the arrays of a small picture do not go together")

    @classmethod
    def of_results(cls, results: Sequence[AttentionTestResult]) -> SmallPicture:
        """Return the picture of the results of one image: one, or one for each component of its region."""
        first = results[0]
        parts = np.zeros(first.region.shape, dtype=np.uint16)
        for number, result in enumerate(results[:MOST_PARTS], start=1):
            parts[result.part] = number
        step = math.ceil(max(parts.shape) / LONGEST_SIDE)
        rows, columns = (_middles(side, step) for side in first.region.shape)
        return cls(
            image=_eight_bits(_shrunk(displayed(first.image), step)),
            attention=_eight_bits(_shrunk(np.clip(first.attention, 0.0, 1.0), step)),
            parts=parts.take(rows, axis=0).take(columns, axis=1),
        )

    @classmethod
    def read(cls, path: Path) -> SmallPicture | None:
        """Return the picture in a file; None if there is none that can be read."""
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as saved:
                return cls(image=saved["image"], attention=saved["attention"], parts=saved["parts"])
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error):
            return None

    def to_bytes(self) -> bytes:
        """Return the content of a file."""
        content = io.BytesIO()
        np.savez_compressed(content, image=self.image, attention=self.attention, parts=self.parts)
        return content.getvalue()


def _shrunk(values: NDArray[np.float64], step: int) -> NDArray[np.float64]:
    """Return means over squares of ``step`` pixels, without the pixels at the ends that fill no square."""
    height, width = values.shape[:2]
    rows, columns = (len(_middles(side, step)) for side in (height, width))
    squares = values[: rows * step, : columns * step].reshape(
        rows, min(step, height), columns, min(step, width), *values.shape[2:]
    )
    return np.asarray(squares.mean(axis=(1, 3)))


def _middles(side: int, step: int) -> NDArray[np.int64]:
    """Return the pixels in the middle of the squares along one side, of which there is at least one."""
    return np.minimum(np.arange(max(side // step, 1)) * step + step // 2, side - 1)


def _eight_bits(values: NDArray[np.float64]) -> NDArray[np.uint8]:
    return np.asarray(np.rint(255 * values), dtype=np.uint8)


PICTURES = "pictures"
"""The folder of a directory of records that has the small copies of the images."""

Record: TypeAlias = Mapping[str, Any]
"""The values of one image: of its result, or of each of its "components"; or the "error" that it met."""

Named: TypeAlias = "Sequence[tuple[object, Sequence[AttentionTestResult] | FailedImage]]"
"""Images by name, each with the results of its compared parts."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """How a batch was tested, JSON-ready.

    Parameters
    ----------
    settings
        Those of the test.
    noise
        The noise of the test, with how it was estimated if it was; of an estimator from each image, that.
    reference_noise
        The noise of the reference image, if it has its own.
    model_sha256
        Digest of the weights of the model, if it is known.
    machines
        Device, threads and versions of packages, of each machine that took part.
    runs
        Command, start and seconds of each run of the command line.
    warnings
        What attentest warned of.
    """

    settings: Mapping[str, Any]
    noise: Mapping[str, Any]
    reference_noise: Mapping[str, Any] | None = None
    model_sha256: str | None = None
    machines: Sequence[Mapping[str, Any]] = ()
    runs: Sequence[Mapping[str, Any]] = ()
    warnings: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class TestedBatch:
    """The results of many images.

    Parameters
    ----------
    rows
        The rows of each image: one, or one for each component of its region.
    record
        Maps the place of an image to its record.
    picture
        Maps the place of an image to its small picture, if there is one.
    origin
        How the batch was tested.
    """

    __test__ = False  # nothing that pytest should run

    rows: Sequence[Sequence[Row]]
    record: Callable[[int], Record]
    picture: Callable[[int], SmallPicture | None]
    origin: Origin = field(repr=False)


def batch_of_results(named: Named, confidence_level: float, components: bool) -> TestedBatch:
    """Return the batch of results in memory.

    Parameters
    ----------
    named
        The images; if they are not components, with one result each.
    confidence_level
        Of the intervals.
    components
        Whether the results are of components of regions.
    """
    good = [found for _, found in named if not isinstance(found, FailedImage)]
    tested = [result for found in good for result in found]
    values: Iterator[Mapping[str, Any]]
    if components:
        values = iter({"components": one} for one in values_of_components(good, confidence_level))
    else:
        values = iter(values_of(tested, confidence_level))
    records: list[Record] = [
        {"image": name, **({"error": found.reason} if isinstance(found, FailedImage) else next(values))}
        for name, found in named
    ]

    def picture(place: int) -> SmallPicture | None:
        found = named[place][1]
        return None if isinstance(found, FailedImage) else SmallPicture.of_results(found)

    settings = dict(tested[0].settings) if tested else {}
    return TestedBatch(
        rows=[rows_of_record(record) for record in records],
        record=records.__getitem__,
        picture=picture,
        origin=Origin(settings=settings, noise=settings.get("noise", {}), machines=[{"versions": versions()}]),
    )


def batch_of_folder(directory: Path, names: Collection[str] | None = None) -> TestedBatch:
    """Return the batch in a folder that ``attentest test --out`` wrote.

    Parameters
    ----------
    directory
        The folder.
    names
        The images that are wanted, in order; by default all, in the order in which they were tested.
    """
    if not (directory / RESULTS).is_file():
        raise InputError(
            f"{directory} has no {RESULTS}, so there is nothing to report: give a folder of attentest test --out."
        )
    file = RecordFile(directory / RESULTS)
    rows: dict[int | str, list[Row]] = {}
    saved: dict[int | str, str] = {}

    def keep(record: Row) -> Row:
        name = record["image"]
        rows[name] = rows_of_record(record)
        saved[name] = str((record.get("saved") or {}).get(PICTURES, ""))
        return {}

    found = file.read(keep=keep)
    if not found.rows:
        raise InputError(f"{directory / RESULTS} has no record of an image yet: run attentest test --out again.")
    wanted = [name for name in (found.rows if names is None else names) if name in found.rows]
    header = found.headers[-1]
    runs = read_runs(directory, ("command",)) if (directory / RUNS).is_file() else []
    warned = [text for run in runs for text in run.get("warnings", ())]

    def record(place: int) -> Record:
        return next(iter(file.rows_at([found.places[wanted[place]]])))

    def picture(place: int) -> SmallPicture | None:
        # Only the name of the file is taken from the record: a record cannot lead out of the folder.
        name = Path(saved[wanted[place]]).name
        return SmallPicture.read(directory / PICTURES / name) if name else None

    return TestedBatch(
        rows=[rows[name] for name in wanted],
        record=record,
        picture=picture,
        origin=Origin(
            settings=header["settings"],
            noise=header["series"].get("noise") or header["settings"].get("noise") or {},
            reference_noise=header["series"].get("reference_noise"),
            model_sha256=header["model_sha256"],
            machines=_unique(
                {name: one[name] for name in ("device", "threads", "versions") if name in one} for one in found.headers
            ),
            runs=runs,
            warnings=_unique(warned),
        ),
    )


def _unique(values: Any) -> list[Any]:
    """Return values without those that are there again."""
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found


def recorded_law(values: Mapping[str, Any]) -> Law | None:
    """Return the law of a result from its JSON-ready values; None if it is not known.

    A record of an earlier version does not name it. It is the paper's, unless the selection was randomised.
    """
    statistic = float(values["statistic"])
    if values.get("law") is not None:
        return law_from_values(statistic, values["law"])
    return None if values.get("randomisation") else TruncatedNormal(statistic=np.array([statistic]))


AS_FAR_AS_KNOWN = (
    "The record does not say what the search left open: these p-values count only what it found, as far as it looked."
)


def recorded_sensitivity(values: Mapping[str, Any], alpha: float) -> Sensitivity | None:
    """Return the sensitivity to some factors on the standard deviation of the noise.

    If the record has correlation lengths, because they were asked for, so has what is returned.

    Parameters
    ----------
    values
        JSON-ready values of a result (``result.to_dict()``). Of an earlier version they lack the law of a randomised
        test, and then None is returned; or the bounds on the truncation set, and then a note says so.
    alpha
        Significance level of the verdict.
    """
    law = recorded_law(values)
    if law is None:
        return None
    bounded = "certain_intervals" in values and "possible_intervals" in values
    names = ("intervals", "certain_intervals", "possible_intervals") if bounded else ("intervals",) * 3
    best, certain, possible = (np.array(values[name], dtype=np.float64).reshape(-1, 2) for name in names)
    found = factor_sensitivity(
        NoiseFactors(
            law=law,
            known=TruncationSet(intervals=best, certain=certain, possible=possible),
            alternative=as_alternative(values["alternative"]),
            standard_error=values["standard_error"],
        ),
        alpha=alpha,
        confidence_level=values["confidence_interval"]["confidence_level"],
        factors=SHOWN_FACTORS,
        note=None if bounded else AS_FAR_AS_KNOWN,
    )
    recorded = values.get("sensitivity")
    if recorded is None or recorded["lengths"] is None:
        return found
    earlier = Sensitivity.from_dict(recorded)
    return replace(
        found, lengths=earlier.lengths, assumed_length=earlier.assumed_length, evaluations=earlier.evaluations
    )
