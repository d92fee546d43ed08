"""Files that are replaced by a whole one or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

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
