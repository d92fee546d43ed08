"""A cohort: tested images with the groups, patients and covariates of a study, from a folder or from results."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attentest.checks import level
from attentest.cohort.claims import Claims
from attentest.cohort.patients import read_folder, read_table
from attentest.cohort.shown import draw_cohort, summary_lines, write_page
from attentest.errors import InputError
from attentest.files import as_path
from attentest.record import json_ready

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
