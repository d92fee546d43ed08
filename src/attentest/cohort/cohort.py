"""A cohort: tested images with the groups, patients and covariates of a study, from results or a folder and a table."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Container, Sequence
from itertools import pairwise
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from attentest.checks import level
from attentest.cohort.claims import Claims
from attentest.cohort.shown import draw_cohort, summary_lines, write_page
from attentest.errors import InputError, shortened, some
from attentest.files import as_path
from attentest.presentation.rows import records_of_line
from attentest.record import ResultRecord, json_ready
from attentest.runs.records import RESULTS, RecordFile, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Cohort(Claims):
    """Tested images of a study: what they show together, in numbers, sentences, figures and pages."""

    __doc__ = Claims.__doc__

    @classmethod
    def from_folder(
        cls,
        directory: str | os.PathLike[str],
        table: str | os.PathLike[str] | None = None,
        *,
        group: str | None = None,
        cluster: str | None = None,
        covariates: Sequence[str] = (),
        image: str = "image",
    ) -> Cohort:
        """Return the cohort in a folder of ``attentest test --out``, with columns of a table of its images.

        Parameters
        ----------
        directory, table
            The folder, and a CSV file with a row for each image.
        group, cluster, covariates
            Names of columns of the table.
        image
            Its column with the file names of the images, with or without their folders.
        """
        named = read_folder(as_path(directory, "the results"))
        columns = [name for name in (group, cluster, *covariates) if name is not None]
        if table is None and columns:
            raise InputError(f"there is no table with a column {columns[0]!r}: give one with a row for each image.")
        tested = [str(name) for name, record in named if record is not None]
        read = {} if table is None else read_table(as_path(table, "the table"), tested, image, columns)
        numbers = {name: read[name] for name in covariates}
        return cls(named, read[group] if group else None, read[cluster] if cluster else None, numbers)

    def to_dict(self, alpha: float = 0.05) -> dict[str, Any]:
        """Return the :meth:`claims`, the summary and the table as JSON-ready values."""
        values = json.loads(json.dumps(self.claims(alpha), default=vars))
        ready: dict[str, Any] = json_ready(values | {"table": self.table()})
        return ready | {"summary": self.summary(alpha)}

    def summary(self, alpha: float = 0.05) -> str:
        """Return what the study shows in sentences, with intervals of level 1 - alpha."""
        return "\n".join(summary_lines(self, self.claims(alpha)))

    def plot(self, axes: Sequence[Axes] | None = None, *, alpha: float = 0.05) -> list[Axes]:
        """Draw a forest plot of the estimates, how many images differ at least, and a funnel plot of the estimates.

        Needs Matplotlib (``pip install 'attentest[plots]'``). ``axes`` are three, by default those of a new figure;
        without randomised selection there are no estimates, and it is one. The level of intervals is 1 - ``alpha``.
        """
        return draw_cohort(self, axes, level(alpha))

    def report(self, path: str | os.PathLike[str], *, alpha: float = 0.05) -> None:
        """Write a page of the study: one HTML file that needs no other, or with .json the values of :meth:`to_dict`."""
        write_page(self, as_path(path, "the report"), self.to_dict(alpha))


LARGEST_TABLE = 64 * 2**20  # bytes of the largest table that is read: one of a million patients has less


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
    """Return columns of a CSV file, each with the values of images by their names as tested.

    The file is UTF-8, separated by commas, semicolons or tabs, with the names of the columns in its first line. A row
    belongs to the image whose name, or the last part of it, the file name, it has in the column ``image``; one of a
    stack to all its slices.
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
