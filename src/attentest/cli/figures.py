"""Figures of a run over many images, and how its results depend on the noise, taken from records as they come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from attentest.cli.output import progress_bar, say
from attentest.errors import InputError, counted
from attentest.images.image_source import ImageSource
from attentest.pipeline.file_run import BatchRun, file_stem
from attentest.presentation.figure import save_figure
from attentest.presentation.image_names import common_folder, shortened, shown
from attentest.presentation.many_results_figure import MOST, NAME_LETTERS, contact_sheet
from attentest.presentation.result_figure import results_figure
from attentest.presentation.rows import ImageRows
from attentest.presentation.sensitivity import Sensitivity
from attentest.presentation.tables import ALWAYS, Column, fitted, print_notes
from attentest.results.result import AttentionTestResult

if TYPE_CHECKING:
    from attentest.presentation.picture import Picture


@dataclass(kw_only=True)
class FigureOutput:
    """Takes results as they come and draws them.

    In memory are at most as many as a sheet has.

    Parameters
    ----------
    place
        The file, or the folder of a file for each image.
    is_folder
        Whether it is a folder.
    alpha
        Level of the verdicts.
    """

    place: Path
    is_folder: bool
    alpha: float
    _drawn: set[str] = field(default_factory=set, init=False)
    _smallest: dict[str, Picture] = field(default_factory=dict, init=False)
    _failure: InputError | None = field(default=None, init=False)

    def keep(self, image: ImageSource, found: list[AttentionTestResult]) -> None:
        """Draw the result of an image, or keep what the sheet needs of it."""
        picture = found[0].picture(shown(image.name))
        if self.is_folder:
            self._draw(image.name, picture)
            return
        self._smallest[image.name] = picture
        if len(self._smallest) > MOST:
            del self._smallest[max(self._smallest, key=lambda name: self._smallest[name].record.log_pvalue)]

    def finish(self, run: BatchRun, rows: ImageRows) -> None:
        """Draw what is missing, which is computed again: results of an earlier run, or of workers.

        Parameters
        ----------
        run
            The run.
        rows
            The rows of its images.
        """
        tested = {row["image"]: row["log_pvalue"] for row in rows.all() if "error" not in row}
        wanted = list(tested) if self.is_folder else sorted(tested, key=lambda name: tested[name])[:MOST]
        self._smallest = {name: picture for name, picture in self._smallest.items() if name in wanted}
        missing = set(wanted) - self._drawn - set(self._smallest)
        places = [place for place, image in enumerate(run.images) if image.name in missing]
        if places and self._failure is None:
            again = replace(run, sensitivity=None, save=None, keep=self.keep)
            with progress_bar(f"testing {counted(len(places), 'image')} again to draw") as progress:
                for _ in again.run(places, progress):
                    pass
        if self._failure is not None:
            raise self._failure
        if self.is_folder:
            say(f"figures: {len(self._drawn)} in {self.place}")
        elif self._smallest:  # without files that have gone since they were tested
            self._draw_file([self._smallest[name] for name in wanted if name in self._smallest], len(tested))

    def _draw(self, name: str, picture: Picture) -> None:
        """Write the figure of one image; after the first that cannot be written, the run goes on without figures."""
        if self._failure is None:
            try:
                save_figure(results_figure([picture], alpha=self.alpha), self.place / f"{file_stem(name)}.png")
                self._drawn.add(name)
            except InputError as error:
                self._failure = error

    def _draw_file(self, pictures: list[Picture], total: int) -> None:
        """Write the figure of one image, or a sheet of several."""
        folder = common_folder([picture.title for picture in pictures])
        names = [picture.title[len(folder) :] for picture in pictures]
        if len(pictures) == 1:
            figure = results_figure([replace(pictures[0], title=names[0])], alpha=self.alpha)
        else:
            titles = shortened(names, NAME_LETTERS)
            named = [replace(one, title=titles[name]) for one, name in zip(pictures, names, strict=True)]
            figure = contact_sheet(named, total=total, alpha=self.alpha)
        save_figure(figure, self.place)
        few = f", the {len(pictures)} smallest p-values of {total} images" if len(pictures) < total else ""
        more = "; a folder (--figure FOLDER/) has a figure of each" if len(pictures) > 1 else ""
        say(f"figure: {self.place}{few}{more}")


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
                save_figure(sensitivity.figure(title=shown(name)), place)
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
        typer.echo()
        fitted(names, columns, [len(rows) for rows in tables.values()]).print()
        for name, sensitivity in found.items():
            of = f"{shown(name)}: " if len(found) > 1 else ""
            print_notes(f"{of}{line}" for line in sensitivity.summary().split("\n"))
        if len(self.names) > MOST_TABLES:
            say(f"attentest: note: sensitivities are shown of the first {MOST_TABLES} images; --json has all.")
