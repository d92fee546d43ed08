"""The grid of patches over the pixels of an image."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor

from attentest.errors import InputError

Placement: TypeAlias = tuple[tuple[float, float], tuple[float, float]]
"""(scale, offset) for rows and for columns: image coordinate y lies at y * scale + offset in the model's input."""

IDENTITY: Placement = ((1.0, 0.0), (1.0, 0.0))
"""The placement where the model's input is the image itself."""


@dataclass(frozen=True, kw_only=True)
class PatchAxis:
    """Patches along one axis of an image: which pixels they cover, and how scores are interpolated there.

    Parameters
    ----------
    start, stop
        Range of the pixels that the model sees, because patches cover them.
    cell : (n,)
        Number of patch centres before each pixel seen; pixels with the same number lie between the same two centres.
    matrix : (n, patches)
        Linear interpolation weights of the patches for each pixel seen; rows sum to one.
    """

    start: int
    stop: int
    cell: Tensor
    matrix: Tensor

    @classmethod
    def of(cls, pixels: int, patches: int, covered: float, scale: float, offset: float) -> PatchAxis:
        """Return an axis with ``patches`` over ``covered`` pixels of the input, and ``pixels`` of the image.

        Image coordinate y lies at y * scale + offset in the input.
        """
        centres = (torch.arange(pixels, dtype=torch.float64, device="cpu") + 0.5) * scale + offset
        seen = ((centres >= 0) & (centres <= covered)).nonzero().squeeze(1)
        if len(seen) == 0:
            raise InputError(
                f"the patches cover none of the image's {pixels} pixels along a side: the crop leaves nothing of it."
            )
        places = centres[seen] * (patches / covered) - 0.5
        left = places.floor()
        low = left.clamp(0, patches - 1).long()
        high = (left + 1).clamp(0, patches - 1).long()
        share = (places - left).unsqueeze(1)
        matrix = centres.new_zeros(len(seen), patches)
        matrix.scatter_add_(1, low.unsqueeze(1), 1 - share)
        matrix.scatter_add_(1, high.unsqueeze(1), share)
        return cls(start=int(seen[0]), stop=int(seen[-1]) + 1, cell=(left + 1).long(), matrix=matrix)

    def to(self, device: torch.device) -> PatchAxis:
        """Return a copy on a device."""
        return replace(self, cell=self.cell.to(device), matrix=self.matrix.to(device))


class PatchGrid:
    """A grid of patches over the pixels of an image; scores are interpolated bilinearly between patch centres.

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
    """

    def __init__(
        self,
        image_size: tuple[int, int],
        grid: tuple[int, int],
        covered: tuple[float, float] | None = None,
        placement: Placement = IDENTITY,
        device: torch.device | str = "cpu",
    ) -> None:
        self.image_size = image_size
        extent = image_size if covered is None else covered
        self.rows, self.columns = (
            PatchAxis.of(image_size[i], grid[i], extent[i], *placement[i]).to(torch.device(device)) for i in range(2)
        )

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the rectangle of pixels seen."""
        return self.rows.stop - self.rows.start, self.columns.stop - self.columns.start

    @property
    def seen(self) -> Tensor:
        """Which pixels (H, W) of the image are seen, bool."""
        return self.on_image(torch.ones(self.size, dtype=torch.bool, device="cpu"))

    def upsample(self, scores: Tensor) -> Tensor:
        """Return scores (m, gh, gw) interpolated at the pixels seen, (m, H', W')."""
        return self.rows.matrix @ scores @ self.columns.matrix.T

    def on_image(self, values: Tensor) -> Tensor:
        """Return values (..., H', W') of the pixels seen as values of the whole image (..., H, W), zero elsewhere."""
        whole = values.new_zeros(*values.shape[:-2], *self.image_size)
        whole[..., self.rows.start : self.rows.stop, self.columns.start : self.columns.stop] = values
        return whole
