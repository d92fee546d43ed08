"""Figures of a run over many images, drawn as results come: one for each image, or a sheet of the smallest p-values."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from attentest.cli.image_names import common_folder, shortened, shown
from attentest.cli.output import progress_bar, say
from attentest.errors import InputError, counted
from attentest.images.image_source import ImageSource
from attentest.pipeline.file_run import BatchRun, file_stem
from attentest.presentation.figure import save_figure
from attentest.presentation.many_results_figure import MOST, NAME_LETTERS, contact_sheet
from attentest.presentation.result_figure import results_figure
from attentest.results.result import AttentionTestResult
from attentest.results.rows import ImageRows

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
            del self._smallest[max(self._smallest, key=lambda name: self._smallest[name].values["log_pvalue"])]

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
