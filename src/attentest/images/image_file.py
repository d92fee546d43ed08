"""What the readers of all file formats share: bounds on sizes, the choice of a frame, errors and optional packages."""

from __future__ import annotations

import importlib
import logging
import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from attentest.checks import whole_number
from attentest.errors import InputError

MAX_PIXELS = 64_000_000
"""Most pixels of an image that is read, 8000 x 8000: a larger one is a mistake or an attack."""

MAX_VOLUME_BYTES = 4 * 2**30
"""Most bytes, uncompressed, of a series of frames or slices from which one is read: 4 GiB."""

LONGEST_REASON = 200
"""Most characters of an error's message that another repeats: it may quote the file."""

DECODING_ERRORS = (
    OSError,
    ValueError,
    SyntaxError,
    EOFError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    RuntimeError,
    AssertionError,
    MemoryError,
    struct.error,
    zlib.error,
)
"""Errors that decoders are known to raise on a damaged file."""


def check_pixel_count(width: int, height: int, name: object) -> None:
    """Refuse an image whose header announces too many pixels, before any of them is decoded."""
    if width * height > MAX_PIXELS:
        raise InputError(
            f"{name} has {width} x {height} pixels, more than the {MAX_PIXELS} allowed: crop or shrink it first."
        )


def check_volume(size: int, name: object) -> None:
    """Refuse a series of frames or slices that takes too many bytes uncompressed."""
    if size > MAX_VOLUME_BYTES:
        raise InputError(
            f"{name} holds {size} bytes of pixels, more than the {MAX_VOLUME_BYTES} allowed: split it first."
        )


def chosen_frame(frame: int | None, count: int, name: object) -> int:
    """Return the index, from 0, of a chosen frame out of ``count``; None stands for the only one."""
    if frame is not None:
        index = whole_number(frame, f"frame (of {name})", -count, count - 1)
        return index % count
    if count != 1:
        raise InputError(
            f"{name} has {count} frames and one is needed: pick it with frame= or --frame, from 0 to {count - 1}."
        )
    return 0


def reason(error: BaseException) -> str:
    """Return the first line of an error's message, shortened and without its full stop, to be put in parentheses."""
    lines = str(error).splitlines()
    first = lines[0] if lines else type(error).__name__
    return (first if len(first) <= LONGEST_REASON else f"{first[:LONGEST_REASON]}...").rstrip(".")


def optional_package(name: str, file_format: str, *submodules: str) -> Any:
    """Import a package of the extra ``medical``, and submodules of it; refuse the file format without it."""
    try:
        package = importlib.import_module(name)
        for submodule in submodules:
            importlib.import_module(submodule)
    except ImportError:
        raise InputError(f"reading {file_format} needs {name}: pip install 'attentest[medical]'.") from None
    return package


@contextmanager
def silenced(logger_name: str) -> Iterator[None]:
    """Suppress warnings and the messages of a logger: they may quote what a file says about a patient."""
    logger = logging.getLogger(logger_name)
    before = logger.disabled
    logger.disabled = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.disabled = before
