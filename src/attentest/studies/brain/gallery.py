"""Pictures of some tested slices: with the MRI for the page at hand, and without it for what may be passed on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from attentest.api import AttentionTest
from attentest.errors import AttentestError, InputError
from attentest.results.plots import REGION_COLOUR, draw_outline, new_figure, short_pvalue
from attentest.results.result import AttentionTestResult
from attentest.studies.brain.cohort import Cohort
from attentest.studies.brain.condition import PAPER, Condition
from attentest.studies.brain.laboratory import SEARCH
from attentest.studies.brain.summary import CLASSES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COUNT = 12
"""Slices of each class that are shown."""

COLUMNS = 6

TUMOUR_COLOUR = "#f2c14e"

CELL = 1.9
"""Side of a picture in inches."""


class Tests(Protocol):
    """Sets up tests of slices, as `attentest.studies.brain.laboratory.Laboratory` does."""

    def attention_test(self, condition: Condition) -> AttentionTest:
        """Return the test of a condition."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Gallery:
    """Some slices of one class, and their results.

    Parameters
    ----------
    flair : (n, H, W) uint8
        The slices, at least one.
    mask : (n, H, W) bool
        Where the tumour is.
    results : (n,)
        Of each slice; None where it could not be tested.
    """

    flair: NDArray[np.uint8]
    mask: NDArray[np.bool_]
    results: tuple[AttentionTestResult | None, ...]

    def __post_init__(self) -> None:
        if not self.results or not len(self.flair) == len(self.mask) == len(self.results):
            raise InputError(
                "a gallery needs a slice, a mask and a result for each of at least one slice, got "
                f"{len(self.flair)}, {len(self.mask)} and {len(self.results)}."
            )


def gallery_results(laboratory: Tests, cohort: Cohort, count: int) -> dict[str, Gallery]:
    """Test the first slices of each class in the random order of the study under the paper's condition.

    Parameters
    ----------
    laboratory
        Sets up the test.
    cohort
        The slices.
    count
        How many of each class, at most.

    Returns
    -------
    dict
        Galleries by the names of the classes.
    """
    order = cohort.test_order()
    galleries = {}
    for name, tumour in CLASSES.items():
        chosen = cohort.slices.take(order[tumour][:count])
        if len(chosen):
            results = results_of_slices(laboratory, PAPER, list(chosen.flair))
            galleries[name] = Gallery(flair=chosen.flair, mask=chosen.mask, results=results)
    return galleries


def results_of_slices(
    laboratory: Tests, condition: Condition, images: list[NDArray[np.uint8]]
) -> tuple[AttentionTestResult | None, ...]:
    """Return the results of slices (H, W) under a condition; None for one that cannot be tested."""
    return _results(laboratory.attention_test(condition), images)


def _results(test: AttentionTest, images: list[NDArray[np.uint8]]) -> tuple[AttentionTestResult | None, ...]:
    """Return the results of slices; one that fails does not take the others with it."""
    try:
        return tuple(test.map(images))
    except AttentestError:  # about one of them; its picture says that it could not be tested
        if len(images) == 1:
            return (None,)
    return tuple(result for image in images for result in _results(test, [image]))


def gallery_counts(galleries: Mapping[str, Gallery]) -> dict[str, int]:
    """Return how many slices galleries show, for the summary."""
    return {name: len(gallery.results) for name, gallery in galleries.items()}


def gallery_figure(gallery: Gallery) -> Figure:
    """Draw slices, their attention maps, and the slices with region and tumour outlined. Not to be passed on."""
    blocks, columns = _shape(gallery)
    figure = new_figure(CELL * columns + 0.2, (3 * CELL + 0.5) * blocks)
    for block, part in enumerate(np.ravel(figure.subfigures(blocks, 1, squeeze=False))):
        panels = part.subplots(3, columns, squeeze=False)
        _clear(panels)
        for column in range(columns):
            index = block * columns + column
            if index >= len(gallery.results):
                continue
            result, flair = gallery.results[index], gallery.flair[index]
            plain, attention, outlined = panels[:, column]
            plain.set_title(_title(result), fontsize=8.5)
            for axes in (plain, outlined):
                axes.imshow(flair, cmap="gray", vmin=0, vmax=max(1, int(flair.max())), interpolation="nearest")
            _show_map(attention, result)
            draw_outline(outlined, gallery.mask[index], TUMOUR_COLOUR, 1.5)
            if result is not None:
                draw_outline(outlined, result.region, REGION_COLOUR, 1.5)
    return figure


def maps_figure(gallery: Gallery) -> Figure:
    """Draw attention maps with their regions outlined: neither slice nor tumour, so that it may be passed on."""
    blocks, columns = _shape(gallery)
    figure = new_figure(CELL * columns + 0.2, (CELL + 0.5) * blocks)
    panels = figure.subplots(blocks, columns, squeeze=False)
    _clear(panels)
    for axes, result in zip(np.ravel(panels), gallery.results, strict=False):  # the last row may have empty places
        axes.set_title(_title(result), fontsize=8.5)
        _show_map(axes, result)
        if result is not None:
            draw_outline(axes, result.region, REGION_COLOUR, 1.5)
    return figure


def _shape(gallery: Gallery) -> tuple[int, int]:
    count = len(gallery.results)
    columns = min(count, COLUMNS)
    return -(-count // columns), columns


def _clear(panels: NDArray[Any]) -> None:
    for axes in np.ravel(panels):
        axes.set_axis_off()


def _show_map(axes: Axes, result: AttentionTestResult | None) -> None:
    if result is None:
        return
    axes.imshow(result.attention, cmap="viridis", vmin=0, vmax=1, interpolation="nearest")


def _title(result: AttentionTestResult | None) -> str:
    if result is None:
        return "could not\nbe tested"
    selective = f"< {SEARCH.tol:.0e}" if result.pvalue < SEARCH.tol else short_pvalue(result.pvalue)
    return f"naive p {short_pvalue(result.naive_pvalue)}\nselective p {selective}"
