"""The directory that a trained model is saved to."""

from __future__ import annotations

import os
from pathlib import Path

from attentest.errors import InputError


def check_target(directory: Path) -> None:
    """Refuse a directory that is not empty or cannot be written, before hours of training rather than after."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise InputError(f"{directory} already exists and is not an empty directory: name a new one.")
    ancestor = next(parent for parent in directory.resolve().parents if parent.exists())
    if not (ancestor.is_dir() and os.access(ancestor, os.W_OK)):
        raise InputError(f"{directory} cannot be made: {ancestor} is not a directory that can be written to.")
