"""Rows and summaries of studies, compared."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attentest.runs.records import RecordFile

OTHERWISE = {"seconds", "time", "runs", "evaluations"}
"""What is not the same in two runs: times, and, because a search in float32 depends on its batch, evaluations."""


def differences(found: Any, expected: Any, tol: float, where: str = "") -> Iterator[str]:
    """Yield where two JSON values differ, numbers by more than a tolerance."""
    if isinstance(expected, dict) and isinstance(found, dict) and set(found) == set(expected):
        for name in expected.keys() - OTHERWISE:
            yield from differences(found[name], expected[name], tol, f"{where}/{name}")
    elif isinstance(expected, list) and isinstance(found, list) and len(found) == len(expected):
        for place, (one, other) in enumerate(zip(found, expected, strict=True)):
            yield from differences(one, other, tol, f"{where}/{place}")
    elif found != expected and not (
        isinstance(expected, float) and abs(found - expected) <= tol * max(1, abs(expected))
    ):
        yield f"{where}: {found}, expected {expected}"


def shuffle_rows(out: Path) -> None:
    """Give the rows in the data files of a study another order."""
    for path in (out / "data").rglob("*.jsonl"):
        records = RecordFile(path).read()
        (header,), rows = records.headers, list(records.rows.values())
        random.Random(3).shuffle(rows)
        path.unlink()
        with RecordFile(path).writing(header) as writer:
            writer.add(rows)
