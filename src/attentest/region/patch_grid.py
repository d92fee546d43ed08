"""The grid of patches over the pixels of an image."""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor

from attentest.region.patch_axis import PatchAxis
from attentest.registry import REGION_UNITS

Placement: TypeAlias = tuple[tuple[float, float], tuple[float, float]]
"""(scale, offset) for rows and for columns: image coordinate y lies at y * scale + offset in the model's input."""

IDENTITY: Placement = ((1.0, 0.0), (1.0, 0.0))
"""The placement where the model's input is the image itself."""

EVERY_ROW = slice(None)


class PatchGrid:
    """A grid of patches over the pixels of an image, and the units of which regions consist.

    The units are the pixels seen, with scores interpolated bilinearly between patch centres, or whole patches.

    Parameters
    ----------
    image_size
        The (H, W) of the image.
    grid
        Rows and columns of patches.
    covered
        Height and width of the part of the model's input that the patches cover; by default those of the image.
    placement
        Where the pixels of the image lie in the model's input. The model does not see pixels outside the patches.
    device
        Device of the scores.
    units
        Name of the units: "pixels" or "patches".
    """

    def __init__(
        self,
        image_size: tuple[int, int],
        grid: tuple[int, int],
        covered: tuple[float, float] | None = None,
        placement: Placement = IDENTITY,
        device: torch.device | str = "cpu",
        units: str = "pixels",
    ) -> None:
        self.image_size = image_size
        self.units = units
        along = REGION_UNITS.load(units)
        extent = image_size if covered is None else covered
        self.rows, self.columns = (
            PatchAxis.of(image_size[i], grid[i], extent[i], *placement[i], along).to(torch.device(device))
            for i in range(2)
        )

    @property
    def size(self) -> tuple[int, int]:
        """Rows H' and columns W' of units."""
        return len(self.rows.matrix), len(self.columns.matrix)

    @property
    def seen(self) -> Tensor:
        """Which pixels (H, W) of the image are seen, bool, on the CPU."""
        whole = torch.zeros(self.image_size, dtype=torch.bool, device="cpu")
        whole[self._seen] = True
        return whole

    @property
    def _seen(self) -> tuple[slice, slice]:
        return slice(self.rows.start, self.rows.stop), slice(self.columns.start, self.columns.stop)

    def unit_scores(self, scores: Tensor, rows: slice = EVERY_ROW) -> Tensor:
        """Return the scores (m, H', W') of the units, or of some rows of them, from those of patches (m, gh, gw)."""
        return self.rows.matrix[rows] @ scores @ self.columns.matrix.T

    def on_image(self, values: Tensor) -> Tensor:
        """Return values (..., H', W') of the units as values of the pixels (..., H, W), zero where none are seen.

        They are the values themselves, not a copy, where every pixel is a unit.
        """
        if self.size == self.image_size == tuple(values.shape[-2:]):
            return values  # every pixel is a unit
        whole = values.new_zeros(*values.shape[:-2], *self.image_size)
        whole[..., *self._seen] = values[..., self.rows.unit[:, None], self.columns.unit]
        return whole
