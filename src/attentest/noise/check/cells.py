"""Averages over cells of an image, and the analysis of variance of a table of images by cells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attentest.noise.protocol import FloatArray

MOST_CELLS = 8
"""Most cells along a side."""

SMALLEST_CELL = 4
"""Least side of a cell in pixels, unless there would be fewer than two cells along the side."""


@dataclass(frozen=True)
class Cells:
    """A division of images (H, W) into rectangular cells.

    Parameters
    ----------
    rows, columns
        Where the cells begin along each side.
    shape
        Height and width of the images.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    shape: tuple[int, int]

    def means(self, values: FloatArray) -> FloatArray:
        """Return the means (..., cells) of images (..., H, W) over each cell."""
        sums = np.add.reduceat(np.add.reduceat(values, self.rows, axis=-2), self.columns, axis=-1)
        heights = np.diff([*self.rows, self.shape[0]])
        widths = np.diff([*self.columns, self.shape[1]])
        means = sums / (heights[:, None] * widths)
        return np.asarray(means.reshape(*values.shape[:-2], -1))

    def spread(self, values: FloatArray) -> FloatArray:
        """Return images (..., H, W) that have in each pixel the value (..., cells) of its cell."""
        grid = values.reshape(*values.shape[:-1], len(self.rows), len(self.columns))
        heights = np.diff([*self.rows, self.shape[0]])
        widths = np.diff([*self.columns, self.shape[1]])
        return np.asarray(np.repeat(np.repeat(grid, heights, axis=-2), widths, axis=-1))


def coarse_cells(shape: tuple[int, int]) -> Cells:
    """Return at most eight by eight cells of nearly the same size."""
    rows, columns = (_starts(side, min(MOST_CELLS, max(2, side // SMALLEST_CELL), side)) for side in shape)
    return Cells(rows, columns, shape)


def _starts(side: int, count: int) -> tuple[int, ...]:
    return tuple(int(start) for start in np.linspace(0, side, count + 1)[:-1])


@dataclass(frozen=True, kw_only=True)
class TwoWay:
    """Analysis of variance of a table (K, m): do its rows, or its columns, differ by more than its entries do?

    Parameters
    ----------
    rows, columns
        Mean square between rows, and between columns, divided by that of what remains.
    row_deviation, column_deviation
        Standard deviation of the effects of rows, and of columns, without the part that chance explains.
    """

    rows: float
    columns: float
    row_deviation: float
    column_deviation: float


def two_way(table: FloatArray) -> TwoWay:
    """Return the analysis of variance of a table (K, m), with at least two rows and two columns."""
    count, width = table.shape
    mean = table.mean()
    of_rows, of_columns = table.mean(axis=1) - mean, table.mean(axis=0) - mean
    rest = table - mean - of_rows[:, None] - of_columns
    between_rows = width * float(of_rows @ of_rows) / (count - 1)
    between_columns = count * float(of_columns @ of_columns) / (width - 1)
    within = float(np.vdot(rest, rest)) / ((count - 1) * (width - 1))
    floor = np.finfo(np.float64).tiny
    return TwoWay(
        rows=between_rows / max(within, floor),
        columns=between_columns / max(within, floor),
        row_deviation=float(np.sqrt(max(between_rows - within, 0.0) / width)),
        column_deviation=float(np.sqrt(max(between_columns - within, 0.0) / count)),
    )
