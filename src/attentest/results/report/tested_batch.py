"""A tested batch as a report needs it: from results in memory, or from a folder of records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from attentest.errors import InputError
from attentest.results.failure import FailedImage
from attentest.results.records import RESULTS, RUNS, RecordFile, read_runs
from attentest.results.report.small_picture import SmallPicture
from attentest.results.result import AttentionTestResult, values_of
from attentest.results.rows import Row, rows_of_record
from attentest.results.simultaneous import values_of_components
from attentest.results.versions import versions

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
