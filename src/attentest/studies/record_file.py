"""The rows of a series on disk: JSON Lines that survive an interruption and say how they were made."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from attentest.errors import InputError

try:
    import fcntl
except ImportError:  # only POSIX has it; elsewhere two runs at once are not noticed
    fcntl = None  # type: ignore[assignment]

Row = dict[str, Any]

LOCK = ".lock"
"""In a directory that one run at a time may write to."""

ROUNDING = 1e-9
"""Relative difference up to which two numbers are the same."""

IDENTITY = ("series", "seed", "model_sha256", "settings")
"""What must be the same for rows to belong together."""


@dataclass(frozen=True, kw_only=True)
class Records:
    """What a file holds.

    Parameters
    ----------
    headers
        How the rows were made: one for each run that added some.
    rows
        By number of the image; of an image that was tried again the last.
    complete_bytes
        Length of the file up to the end of its last complete line.
    """

    headers: list[dict[str, Any]]
    rows: dict[int, Row]
    complete_bytes: int


NOTHING = Records(headers=[], rows={}, complete_bytes=0)


class RecordFile:
    """A file of JSON Lines: headers (``{"header": ...}``), each followed by the rows it is about.

    Parameters
    ----------
    path
        Where it is, or is to be.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Records:
        """Return what it holds; a last line that was not finished does not count."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return NOTHING
        except OSError as error:
            raise InputError(f"{self.path} cannot be read ({error.strerror}).") from None
        complete = content[: content.rfind(b"\n") + 1]
        headers: list[dict[str, Any]] = []
        rows: dict[int, Row] = {}
        for number, line in enumerate(complete.splitlines(), start=1):
            try:
                values = read_line(line)
                if "header" in values:
                    headers.append(_as_header(values["header"]))
                else:
                    rows[values["image"]] = _as_row(values, headers)
            except (ValueError, TypeError, KeyError) as error:
                raise InputError(
                    f"line {number} of {self.path} is damaged ({error}): remove the file, the next run makes it anew."
                ) from None
        return Records(headers=headers, rows=rows, complete_bytes=len(complete))

    def check_same(self, records: Records, identity: Mapping[str, Any]) -> None:
        """Refuse to go on if its rows were made otherwise than rows that are to be added.

        Parameters
        ----------
        records
            What it holds.
        identity
            Some or all of what must be the same: series, seed, model_sha256, settings.
        """
        now = json.loads(json.dumps({name: identity[name] for name in IDENTITY if name in identity}))
        for before in records.headers:
            for name in now:
                if (found := _difference(before[name], now[name], name)) is not None:
                    where, then, wanted = found
                    raise InputError(
                        f"{self.path} was made with another {where.replace('_', ' ')} ({then}, now {wanted}): use "
                        "another output directory, or remove the file."
                    )

    @contextmanager
    def writing(self, header: dict[str, Any]) -> Iterator[RecordWriter]:
        """Yield what rows can be added to; refused while another process does, or if the header does not fit.

        Parameters
        ----------
        header
            How the rows will be made; written before the first of them.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = open(self.path, "ab")  # noqa: SIM115  # closed below
        except OSError as error:
            raise InputError(f"{self.path} cannot be written ({error.strerror}).") from None
        with file:
            lock(file, self.path)
            records = self.read()
            self.check_same(records, header)
            file.truncate(records.complete_bytes)
            yield RecordWriter(self.path, file, header, records)


def lock(file: BinaryIO, path: Path) -> None:
    """Hold an open file until it is closed; refused while another process does."""
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(f"another run is writing to {path}: wait for it to end.") from None


@contextmanager
def alone_in(directory: Path) -> Iterator[None]:
    """Keep other runs out of a directory, which must exist, for as long as the context lasts."""
    try:
        file = open(directory / LOCK, "ab")  # noqa: SIM115  # closed below
    except OSError as error:
        raise InputError(f"{directory} cannot be written to ({error.strerror}): name another place.") from None
    with file:
        lock(file, directory)
        yield


class RecordWriter:
    """Adds rows to an open file.

    Attributes
    ----------
    records : Records
        What was there at the beginning.
    """

    def __init__(self, path: Path, file: BinaryIO, header: dict[str, Any], records: Records) -> None:
        self.records = records
        self._path, self._file, self._header = path, file, header
        self._header_written = bool(records.headers) and records.headers[-1] == header

    def add(self, rows: Sequence[Row]) -> None:
        """Write rows; when this returns they are on the disk."""
        lines = [] if self._header_written else [{"header": self._header}]
        text = "".join(json.dumps(line, allow_nan=False) + "\n" for line in [*lines, *rows]).encode()
        try:
            self._file.write(text)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            with suppress(OSError):
                self._file.close()  # what could not be written must not be tried again, and hide what is said here
            raise InputError(
                f"{self._path} cannot be written to ({error.strerror}): make room and run again, what was finished "
                "before is kept."
            ) from None
        self._header_written = True


def read_line(line: bytes) -> dict[str, Any]:
    """Return a line of JSON that is an object without NaN or infinite numbers; a ValueError says what else it is."""

    def refuse(name: str) -> Any:
        raise ValueError(f"{name} is no number")

    values = json.loads(line, parse_constant=refuse)
    if not isinstance(values, dict):
        raise ValueError("it is not an object")
    return values


def _difference(before: Any, now: Any, where: str) -> tuple[str, Any, Any] | None:
    """Return the first place where JSON values differ, and both values there; numbers may differ by rounding.

    What is fitted to data differs in its last digits from machine to machine.
    """
    if isinstance(before, dict) and isinstance(now, dict):
        for name in dict.fromkeys([*before, *now]):
            if (found := _difference(before.get(name), now.get(name), f"{where} {name}")) is not None:
                return found
        return None
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        pairs = enumerate(zip(before, now, strict=True))
        return next((d for i, (a, b) in pairs if (d := _difference(a, b, f"{where} {i}")) is not None), None)
    if isinstance(before, float) and isinstance(now, float) and math.isclose(before, now, rel_tol=ROUNDING):
        return None
    return None if before == now else (where, before, now)


def _as_header(values: Any) -> dict[str, Any]:
    if not isinstance(values, dict) or not set(IDENTITY) <= set(values):
        raise ValueError(f"a header must have {', '.join(IDENTITY)}")
    return values


def _as_row(values: Row, headers: list[dict[str, Any]]) -> Row:
    if not headers:
        raise ValueError("there is no header before it")
    if not (type(values["image"]) is int and values["image"] >= 0):
        raise ValueError(f"image {values['image']!r} is no number of an image")
    if not isinstance(values["seconds"], (int, float)):
        raise ValueError("seconds must be a number")
    p = values.get("p", 0.0)
    if not (isinstance(p, (int, float)) and 0 <= p <= 1):
        raise ValueError(f"p must lie between 0 and 1, got {p!r}")
    return values
