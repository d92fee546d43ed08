"""Writing files: paths are checked before anything is computed, and files are written completely or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from attentest.errors import InputError


def write_complete(target: Path, content: bytes | Iterable[bytes], name: str) -> None:
    """Write a file completely or not at all: it is written under another name and then renamed.

    Parameters
    ----------
    target
        Path of the file.
    content
        Content of the file, whole or in parts.
    name
        What an error message calls the file.
    """
    target = Path(os.path.realpath(target))  # a link stays a link
    scratch = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        try:
            with open(scratch, "xb") as file:
                file.writelines([content] if isinstance(content, bytes) else content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(scratch, target)
        finally:
            scratch.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(
            f"{name} {target} cannot be written ({reason.rstrip('.')}): give a place that can be written to."
        ) from None


def as_path(path: Any, name: str) -> Path:
    """Return the path of a file to write; raise an error if it is not a path."""
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(
            f"the file name of {name} must be a path, got {type(path).__name__}.", f"the file name of {name}"
        )
    return Path(path)


def check_output_path(path: Path, name: str, suffixes: tuple[str, ...], inputs: Iterable[Path] = ()) -> None:
    """Raise an error if a path cannot be written to or would overwrite an input.

    Parameters
    ----------
    path
        Path of the file; its directory is created.
    name
        What an error message calls the file, such as "the figure".
    suffixes
        Suffixes that the file name may have.
    inputs
        Files that must not be overwritten.
    """
    if any(same_file(path, other) for other in inputs):
        raise InputError(f"{name} would overwrite the input {path}: give it another name.")
    if path.suffix.lower() not in suffixes:
        raise InputError(
            f"the file name of {name} must end in {', '.join(suffixes)}, got {str(path)!r}.", f"the file name of {name}"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
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
    """Create a directory if it does not exist."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path} cannot be made a directory ({error.strerror}): give another path.") from None
