"""A tested batch as a report needs it: from results in memory, or from a folder of records."""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.errors import InputError
from attentest.presentation.picture import displayed
from attentest.presentation.rows import Row, failed_row, records_of_line, rows_of_line, rows_of_records
from attentest.record import ResultRecord
from attentest.runs.records import RESULTS, RUNS, RecordFile, read_runs, versions

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
    def of(
        cls, image: NDArray[np.float64], attention: NDArray[np.float64], parts: Sequence[NDArray[np.bool_]]
    ) -> SmallPicture:
        """Return the picture of an image (H, W) or (H, W, C), its attention map (H, W) and its compared parts."""
        numbers = np.zeros(attention.shape, dtype=np.uint16)
        for number, part in enumerate(parts[:MOST_PARTS], start=1):
            numbers[part] = number
        step = math.ceil(max(numbers.shape) / LONGEST_SIDE)
        rows, columns = (_middles(side, step) for side in attention.shape)
        return cls(
            image=_eight_bits(_shrunk(displayed(image), step)),
            attention=_eight_bits(_shrunk(np.clip(attention, 0.0, 1.0), step)),
            parts=numbers.take(rows, axis=0).take(columns, axis=1),
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
    line
        Maps the place of an image that was tested to its records, one or one for each component, and its recorded
        sensitivity to the noise, if there is one.
    picture
        Maps the place of an image to its small picture, if there is one.
    origin
        How the batch was tested.
    """

    __test__ = False  # nothing that pytest should run

    rows: Sequence[Sequence[Row]]
    line: Callable[[int], tuple[Sequence[ResultRecord], Mapping[str, Any] | None]]
    picture: Callable[[int], SmallPicture | None]
    origin: Origin = field(repr=False)


def batch_of_records(
    named: Sequence[tuple[object, Sequence[ResultRecord] | str]], picture: Callable[[int], SmallPicture | None]
) -> TestedBatch:
    """Return the batch of results in memory.

    Parameters
    ----------
    named
        The images by name, each with its records, one or one for each component, or the reason why it was not tested.
    picture
        Maps the place of an image to its small picture.
    """
    tested = {place: records for place, (_, records) in enumerate(named) if not isinstance(records, str)}
    settings = next((records[0].settings for records in tested.values()), {})
    return TestedBatch(
        rows=[
            [failed_row(name, found)] if isinstance(found, str) else rows_of_records(name, found)
            for name, found in named
        ],
        line=lambda place: (tested[place], None),
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

    def keep(line: Row) -> Row:
        name = line["image"]
        rows[name] = rows_of_line(line)
        saved[name] = str((line.get("saved") or {}).get(PICTURES, ""))
        return {}

    found = file.read(keep=keep)
    if not found.rows:
        raise InputError(f"{directory / RESULTS} has no record of an image yet: run attentest test --out again.")
    wanted = [name for name in (found.rows if names is None else names) if name in found.rows]
    header = found.headers[-1]
    runs = read_runs(directory, ("command",)) if (directory / RUNS).is_file() else []
    warned = [text for run in runs for text in run.get("warnings", ())]

    def line(place: int) -> tuple[list[ResultRecord], Mapping[str, Any] | None]:
        (values,) = file.rows_at([found.places[wanted[place]]])
        return records_of_line(values), values.get("sensitivity")

    def picture(place: int) -> SmallPicture | None:
        # Only the name of the file is taken from the record: a record cannot lead out of the folder.
        name = Path(saved[wanted[place]]).name
        return SmallPicture.read(directory / PICTURES / name) if name else None

    return TestedBatch(
        rows=[rows[name] for name in wanted],
        line=line,
        picture=picture,
        origin=Origin(
            settings=header["settings"],
            noise=header["series"].get("noise") or header["settings"].get("noise") or {},
            reference_noise=header["series"].get("reference_noise"),
            model_sha256=header["model_sha256"],
            machines=_unique(
                {name: each[name] for name in ("device", "threads", "versions") if name in each}
                for each in found.headers
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
