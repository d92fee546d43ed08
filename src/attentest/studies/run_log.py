"""The runs that made a directory of data: a line of JSON each."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from attentest.errors import InputError
from attentest.studies.record_file import read_line

RUNS = "runs.jsonl"


def read_runs(out: Path, fields: Collection[str]) -> list[dict[str, Any]]:
    """Return the runs that a directory has seen, the oldest first; a last line that was not finished does not count.

    Parameters
    ----------
    out
        The directory.
    fields
        What must be known of every run.
    """
    path = out / RUNS
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}).") from None
    found = []
    for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), start=1):
        try:
            entry = read_line(line)
            if absent := set(fields) - set(entry):
                raise ValueError(f"{', '.join(sorted(absent))} is missing")
        except ValueError as error:
            raise InputError(f"line {number} of {path} is damaged ({error}): remove it, the data are kept.") from None
        found.append(entry)
    return found


def record_run(out: Path, values: dict[str, Any]) -> None:
    """Add a run to the list; in one write, because several may end at once."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with open(out / RUNS, "a+b") as file:
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)  # a line that was not finished
            file.write((json.dumps(values, allow_nan=False) + "\n").encode())
    except OSError as error:
        raise InputError(f"{out / RUNS} cannot be written ({error.strerror}).") from None
