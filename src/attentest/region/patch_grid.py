"""The grid of patches over the pixels of an image, and the units of which regions consist: pixels, or whole patches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attentest.errors import InputError
from attentest.registry import REGION_UNITS

BORDER = 1e-9
"""Distance, in patches, at which a pixel centre lies on the border of two patches: rounding must not choose between
them."""


@dataclass(frozen=True, kw_only=True)
class PatchAxis:
    """Patches along one axis of an image: which pixels they cover, and the score of each unit of a region."""

    start: int
    stop: int
    """Range of the pixels that the model sees, because patches cover them."""
    unit: Tensor
    """(stop - start,). The unit that each pixel seen belongs to, in ascending order; each unit has a pixel."""
    cell: Tensor
    """(n,). Number of patch centres before each unit: along the axis, scores are linear over the units with the same
    number."""
    matrix: Tensor
    """(n, patches). Weights of the patches in the score of each unit; rows sum to one."""

    @classmethod
    def of(
        cls, pixels: int, patches: int, covered: float, overlap: float, scale: float, offset: float, units: AxisUnits
    ) -> PatchAxis:
        """Return an axis with ``patches`` over ``covered`` pixels of the input, and ``pixels`` of the image.

        Neighbouring patches have ``overlap`` pixels in common. Image coordinate y lies at y * scale + offset in the
        input.
        """
        centres = (torch.arange(pixels, dtype=torch.float64, device="cpu") + 0.5) * scale + offset
        seen = ((centres >= 0) & (centres <= covered)).nonzero().squeeze(1)
        if len(seen) == 0:
            raise InputError(
                f"the patches cover none of the image's {pixels} pixels along a side: the crop leaves nothing of it."
            )
        # Counted in patches: the centre of the first is at 0.5, that of the next a step farther.
        places = (centres[seen] - overlap / 2) * (patches / (covered - overlap))
        unit, cell, matrix = units(places, patches)
        return cls(start=int(seen[0]), stop=int(seen[-1]) + 1, unit=unit, cell=cell, matrix=matrix)

    def to(self, device: torch.device) -> PatchAxis:
        """Return a copy on a device."""
        return replace(self, unit=self.unit.to(device), cell=self.cell.to(device), matrix=self.matrix.to(device))


AxisUnits: TypeAlias = Callable[[Tensor, int], tuple[Tensor, Tensor, Tensor]]
"""From the centres (n,) of the pixels seen, counted in patches, and the number of patches to the ``unit``, ``cell`` and
``matrix`` of a :class:`PatchAxis`."""


def interpolated_pixels(centres: Tensor, patches: int) -> tuple[Tensor, Tensor, Tensor]:
    """Let each pixel be a unit, with scores interpolated linearly between patch centres."""
    places = centres - 0.5
    left = places.floor()
    low = left.clamp(0, patches - 1).long()
    high = (left + 1).clamp(0, patches - 1).long()
    share = (places - left).unsqueeze(1)
    matrix = centres.new_zeros(len(centres), patches)
    matrix.scatter_add_(1, low.unsqueeze(1), 1 - share)
    matrix.scatter_add_(1, high.unsqueeze(1), share)
    return torch.arange(len(centres), device=centres.device), (left + 1).long(), matrix


def whole_patches(centres: Tensor, patches: int) -> tuple[Tensor, Tensor, Tensor]:
    """Let each patch that a pixel centre lies in be a unit; of two patches a centre on their border is in the later."""
    patch = (centres + BORDER).floor().clamp(0, patches - 1).long()
    used, unit = patch.unique(return_inverse=True)
    matrix = torch.nn.functional.one_hot(used, patches).to(centres.dtype)
    return unit, torch.arange(len(used), device=centres.device), matrix


Placement: TypeAlias = tuple[tuple[float, float], ...]
"""(scale, offset) for each axis: image coordinate y lies at y * scale + offset in the model's input."""

EVERY_ROW = slice(None)


class PatchGrid:
    """A grid of patches over the pixels of an image with one to three axes, and the units of which regions consist.

    The units are the pixels seen, with scores interpolated linearly between patch centres along each axis, or whole
    patches; where patches overlap, a pixel belongs to the one whose centre is nearest.

    An image of the sides ``image_size`` has ``grid`` patches along each axis. They cover a part of the model's input of
    the sides ``covered``, by default those of the image, and neighbouring ones have ``overlap`` pixels of it in common,
    by default none. The pixels of the image lie in the input where ``placement`` says, by default at their own places;
    the model does not see those outside the patches. Within a mask (*image_size) the map is looked at, by default
    everywhere, and a patch if at least half of its pixels are in it.
    """

    def __init__(
        self,
        image_size: tuple[int, ...],
        grid: tuple[int, ...],
        covered: tuple[float, ...] | None = None,
        placement: Placement | None = None,
        device: torch.device | str = "cpu",
        units: str = "pixels",
        overlap: tuple[float, ...] | None = None,
        mask: NDArray[np.bool_] | None = None,
    ) -> None:
        self.image_size = image_size
        self.units = units
        along = REGION_UNITS.load(units)
        self.grid = grid
        extent = image_size if covered is None else covered
        shared = (0.0,) * len(grid) if overlap is None else overlap
        places = ((1.0, 0.0),) * len(grid) if placement is None else placement
        self.axes = tuple(
            PatchAxis.of(image_size[i], grid[i], extent[i], shared[i], *places[i], along).to(torch.device(device))
            for i in range(len(grid))
        )
        self.looked = None if mask is None else self._looked(mask).to(torch.device(device))

    def _looked(self, mask: NDArray[np.bool_]) -> Tensor:
        """Return the units (*units) bool of which at least half of the pixels are in a mask; none is an error."""
        shares = torch.from_numpy(mask[self._seen].astype(np.float64))
        for number, axis in enumerate(self.axes):
            unit = axis.unit.cpu()
            counts = torch.bincount(unit).to(shares.dtype)
            sums = shares.new_zeros(*shares.shape[:number], len(counts), *shares.shape[number + 1 :])
            shares = sums.index_add_(number, unit, shares) / counts.reshape(-1, *[1] * (shares.ndim - number - 1))
        looked = shares >= 0.5
        if not bool(looked.any()):
            raise InputError(
                f"no {'pixel' if self.units == 'pixels' else 'patch'} that the model sees lies within the mask, so "
                "there is no map to look at: use another mask, or mask_use='contrast'.",
                "mask",
            )
        return looked

    @property
    def size(self) -> tuple[int, ...]:
        """Units along each axis."""
        return tuple(len(axis.matrix) for axis in self.axes)

    @property
    def seen(self) -> Tensor:
        """Which pixels of the image are seen, bool, on the CPU."""
        whole = torch.zeros(self.image_size, dtype=torch.bool, device="cpu")
        whole[self._seen] = True
        return whole

    @property
    def _seen(self) -> tuple[slice, ...]:
        return tuple(slice(axis.start, axis.stop) for axis in self.axes)

    @property
    def corners(self) -> tuple[NDArray[np.int64], ...]:
        """Places along each axis at which units begin, counted from the first that is seen."""
        return tuple(np.unique(axis.unit.cpu().numpy(), return_index=True)[1] for axis in self.axes)

    def unit_scores(self, scores: Tensor, rows: slice = EVERY_ROW) -> Tensor:
        """Return the scores (m, *units) of the units, or of some along the first axis, from those of patches.

        Units that are not looked at repeat the first one that is, which changes no extreme of those that are.
        """
        matrices = [axis.matrix for axis in self.axes]
        values = self._interpolated(scores, [matrices[0][rows], *matrices[1:]])
        if self.looked is None:
            return values
        first = (matrix[place : place + 1] for matrix, place in zip(matrices, self.looked.nonzero()[0], strict=True))
        return torch.where(self.looked[rows], values, self._interpolated(scores, first))

    def _interpolated(self, scores: Tensor, matrices: Iterable[Tensor]) -> Tensor:
        """Return the scores (m, *units) of the units that have the rows of some matrices, one along each axis."""
        for number, matrix in enumerate(matrices):
            scores = along_axis(matrix, scores, number - len(self.axes))
        return scores

    def repeated(self, values: Tensor) -> Tensor:
        """Return values (k, *units) of which those that are not looked at repeat the first one that is."""
        if self.looked is None:
            return values
        first = values[(slice(None), *self.looked.nonzero()[0])]
        return torch.where(self.looked, values, first.reshape(-1, *[1] * len(self.axes)))

    def on_image(self, values: Tensor) -> Tensor:
        """Return values (..., *units) of the units as values of the pixels (..., *axes), zero where none are seen.

        They are the values themselves, not a copy, where every pixel is a unit.
        """
        dimension = len(self.axes)
        if self.size == self.image_size == tuple(values.shape[-dimension:]):
            return values  # every pixel is a unit
        whole = values.new_zeros(*values.shape[:-dimension], *self.image_size)
        units = torch.meshgrid([axis.unit for axis in self.axes], indexing="ij")
        whole[(..., *self._seen)] = values[(..., *units)]  # type: ignore[index]  # typing takes ... for an object
        return whole


def along_axis(matrix: Tensor, values: Tensor, axis: int) -> Tensor:
    """Return the products of a matrix (m, n) with values along one of their axes, counted from the last, -1."""
    if axis == -1:
        return values @ matrix.T
    product: Tensor = (matrix @ values.flatten(axis + 1)).unflatten(-1, values.shape[axis + 1 :])
    return product
