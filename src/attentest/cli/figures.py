"""Figures of a run over many images, and how its results depend on the noise, taken from records as they come."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from attentest.cli.output import is_folder, progress_bar, say
from attentest.errors import InputError, counted, worded
from attentest.images.image_source import ImageSource
from attentest.pipeline.file_run import BatchRun, file_stem
from attentest.presentation.figure import save_figure
from attentest.presentation.many_results_figure import MOST, NAME_LETTERS, contact_sheet
from attentest.presentation.result_figure import results_figure
from attentest.presentation.rows import ImageRows
from attentest.presentation.sensitivity import Sensitivity
from attentest.presentation.tables import ALWAYS, Column, common_folder, fitted, print_notes, shortened, shown
from attentest.results.result import AttentionTestResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attentest.presentation.picture import Picture


class FigureFiles:
    """Files of figures; after the first that cannot be written, a run goes on without them and ends with its error.

    Their place is a file, or the folder of a file for each image, whose name has an ending.
    """

    def __init__(self, place: str, ending: str = ".png") -> None:
        self.place, self.is_folder, self._ending = Path(place), is_folder(place), ending
        self.drawn: set[str] = set()
        self.failure: InputError | None = None

    def save(self, name: str, draw: Callable[[], Figure]) -> None:
        """Write the figure of an image."""
        if self.failure is None:
            try:
                save_figure(draw(), self.place / f"{file_stem(name)}{self._ending}" if self.is_folder else self.place)
                self.drawn.add(name)
            except InputError as error:
                self.failure = error

    def finish(self, called: str) -> None:
        """Say where the figures are, or why there are none."""
        if self.failure is not None:
            raise self.failure
        if self.drawn:
            say(f"{called}: {f'{len(self.drawn)} in {self.place}' if self.is_folder else self.place}")


class FigureOutput:
    """Takes results as they come and draws them: each image into a folder, or all of them as a sheet.

    In memory are at most as many as a sheet has. Verdicts are at level alpha.
    """

    def __init__(self, files: FigureFiles, alpha: float) -> None:
        self.files, self.alpha = files, alpha
        self._smallest: dict[str, Picture] = {}

    def keep(self, image: ImageSource, results: list[AttentionTestResult]) -> None:
        """Draw the result of an image, or keep what the sheet needs of it."""
        picture = results[0].picture(shown(image.name))
        if self.files.is_folder:
            self.files.save(image.name, lambda: results_figure([picture], alpha=self.alpha))
            return
        self._smallest[image.name] = picture
        if len(self._smallest) > MOST:
            del self._smallest[max(self._smallest, key=lambda name: self._smallest[name].record.log_pvalue)]

    def finish(self, run: BatchRun, rows: ImageRows) -> None:
        """Draw what is missing of a run, which is computed again: results of an earlier run, or of workers."""
        files = self.files
        tested = {row["image"]: row["log_pvalue"] for row in rows.all() if "error" not in row}
        wanted = list(tested) if files.is_folder else sorted(tested, key=lambda name: tested[name])[:MOST]
        self._smallest = {name: picture for name, picture in self._smallest.items() if name in wanted}
        missing = set(wanted) - files.drawn - set(self._smallest)
        places = [place for place, image in enumerate(run.images) if image.name in missing]
        if places and files.failure is None:
            again = replace(run, sensitivity=None, save=None, keep=self.keep)
            called = worded("image", run.test.pipeline.inputs.dimension)
            with progress_bar(f"testing {counted(len(places), called)} again to draw") as progress:
                for _ in again.run(places, progress):
                    pass
        if files.is_folder:
            files.finish("figures")
        elif self._smallest:  # without files that have gone since they were tested
            self._draw_file([self._smallest[name] for name in wanted if name in self._smallest], len(tested))

    def _draw_file(self, pictures: list[Picture], total: int) -> None:
        """Write the figure of one image, or a sheet of several."""
        folder = common_folder([picture.title for picture in pictures])
        names = [picture.title[len(folder) :] for picture in pictures]
        if len(pictures) == 1:
            figure = results_figure([replace(pictures[0], title=names[0])], alpha=self.alpha)
        else:
            titles = shortened(names, NAME_LETTERS)
            named = [replace(picture, title=titles[name]) for picture, name in zip(pictures, names, strict=True)]
            sheet = contact_sheet(named, total=total, alpha=self.alpha)
            figure = sheet[0].get_figure(root=True)  # type: ignore[assignment]
        save_figure(figure, self.files.place)
        few = f", the {len(pictures)} smallest p-values of {total} images" if len(pictures) < total else ""
        more = "; a folder (--figure FOLDER/) has a figure of each" if len(pictures) > 1 else ""
        say(f"figure: {self.files.place}{worded(few, pictures[0].record.dimension)}{more}")


MOST_TABLES = 20  # largest number of images of which a table is printed; --json has all

RANKS = (ALWAYS, ALWAYS, ALWAYS, 2, 1)
"""Ranks of the columns of a table of a sensitivity: estimate and interval are left out first."""


class SensitivityOutput:
    """Takes records as they come, draws their sensitivities and prints those of the first images in the end.

    The names are those of all images, in order; tables have estimates and intervals if asked for.
    """

    def __init__(self, names: Sequence[str], with_intervals: bool, files: FigureFiles | None = None) -> None:
        self.names, self.with_intervals, self.files = names, with_intervals, files
        self._first: dict[str, Sensitivity] = {}

    def take(self, record: Mapping[str, Any]) -> None:
        """Draw the sensitivity of an image, if it was tested, and keep what is printed in the end."""
        if "sensitivity" not in record:
            return
        name, sensitivity = record["image"], Sensitivity.from_dict(record["sensitivity"])
        if name in self.names[:MOST_TABLES]:
            self._first[name] = sensitivity
        if self.files is not None:
            self.files.save(name, lambda: sensitivity.figure(title=shown(name)))

    def print(self) -> None:
        """Print a table of the first images, and a sentence or two about each."""
        tested = {name: self._first[name] for name in self.names if name in self._first}
        if not tested:
            return
        tables = {name: sensitivity.table() for name, sensitivity in tested.items()}
        headings = next(iter(tested.values())).headings
        cells = zip(*(row for rows in tables.values() for row in rows), strict=True)
        columns = [
            Column(heading=heading, cells=column, rank=rank, is_text=rank == ALWAYS)
            for heading, rank, column in zip(headings, RANKS, cells, strict=True)
            if self.with_intervals or rank == ALWAYS
        ]
        names = [name for name, rows in tables.items() for _ in rows]
        typer.echo()
        fitted(names, columns, [len(rows) for rows in tables.values()]).print()
        for name, sensitivity in tested.items():
            of = f"{shown(name)}: " if len(tested) > 1 else ""
            print_notes(f"{of}{line}" for line in sensitivity.summary().split("\n"))
        if len(self.names) > MOST_TABLES:
            say(f"attentest: note: sensitivities are shown of the first {MOST_TABLES} images; --json has all.")
