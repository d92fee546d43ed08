"""The files of a study: a folder of tested images, and a table of them."""

from __future__ import annotations

import csv
import io
import json
import unicodedata
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path, PurePath, PureWindowsPath

from attentest.cohort.claims import is_missing
from attentest.errors import InputError, shortened, some
from attentest.presentation.rows import records_of_line
from attentest.presentation.tested_batch import tested_folder
from attentest.record import ResultRecord
from attentest.runs.records import Row

LARGEST_TABLE = 64 * 2**20  # bytes of the largest table that is read: one of a million patients has less


def read_folder(directory: Path) -> tuple[list[tuple[str, ResultRecord | None]], list[str]]:
    """Return the images of a folder of ``attentest test --out`` by name, and what is to be known about it.

    Images have their records, or None if they could not be tested.
    """
    records: dict[str, ResultRecord | None] = {}
    contents: dict[str, str] = {}

    def keep(line: Row) -> Row:
        name = str(line["image"])
        records[name] = None if "error" in line else records_of_line(line)[0]
        if records[name] is not None and "file" in line:
            contents[name] = json.dumps([line["file"], name.partition("[")[2]], sort_keys=True)
        return {}

    folder = tested_folder(directory, keep)
    if twice := _alike(contents):
        raise InputError(
            f"{directory} has one image under several names, such as {twice[0]!r} and {twice[1]!r}, and it would count "
            "as often: test each image once, into a new folder."
        )
    added = {
        name: json.dumps([record.settings.get(key) for key in ("randomise_seed", "randomise_name")])
        for name, record in records.items()
        if record is not None and record.settings.get("randomise") and record.settings.get("randomise_name") is not None
    }
    if twice := _alike(added):
        raise InputError(
            f"{twice[0]!r} and {twice[1]!r} of {directory} were tested in several runs under the same name, and so "
            "with the same added noise, which makes their estimates depend on each other: test them in one run, or "
            "each run with a --randomise-seed of its own."
        )
    return list(records.items()), folder.notes


def _alike(values: Mapping[str, str]) -> tuple[str, str] | None:
    """Return two names with the same value, if there are any."""
    first: dict[str, str] = {}
    return next(((first[value], name) for name, value in values.items() if first.setdefault(value, name) != name), None)


def read_table(
    path: Path, names: Sequence[str], image: str, columns: Sequence[str], failed: Sequence[str] = ()
) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Return columns of a CSV file, each with the values of images by their names as tested, and what is to be known.

    The file is UTF-8, separated by commas, semicolons or tabs, with the names of the columns in its first line. A row
    belongs to the image whose name, or the last parts of it, such as the file name, it has in the column ``image``; one
    of a stack to all its slices. Images that ``failed`` need no row, and may have one.
    """
    by_name: dict[str, list[str]] = {}
    rows = list(_rows(path, image, columns))
    for name, values in rows:
        if name and by_name.setdefault(name, values) != values:
            raise InputError(f"the table {path} has two rows with other values for {shortened(name)}.")
    matching = {name: _matching(name, by_name) for name in (*names, *failed)}
    if missing := [name for name in names if not matching[name]]:
        raise InputError(
            f"the table {path} has no row for {some(missing)}: it needs one for each image, by its file name, with or "
            "without its folders."
        )
    closest = {name: matches[0] for name, matches in matching.items() if matches}
    owners = {(closest[name], name.partition("[")[0]) for name in names}
    if len(owners) > len({row for row, _ in owners}):
        twice = sorted(row for row, _ in owners)
        shared = next(row for row, other in pairwise(twice) if row == other)
        raise InputError(f"the table {path} has one row for several images called {shared!r}: add their folders.")
    used = set(closest.values())
    for name in names:
        row, *others = matching[name]
        if other := next((known for known in others if known not in used and by_name[known] != by_name[row]), None):
            raise InputError(f"the table {path} has two rows with other values for {name!r}, {row!r} and {other!r}.")
        for column, cell in zip(columns, by_name[row], strict=True):
            if is_missing(cell):
                raise InputError(f"the table {path} has no {column!r} for {name!r}, but {cell!r}: give it a value.")
    found_by_name = {row for matches in matching.values() for row in matches}
    aside = sum(name not in found_by_name for name, _ in rows)
    notes = [f"Rows of {path.name} that belong to no image of the folder: {aside}."] if aside else []
    found = {column: {name: by_name[closest[name]][place] for name in names} for place, column in enumerate(columns)}
    return found, notes


def _rows(path: Path, image: str, columns: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of the image of each row of a table, composed, or none, and its values of some columns."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_TABLE + 1)
        text = content.decode("utf-8-sig") if len(content) <= LARGEST_TABLE else ""
        separator = max(",;\t", key=text.partition("\n")[0].count)
        # Not str.splitlines, which also splits cells at characters that only some call ends of lines.
        lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
        numbered = [(lines.line_num, list(map(str.strip, row))) for row in lines if any(map(str.strip, row))]
    except FileNotFoundError:
        raise InputError(f"there is no table {path}.") from None
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(
            f"the table {path} is no CSV file in UTF-8 ({getattr(error, 'strerror', None) or error})."
        ) from None
    if not numbered:
        size = f"has more than {LARGEST_TABLE // 2**20} MiB" if len(content) > LARGEST_TABLE else "is empty"
        raise InputError(f"the table {path} {size}: give a CSV file with a row for each image.")
    held = numbered[0][1]
    for name in (image, *columns):
        if held.count(name) != 1:
            shown = f"{'two columns' if name in held else 'no column'} {shortened(name)}"
            raise InputError(f"the table {path} has {shown}; its columns are {', '.join(map(repr, held[:20]))}.")
    places = [held.index(name) for name in (image, *columns)]
    for number, row in numbered[1:]:
        if any(row[len(held) :]):
            raise InputError(
                f"line {number} of the table {path} has {len(row)} cells, and its first line the names of {len(held)}: "
                "put cells that contain the separator into quotation marks."
            )
        name, *values = ([*row, *[""] * len(held)][place] for place in places)
        yield composed(name) if name else "", values


def _matching(name: str, rows: Container[str]) -> list[str]:
    """Return rows of an image, the closest first: by its name, its last parts, or those of its stack."""
    parts = [PurePath(composed(whole)).parts for whole in (name, name.partition("[")[0])]
    ends = (str(PurePath(*part[start:])) for part in parts for start in range(len(part)))
    return list(dict.fromkeys(known for known in (composed(name), *ends) if known in rows))


def composed(text: str) -> str:
    """Return the name of a file as all systems have it: with slashes, and each letter with its accent in one."""
    return unicodedata.normalize("NFC", PureWindowsPath(text).as_posix())
