"""How the results of a run depend on the noise: tables, sentences and figures from its records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from attentest.cli.fitted_table import ALWAYS, Column, fitted
from attentest.cli.image_names import shown
from attentest.cli.output import say, table_width
from attentest.errors import InputError
from attentest.pipeline.file_run import file_stem
from attentest.presentation.figure import save_figure
from attentest.results.sensitivity.figure import sensitivity_figure
from attentest.results.sensitivity.sensitivity import Sensitivity

MOST_TABLES = 20
"""Largest number of images of which a table is printed; --json has all."""


@dataclass(kw_only=True)
class SensitivityOutput:
    """Takes records as they come, draws their sensitivities and prints those of the first images in the end.

    Parameters
    ----------
    names
        Names of all images, in order.
    with_intervals
        Whether the tables have estimates and intervals.
    figure
        The file of the figure of one image, or the folder of those of several, if there are to be any.
    is_folder
        Whether it is a folder.
    """

    names: Sequence[str]
    with_intervals: bool
    figure: Path | None = None
    is_folder: bool = False
    _first: dict[str, Sensitivity] = field(default_factory=dict, init=False)
    _drawn: int = field(default=0, init=False)
    _failure: InputError | None = field(default=None, init=False)

    def take(self, record: Mapping[str, Any]) -> None:
        """Draw the sensitivity of an image, if it was tested, and keep what is printed in the end."""
        if "sensitivity" not in record:
            return
        name = record["image"]
        sensitivity = Sensitivity.from_dict(record["sensitivity"])
        if name in self.names[:MOST_TABLES]:
            self._first[name] = sensitivity
        if self.figure is not None and self._failure is None:
            place = self.figure / f"{file_stem(name)}-sensitivity.png" if self.is_folder else self.figure
            try:
                save_figure(sensitivity_figure(sensitivity, title=shown(name)), place)
                self._drawn += 1
            except InputError as error:  # the run goes on without figures, and ends with this error
                self._failure = error

    def finish(self) -> None:
        """Say where the figures are, or why there are none."""
        if self._failure is not None:
            raise self._failure
        if self._drawn:
            many = f"{self._drawn} in {self.figure}" if self.is_folder else self.figure
            say(f"sensitivity: {many}")

    def print(self) -> None:
        """Print a table of the first images, and a sentence or two about each."""
        found = {name: self._first[name] for name in self.names if name in self._first}
        if not found:
            return
        tables = {name: sensitivity.table() for name, sensitivity in found.items()}
        first = next(iter(found.values()))
        headings = {
            "noise": ALWAYS,
            "selective p": ALWAYS,
            f"verdict at {first.alpha:g}": ALWAYS,
            "estimate": 2,
            f"{100 * first.confidence_level:.10g}% interval": 1,
        }
        cells = zip(*(row for rows in tables.values() for row in rows), strict=True)
        columns = [
            Column(heading=heading, cells=some, rank=rank, is_text=rank == ALWAYS)
            for (heading, rank), some in zip(headings.items(), cells, strict=True)
            if self.with_intervals or rank == ALWAYS
        ]
        names = [name for name, rows in tables.items() for _ in rows]
        console, width = Console(highlight=False), table_width()
        console.print()
        fitted(names, columns, [len(rows) for rows in tables.values()]).print()
        for name, sensitivity in found.items():
            of = f"{shown(name)}: " if len(found) > 1 else ""
            for line in sensitivity.summary().split("\n"):
                console.print(Text(f"{of}{line}"), width=width, soft_wrap=width is None)
        if len(self.names) > MOST_TABLES:
            say(f"attentest: note: sensitivities are shown of the first {MOST_TABLES} images; --json has all.")
