"""Writing files: paths are checked before anything is computed, and files are written completely or not at all.

A file that grows for as long as a run lasts is watched: what others do to it in the meantime is noticed.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from attentest.errors import InputError, NoRoomError

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Numbers of errors that a full disk, a quota, or a limit of a file's size give."""


def write_complete(target: Path, content: bytes | Iterable[bytes], name: str) -> None:
    """Write a file completely or not at all: it is written under another name and then renamed.

    The content is whole or in parts, and ``name`` is what an error message calls the file. A device is written to.
    """
    parts, given = [content] if isinstance(content, bytes) else content, target
    target = Path(os.path.realpath(target))  # a link stays a link
    scratch = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        if given.exists() and not given.is_file():  # a device or a pipe stays one
            with open(given, "wb") as device:
                device.writelines(parts)
            return
        try:
            with open(scratch, "xb") as file:
                file.writelines(parts)
                file.flush()
                os.fsync(file.fileno())
            os.replace(scratch, target)
            sync_directory(target.parent)
        finally:
            scratch.unlink(missing_ok=True)
    except OSError as error:
        raise unwritten(f"{name} {given}", error) from None


def unwritten(what: str, error: OSError, safe: str = "") -> InputError:
    """Return the error of an output that the system does not let be written; ``safe`` says what is not lost."""
    full = error.errno in NO_ROOM
    advice = "free some space and run again" if full else "give a place that can be written to"
    reason = (error.strerror or str(error)).rstrip(".")
    return (NoRoomError if full else InputError)(f"{what} cannot be written ({reason}): {advice}{safe}.")


def as_path(path: Any, name: str) -> Path:
    """Return the path of a file to write; raise an error if it is not a path."""
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(
            f"the file name of {name} must be a path, got {type(path).__name__}.", f"the file name of {name}"
        )
    return Path(path)


def check_output_path(path: Path, name: str, suffixes: tuple[str, ...], inputs: Iterable[Path] = ()) -> None:
    """Raise an error if a path cannot be written to, has none of some suffixes, or would overwrite an input.

    Its directory is created. An error message calls the file by its ``name``, such as "the figure".
    """
    if any(same_file(path, other) for other in inputs):
        raise InputError(f"{name} would overwrite the input {path}: give it another name.")
    if path.suffix.lower() not in suffixes:
        raise InputError(
            f"the file name of {name} must end in {', '.join(suffixes)}, got {str(path)!r}.", f"the file name of {name}"
        )
    try:
        _make(path.parent)
    except OSError as error:
        raise InputError(
            f"{name} cannot be written to {path}, because its directory cannot be created ({error.strerror})."
        ) from None
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise InputError(f"{name} cannot be written to {path}: it is a directory, or its directory is read-only.")


def same_file(first: Path, second: Path) -> bool:
    """Return whether two paths lead to the same file; if it is not there yet, whether they name the same place."""
    try:
        return os.path.samefile(first, second)
    except OSError:
        return os.path.abspath(first) == os.path.abspath(second)


def make_directory(path: Path) -> None:
    """Create a directory, and those above it, if it does not exist; it is on the disk when this returns."""
    try:
        _make(path)
    except OSError as error:
        raise InputError(f"{path} cannot be made a directory ({error.strerror}): give another path.") from None


def _make(path: Path) -> None:
    new = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in new:
        sync_directory(folder.parent)


def sync_directory(path: Path) -> None:
    """Wait until the names of the files in a directory are on the disk, where the system lets one ask for it."""
    with suppress(OSError):  # not on Windows, and not on all file systems
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def free_name(path: Path) -> Path:
    """Return a path at which there is nothing: this one, or one beside it."""
    return path.with_name(f"{path.stem}-{secrets.token_hex(4)}{path.suffix}") if os.path.lexists(path) else path


class GrowingFile:
    """A file, open for writing, that only this process adds to for as long as it is open."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path, self.file = path, file
        self._size: int | None = os.fstat(file.fileno()).st_size

    def append(self, content: bytes) -> None:
        """Add content; it is on the disk when this returns."""
        size, self._size = self._size, None  # unknown if the write is interrupted or fails
        self.file.write(content)
        self.file.flush()
        if stat.S_ISREG(os.fstat(self.file.fileno()).st_mode):  # a device or a pipe has no disk
            os.fsync(self.file.fileno())
        self._size = None if size is None else size + len(content)

    def copy_to(self, other: BinaryIO, size: int) -> bool:
        """Copy the first bytes of the file, which may have been removed; return whether all of them are there."""
        self.file.seek(0)
        shutil.copyfileobj(self.file, other)
        whole = other.tell() >= size
        other.truncate(other.seek(min(size, other.tell())))
        return whole

    def change(self) -> str | None:
        """Return what others have done to the file, such as "removed"; None if it is as this process left it."""
        status = os.fstat(self.file.fileno())
        if not stat.S_ISREG(status.st_mode):
            return None
        try:
            there = os.stat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return "removed"
        except OSError as error:
            return f"out of reach ({error.strerror})"
        if (there.st_dev, there.st_ino) != (status.st_dev, status.st_ino):
            return "replaced by another file"
        if self._size in (None, status.st_size):
            return None
        return "cut off" if status.st_size < (self._size or 0) else "written to by another process"
