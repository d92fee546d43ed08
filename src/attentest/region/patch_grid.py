"""How the grid of patches lies over the pixels of an image."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor

from attentest.errors import InputError

Placement: TypeAlias = tuple[tuple[float, float], tuple[float, float]]
"""(scale, offset) for rows and for columns: an image coordinate y lies at y * scale + offset in the model's input."""

WHOLE: Placement = ((1.0, 0.0), (1.0, 0.0))
"""The model's input is the image."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One direction: which pixels the patches cover, and between which two patch centres each lies.

    Parameters
    ----------
    start, stop
        The pixels that are seen.
    cell : (n,)
        Patch centres to the left of each seen pixel; pixels of one cell lie between the same two.
    matrix : (n, patches)
        Bilinear weights of the patches for each seen pixel, rows summing to one.
    """

    start: int
    stop: int
    cell: Tensor
    matrix: Tensor

    @classmethod
    def of(cls, pixels: int, patches: int, covered: float, scale: float, offset: float) -> Axis:
        """Place ``patches`` over ``covered`` units of the model's input, and ``pixels`` by scale and offset."""
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

    def to(self, device: torch.device) -> Axis:
        """Return a copy on a device."""
        return replace(self, cell=self.cell.to(device), matrix=self.matrix.to(device))


class PatchGrid:
    """Attention of a grid of patches on the pixels of an image: bilinear, with half-pixel centres.

    Parameters
    ----------
    image_size
        The (H, W) of the image.
    grid
        Rows and columns of patches.
    covered
        Height and width of what the patches cover of the model's input; by default the image's.
    placement
        Where the image's pixels lie in the model's input; pixels outside the patches are not seen by the model.
    device
        Where the scores are.
    """

    def __init__(
        self,
        image_size: tuple[int, int],
        grid: tuple[int, int],
        covered: tuple[float, float] | None = None,
        placement: Placement = WHOLE,
        device: torch.device | str = "cpu",
    ) -> None:
        self.image_size = image_size
        extent = image_size if covered is None else covered
        self.rows, self.columns = (
            Axis.of(image_size[i], grid[i], extent[i], *placement[i]).to(torch.device(device)) for i in range(2)
        )

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the rectangle of pixels that are seen."""
        return self.rows.stop - self.rows.start, self.columns.stop - self.columns.start

    @property
    def seen(self) -> Tensor:
        """Which pixels (H, W) are seen, bool."""
        return self.on_image(torch.ones(self.size, dtype=torch.bool, device="cpu"))

    def upsample(self, scores: Tensor) -> Tensor:
        """Return scores (m, gh, gw) on the pixels that are seen, (m, H', W')."""
        return self.rows.matrix @ scores @ self.columns.matrix.T

    def on_image(self, values: Tensor) -> Tensor:
        """Return values (..., H', W') of the pixels that are seen on the whole image, (..., H, W), zero elsewhere."""
        whole = values.new_zeros(*values.shape[:-2], *self.image_size)
        whole[..., self.rows.start : self.rows.stop, self.columns.start : self.columns.stop] = values
        return whole
