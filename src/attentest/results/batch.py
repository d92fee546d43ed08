"""The results of many images: a table, adjusted p-values, rates."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, overload

import numpy as np
from numpy.typing import NDArray

from attentest.checks import confidence, level, whole_number
from attentest.errors import InputError, counted, worded
from attentest.files import as_path
from attentest.presentation import MOST_CARDS
from attentest.presentation.figure import axes_or_new, shown_figure
from attentest.presentation.many_results_figure import contact_sheet, draw_pvalues
from attentest.presentation.report import MOST_ROWS, check_report_path, results_html, write_report
from attentest.presentation.rows import TEXT_COLUMNS, TRUTH_COLUMNS, Row, columns_of, failed_row, row_of, with_adjusted
from attentest.presentation.small_picture import SmallPicture
from attentest.presentation.tables import data_frame, write_csv, write_parquet
from attentest.presentation.tested_batch import batch_of_records
from attentest.presentation.words import advice_text, summary_text
from attentest.progress import ProgressLike, progress_reports
from attentest.record import ResultRecord
from attentest.results.result import AttentionTestResult, records_of
from attentest.runs.engine import FailedImage
from attentest.statistics.multiple_testing import Adjustment, ManyPvalues, Rate

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from attentest.cohort.claims import Values
    from attentest.cohort.cohort import Cohort


class Results(Sequence["AttentionTestResult | Any"]):  # Any: a FailedImage, which only on_error="row" makes
    """The results of many images: one for each image, in order.

    An image that could not be tested keeps its place: it is a :class:`FailedImage` here, NaN among p-values, and None
    among decisions. Adjusted p-values, rates, summaries and figures are those of the images that were tested
    (:attr:`tested`).

    Parameters
    ----------
    results
        Results, one per image, or a :class:`FailedImage`.
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
        self._names, self._all = named, every
        self._results = tuple(result for result in every if isinstance(result, AttentionTestResult))

    def __len__(self) -> int:
        return len(self._all)

    @overload
    def __getitem__(self, index: int) -> AttentionTestResult | Any: ...
    @overload
    def __getitem__(self, index: slice) -> Results: ...
    def __getitem__(self, index: int | slice) -> AttentionTestResult | Any | Results:
        if isinstance(index, slice):
            return type(self)(self._all[index], self.names[index])
        return self._all[index]

    def __repr__(self) -> str:
        counts = [counted(len(self._results), "result")]
        if failed := len(self) - len(self._results):
            counts.append(counted(failed, "failure"))
        return f"{type(self).__name__}({', '.join(counts)})"

    def _repr_html_(self) -> str:
        method = self._adjustment or ("by" if self._known.share_a_reference else "bh")
        notes = self.summary().split("\n") if self._results else []
        rows, total, axes = self._rows(first=MOST_ROWS), len(self), self._dimension
        return results_html(repr(self), rows, total, of=self._of, method=method, notes=notes, dimension=axes)

    @property
    def names(self) -> tuple[object, ...]:
        """Names of the images."""
        return self._names

    @property
    def tested(self) -> Results:
        """The results of the images that were tested, without the others."""
        names = [name for name, result in self._every if isinstance(result, AttentionTestResult)]
        return type(self)(self._results, names)

    @property
    def failures(self) -> dict[object, str]:
        """The reason for each image that could not be tested, by its name."""
        return {name: tested.reason for name, tested in self._every if isinstance(tested, FailedImage)}

    @property
    def pvalues(self) -> NDArray[np.float64]:
        """Selective p-values (m,); NaN for an image that could not be tested."""
        return self._in_place(result.pvalue for result in self._results)

    @property
    def naive_pvalues(self) -> NDArray[np.float64]:
        """P-values (m,) that ignore the selection: not valid."""
        return self._in_place(result.naive_pvalue for result in self._results)

    def adjusted_pvalues(self, method: Adjustment | None = None) -> NDArray[np.float64]:
        """Return the selective p-values adjusted for multiple testing: the upper ends of their bounds.

        What is adjusted is the upper bound of each p-value, never a p-value within a wide error bar. An upper bound of
        a valid p-value is a valid p-value, so an adjusted one of at most alpha is a rejection, whatever the searches
        left open. With searches that converged the difference is that of their tolerance. An image that could not be
        tested has NaN and counts for none of the others.

        Parameters
        ----------
        method
            "bh", Benjamini and Hochberg: rejecting adjusted p-values of at most alpha controls the expected proportion
            of false rejections at alpha, for independent images. "by", Benjamini and Yekutieli: the same for images
            that depend on each other, such as those compared with one noisy reference. "holm": it controls the
            probability of any false rejection at alpha, for independent images and others. By default "bh", and "holm"
            of the components of a region.
        """
        return self.adjusted_pvalue_bounds(method)[1]

    def adjusted_pvalue_bounds(
        self, method: Adjustment | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the least and the greatest :meth:`adjusted_pvalues` compatible with what the searches know.

        Where alpha lies between them it is open whether the hypothesis is rejected, as it can be after tests that were
        asked to decide at an alpha (``decide_at=``): their p-values are resolved only as far as that needs.
        """
        low, high = self._known.adjusted_bounds(method or self._adjustment or "bh")
        return self._in_place(low), self._in_place(high)

    def decisions(self, alpha: float = 0.05, method: Adjustment | None = None) -> list[bool | None]:
        """Return for each image whether its hypothesis is rejected at alpha; None where that is not known.

        It is not known where the error bars do not tell, and of an image that could not be tested. Without a method,
        one of those of :meth:`adjusted_pvalues`, the p-values decide as they are.
        """
        known = iter(self._known.decisions(alpha, method))
        return [None if isinstance(result, FailedImage) else next(known) for result in self]

    def rejection_rate(self, alpha: float = 0.05, *, naive: bool = False, confidence_level: float = 0.95) -> Rate:
        """Return the proportion of p-values that are at most alpha, with its Wilson interval.

        A selective p-value counts if its upper bound is at most alpha: if the search is certain of the rejection. With
        ``naive`` the p-values that ignore the selection are counted instead.
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
        self._check_any()
        count, names = whole_number(most, "most", 1, 1000), self.tested.names
        order = np.argsort([result.log_pvalue for result in self._results], kind="stable")[:count]
        pictures = [self._results[i].picture(str(names[i])) for i in order]
        return contact_sheet(pictures, total=len(names), alpha=level(alpha), of=self._of, make=shown_figure)

    def pvalue_plot(self, ax: Axes | None = None, *, alpha: float = 0.05) -> Axes:
        """Draw the p-values in order, selective and naive, with the line of Benjamini and Hochberg.

        Parameters
        ----------
        ax
            Where to draw; by default on a new figure.
        alpha
            Significance level, and false discovery rate of the line.
        """
        self._check_any()
        axes, tested = axes_or_new(ax, 5.0, 4.0), self.tested
        adjusted, of = tested.adjusted_pvalues("bh"), worded(self._of, self._dimension)
        draw_pvalues(axes, tested.pvalues, tested.naive_pvalues, adjusted, level(alpha), of)
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
            - ``context_share``, ``context_placements``, ``context_standard_deviations``,
              ``context_percent_of_range``: how large the difference is within the image, descriptive
              (:attr:`AttentionTestResult.context`);
            - ``part_pixels``, ``region_pixels``, ``seen_pixels``: what was compared, the whole region and
              what the model sees;
            - ``part_size``, ``part_size_unit``, ``part_start``, ``part_end``: what was compared in the units of the
              file, if one tells them, and where in a signal it begins and ends;
            - ``map``, ``class``, ``class_label``, ``class_score``, ``class_predicted``: of maps for a
              class or a text, which map, and the class;
            - ``component``: number of the component, if each is tested by itself;
            - ``mask_use``, ``mask_pixels``: what a mask was for, and its size;
            - ``region_unit``, and ``threshold``, ``top_fraction`` or ``level``, of which the others are None;
            - ``gamma``, 0 without randomised selection; ``randomise_seed`` and ``randomise_name``, from which the added
              noise comes; ``draws``, ``significant_draws`` (p at most 0.05), ``majority_pixels`` if there are several;
            - ``contrast``, ``noise``, ``approximate_noise``: names, and whether the noise is that of the image itself;
            - ``reference_images``, ``degrees_of_freedom``: how many images the noise was estimated from, and those of
              the standard error; None for noise that is known;
            - ``noise_doubt``: why the image can hardly have this noise, None if it can;
            - ``audit_points``, ``audit_contradictions``: None for the grid searches;
            - ``certificate_pvalue``, ``certificate_draws`` and others, if a result has a certificate;
            - ``error``: why an image could not be tested.
        """
        return columns_of(self._rows(confidence_level))

    def to_csv(self, path: str | os.PathLike[str], confidence_level: float | None = None) -> None:
        """Write the table as CSV, numbers exact to the last bit; a text that looks like a formula has a ' before it."""
        write_csv(self.table(confidence_level), as_path(path, "the table"))

    def to_pandas(self, confidence_level: float | None = None) -> pd.DataFrame:
        """Return the :meth:`table` as a pandas data frame; needs pandas (``pip install 'attentest[tables]'``).

        Numbers that an image does not have are NaN, and columns that hold whole numbers otherwise are then of floats.
        """
        frame = data_frame(self.table(confidence_level))
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
        with progress_reports(progress, min(len(self._results), most), "result", "drawing") as report:
            write_report(target, batch, alpha=level(alpha), cards=most, progress=report)

    def cohort(
        self,
        groups: Values | None = None,
        clusters: Values | None = None,
        covariates: Mapping[str, Values] | None = None,
    ) -> Cohort:
        """Return these images as a cohort: mean difference, groups, heterogeneity, how many images differ at least.

        Parameters
        ----------
        groups
            The group of each image, in their order or by their names; None if there is one.
        clusters
            The patient of each, or whatever else images have in common; None if they are independent of each other.
        covariates
            Numbers of each image by the name of the covariate, for a regression.
        """
        from attentest.cohort.cohort import Cohort

        named = ((name, None if isinstance(result, FailedImage) else result) for name, result in self._every)
        return Cohort(named, groups, clusters, covariates)

    def summary(self, alpha: float = 0.05) -> str:
        """Return a summary of the results at a significance level, in words."""
        failed = len(self.failures)
        note = f"\n{failed} more could not be tested" if failed else ""
        return worded(summary_text(self._known, level(alpha)), self._dimension) + note

    def advice(self, alpha: float) -> str:
        """Return a sentence that says how to resolve p-values whose error bar contains alpha."""
        return advice_text(self._known, alpha)

    def _check_any(self) -> None:
        if not self._results:
            raise InputError("there is nothing to draw: there are no results.")

    def _in_place(self, values: Iterable[float]) -> NDArray[np.float64]:
        """Return a number of each image that was tested at the places (m,) of these images; NaN elsewhere."""
        placed = np.full(len(self), np.nan)
        placed[[isinstance(result, AttentionTestResult) for result in self]] = np.fromiter(values, np.float64)
        return placed

    @property
    def _known(self) -> ManyPvalues:
        low, high = np.array([result.log_pvalue_bounds for result in self._results]).reshape(-1, 2).T
        return ManyPvalues(
            log_low=low,
            log_high=high,
            naive=np.array([result.naive_pvalue for result in self._results]),
            statuses=[result.status for result in self._results],
            certified=[result.certificate is not None for result in self._results],
            references=[result.settings.get("noisy_reference") for result in self._results],
        )

    @property
    def _dimension(self) -> int:
        """Number of axes of what was tested."""
        return self._results[0].dimension if self._results else 2

    @property
    def _every(self) -> list[tuple[object, AttentionTestResult | FailedImage]]:
        """Each image with its result, or with its failure."""
        return list(zip(self._names, self._all, strict=True))

    @property
    def _images(self) -> list[tuple[object, Sequence[AttentionTestResult] | FailedImage]]:
        """Each image with the list of its results, or with its failure."""
        return [(name, tested if isinstance(tested, FailedImage) else [tested]) for name, tested in self._every]

    def _records(self, confidence_level: float | None = None, first: int | None = None) -> list[ResultRecord]:
        """Return the records of the results, or of the first so many."""
        return records_of(self._results[:first], confidence_level)

    def _rows(self, confidence_level: float | None = None, first: int | None = None) -> Iterator[Row]:
        """Yield the row of each image, or of the first so many, with adjusted p-values."""
        shown = self._every[:first]
        tested = sum(isinstance(result, AttentionTestResult) for _, result in shown)
        records = iter(self._records(confidence_level, tested))
        rows = (
            failed_row(name, result.reason) if isinstance(result, FailedImage) else row_of(name, next(records))
            for name, result in shown
        )
        return with_adjusted(rows, self._known)


def small_picture(results: Sequence[AttentionTestResult]) -> SmallPicture:
    """Return the picture of the results of one image: one, or one for each component of its region."""
    every = [result.shown() for result in results]
    parts = [shown["part"] for shown in every]
    shown: dict[str, Any] = {name: every[0].get(name) for name in ("image", "attention", "randomised_image", "mask")}
    return SmallPicture.of(parts=parts, spacing=results[0].spacing, **shown)
