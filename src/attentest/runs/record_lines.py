"""Files of lines of JSON that attentest alone writes.

The first line says so, with a key of the file: a file that does not begin with such a line belongs to others, and is
neither written to nor cut off. Each other line has its number and a checksum of its own content and that key, so that
damage, lines out of their places and lines of other files are noticed. The file is compared with its path before each
write: a run ends when its file was taken away.
"""

from __future__ import annotations

import json
import os
import platform
import secrets
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from attentest.errors import AttentestWarning, InputError, OutputError
from attentest.files import GrowingFile, free_name, make_directory, sync_directory, unwritten

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]
    import msvcrt

FORMAT = 1  # version of the lines; it changes when an earlier attentest could no longer read them rightly
LOCK = ".lock"  # a file in a directory that one run at a time may write to; it says which
HOLDER = b"attentest: process "  # how the content of such a file begins; one of other content is left as it is

LOCKED_BYTE = 2**40
"""Windows locks bytes rather than files: one beyond the end of any file, so that all of it can be read."""

WAIT = 0.05  # seconds between two tries of a lock that another process is about to release

DAMAGE = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""Errors that reading a damaged line may raise."""


def damage(error: BaseException) -> str:
    """Return what such an error says of values that were read; what Python says of their types is left out."""
    if isinstance(error, KeyError):
        return f"{error} is missing"
    return str(error).rstrip(".") if isinstance(error, ValueError) else "a value is not of the kind that it must be"


Values: TypeAlias = dict[str, Any]  # the object on a line


@dataclass(frozen=True, kw_only=True)
class End:
    """Where the complete lines of a file end."""

    size: int = 0  # in bytes
    lines: int = 0
    number: int = 0  # of the last line; greater than that of lines if some were removed
    key: bytes = b""  # of the file; empty before its first line


def read_lines(path: Path, add: Callable[[Values, int], None], damaged: Callable[[int, str], None]) -> End:
    """Pass the object on each complete line of a file, and its place in bytes, to ``add``; return where they end.

    One line at a time is in memory. A file that does not exist has no lines, and an unfinished last line is left out.
    An error that ``add`` raises is damage; ``damaged`` takes the number of such a line, from 1, and what is wrong with
    it.
    """
    _check_regular(path)
    try:
        with path.open("rb") as file:
            key = file_key(file, path)
            if not key:
                return End()  # empty, or its first line was not finished
            end = End(size=file.tell(), lines=1, number=1, key=key)
            for number, line in enumerate(file, start=2):
                if not line.endswith(b"\n"):
                    break
                last = end.number
                try:
                    values = line_values(line, key)
                    if not isinstance(values["line"], int) or values["line"] <= end.number:
                        raise ValueError(f"it was written as line {values['line']} and is not in its place")
                    last = values.pop("line")
                    add(values, end.size)
                except DAMAGE as error:
                    damaged(number, damage(error))
                end = End(size=end.size + len(line), lines=number, number=last, key=key)
    except FileNotFoundError:
        return End()
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}).") from None
    return end


def line_values(line: bytes, key: bytes) -> Values:
    """Return the object on a line, with its number and without its checksum; raise a ValueError for a damaged one."""
    content = line[: -len(_end(b"", key))] + b"}"
    if line != _sealed(content, key):
        raise ValueError("its checksum is not that of its content in this file: it was changed, or is of another file")
    values = json.loads(content, parse_constant=_no_number)
    if not isinstance(values, dict):
        raise ValueError("it is not an object")
    return values


def file_key(file: BinaryIO, path: Path) -> bytes:
    """Return the key of an open file, and leave the file at its second line; empty if its first is not complete.

    A file that was not written by attentest in this format raises an error.
    """
    file.seek(0)
    first = file.read(FIRST_LENGTH)
    key = first[len(FIRST) :][:KEY_LENGTH]
    complete = len(first) == FIRST_LENGTH
    if first != _first_line(key) if complete else first[: len(FIRST)] != FIRST[: len(first)]:
        raise InputError(
            f"{path} is not a file of records of this attentest, which begins with {FIRST.decode()}, and "
            "is left as it is: name another place, or move it away."
        )
    return key if complete else b""


def begins_as_records(path: Path) -> bool:
    """Return whether there is a file that begins as those that attentest writes."""
    try:
        with path.open("rb") as file:
            return file.read(len(FIRST)) == FIRST
    except OSError:
        return False


def _check_regular(path: Path) -> None:
    """Raise an error for a pipe, for example, which cannot be read twice and may never end."""
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is not a regular file: move it away, or name another place.")


class LineWriter:
    """Adds lines to a file, open for reading and adding, that ends with its last complete line."""

    def __init__(self, path: Path, file: BinaryIO, end: End) -> None:
        self.path, self.end = path, end
        self._growing = GrowingFile(path, file)

    def add(self, values: Sequence[Values]) -> None:
        """Write objects, if there are any; they are on the disk when this returns."""
        if not values:
            self.check()
            return
        number, key, lines = self.end.number, self.end.key, []
        if not key:
            key = secrets.token_hex(KEY_LENGTH // 2).encode()
            number, lines = 1, [_first_line(key)]
        for place, value in enumerate(values, start=number + 1):
            lines.append(_sealed(json.dumps({"line": place, **value}, allow_nan=False).encode(), key))
        content = b"".join(lines)
        try:
            self.check(content)
            self._growing.append(content)
        except OSError as error:
            with suppress(OSError):
                self._growing.file.close()  # otherwise closing would try the write again, and its error hide this one
            raise unwritten(str(self.path), error, ", earlier rows are safe") from None
        self.end = End(
            size=self.end.size + len(content),
            lines=self.end.lines + len(lines),
            number=number + len(values),
            key=key,
        )

    def check(self, content: bytes = b"") -> None:
        """Raise an error, once, if others removed, replaced or changed the file; its records are written again.

        So is what was to be added. A file that has no name any more has its content for as long as it is open. Of one
        that was cut off there is what is left of it.
        """
        change = None if self._growing.file.closed else self._growing.change()
        if change is not None:
            try:
                rescued = self._written_again(content)
            finally:
                self._growing.file.close()
            raise OutputError(f"{self.path} was {change} while the run wrote to it, so the run has ended{rescued}.")

    def _written_again(self, content: bytes) -> str:
        """Write the records, and what was to be added, where nothing is in the way, and say where."""
        if os.fstat(self._growing.file.fileno()).st_size < self.end.size:
            return "; the same command goes on from what is left of it"
        # There may be a file now where its directory was.
        folder = self.path.parent if self.path.parent.is_dir() else free_name(self.path.parent)
        for path in (folder / self.path.name, Path(tempfile.gettempdir()) / self.path.name):
            path = free_name(path)
            with suppress(OSError, InputError):
                make_directory(path.parent)
                with open(path, "xb") as file:
                    whole = self._growing.copy_to(file, self.end.size)
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                sync_directory(path.parent)
                if not whole:
                    continue
                where = "there again" if path == self.path else f"in {path}: move that file to its place"
                return f"; all its records are {where}, and the same command goes on from there"
        return ", and its records could not be written anywhere else"


@contextmanager
def open_to_add(path: Path, wait: bool = False) -> Iterator[BinaryIO]:
    """Open a file of records, which is created if there is none, and lock it; a file of others raises an error.

    One that another process has locked is an error too, unless that only adds a line and is to be waited for.
    """
    make_directory(path.parent)
    _check_regular(path)
    try:
        is_new = not path.exists()
        file = open(path, "a+b")  # noqa: SIM115  # closed below
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}).") from None
    with file:
        if is_new:
            sync_directory(path.parent)
        file_key(file, path)
        _lock(file, path, wait)
        yield file


def add_line(path: Path, values: Values) -> None:
    """Add a line to a file; processes that do so at once wait for each other."""
    with open_to_add(path, wait=True) as file:
        end = read_lines(path, lambda values, place: None, lambda number, reason: None)
        file.truncate(end.size)  # drops an unfinished line
        try:
            LineWriter(path, file, end).add([values])
        except BaseException:  # an interrupt too leaves the file as it was
            os.truncate(path, end.size)
            raise


@contextmanager
def alone_in(directory: Path) -> Iterator[None]:
    """Lock an existing directory against other runs for as long as the context lasts."""
    _check_regular(directory / LOCK)
    try:
        file = open(directory / LOCK, "a+b")  # noqa: SIM115  # closed below
    except OSError as error:
        raise InputError(f"{directory} cannot be written to ({error.strerror}): name another place.") from None
    with file:
        _lock(file, directory, wait=False)
        file.seek(0)
        is_own = HOLDER.startswith(file.read(len(HOLDER)))
        if is_own:
            file.truncate(0)
            file.write(b"%s%d on %s" % (HOLDER, os.getpid(), platform.node().encode()))
            file.flush()
        yield
        if is_own:
            file.truncate(0)


def _lock(file: BinaryIO, path: Path, wait: bool) -> None:
    """Lock an open file until it is closed; raise an error that says who has locked it if another process has."""
    while True:
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            else:
                file.seek(LOCKED_BYTE)
                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        except (BlockingIOError, PermissionError):
            if wait:
                time.sleep(WAIT)
                continue
            file.seek(0)
            holder = file.read(len(HOLDER) + 300)
            who = f" ({holder.decode(errors='replace').removeprefix('attentest: ')})" if HOLDER in holder else ""
            raise InputError(f"another run{who} is writing to {path}: wait for it to end.") from None
        except OSError as error:
            warnings.warn(
                f"{path} cannot be locked ({error.strerror}): that no other run writes to it is not checked.",
                AttentestWarning,
                stacklevel=2,
            )
        return


def _sealed(content: bytes, key: bytes) -> bytes:
    """Return a line of a JSON object, with its checksum as the last field."""
    return content[:-1] + _end(content, key)


def _end(content: bytes, key: bytes) -> bytes:
    return b', "checksum": "%s"}\n' % blake2b(content, key=key, digest_size=8).hexdigest().encode()


def _no_number(name: str) -> Any:
    """Raise an error for NaN and infinite numbers, which JSON does not have."""
    raise ValueError(f"{name} is not a number")


FIRST = json.dumps({"attentest": "records", "format": FORMAT, "file": ""}).encode().removesuffix(b'"}')
"""How every file of records begins; the key of the file and a checksum follow."""

KEY_LENGTH = 32  # characters of the key of a file, which is random: lines of two files never have the same


def _first_line(key: bytes) -> bytes:
    return _sealed(FIRST + key + b'"}', b"")


FIRST_LENGTH = len(_first_line(b"0" * KEY_LENGTH))  # length of the first line of every file of records
