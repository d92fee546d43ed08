"""Results of many trials on disk: JSON Lines that survive an interruption and say how they were made."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, TypeVar

import numpy as np
import scipy
import torch

from attentest import __version__
from attentest.errors import InputError, shortened

try:
    import fcntl
except ImportError:  # only POSIX has it; elsewhere two runs at once are not noticed
    fcntl = None  # type: ignore[assignment]

Row: TypeAlias = dict[str, Any]
"""The result of one trial, with the number of its image and the seconds it took."""

Image = TypeVar("Image", int, str)
"""What images are called in a file: numbers or names."""

RowCheck: TypeAlias = Callable[[Row], None]
"""Raises a ValueError, TypeError or KeyError for a row, or a header, that lacks what its readers need."""

Keep: TypeAlias = Callable[[Row], Row]
"""Maps a row to what is kept of it in memory, with errors as in a check."""

LOCK = ".lock"  # in a directory that one run at a time may write to
RESULTS = "results.jsonl"  # the records of tested images in a directory
RUNS = "runs.jsonl"  # the list of runs in a directory of data
IDENTITY = ("series", "seed", "model_sha256", "settings")  # header fields that rows of one file have in common
LARGEST_NUMBER = 1e300  # in rows; a larger one, in particular a whole number of any length, is damage
ROUNDING = 1e-9  # relative; numbers that are fitted to data differ in their last digits from machine to machine


@dataclass(frozen=True, kw_only=True)
class Records:
    """The content of a record file."""

    headers: list[dict[str, Any]]  # how the rows were made, one for each run that added some
    rows: dict[int | str, Row]  # by number or name of the image; for one that was tried again, the last
    places: dict[int | str, int]  # of the lines of these rows in the file, in bytes
    complete_bytes: int  # length of the file up to the end of its last complete line

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

        size = _read_lines(
            self.path,
            add,
            "remove it, and its row is made anew; line 1 says how all rows were made, without it remove the file",
        )
        return Records(headers=headers, rows=rows, places=places, complete_bytes=size)

    def rows_at(self, places: Iterable[int]) -> Iterator[Row]:
        """Yield the rows at some places of the file, which was read and has not lost lines since."""
        with self.path.open("rb") as file:
            for place in places:
                file.seek(place)
                yield json.loads(file.readline())

    def check_same(self, records: Records, identity: Mapping[str, Any]) -> None:
        """Raise an error if series, seed, model_sha256 or settings, as far as given, are not those of the file."""
        now = json.loads(json.dumps({name: identity[name] for name in IDENTITY if name in identity}))
        for before in records.headers:
            for name in now:
                if (found := _difference(before[name], now[name], name)) is not None:
                    where, then, wanted = found
                    what = where.removeprefix("series ").removeprefix("settings ").replace("_", " ")
                    raise InputError(
                        f"{self.path} was made with another value of {what} ({then}, now {wanted}): use another output "
                        "directory, or remove the file."
                    )

    @contextmanager
    def writing(
        self, header: dict[str, Any], keep: Keep | None = None, check_row: RowCheck | None = None
    ) -> Iterator[RecordWriter]:
        """Yield a writer of rows made as a header says; raise an error for other rows, or if another process writes.

        With ``keep``, only what it returns of each row that the file has is in memory.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = open(self.path, "ab")  # noqa: SIM115  # closed below
        except OSError as error:
            raise InputError(f"{self.path} cannot be written ({error.strerror}).") from None
        with file:
            _lock(file, self.path)
            records = self.read(check_row, keep=keep)
            self.check_same(records, header)
            file.truncate(records.complete_bytes)
            yield RecordWriter(self.path, file, header, records)


class RecordWriter:
    """Adds rows to an open file whose content was ``records``."""

    def __init__(self, path: Path, file: BinaryIO, header: dict[str, Any], records: Records) -> None:
        self.records = records
        self._path, self._file, self._header = path, file, header
        self._header_written = bool(records.headers) and records.headers[-1] == header

    def add(self, rows: Sequence[Row]) -> None:
        """Write rows; they are on the disk when this returns."""
        lines = [] if self._header_written else [{"header": self._header}]
        text = "".join(json.dumps(line, allow_nan=False) + "\n" for line in [*lines, *rows]).encode()
        try:
            self._file.write(text)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            with suppress(OSError):
                self._file.close()  # otherwise closing would try the write again, and its error would hide this one
            raise InputError(
                f"{self._path} cannot be written to ({error.strerror}): free some space and run again, earlier rows "
                "are safe."
            ) from None
        self._header_written = True


@contextmanager
def alone_in(directory: Path) -> Iterator[None]:
    """Lock an existing directory against other runs for as long as the context lasts."""
    try:
        file = open(directory / LOCK, "ab")  # noqa: SIM115  # closed below
    except OSError as error:
        raise InputError(f"{directory} cannot be written to ({error.strerror}): name another place.") from None
    with file:
        _lock(file, directory)
        yield


def read_runs(out: Path, fields: Collection[str], check: RowCheck | None = None) -> list[dict[str, Any]]:
    """Return the runs that a directory has seen, oldest first; each must have all of the fields and pass the check."""
    runs: list[dict[str, Any]] = []

    def add(entry: dict[str, Any], _: int) -> None:
        if absent := set(fields) - set(entry):
            raise ValueError(f"{', '.join(sorted(absent))} is missing")
        if check is not None:
            check(entry)
        runs.append(entry)

    _read_lines(out / RUNS, add, "remove it, the rows are in other files")
    return runs


def record_run(out: Path, values: dict[str, Any]) -> None:
    """Add a run to the list of runs; in one write, because several may end at once."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with open(out / RUNS, "a+b") as file:
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)  # drops an unfinished line
            file.write((json.dumps(values, allow_nan=False) + "\n").encode())
    except OSError as error:
        raise InputError(f"{out / RUNS} cannot be written ({error.strerror}).") from None


def _lock(file: BinaryIO, path: Path) -> None:
    """Lock an open file until it is closed; raise an error if another process has locked it."""
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(f"another run is writing to {path}: wait for it to end.") from None


def _read_lines(path: Path, add: Callable[[dict[str, Any], int], None], advice: str) -> int:
    """Pass the object on each complete line of a file, if it exists, and its place to ``add``; return where they end.

    Places are in bytes. One line at a time is in memory.
    """
    place = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    break
                try:
                    values = json.loads(line, parse_constant=_no_number)
                    if not isinstance(values, dict):
                        raise ValueError("it is not an object")
                    add(values, place)
                except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
                    reason = f"{error} is missing" if isinstance(error, KeyError) else str(error).rstrip(".")
                    raise InputError(f"line {number} of {path} is damaged ({reason}): {advice}.") from None
                place += len(line)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}).") from None
    return place


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


def _no_number(name: str) -> Any:
    """Raise an error for NaN and infinite numbers, which JSON does not have."""
    raise ValueError(f"{name} is not a number")


def _difference(before: Any, now: Any, where: str) -> tuple[str, Any, Any] | None:
    """Return the first place where two JSON values differ by more than rounding, and both values there."""
    if isinstance(before, dict) and isinstance(now, dict):
        # What a noise model says of itself in words follows from its numbers.
        names = dict.fromkeys(name for name in (*before, *now) if name != "sentence")
        parts = [(before.get(name), now.get(name), f"{where} {name}") for name in names]
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        parts = [(a, b, f"{where} {i}") for i, (a, b) in enumerate(zip(before, now, strict=True))]
    elif isinstance(before, float) and isinstance(now, float) and math.isclose(before, now, rel_tol=ROUNDING):
        return None
    else:
        return None if before == now else (where, before, now)
    return next((found for part in parts if (found := _difference(*part)) is not None), None)


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
    p = values.get("p", 0.0)
    if not (isinstance(p, (int, float)) and 0 <= p <= 1):
        raise ValueError(f"p must lie between 0 and 1, got {shortened(p)}")
    return values


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
