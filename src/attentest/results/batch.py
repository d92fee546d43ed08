"""The results of many images: a table, adjusted p-values, rates."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, overload

import numpy as np
from numpy.typing import NDArray

from attentest.checks import confidence, level, whole_number
from attentest.errors import InputError, counted
from attentest.files import as_path
from attentest.presentation.notebook import MOST_ROWS, results_html
from attentest.presentation.report.tested_batch import SmallPicture, batch_of_records
from attentest.presentation.rows import TEXT_COLUMNS, TRUTH_COLUMNS, columns_of, failed_row, row_of, with_adjusted
from attentest.presentation.tables import write_csv, write_parquet
from attentest.presentation.words import METHOD_NAMES, advice_text, summary_text
from attentest.progress import ProgressLike, progress_reports
from attentest.record import ResultRecord
from attentest.results.result import AttentionTestResult, records_of
from attentest.runs.engine import FailedImage
from attentest.statistics.multiple_testing import Adjustment, ManyPvalues, Rate

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


class Results(Sequence[AttentionTestResult]):
    """The results of many images, in order.

    Parameters
    ----------
    results
        Results, one per image; an image that could not be tested is a :class:`FailedImage` in its place.
    names
        Names of the images in tables, such as file names; by default their numbers from 0.
    """

    _of: ClassVar[str] = "image"
    _adjustment: ClassVar[Adjustment | None] = None
    """What a result is of, and how p-values are adjusted where there is room for one way; None: as the images allow."""

    def __init__(
        self, results: Iterable[AttentionTestResult | FailedImage], names: Sequence[object] | None = None
    ) -> None:
        if not isinstance(results, Iterable) or isinstance(names, str) or not isinstance(names, (Sequence, type(None))):
            raise InputError(
                f"Results takes an iterable of results and a list of names, got {type(results).__name__} and "
                f"{type(names).__name__}."
            )
        every = tuple(results)
        named = tuple(range(len(every)) if names is None else names)
        if len(named) != len(every):
            raise InputError(f"there must be a name for each result, got {len(named)} for {len(every)}.")
        for result in every:
            if not isinstance(result, (AttentionTestResult, FailedImage)):
                raise InputError(f"Results takes results of AttentionTest, got {type(result).__name__} among them.")
        self._all_names, self._all = named, every
        tested = [(name, result) for name, result in self._every if isinstance(result, AttentionTestResult)]
        self._names, self._results = tuple(name for name, _ in tested), tuple(result for _, result in tested)

    def __len__(self) -> int:
        return len(self._results)

    def __iter__(self) -> Iterator[AttentionTestResult]:
        return iter(self._results)

    @overload
    def __getitem__(self, index: int) -> AttentionTestResult: ...
    @overload
    def __getitem__(self, index: slice) -> Results: ...
    def __getitem__(self, index: int | slice) -> AttentionTestResult | Results:
        if isinstance(index, slice):
            return type(self)(self._results[index], self.names[index])
        return self._results[index]

    def __repr__(self) -> str:
        counts = [counted(len(self), "result")]
        if failed := len(self._all) - len(self):
            counts.append(counted(failed, "failure"))
        return f"{type(self).__name__}({', '.join(counts)})"

    def _repr_html_(self) -> str:
        known, shown = self._known, self._every[:MOST_ROWS]
        method = self._adjustment or ("by" if known.share_a_reference else "bh")
        adjusted = known.adjusted_bounds(method)[1].tolist()
        records = self._records(first=sum(isinstance(tested, AttentionTestResult) for _, tested in shown))
        numbers = iter(zip(records, adjusted, strict=False))
        rows = [(name, tested.reason if isinstance(tested, FailedImage) else next(numbers)) for name, tested in shown]
        notes = self.summary().split("\n") if len(self) else []
        return results_html(repr(self), rows, len(self._all), of=self._of, adjusted=METHOD_NAMES[method], notes=notes)

    @property
    def names(self) -> tuple[object, ...]:
        """Names of the images that were tested."""
        return self._names

    @property
    def failures(self) -> dict[object, str]:
        """The reason for each image that could not be tested, by its name."""
        return {name: tested.reason for name, tested in self._every if isinstance(tested, FailedImage)}

    @property
    def pvalues(self) -> NDArray[np.float64]:
        """Selective p-values."""
        return np.array([result.pvalue for result in self])

    @property
    def naive_pvalues(self) -> NDArray[np.float64]:
        """P-values that ignore the selection: not valid."""
        return np.array([result.naive_pvalue for result in self])

    def adjusted_pvalues(self, method: Adjustment = "bh") -> NDArray[np.float64]:
        """Return the selective p-values adjusted for multiple testing: the upper ends of their bounds.

        What is adjusted is the upper bound of each p-value, never a p-value within a wide error bar. An upper bound of
        a valid p-value is a valid p-value, so an adjusted one of at most alpha is a rejection, whatever the searches
        left open. With searches that converged the difference is that of their tolerance.

        Parameters
        ----------
        method
            "bh", Benjamini and Hochberg: rejecting adjusted p-values of at most alpha controls the expected proportion
            of false rejections at alpha, for independent images. "by", Benjamini and Yekutieli: the same for images
            that depend on each other, such as those compared with one noisy reference. "holm": it controls the
            probability of any false rejection at alpha, for independent images and others.
        """
        return self.adjusted_pvalue_bounds(method)[1]

    def adjusted_pvalue_bounds(self, method: Adjustment = "bh") -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the least and the greatest adjusted p-values compatible with what the searches know.

        Where alpha lies between them it is open whether the hypothesis is rejected, as it can be after tests that were
        asked to decide at an alpha (``alpha=``): their p-values are resolved only as far as that needs.

        Parameters
        ----------
        method
            As in :meth:`adjusted_pvalues`.
        """
        return self._known.adjusted_bounds(method)

    def decisions(self, alpha: float = 0.05, method: Adjustment | None = None) -> list[bool | None]:
        """Return for each image whether its hypothesis is rejected at alpha; None where the error bars do not tell.

        Parameters
        ----------
        alpha
            Significance level.
        method
            As in :meth:`adjusted_pvalues`; None to decide by the p-values as they are.
        """
        return self._known.decisions(alpha, method)

    def rejection_rate(self, alpha: float = 0.05, *, naive: bool = False, confidence_level: float = 0.95) -> Rate:
        """Return the proportion of p-values that are at most alpha, with its Wilson interval.

        A selective p-value counts if its upper bound is at most alpha: if the search is certain of the rejection.

        Parameters
        ----------
        alpha
            Significance level.
        naive
            Whether to count the p-values that ignore the selection instead.
        confidence_level
            Of the interval.
        """
        return self._known.rejection_rate(alpha, naive, confidence_level)

    def plot(self, *, most: int = 24, alpha: float = 0.05) -> list[Axes]:
        """Draw a contact sheet: images with their regions and p-values, the smallest first.

        Needs Matplotlib (``pip install 'attentest[plots]'``).

        Parameters
        ----------
        most
            Largest number of images on the sheet.
        alpha
            Significance level; significant images have a blue frame.

        Returns
        -------
        list of Axes
            One for each image, by increasing p; ``axes[0].figure`` is the figure.
        """
        from attentest.presentation.figure import shown_figure
        from attentest.presentation.many_results_figure import draw_sheet, sheet_size

        if not len(self):
            raise InputError("there is nothing to draw: there are no results.")
        count = whole_number(most, "most", 1, 1000)
        order = np.argsort([result.log_pvalue for result in self], kind="stable")[:count]
        pictures = [self[int(i)].picture(str(self.names[i])) for i in order]
        figure = shown_figure(*sheet_size(len(pictures)))
        return draw_sheet(figure, pictures, total=len(self), alpha=level(alpha), of=self._of)

    def pvalue_plot(self, ax: Axes | None = None, *, alpha: float = 0.05) -> Axes:
        """Draw the p-values in order, selective and naive, with the line of Benjamini and Hochberg.

        Parameters
        ----------
        ax
            Where to draw; by default on a new figure.
        alpha
            Significance level, and false discovery rate of the line.
        """
        from attentest.presentation.figure import axes_or_new
        from attentest.presentation.many_results_figure import draw_pvalues

        if not len(self):
            raise InputError("there is nothing to draw: there are no results.")
        axes = axes_or_new(ax, 5.0, 4.0)
        draw_pvalues(axes, self.pvalues, self.naive_pvalues, self.adjusted_pvalues("bh"), level(alpha))
        return axes

    def table(self, confidence_level: float | None = None) -> dict[str, list[Any]]:
        """Return one row per image, as columns; an image that could not be tested has its reason under ``error``.

        Parameters
        ----------
        confidence_level
            Level of the confidence intervals; by default that of the test.

        Returns
        -------
        dict of lists
            Values that an image does not have are None. The columns are

            - ``image``: its name, or its number;
            - ``statistic``, ``pvalue``, ``log_pvalue``, ``naive_pvalue``, ``bonferroni_pvalue``, ``difference``,
              ``standard_error``, ``estimate``, ``alternative``, ``evaluations``, ``status``: as in the result;
            - ``pvalue_low``, ``pvalue_high``, ``log_pvalue_low``, ``log_pvalue_high``, ``estimate_low``,
              ``estimate_high``: bounds by the search;
            - ``pvalue_holm``, ``pvalue_bh``, ``pvalue_by``: adjusted for all images of the table;
            - ``confidence_low``, ``confidence_high``, ``confidence_level``, ``confidence_error``: the interval;
            - ``simultaneous_low``, ``simultaneous_high``, ``simultaneous_error``, ``simultaneous_count``: of
              components, the intervals that all cover together with the probability ``confidence_level``, and their
              number;
            - ``part_pixels``, ``region_pixels``, ``seen_pixels``: what was compared, the whole region and
              what the model sees;
            - ``region_unit``, and ``threshold`` or ``top_fraction``, of which the other is None;
            - ``gamma``, 0 without randomised selection, and ``randomise_seed``, None unless it was given;
            - ``contrast``, ``noise``, ``approximate_noise``: names, and whether the noise is that of the image itself;
            - ``reference_images``, ``degrees_of_freedom``: how many images the noise was estimated from, and those of
              the standard error; None for noise that is known;
            - ``noise_doubt``: why the image can hardly have this noise, None if it can;
            - ``audit_points``, ``audit_contradictions``: None for the grid searches;
            - ``certificate_pvalue``, ``certificate_draws`` and others, if a result has a certificate;
            - ``error``: why an image could not be tested.
        """
        tested = iter(self._records(confidence_level))
        rows = (
            failed_row(name, result.reason) if isinstance(result, FailedImage) else row_of(name, next(tested))
            for name, result in self._every
        )
        return columns_of(with_adjusted(rows, self._known))

    def to_csv(self, path: str | os.PathLike[str], confidence_level: float | None = None) -> None:
        """Write the table as CSV, numbers exact to the last bit; a text that looks like a formula has a ' before it."""
        write_csv(self.table(confidence_level), as_path(path, "the table"))

    def to_pandas(self, confidence_level: float | None = None) -> pd.DataFrame:
        """Return the :meth:`table` as a pandas data frame; needs pandas (``pip install 'attentest[tables]'``).

        Numbers that an image does not have are NaN, and columns that hold whole numbers otherwise are then of floats.
        """
        try:
            import pandas as pd
        except ImportError:
            raise InputError("data frames need pandas: pip install 'attentest[tables]'.") from None
        frame = pd.DataFrame(self.table(confidence_level))
        for name in frame.columns.difference(TEXT_COLUMNS):
            kind = "boolean" if name in TRUTH_COLUMNS else "float64"
            if frame[name].dtype == object:  # because some or all values are None
                frame[name] = frame[name].astype(kind)
        return frame

    def to_parquet(self, path: str | os.PathLike[str], confidence_level: float | None = None) -> None:
        """Write the table as Parquet; needs pyarrow (``pip install 'attentest[tables]'``)."""
        table = self.table(confidence_level)
        table["image"] = [str(name) for name in table["image"]]  # a column has one type
        write_parquet(table, as_path(path, "the table"))

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        alpha: float = 0.05,
        cards: int = 200,
        confidence_level: float | None = None,
        progress: ProgressLike = None,
    ) -> None:
        """Write a report: one HTML file that needs no other, with summary, table, pictures, noise, method and settings.

        Needs Matplotlib and Jinja2 (``pip install 'attentest[plots]'``). A file name that ends in .json gives the same
        without pictures as JSON.

        Parameters
        ----------
        path
            The file, .html or .json.
        alpha
            Significance level of the verdicts.
        cards
            Largest number of results with pictures and details, those with the smallest p-values; all are in the table.
        confidence_level
            Level of the confidence intervals; by default that of the test.
        progress
            True for a bar, or a function that is called with (results drawn, results to be drawn).
        """
        from attentest.presentation.report import MOST_CARDS
        from attentest.presentation.report.page import check_report_path, write_report

        target, most = as_path(path, "the report"), whole_number(cards, "cards", 0, MOST_CARDS)
        check_report_path(target)
        images, shown_level = self._images, None if confidence_level is None else confidence(confidence_level)
        records = iter(self._records(shown_level))
        named = [
            (name, tested.reason if isinstance(tested, FailedImage) else [next(records) for _ in tested])
            for name, tested in images
        ]

        def picture(place: int) -> SmallPicture | None:
            tested = images[place][1]
            return None if isinstance(tested, FailedImage) else small_picture(tested)

        batch = batch_of_records(named, picture)
        with progress_reports(progress, min(len(self), most), "result", "drawing") as report:
            write_report(target, batch, alpha=level(alpha), cards=most, progress=report)

    def summary(self, alpha: float = 0.05) -> str:
        """Return a summary of the results at a significance level, in words."""
        failed = len(self.failures)
        note = f"\n{failed} more could not be tested" if failed else ""
        return summary_text(self._known, level(alpha)) + note

    def advice(self, alpha: float) -> str:
        """Return a sentence that says how to resolve p-values whose error bar contains alpha."""
        return advice_text(self._known, alpha)

    @property
    def _known(self) -> ManyPvalues:
        low, high = np.array([result.log_pvalue_bounds for result in self]).reshape(-1, 2).T
        return ManyPvalues(
            log_low=low,
            log_high=high,
            naive=self.naive_pvalues,
            statuses=[result.status for result in self],
            certified=[result.certificate is not None for result in self],
            references=[result.settings.get("noisy_reference") for result in self],
        )

    @property
    def _every(self) -> list[tuple[object, AttentionTestResult | FailedImage]]:
        """Each image with its result, or with its failure."""
        return list(zip(self._all_names, self._all, strict=True))

    @property
    def _images(self) -> list[tuple[object, Sequence[AttentionTestResult] | FailedImage]]:
        """Each image with the list of its results, or with its failure."""
        return [(name, tested if isinstance(tested, FailedImage) else [tested]) for name, tested in self._every]

    def _records(self, confidence_level: float | None = None, first: int | None = None) -> list[ResultRecord]:
        """Return the records of the results, or of the first so many."""
        return records_of(self._results[:first], confidence_level)


def small_picture(results: Sequence[AttentionTestResult]) -> SmallPicture:
    """Return the picture of the results of one image: one, or one for each component of its region."""
    return SmallPicture.of(results[0].image, results[0].attention, [result.part for result in results])
