"""Resizing as a matrix: the linear map behind Pillow's and torch's resampling, in float64 and without rounding."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attentest.checks import whole_number
from attentest.errors import InputError

LARGEST_SIZE = 2**14  # longest side of a resized image: the dense matrices of longer sides would not fit in memory


def resize_matrix(size_in: int, size_out: int, interpolation: str, antialias: bool = True) -> Tensor:
    """Return the matrix (size_out, size_in), float64, that resizes one axis of an image; its rows sum to one.

    With ``antialias`` the interpolation is a filter of Pillow's ``Image.resize``, "nearest", "box", "bilinear",
    "hamming", "bicubic" (a = -0.5) or "lanczos", which is widened when the image shrinks; without, it samples points,
    as a mode of ``torch.nn.functional.interpolate``: "nearest", "bilinear" or "bicubic" (a = -0.75).
    """
    check_interpolation(interpolation, antialias)
    before = whole_number(size_in, "the size before resizing", 1, 2**31)
    after = whole_number(size_out, "the size after resizing", 1, LARGEST_SIZE)
    if before == after:
        # Both libraries do not change such an axis; the filters would change it by rounding.
        return torch.eye(before, dtype=torch.float64)
    sample = _POINT_SAMPLERS.get(interpolation) if not antialias else None
    if sample is not None:
        taps, weights = sample(before, after)
    elif interpolation == "nearest":
        taps, weights = _nearest_by_centre(before, after)
    else:
        taps, weights = _filtered(before, after, *_FILTERS[interpolation])
    return torch.zeros(after, before, dtype=torch.float64).scatter_add_(1, taps, weights)


def check_interpolation(interpolation: str, antialias: bool) -> None:
    """Check that an interpolation exists, with or without antialiasing."""
    if not isinstance(antialias, bool):
        raise InputError(f"antialias must be True or False, got {antialias!r}.")
    if not isinstance(interpolation, str) or interpolation not in INTERPOLATIONS:
        raise InputError(f"interpolation must be one of {', '.join(INTERPOLATIONS)}, got {interpolation!r}.")
    if not antialias and interpolation not in _POINT_SAMPLERS:
        raise InputError(
            f"interpolation without antialias must be one of {', '.join(_POINT_SAMPLERS)}, got {interpolation!r}: "
            "set antialias=True."
        )


def _filtered(before: int, after: int, support: float, response: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """Return the taps and weights (after, k) of Pillow's windows, which shrink at the borders."""
    scale = before / after
    stretch = max(scale, 1.0)
    reach = support * stretch
    centres = _centres(before, after)
    first = (centres - reach + 0.5).trunc().clamp(min=0).long()
    end = (centres + reach + 0.5).trunc().clamp(max=before).long()
    taps = first.unsqueeze(1) + torch.arange(2 * math.ceil(reach) + 1)
    # Multiplied by 1 / stretch, as in Pillow: this rounding decides whether a pixel on the edge of a box counts.
    weights = response((taps - centres.unsqueeze(1) + 0.5) * (1.0 / stretch))
    weights = torch.where(taps < end.unsqueeze(1), weights, 0.0)
    return taps.clamp(max=before - 1), weights / weights.sum(dim=1, keepdim=True)


def _nearest_by_centre(before: int, after: int) -> tuple[Tensor, Tensor]:
    """Return the old pixel under the centre of each new one; positions are accumulated, as in Pillow."""
    steps = torch.full((after,), before / after, dtype=torch.float64)
    steps[0] *= 0.5
    return _single_tap(steps.cumsum(dim=0).long(), before)


def _nearest_by_corner(before: int, after: int) -> tuple[Tensor, Tensor]:
    """Return the old pixel under the upper left corner of each new one, as torch does for float64 images."""
    return _single_tap(torch.arange(after) * before // after, before)


def _single_tap(taps: Tensor, before: int) -> tuple[Tensor, Tensor]:
    return taps.clamp(max=before - 1).unsqueeze(1), torch.ones(len(taps), 1, dtype=torch.float64)


def _bilinear_points(before: int, after: int) -> tuple[Tensor, Tensor]:
    position = (_centres(before, after) - 0.5).clamp(min=0)
    low = position.floor()
    taps = low.long().unsqueeze(1) + torch.arange(2)
    part = position - low
    return taps.clamp(max=before - 1), torch.stack([1 - part, part], dim=1)


def _bicubic_points(before: int, after: int) -> tuple[Tensor, Tensor]:
    position = _centres(before, after) - 0.5
    taps = position.floor().long().unsqueeze(1) + torch.arange(-1, 3)
    return taps.clamp(0, before - 1), _cubic(taps - position.unsqueeze(1), a=-0.75)


def _centres(before: int, after: int) -> Tensor:
    """Return the centres of the new pixels in units of the old ones, whose edges are whole numbers."""
    return (torch.arange(after, dtype=torch.float64) + 0.5) * (before / after)


def _cubic(x: Tensor, a: float = -0.5) -> Tensor:
    x = x.abs()
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return torch.where(x < 1, near, torch.where(x < 2, far, 0.0))


_FILTERS: dict[str, tuple[float, Callable[[Tensor], Tensor]]] = {
    "box": (0.5, lambda x: ((x > -0.5) & (x <= 0.5)).double()),
    "bilinear": (1.0, lambda x: (1 - x.abs()).clamp(min=0)),
    "hamming": (1.0, lambda x: torch.where(x.abs() < 1, torch.sinc(x) * (0.54 + 0.46 * torch.cos(math.pi * x)), 0.0)),
    "bicubic": (2.0, _cubic),
    "lanczos": (3.0, lambda x: torch.where(x.abs() < 3, torch.sinc(x) * torch.sinc(x / 3), 0.0)),
}
"""Support and response of Pillow's filters."""

_POINT_SAMPLERS: dict[str, Callable[[int, int], tuple[Tensor, Tensor]]] = {
    "nearest": _nearest_by_corner,
    "bilinear": _bilinear_points,
    "bicubic": _bicubic_points,
}

INTERPOLATIONS = ("nearest", *_FILTERS)  # names of the interpolations, as Pillow and torch call them


def checked_side(value: Any, name: str) -> int:
    """Return the length of a side in pixels."""
    return whole_number(value, name, 1, LARGEST_SIZE)


AXES = {1: ("length",), 2: ("height", "width"), 3: ("depth", "height", "width")}
"""Names of the sides of a signal, an image and a volume."""


def checked_pair(value: Any, name: str) -> tuple[int, int]:
    """Return (height, width) in pixels."""
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        raise InputError(f"{name} must be a pair (height, width), got {value!r}.")
    height, width = checked_sides(value, name)
    return height, width


def checked_sides(value: Any, name: str) -> tuple[int, ...]:
    """Return the sides of a signal (length), an image (height, width) or a volume (depth, height, width)."""
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) not in AXES:
        raise InputError(f"{name} must be a pair (height, width), or one or three sides, got {value!r}.")
    return tuple(
        checked_side(side, f"the {axis} of {name}") for side, axis in zip(value, AXES[len(value)], strict=True)
    )


ROWS_TOGETHER = 16
"""Rows in a block. A block takes the columns that any of its rows needs: fewer rows leave fewer zeros in it, and more
blocks. From 2000 x 3000 to 224 x 224 pixels, 4 to 16 rows take a ninth of the time of the whole matrix."""


@dataclass(frozen=True, eq=False)
class BandMatrix:
    """A matrix (m, n) in blocks of rows, each with the columns between its first and last entry that is not zero."""

    blocks: tuple[tuple[int, Tensor], ...]
    """The first column and the entries (rows, columns) of each block."""

    @classmethod
    def of(cls, matrix: Tensor) -> BandMatrix:
        """Return a matrix (m, n) in blocks; rows of zeros have a block without columns."""
        blocks = []
        for rows in matrix.split(ROWS_TOGETHER):
            used = rows.any(dim=0).nonzero().flatten()
            first, end = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 0)
            blocks.append((first, rows[:, first:end].contiguous()))
        return cls(tuple(blocks))

    def along(self, values: Tensor, axis: int) -> Tensor:
        """Return the products with values along one of their axes, counted from the last, -1."""
        if axis == -1:
            parts = [values[..., first : first + block.shape[1]] @ block.T for first, block in self.blocks]
            return torch.cat(parts, dim=-1)
        following = values.shape[axis + 1 :]
        columns = values.flatten(axis + 1)
        parts = [block @ columns[..., first : first + block.shape[1], :] for first, block in self.blocks]
        product: Tensor = torch.cat(parts, dim=-2).unflatten(-1, following)
        return product

    def to(self, device: torch.device | str) -> BandMatrix:
        """Return a copy on a device."""
        return BandMatrix(tuple((first, block.to(device)) for first, block in self.blocks))
