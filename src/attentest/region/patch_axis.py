"""Patches along one axis of an image, and the units along it of which regions consist: pixels, or whole patches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor

from attentest.errors import InputError

BORDER = 1e-9
"""Distance, in patches, at which a pixel centre lies on the border of two patches: rounding must not choose between
them."""


@dataclass(frozen=True, kw_only=True)
class PatchAxis:
    """Patches along one axis of an image: which pixels they cover, and the score of each unit of a region.

    Parameters
    ----------
    start, stop
        Range of the pixels that the model sees, because patches cover them.
    unit : (stop - start,)
        The unit that each pixel seen belongs to, in ascending order; each unit has a pixel.
    cell : (n,)
        Number of patch centres before each unit: along the axis, scores are linear over the units with the same number.
    matrix : (n, patches)
        Weights of the patches in the score of each unit; rows sum to one.
    """

    start: int
    stop: int
    unit: Tensor
    cell: Tensor
    matrix: Tensor

    @classmethod
    def of(cls, pixels: int, patches: int, covered: float, scale: float, offset: float, units: AxisUnits) -> PatchAxis:
        """Return an axis with ``patches`` over ``covered`` pixels of the input, and ``pixels`` of the image.

        Image coordinate y lies at y * scale + offset in the input.
        """
        centres = (torch.arange(pixels, dtype=torch.float64, device="cpu") + 0.5) * scale + offset
        seen = ((centres >= 0) & (centres <= covered)).nonzero().squeeze(1)
        if len(seen) == 0:
            raise InputError(
                f"the patches cover none of the image's {pixels} pixels along a side: the crop leaves nothing of it."
            )
        unit, cell, matrix = units(centres[seen] * (patches / covered), patches)
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
