"""Files to write: checked before anything is computed, and replaced by a whole one or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from attentest.errors import InputError


def write_complete(target: Path, content: bytes, name: str) -> None:
    """Write a file beside the target and rename it when it is complete.

    Parameters
    ----------
    target
        Where it is to be.
    content
        What it is to hold.
    name
        What to call it if it cannot be written.
    """
    target = Path(os.path.realpath(target))  # a link stays a link
    scratch = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        try:
            with open(scratch, "xb") as file:
                file.write(content)
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
    """Return where a file is to be; refuse what is no path."""
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"where {name} is to be written must be a path, got {type(path).__name__}.")
    return Path(path)


def check_output_path(path: Path, name: str, suffixes: tuple[str, ...], inputs: Iterable[Path] = ()) -> None:
    """Refuse a path that cannot be written to, or that would overwrite an input, before anything is computed.

    Parameters
    ----------
    path
        Where the file is to be; its directory is made.
    name
        What to call it, such as "the figure".
    suffixes
        How its name may end.
    inputs
        Files that must stay as they are.
    """
    if path.resolve() in {other.resolve() for other in inputs}:
        raise InputError(f"{name} would overwrite the input {path}: give it another name.")
    if path.suffix.lower() not in suffixes:
        raise InputError(f"the file name of {name} must end in {', '.join(suffixes)}, got {str(path)!r}.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{name} cannot be written to {path}, whose directory cannot be made ({error.strerror})."
        ) from None
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise InputError(f"{name} cannot be written to {path}: it is a directory or in one that is read-only.")


def make_directory(path: Path) -> None:
    """Make a directory that results go to, if it is not there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path} cannot be made a directory ({error.strerror}): name another place.") from None
