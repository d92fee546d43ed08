"""A cohort: tested images with the groups, patients and covariates of a study, in sentences, figures and pages."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from scipy.special import ndtri

from attentest.checks import level
from attentest.cohort.claims import Claims
from attentest.cohort.study_files import read_folder, read_table
from attentest.errors import InputError, counted, worded
from attentest.files import as_path, write_complete
from attentest.presentation import figure as drawing
from attentest.presentation.number_texts import interval_name, number_text, with_sign
from attentest.presentation.report import NAME, check_report_path, is_json, readable, sealed_page
from attentest.presentation.words import compared_with
from attentest.record import json_ready

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Cohort(Claims):
    """Tested images of a study: what they show together, in numbers, sentences, figures and pages."""

    __doc__ = Claims.__doc__

    notes: Sequence[str] = ()
    """What is to be known about the files that were read: sentences, which the summary ends with."""

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
        named, notes = read_folder(as_path(directory, "the results"))
        columns = [name for name in (group, cluster, *covariates) if name is not None]
        if table is None and columns:
            raise InputError(f"there is no table with a column {columns[0]!r}: give one with a row for each image.")
        tested, failed = ([name for name, record in named if (record is None) is wanted] for wanted in (False, True))
        read: dict[str, dict[str, str]] = {}
        if table is not None:
            read, of_table = read_table(as_path(table, "the table"), tested, image, columns, failed)
            notes += of_table
        numbers = {name: read[name] for name in covariates}
        study = cls(named, read[group] if group else None, read[cluster] if cluster else None, numbers)
        study.notes = notes
        return study

    def to_dict(self, alpha: float = 0.05) -> dict[str, Any]:
        """Return the :meth:`claims`, the summary and the table as JSON-ready values."""
        values = json.loads(json.dumps(self.claims(alpha), default=vars))
        ready: dict[str, Any] = json_ready(values | {"table": self.table()})
        return ready | {"summary": self.summary(alpha)}

    def summary(self, alpha: float = 0.05) -> str:
        """Return what the study shows in sentences, with intervals of level 1 - alpha."""
        return worded("\n".join([*_sentences(self, self.claims(alpha)), *self.notes]), self.results[0].dimension)

    def plot(self, axes: Sequence[Axes] | None = None, *, alpha: float = 0.05) -> list[Axes]:
        """Draw a forest plot of the estimates, how many images differ at least, and a funnel plot of the estimates.

        Needs Matplotlib (``pip install 'attentest[plots]'``). ``axes`` are three, by default those of a new figure;
        without randomised selection there are no estimates, and it is one. The level of intervals is 1 - ``alpha``.
        """
        panels = list(_panels(self).values())
        if axes is None:
            return cohort_figure(self, level(alpha), panels, drawing.shown_figure).axes
        return _draw(self, level(alpha), panels, drawing.checked_axes(axes, len(panels)))

    def report(self, path: str | os.PathLike[str], *, alpha: float = 0.05) -> None:
        """Write a page of the study: one HTML file that needs no other, or with .json the values of :meth:`to_dict`."""
        target, values = as_path(path, "the report"), self.to_dict(alpha)
        check_report_path(target)
        content = json.dumps(values, allow_nan=False, indent=1) if is_json(target) else _page(self, values)
        write_complete(target, content.encode(), NAME)


TESTS = {"positive": ("simes", "Simes' tests"), "any": ("hommel", "Hommel's tests, which hold under any dependence")}
"""The global test by how p-values may depend on each other, and what the tests of closed testing are called."""

CHOSEN = "What is estimated is the effect of the regions that the model chose, not of places fixed beforehand."


def _sentences(cohort: Claims, claims: Mapping[str, Any]) -> list[str]:
    images, confidence = counted(len(cohort), "image"), 1 - claims["alpha"]
    clusters = "" if cohort.clusters is None else f" of {counted(claims['clusters'], 'cluster')}"
    regions = f"the {cohort.results[0].map_kind} regions of {images}{clusters} differ from "
    regions += compared_with(cohort.results[0].settings["contrast"]).replace("its ", "their ")
    lines = []
    if (effects := claims.get("random_effects")) is not None:
        lines.append(f"On average {regions} by {claims['mean']}, in units of the pixel values. {CHOSEN}")
        lines += [f"{group}: {mean}" for group, mean in claims["groups"].items()]
        first = next(iter(claims["groups"]), "")
        lines += [f"{group} less {first}: {difference}" for group, difference in claims["differences"].items()]
        lines += [f"regression, {name}: {coefficient}" for name, coefficient in claims["regression"].items()]
        lines.append(
            f"True differences vary between {cohort.unit}s with a standard deviation of {effects.deviation:.3g} "
            f"({interval_name(confidence)} {effects.deviation_low:.3g} to {effects.deviation_high:.3g}, I^2 "
            f"{100 * effects.heterogeneity:.0f}%); random-effects mean {effects.mean}."
        )
    if "common_effect" in claims:
        lines.append(f"If {regions} by the same amount, it is {claims['common_effect']}. {CHOSEN}")
    sizes = {group: list(cohort.groups or ()).count(group) for group in claims["at_least_of"]}
    bounds = [f"{least} of the {sizes[group]} of {group}" for group, least in claims["at_least_of"].items()]
    method, called = TESTS[claims["dependence"]]
    lines.append(
        f"With {100 * confidence:.10g}% confidence at least {claims['at_least']} of the {images} truly differ"
        f"{''.join(f', {bound}' for bound in bounds)} (closed testing with {called}); that none does: p "
        f"{with_sign(number_text(claims['global'][method]))}."
    )
    if cohort.why_no_mean is not None:
        lines.append(f"There is no mean difference: {cohort.why_no_mean}.")
    if cohort.failed:
        lines.append(f"Not tested, and left out: {counted(cohort.failed, 'image')}.")
    several = (cohort.results[0].settings.get("draws") or 1) > 1  # whose estimates need no truncation set
    if cohort.randomised and not several and (plain := int((~cohort.estimates.resolved).sum())):
        lines.append(
            f"Truncation sets known too roughly to lessen the variance of estimates: {counted(plain, 'image')}."
        )
    if doubted := sum(result.noise_doubt is not None for result in cohort.results):
        lines.append(f"Images that can hardly have the assumed noise, on which all of this rests: {doubted}.")
    if cohort.own_noise:
        lines.append("The noise is that of each image itself: estimates and intervals are approximate.")
    elif cohort.noise_degrees < float("inf"):
        degrees = f"{cohort.noise_degrees:.4g} degrees of freedom"
        lines.append(f"The noise is an estimate with {degrees}, which the intervals allow for approximately.")
    return lines


def _page(cohort: Claims, values: Mapping[str, Any]) -> str:
    table, pictures = cohort.table(), []
    for name, draw in _panels(cohort).items():  # each a picture, which can be read on a narrow screen
        picture = drawing.png_of(cohort_figure(cohort, values["alpha"], [draw]), 180, facecolor="white")
        pictures.append((worded(name, cohort.results[0].dimension), picture))
    return sealed_page(
        "attentest.cohort",
        "cohort.html.j2",
        lines=values["summary"].split("\n"),
        pictures=pictures,
        columns=list(table),
        rows=list(zip(*table.values(), strict=True)),
        settings={
            name: value
            for name, value in cohort.results[0].settings.items()
            if all(result.settings.get(name) == value for result in cohort.results)
        },
        readable=readable,
        cell=lambda value: f"{value:.4g}" if isinstance(value, float) else str(value),
    )


NAMED = 40  # most images that have their names beside them

COLOURS = (drawing.BLUE, drawing.VERMILION, drawing.GREEN, drawing.ORANGE, drawing.PURPLE)
"""Of groups, in their order."""

WIDTH, ROW, SIZE = 3.6, 0.14, 8.0  # width of a panel and height of an image in inches, and size of text in points


Panel: TypeAlias = Callable[["Axes", Claims, float], None]


def _panels(cohort: Claims) -> dict[str, Panel]:
    bounds: dict[str, Panel] = {"How many images differ at least": _draw_bounds}
    return {"Forest plot": _draw_forest, **bounds, "Funnel plot": _draw_funnel} if cohort.randomised else bounds


def cohort_figure(
    cohort: Claims,
    alpha: float,
    panels: Collection[Panel] | None = None,
    make: Callable[[float, float], Figure] = drawing.new_figure,
) -> Figure:
    """Return a new figure of a cohort, of a width and a height in inches, with some panels, by default all."""
    drawn = list(_panels(cohort).values()) if panels is None else panels
    height = max(3.6, ROW * (min(len(cohort), NAMED) + len(cohort.group_names)) + 1.2)
    figure = make(WIDTH * len(drawn), height)
    _draw(cohort, alpha, drawn, np.ravel(figure.subplots(1, len(drawn), squeeze=False)).tolist())
    return figure


def _draw(cohort: Claims, alpha: float, panels: Iterable[Panel], axes: list[Axes]) -> list[Axes]:
    for draw, panel in zip(panels, axes, strict=True):
        draw(panel, cohort, alpha)
    drawing.word_axes(axes, cohort.results[0].dimension)
    return axes


def _draw_forest(axes: Axes, cohort: Claims, alpha: float) -> None:
    """Draw the estimate of each image with an interval, by group and size, and the means below them as diamonds."""
    known, few = cohort.estimates, len(cohort) <= NAMED
    groups = np.array(cohort.groups or [""] * len(cohort))
    order = np.lexsort([known.value, groups])
    named = dict(zip(cohort.group_names or [""], COLOURS * len(cohort), strict=False))
    half, at = float(ndtri(1 - alpha / 2)) * known.error, np.arange(len(cohort))
    for name, colour in named.items():
        rows, places = at[groups[order] == name], order[groups[order] == name]
        value, bar = known.value[places], half[places]
        axes.hlines(rows, value - bar, value + bar, color=colour, lw=0.9 if few else 0.5, alpha=0.6)
        axes.plot(value, rows, "s", color=colour, ms=3 if few else 1.5)
    claims, step = cohort.claims(alpha), max(1.0, len(cohort) / NAMED)
    means = [(name, named[name], mean) for name, mean in claims.get("groups", {}).items()]
    if "mean" in claims:
        means += [("mean", "black", claims["mean"]), ("random effects", drawing.GREY, claims["random_effects"].mean)]
    ticks = [len(cohort) + step * (place + 0.5) for place in range(len(means))]
    for y, (_, colour, mean) in zip(ticks, means, strict=True):
        high = 0.35 * step
        axes.fill([mean.low, mean.value, mean.high, mean.value], [y, y + high, y, y - high], color=colour)
    names = [drawing.shown_name(str(cohort.names[place]), 24)["s"] for place in order] if few else []
    axes.set_yticks([*at[: len(names)], *ticks], [*names, *(name for name, _, _ in means)], size=SIZE - 1.5)
    axes.set_ylim(len(cohort) + step * (len(means) + 0.5), -1)
    axes.axvline(0, color=drawing.GREY, lw=0.8)
    axes.set_title(f"{counted(len(cohort), 'image')}, {interval_name(1 - alpha)}s", size=SIZE + 1)
    drawing.make_plain(axes, "difference, in units of the pixels", SIZE, ("top", "right", "left"))


def _draw_bounds(axes: Axes, cohort: Claims, alpha: float) -> None:
    """Draw how many of the images with the smallest p-values differ at least, against their number."""
    order = np.argsort([result.log_pvalue for result in cohort.results], kind="stable")
    sizes = np.unique(np.linspace(1, len(cohort), 60).round().astype(int))
    bounds = [cohort.at_least(alpha, np.isin(np.arange(len(cohort)), order[:size])) for size in sizes]
    axes.plot([0, len(cohort)], [0, len(cohort)], color=drawing.GREY, lw=0.8, ls=":", label="all of them")
    axes.step([0, *sizes], [0, *bounds], color="black", lw=1.8, where="post", label="at least so many")
    axes.set(xlim=(0, len(cohort)), ylim=(0, len(cohort)))
    axes.set_ylabel(f"of which truly differ, with {100 * (1 - alpha):g}%\nconfidence for all at once", size=SIZE)
    axes.set_title(f"at least {bounds[-1]} of {counted(len(cohort), 'image')} differ", size=SIZE + 1)
    drawing.legend_below(axes, 2, SIZE - 1)
    drawing.make_plain(axes, "images with the smallest p-values", SIZE)
    axes.locator_params(integer=True)


def _draw_funnel(axes: Axes, cohort: Claims, alpha: float) -> None:
    """Draw the estimate of each image against its standard error, with the mean and the range of chance around it."""
    known, claims = cohort.estimates, cohort.claims(alpha)
    small = np.array([result.log_pvalue for result in cohort.results]) <= np.log(alpha)
    # Colours are those of groups in the panel beside this one.
    for chosen, filling, label in ((small, "full", f"p <= {alpha:g}"), (~small, "none", f"p > {alpha:g}")):
        style: dict[str, Any] = {"color": "black", "ms": 3.5, "alpha": 0.7, "fillstyle": filling}
        axes.plot(known.value[chosen], known.error[chosen], "o", label=label, **style)
    most = 1.08 * float(known.error.max())
    if "mean" in claims:
        mean, reach = claims["mean"].value, float(ndtri(1 - alpha / 2)) * most
        axes.plot([mean, mean], [0, most], color=drawing.GREY, lw=0.9, label="mean")
        limits, label = [mean - reach, mean, mean + reach], f"{100 * (1 - alpha):g}%, if all differ by it"
        axes.plot(limits, [most, 0, most], color=drawing.GREY, lw=0.9, ls="--", label=label)
    axes.set_ylim(most, 0)
    axes.set_ylabel("standard error, upper bound", size=SIZE)
    axes.set_title("estimates by their precision", size=SIZE + 1)
    drawing.legend_below(axes, 2, SIZE - 1)
    drawing.make_plain(axes, "difference, in units of the pixels", SIZE)
