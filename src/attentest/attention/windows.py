"""Windows of attention: the parts of a grid of tokens within which the tokens of a layer attend (Swin, Swin V2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad


@dataclass(frozen=True, kw_only=True, eq=False)
class Windows:
    """The windows of one layer, which may be shifted, and reach beyond the grid where that is no multiple of them.

    The attention of the layer as a matrix over all of its tokens has the weights within windows, and zeros elsewhere.
    Places beyond the grid have neither rows nor columns in it: nothing of the image is there.
    """

    grid: tuple[int, ...]
    """Rows and columns of the layer's tokens."""
    heads: int
    """Heads of the layer."""
    places: Tensor
    """(windows, n). The token at each place of each window; the number of tokens where there is none."""
    order: Tensor
    """(tokens,). Where each token is among all places, window after window."""

    def divided(self, values: Tensor) -> Tensor:
        """Return values (m, tokens, ...) by windows, (m * windows, n, ...), zero where there is no token."""
        padded = torch.cat([values, torch.zeros_like(values[:, :1])], dim=1)
        return padded[:, self.places].flatten(0, 1)

    def joined(self, values: Tensor) -> Tensor:
        """Return values by windows, (m * windows, n, ...), as values of the tokens, (m, tokens, ...)."""
        of_images: Tensor = values.unflatten(0, (-1, len(self.places)))
        return of_images.flatten(1, 2)[:, self.order]

    def mean_row(self, attention: Tensor) -> Tensor:
        """Return the row (m, tokens) that averages over tokens, for the attention (m * windows, n, n) of images."""
        tokens = math.prod(self.grid)
        return attention.new_full((len(attention) // len(self.places), tokens), 1.0 / tokens)

    def attended(self, row: Tensor, attention: Tensor) -> Tensor:
        """Return the product (m, tokens) of rows with the attention (m * windows, n, n) as a matrix over all tokens."""
        return self.joined((self.divided(row).unsqueeze(1) @ attention).squeeze(1))

    def before_merging(self, row: Tensor, merged: Windows) -> Tensor:
        """Return rows (m, merged tokens) as rows of this layer's tokens: one is the mean of the four it is made of."""
        if merged.grid == self.grid:
            return row
        height, width = self.grid
        on_grid: Tensor = row.unflatten(1, merged.grid)
        repeated = on_grid.repeat_interleave(2, dim=1).repeat_interleave(2, dim=2)
        return repeated[:, :height, :width].flatten(1) / 4


def windowed_rollout(attentions: Sequence[Tensor], windows: Sequence[Windows]) -> Tensor:
    """Return the mean row of the product of (A_l + I) over layers with windows, as a row of the first layer's tokens.

    Parameters
    ----------
    attentions : (m * windows, n, n) each
        Attention of the layers, first layer first, with the heads combined.
    windows
        Windows of the layers.

    Returns
    -------
    (m, tokens)
    """
    following = windows[-1]
    row = following.mean_row(attentions[-1])
    for attention, layer in zip(reversed(attentions), reversed(windows), strict=True):
        row = layer.before_merging(row, following)
        row = row + layer.attended(row, attention)
        following = layer
    return row


def windows_of_stages(
    stages: Sequence[Sequence[Any]],
    heads: Sequence[int],
    grid: tuple[int, int],
    device: torch.device,
    pads_first: bool,
) -> tuple[Windows, ...]:
    """Return the windows of the layers of a model, each of whose stages but the first merges two by two tokens.

    Parameters
    ----------
    stages
        The layers of each stage, which have a ``window_size`` and a ``shift_size``.
    heads
        Heads of the layers of each stage.
    grid
        Rows and columns of patches.
    device
        Where the model computes.
    pads_first
        Whether the grid is padded to whole windows before it is shifted, or after that.
    """
    windows = []
    for layers, count in zip(stages, heads, strict=True):
        windows += [_windows(grid, count, layer, device, pads_first) for layer in layers]
        grid = (grid[0] + 1) // 2, (grid[1] + 1) // 2
    return tuple(windows)


def _windows(grid: tuple[int, int], heads: int, layer: Any, device: torch.device, pads_first: bool) -> Windows:
    tokens = math.prod(grid)
    sides, shifts = (
        tuple(map(int, size)) if isinstance(size, (tuple, list)) else (int(size),) * 2
        for size in (layer.window_size, layer.shift_size)
    )
    numbers = torch.arange(tokens, device=device).unflatten(0, grid)
    beyond = [-length % side for length, side in zip(grid, sides, strict=True)]
    for padding in (pads_first, not pads_first):
        if padding:
            numbers = pad(numbers, (0, beyond[1], 0, beyond[0]), value=tokens)
        else:
            numbers = numbers.roll([-shift for shift in shifts], (0, 1))
    divided = numbers.unflatten(1, (-1, sides[1])).unflatten(0, (-1, sides[0]))
    places = divided.transpose(1, 2).flatten(2).flatten(0, 1)
    return Windows(grid=grid, heads=heads, places=places, order=places.flatten().argsort()[:tokens])
