"""Where a cohort comes from: a folder of results, and a table of patients whose rows are matched by file name."""

from __future__ import annotations

import csv
from collections.abc import Container, Sequence
from itertools import pairwise
from pathlib import Path, PurePath

from attentest.errors import InputError, shortened
from attentest.presentation.rows import records_of_line
from attentest.record import ResultRecord
from attentest.runs.records import RESULTS, RecordFile, Row

LARGEST_TABLE = 64 * 2**20
"""Bytes of the largest table that is read: one of a million patients has less."""

MOST_NAMES = 3
"""Most names that a message repeats."""


def some(names: Sequence[object]) -> str:
    """Return a few names for a message, with the number of the others."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{', '.join(map(shortened, names[:MOST_NAMES]))}{more}"


def read_folder(directory: Path) -> list[tuple[str, ResultRecord | None]]:
    """Return the records of images in a folder of ``attentest test --out`` by name; None if one was not tested."""
    if not (directory / RESULTS).is_file():
        raise InputError(f"{directory} has no {RESULTS}: give a folder of attentest test --out.")
    records: dict[str, ResultRecord | None] = {}

    def keep(line: Row) -> Row:
        records[str(line["image"])] = None if "error" in line else records_of_line(line)[0]
        return {}

    RecordFile(directory / RESULTS).read(keep=keep)
    return list(records.items())


def read_table(path: Path, names: Sequence[str], image: str, columns: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return columns of a CSV file, each with the values of images by their names.

    Parameters
    ----------
    path
        The file: UTF-8, separated by commas, semicolons or tabs, with the names of the columns in its first line.
    names
        Names of the images, as tested. A row belongs to one by this name or its last part, the file name; one of a
        stack to all its slices.
    image, columns
        Column with the names, and those that are returned.
    """
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_TABLE + 1)
        lines = content.decode("utf-8-sig").splitlines(keepends=True)
        separator = max(",;\t", key=lines[0].count) if lines and len(content) <= LARGEST_TABLE else ""
        head, *rows = csv.reader(lines, delimiter=separator, strict=True)
    except (OSError, ValueError, TypeError, csv.Error) as error:
        raise InputError(
            f"the table {path} is no CSV file in UTF-8 of at most {LARGEST_TABLE // 2**20} MiB "
            f"({getattr(error, 'strerror', None) or error})."
        ) from None
    held = [name.strip() for name in head]
    for name in (image, *columns):
        if name not in held:
            raise InputError(
                f"the table {path} has no column {shortened(name)}, only {', '.join(map(repr, held[:20]))}."
            )
    by_name: dict[str, list[str]] = {}
    for row in rows:
        cells = dict(zip(held, map(str.strip, [*row, *[""] * len(held)]), strict=False))
        values = [cells[name] for name in columns]
        if by_name.setdefault(cells[image], values) != values:
            raise InputError(f"the table {path} has two rows with other values for {shortened(cells[image])}.")
    matched = [_matching(name, by_name) for name in names]
    if missing := [name for name, match in zip(names, matched, strict=True) if match is None]:
        raise InputError(
            f"the table {path} has no row for {some(missing)}: it needs one for each image, by its file name."
        )
    owners = {(match, name.partition("[")[0]) for name, match in zip(names, matched, strict=True)}
    if len(owners) > len(set(matched)):
        twice = sorted(str(match) for match, _ in owners)
        shared = next(match for match, other in pairwise(twice) if match == other)
        raise InputError(f"the table {path} has one row for several images called {shared!r}: add their folders.")
    found = {name: by_name[str(match)] for name, match in zip(names, matched, strict=True)}
    return {column: {name: cells[place] for name, cells in found.items()} for place, column in enumerate(columns)}


def _matching(name: str, rows: Container[str]) -> str | None:
    """Return the row of an image: by its name, that of its file, or that of its stack, which other slices have too."""
    stack = name.partition("[")[0]
    return next((known for known in (name, PurePath(name).name, stack, PurePath(stack).name) if known in rows), None)
