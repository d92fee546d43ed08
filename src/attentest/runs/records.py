"""Results of many trials on disk: JSON Lines that survive an interruption and say how they were made."""

from __future__ import annotations

import json
import platform
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

import numpy as np
import scipy
import torch

from attentest import __version__
from attentest.errors import AttentestWarning, InputError, shortened
from attentest.record import differences
from attentest.registry import NOISE_MODELS
from attentest.runs.record_lines import End, LineWriter, add_line, file_key, line_values, open_to_add, read_lines

if TYPE_CHECKING:
    from attentest.runs.engine import Engine

Row: TypeAlias = dict[str, Any]  # the result of one trial, with the number of its image and the seconds it took
Image = TypeVar("Image", int, str)  # what images are called in a file: numbers or names

RowCheck: TypeAlias = Callable[[Row], None]
"""Raises a ValueError, TypeError or KeyError for a row, or a header, that lacks what its readers need."""

Keep: TypeAlias = Callable[[Row], Row]  # maps a row to what is kept of it in memory, with errors as in a check
RESULTS = "results.jsonl"  # the records of tested images in a directory
RUNS = "runs.jsonl"  # the list of runs in a directory of data
IDENTITY = ("series", "seed", "model_sha256", "settings")  # header fields that rows of one file have in common
LARGEST_NUMBER = 1e300  # in rows; a larger one, in particular a whole number of any length, is damage
MOST_LINES = 20  # that are damaged, and that a message names
MOST_DIFFERENCES = 5  # between two tests that a message names


@dataclass(frozen=True, kw_only=True)
class Records:
    """The content of a record file."""

    headers: list[dict[str, Any]]  # how the rows were made, one for each run that added some
    rows: dict[int | str, Row]  # by number or name of the image; for one that was tried again, the last
    places: dict[int | str, int]  # of the lines of these rows in the file, in bytes
    end: End  # of the last complete line

    def missing(self, images: Iterable[Image], retry: bool = False) -> list[Image]:
        """Return the images without a row; with ``retry``, also those whose trial failed."""
        return [image for image in images if image not in self.rows or (retry and "error" in self.rows[image])]


class RecordFile:
    """A file of JSON Lines: headers (``{"header": ...}``), each followed by the rows it describes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(
        self, check_row: RowCheck | None = None, check_header: RowCheck | None = None, keep: Keep | None = None
    ) -> Records:
        """Return the content; an unfinished last line is ignored, and a line that fails a check raises an error.

        With ``keep``, only what it returns of each row is in memory.
        """
        headers: list[dict[str, Any]] = []
        rows: dict[int | str, Row] = {}
        places: dict[int | str, int] = {}

        def add(values: dict[str, Any], place: int) -> None:
            if "header" in values:
                headers.append(_checked_header(values["header"]))
                if check_header is not None:
                    check_header(headers[-1])
            else:
                row = _checked_row(values, headers)
                if check_row is not None:
                    check_row(row)
                rows[row["image"]] = row if keep is None else keep(row)
                places[row["image"]] = place

        bad: list[tuple[int, str]] = []

        def damaged(number: int, reason: str) -> None:
            if not headers:
                raise InputError(
                    f"{self.path} is damaged: line 2, which says how all rows were made, is not there (line {number}: "
                    f"{reason}); put back a copy of the file, or move it away and run again."
                )
            bad.append((number, reason))

        end = read_lines(self.path, add, damaged)
        if bad:
            numbers = [str(number) for number, _ in bad]
            which = f"line {numbers[0]}" if len(bad) == 1 else f"lines {', '.join(numbers[:MOST_LINES])}"
            more = f" and {len(bad) - MOST_LINES} more" if len(bad) > MOST_LINES else ""
            its = (
                "is damaged ({}): remove it, and its row is"
                if len(bad) == 1
                else ("are damaged (the first: {}): remove them, and their rows are")
            )
            raise InputError(f"{which}{more} of {self.path} {its.format(bad[0][1])} made anew.")
        return Records(headers=headers, rows=rows, places=places, end=end)

    def rows_at(self, places: Iterable[int]) -> Iterator[Row]:
        """Yield the rows at some places of the file, which was read and has not lost lines since."""
        with self.path.open("rb") as file:
            key = file_key(file, self.path)
            for place in places:
                file.seek(place)
                try:
                    row = line_values(file.readline(), key)
                except ValueError:
                    raise InputError(f"{self.path} was changed while it was read: run the command again.") from None
                del row["line"]
                yield row

    def check_same(self, records: Records, identity: Mapping[str, Any]) -> None:
        """Raise an error if series, seed, model_sha256 or settings, as far as given, are not those of the file."""
        now = json.loads(json.dumps({name: identity[name] for name in IDENTITY if name in identity}))
        for before in records.headers:
            named: dict[str, tuple[str, ...]] = {}
            for name in now:
                outermost = () if name in ("series", "settings") else (name,)
                for path, then, wanted in differences(before[name], now[name], outermost):
                    names = path or (name,)
                    # The parts of a noise model have no options of their own.
                    named[f"{' of '.join(names)} ({shortened(then)}, now {shortened(wanted)})"] = (
                        names[-1:] if "noise" in names[-1] else names
                    )
            if named:
                raise InputError(
                    f"other values of {', '.join(islice(named, MOST_DIFFERENCES))} made {self.path}: use another "
                    "output directory, or remove the file.",
                    *chain.from_iterable(named.values()),
                )

    @contextmanager
    def writing(
        self, header: dict[str, Any], keep: Keep | None = None, check_row: RowCheck | None = None
    ) -> Iterator[RecordWriter]:
        """Yield a writer of rows made as a header says; raise an error for other rows, or if another process writes.

        With ``keep``, only what it returns of each row that the file has is in memory.
        """
        with open_to_add(self.path) as file:
            records = self.read(check_row, keep=keep)
            self.check_same(records, header)
            file.truncate(records.end.size)
            lines = LineWriter(self.path, file, records.end)
            yield RecordWriter(lines, header, records)
            lines.check()


class RecordWriter:
    """Adds rows, made as a header says, to a file whose content was ``records``."""

    def __init__(self, lines: LineWriter, header: dict[str, Any], records: Records) -> None:
        self.records = records
        self._lines, self._header = lines, header
        self._header_written = bool(records.headers) and records.headers[-1] == header

    def add(self, rows: Sequence[Row]) -> int:
        """Write rows, which are on the disk when this returns, and return the number of lines of the file."""
        self._lines.add([*([] if self._header_written or not rows else [{"header": self._header}]), *rows])
        self._header_written |= bool(rows)
        return self._lines.end.lines


def read_runs(out: Path, fields: Collection[str], check: RowCheck | None = None) -> list[dict[str, Any]]:
    """Return the runs that a directory has seen, oldest first; each must have all of the fields and pass the check."""
    runs: list[dict[str, Any]] = []

    def add(entry: dict[str, Any], _: int) -> None:
        if absent := set(fields) - set(entry):
            raise ValueError(f"{', '.join(sorted(absent))} is missing")
        if check is not None:
            check(entry)
        runs.append(entry)

    def damaged(number: int, reason: str) -> None:
        raise InputError(
            f"line {number} of {out / RUNS} is damaged ({reason}): remove it, the rows are in other files."
        )

    read_lines(out / RUNS, add, damaged)
    return runs


class RunLog:
    """Takes note of the warnings of attentest for as long as the context lasts; they are shown as before."""

    def __init__(self) -> None:
        self.lines: int | None = None
        """Number of lines of the file of records when the run last wrote to it; None if it did not."""
        self.left = 0
        """Number of images that had no record then."""
        self._started, self._clock = datetime.now(UTC), time.monotonic()
        self._warnings: list[str] = []
        self._show = warnings.showwarning

    def __enter__(self) -> Self:
        def show(message: Warning | str, category: type[Warning], *where: Any, **also: Any) -> None:
            if issubclass(category, AttentestWarning) and str(message) not in self._warnings:
                self._warnings.append(str(message))
            self._show(message, category, *where, **also)

        warnings.showwarning = show
        return self

    def __exit__(self, *_: object) -> None:
        warnings.showwarning = self._show

    @contextmanager
    def written_to(
        self, directory: Path | None, writing: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> Iterator[None]:
        """Add this run to the list of runs in a directory, if there is one, when the context ends, however it does.

        That is done in the context ``writing()``, which may keep an error for later: the run is over, and its numbers
        are there.
        """
        if directory is None:
            yield
            return
        read_runs(directory, ())  # damage, or a file of others, is found before anything is computed
        finished = False
        try:
            yield
            finished = True
        finally:
            values = {
                "command": shlex.join(["attentest", *sys.argv[1:]]),
                "started": self._started.strftime("%Y-%m-%d %H:%M UTC"),
                "seconds": round(time.monotonic() - self._clock, 3),
                "warnings": self._warnings,
                "lines": self.lines,
                "left": self.left,
            }
            # What stopped a run matters more than that it cannot be recorded.
            with writing() if finished else suppress(InputError):
                add_line(directory / RUNS, values)


def check_numbers(values: Mapping[str, Any], names: Iterable[str]) -> None:
    """Check that all of these names have finite numbers."""
    for name in names:
        value = values[name]
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= LARGEST_NUMBER:
            raise ValueError(f"{name} must be a number, got {shortened(value)}")


def check_texts(values: Mapping[str, Any], names: Iterable[str]) -> None:
    """Check that all of these names have texts."""
    for name in names:
        if not isinstance(values[name], str):
            raise ValueError(f"{name} must be a text, got {shortened(values[name])}")


def _checked_header(values: Any) -> dict[str, Any]:
    if not isinstance(values, dict) or not set(IDENTITY) <= set(values):
        raise ValueError(f"a header must have {', '.join(IDENTITY)}")
    check_numbers(values, ["seed"])
    check_texts(values, ["model_sha256", *(name for name in ("device", "device_type") if name in values)])
    for name in ("series", "settings", "versions"):
        if not isinstance(values.get(name, {}), dict):
            raise ValueError(f"{name} must be an object, got {shortened(values[name])}")
    check_texts(values.get("versions", {}), values.get("versions", {}))
    return values


def _checked_row(values: Row, headers: list[dict[str, Any]]) -> Row:
    if not headers:
        raise ValueError("there is no header before it")
    image = values["image"]
    if not (isinstance(image, str) or (type(image) is int and 0 <= image <= LARGEST_NUMBER)):
        raise ValueError(f"image must be a whole number from 0, or a name, got {shortened(image)}")
    check_numbers(values, ["seconds"])
    _check_settings(values, headers[-1]["settings"])
    p = values.get("p", 0.0)
    if not (isinstance(p, (int, float)) and 0 <= p <= 1):
        raise ValueError(f"p must lie between 0 and 1, got {shortened(p)}")
    return values


def _check_settings(values: Row, settings: dict[str, Any]) -> None:
    """Check that an image was tested as the header says, apart from what the image decides itself."""
    known = {
        "noise": settings.get("noise", {}).get("model") in NOISE_MODELS,  # otherwise it is estimated from each image
        "mask": "share" in (settings.get("mask") or {"share": 1}),  # otherwise each image has its own
    }
    common = {name: value for name, value in settings.items() if known.get(name, True)}
    results = values.get("results")
    for result in results if isinstance(results, list) else ():
        made = result.get("settings") if isinstance(result, dict) else None
        if not isinstance(made, dict):
            return  # which the reader of results says
        if made.get("preprocessing") is None:  # the image could be taken as it is
            common.pop("preprocessing", None)
        now = {name: made.get(name) for name in common}
        for path, then, other in differences(common, now, ()):
            raise ValueError(f"{' of '.join(path)} is {shortened(other)}, and by the header it is {shortened(then)}")


def versions() -> dict[str, str]:
    """Return the versions of attentest and of the packages that its numbers depend on."""
    return {
        "attentest": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": metadata.version("transformers"),  # which takes seconds to import
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }


def described_machine(device: torch.device) -> dict[str, Any]:
    """Return the name of a device, the number of threads and the versions, JSON-ready."""
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine(),
        "device_type": device.type,
        "threads": torch.get_num_threads(),
        "versions": versions(),
    }


def record_header(test: Any, series: dict[str, Any], engine: Engine, seed: int = 0) -> dict[str, Any]:
    """Return what the records of one file have in common, and where they were made, which may differ within a file.

    They are those of a test, an ``AttentionTest``; the series is what else distinguishes them from others, and the seed
    that of the images, if they are drawn.
    """
    return {
        "series": {**series, **test.identity},
        "seed": seed,
        "model_sha256": test.model_sha256,
        "settings": test.settings,
        **described_machine(test.device),
        **engine.describe(),
    }
