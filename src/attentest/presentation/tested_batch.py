"""A tested batch as a report needs it: from results in memory, or from a folder of records."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attentest.errors import AttentestWarning, InputError, counted
from attentest.presentation.rows import Row, failed_row, records_of_line, rows_of_line, rows_of_records
from attentest.presentation.small_picture import SmallPicture
from attentest.record import ResultRecord
from attentest.runs.records import (
    RESULTS,
    Keep,
    RecordFile,
    Records,
    check_numbers,
    check_texts,
    read_runs,
    versions,
)

PICTURES = "pictures"  # the folder of a directory of records that has the small copies of the images


def saved_file(record: Mapping[str, Any], kind: str) -> tuple[str, str]:
    """Return the name and the digest of a file that was saved of an image; empty if there is none."""
    saved = record.get("saved", {}).get(kind, {})
    return str(saved.get("file", "")), str(saved.get("blake2b", ""))


@dataclass(frozen=True, kw_only=True, eq=False)
class TestedBatch:
    """The results of many images."""

    __test__ = False  # nothing that pytest should run

    rows: Sequence[Sequence[Row]]
    """The rows of each image: one, or one for each component of its region."""
    line: Callable[[int], tuple[Sequence[ResultRecord], Mapping[str, Any] | None]]
    """Maps the place of an image that was tested to its records, one or one for each component, and its recorded
    sensitivity to the noise, if there is one."""
    picture: Callable[[int], SmallPicture | None]
    """Maps the place of an image to its small picture, if there is one."""
    origin: Mapping[str, Any]
    """How the batch was tested, JSON-ready: the ``settings`` of the test; its ``noise`` and, if it has its own, that of
    the reference image, ``reference_noise``, with how they were estimated; ``model_sha256``, the digest of the model's
    weights, if it is known; ``machines``, the device, threads and versions of packages of each machine that took part;
    ``runs``, the command, start and seconds of each run of the command line; and its ``warnings``."""


def batch_of_records(
    named: Sequence[tuple[object, Sequence[ResultRecord] | str]], picture: Callable[[int], SmallPicture | None]
) -> TestedBatch:
    """Return the batch of results in memory: images by name, and the small picture of each by its place.

    An image has its records, one or one for each component, or the reason why it was not tested.
    """
    tested = {place: records for place, (_, records) in enumerate(named) if not isinstance(records, str)}
    settings = next((records[0].settings for records in tested.values()), {})
    prepared = [records[0].settings.get(PREPARED) for records in tested.values()]
    return TestedBatch(
        rows=[
            [failed_row(name, records)] if isinstance(records, str) else rows_of_records(name, records)
            for name, records in named
        ],
        line=lambda place: (tested[place], None),
        picture=picture,
        origin={
            "settings": _as_prepared(settings, prepared),
            "noise": settings.get("noise", {}),
            "reference_noise": None,
            "model_sha256": None,
            "machines": [{"versions": versions()}],
            "runs": [],
            "warnings": [],
        },
    )


def batch_of_folder(directory: Path, names: Collection[str] | None = None) -> TestedBatch:
    """Return the batch in a folder that ``attentest test --out`` wrote.

    It has the images with these names, in order; by default all, in the order in which they were tested.
    """
    rows: dict[int | str, list[Row]] = {}
    saved: dict[int | str, tuple[str, str]] = {}
    prepared: dict[int | str, Any] = {}

    def keep(line: Row) -> Row:
        name = line["image"]
        rows[name] = rows_of_line(line)
        saved[name] = saved_file(line, PICTURES)
        prepared.pop(name, None)
        if "error" not in line:
            prepared[name] = line["results"][0]["settings"].get(PREPARED)
        return {}

    folder = tested_folder(directory, keep)
    content, runs = folder.records, folder.runs
    wanted = [name for name in (content.rows if names is None else names) if name in content.rows]
    header = content.headers[-1]
    notes = [*_unique(text for run in runs for text in run["warnings"]), *folder.notes]
    for note in folder.notes:
        warnings.warn(note, AttentestWarning, stacklevel=2)

    def line(place: int) -> tuple[list[ResultRecord], Mapping[str, Any] | None]:
        (values,) = folder.file.rows_at([content.places[wanted[place]]])
        return records_of_line(values), values.get("sensitivity")

    def picture(place: int) -> SmallPicture | None:
        # Only the name of the file is taken from the record: a record cannot lead out of the folder.
        name, digest = saved[wanted[place]]
        if not name:
            return None
        path = directory / PICTURES / Path(name).name
        found = SmallPicture.read(path, digest)
        if found is None:
            warnings.warn(
                f"{path} is not the picture that was saved there, and is left out.", AttentestWarning, stacklevel=2
            )
        return found

    return TestedBatch(
        rows=[rows[name] for name in wanted],
        line=line,
        picture=picture,
        origin={
            "settings": _as_prepared(header["settings"], [prepared[name] for name in wanted if name in prepared]),
            "noise": header["series"].get("noise") or header["settings"].get("noise") or {},
            "reference_noise": header["series"].get("reference_noise"),
            "model_sha256": header["model_sha256"],
            "machines": _unique(
                {name: made[name] for name in ("device", "threads", "versions") if name in made}
                for made in content.headers
            ),
            "runs": runs,
            "warnings": notes,
        },
    )


@dataclass(frozen=True, kw_only=True)
class TestedFolder:
    """What ``attentest test --out`` wrote into a folder."""

    __test__ = False  # nothing that pytest should run

    file: RecordFile
    records: Records
    runs: list[dict[str, Any]]
    """Its runs, oldest first."""
    notes: list[str]
    """Sentences that say which records are not there."""


def tested_folder(directory: Path, keep: Keep) -> TestedFolder:
    """Read a folder of ``attentest test --out``; only what ``keep`` returns of each record is in memory."""
    file = RecordFile(directory / RESULTS)
    if not file.path.is_file():
        raise InputError(f"{directory} has no {RESULTS}: give a folder of attentest test --out.")
    records, runs = file.read(keep=keep), read_runs(directory, RUN, _check_run)
    if not records.rows:
        raise InputError(f"{file.path} has no record of an image yet: run attentest test --out again.")
    lines = records.end.lines
    last = next((run for run in reversed(runs) if run["lines"] is not None), {"lines": 0})
    notes = []
    if lines < last["lines"]:
        notes.append(
            f"{RESULTS} has {counted(lines, 'line')}, and had {last['lines']:,} when a run last wrote to it: records "
            "are missing, and the command of that run tests their images again."
        )
    elif lines > last["lines"]:
        notes.append(
            f"The run that last wrote to {RESULTS} has not ended, or was cut off: there may be images without a "
            "record, and its command tests them."
        )
    elif last["left"]:
        notes.append(
            f"The last run ended before {counted(last['left'], 'image')} of it had a record: its command tests them."
        )
    return TestedFolder(file=file, records=records, runs=runs, notes=notes)


PREPARED = "preprocessing"  # the setting that says how images were prepared for the model


def _as_prepared(settings: Mapping[str, Any], prepared: Sequence[Any]) -> dict[str, Any]:
    """Return the settings of a test with the preprocessing that its images had, by that of each image.

    It is None for images that the model could take as they are. Where images differ, it is a list of the different
    ``steps``, each with the number of ``images`` that had them.
    """
    kinds = _unique(prepared)
    if not kinds:
        return dict(settings)
    made = kinds[0]
    if len(kinds) > 1:
        made = [{"images": prepared.count(kind), "steps": kind} for kind in kinds]
    return {**settings, PREPARED: made} if made or PREPARED in settings else dict(settings)


RUN = ("command", "started", "seconds", "warnings", "lines", "left")  # what the list of runs says about each


def _check_run(run: Mapping[str, Any]) -> None:
    check_texts(run, ("command", "started"))
    check_numbers(run, ("seconds",) if run["lines"] is None else ("seconds", "lines", "left"))
    if not all(isinstance(text, str) for text in run["warnings"]):
        raise ValueError("warnings must be texts")


def _unique(values: Iterable[Any]) -> list[Any]:
    """Return values, which need not be hashable, without those that are there again."""
    unique: list[Any] = []
    for value in values:
        if value not in unique:
            unique.append(value)
    return unique
