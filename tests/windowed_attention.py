"""Attention of windows as matrices over all tokens, filled entry by entry, and their full products: slow and plain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from families import with_random_weights


@dataclass(frozen=True)
class SlowLayer:
    """The grid, the windows and the shift of one layer."""

    grid: tuple[int, int]
    window: tuple[int, int]
    shift: tuple[int, int]
    pads_first: bool

    def token(self, row: int, column: int) -> int | None:
        """The token at a place of the padded and shifted grid, None for padding."""
        place = []
        for at, side, window, shift in zip((row, column), self.grid, self.window, self.shift, strict=True):
            padded = -(-side // window) * window
            # The place that was shifted to this one; padding is shifted too, or comes after the shift.
            length = padded if self.pads_first else side
            origin = (at + shift) % length
            if at >= length or origin >= side:
                return None
            place.append(origin)
        return place[0] * self.grid[1] + place[1]

    def tokens_of_windows(self) -> list[list[int | None]]:
        """The tokens of each window, row by row."""
        rows, columns = (-(-side // window) for side, window in zip(self.grid, self.window, strict=True))
        height, width = self.window
        return [
            [self.token(a * height + i, b * width + j) for i in range(height) for j in range(width)]
            for a in range(rows)
            for b in range(columns)
        ]

    def scattered(self, weights: Tensor) -> Tensor:
        """The matrix (N, N) of one image of attention weights (windows, n, n)."""
        count = self.grid[0] * self.grid[1]
        matrix = np.zeros((count, count))
        values = weights.detach().numpy()
        for window, tokens in enumerate(self.tokens_of_windows()):
            for i, query in enumerate(tokens):
                for j, key in enumerate(tokens):
                    if query is not None and key is not None:
                        matrix[query, key] += values[window, i, j]
        return torch.from_numpy(matrix)

    def tokens(self, values: Tensor) -> Tensor:
        """Values (N, ...) of the tokens of one image, from those of windows, (windows, n, ...)."""
        found = torch.zeros(self.grid[0] * self.grid[1], *values.shape[2:], dtype=values.dtype)
        for window, tokens in enumerate(self.tokens_of_windows()):
            for place, token in enumerate(tokens):
                if token is not None:
                    found[token] = values[window, place]
        return found


def merging(fine: tuple[int, int], coarse: tuple[int, int]) -> Tensor:
    """The matrix (coarse tokens, fine tokens) that averages two by two tokens."""
    matrix = torch.zeros(coarse[0] * coarse[1], fine[0] * fine[1], dtype=torch.float64)
    for row in range(fine[0]):
        for column in range(fine[1]):
            matrix[(row // 2) * coarse[1] + column // 2, row * fine[1] + column] = 0.25
    return matrix


Fusion = Callable[[Tensor], Tensor]


def mean_of_heads(weights: Tensor) -> Tensor:
    """From (windows, heads, n, n) to (windows, n, n)."""
    return weights.mean(dim=1)


def matrices(weights: Tensor, layer: SlowLayer, images: int, fusion: Fusion = mean_of_heads) -> list[Tensor]:
    """The matrix of each image, from weights (images * windows, heads, n, n)."""
    return [layer.scattered(fusion(part)) for part in weights.unflatten(0, (images, -1))]


def slow_rollout(matrices_of_layers: list[list[Tensor]], layers: list[SlowLayer]) -> Tensor:
    """The mean row of the full product of all (A + I) and all merging matrices, last first, on the first grid."""
    maps = []
    for image in range(len(matrices_of_layers[0])):
        product = torch.eye(len(matrices_of_layers[0][image]), dtype=torch.float64)
        grid = layers[0].grid
        for layer, of_images in zip(layers, matrices_of_layers, strict=True):
            if layer.grid != grid:
                product, grid = merging(grid, layer.grid) @ product, layer.grid
            product = (of_images[image] + torch.eye(len(product), dtype=torch.float64)) @ product
        maps.append(product.mean(dim=0).unflatten(0, layers[0].grid))
    return torch.stack(maps)


def slow_layers(blocks: list[list[Any]], grid: tuple[int, int], pads_first: bool) -> list[SlowLayer]:
    """The layers of stages of blocks, after a forward pass that set their sizes."""

    def sides(size: Any) -> tuple[int, int]:
        return (size[0], size[1]) if isinstance(size, (tuple, list)) else (int(size), int(size))

    layers = []
    for number, stage in enumerate(blocks):
        at = tuple(-(-side // 2**number) for side in grid)
        layers += [
            SlowLayer((at[0], at[1]), sides(block.window_size), sides(block.shift_size), pads_first) for block in stage
        ]
    return layers


def with_clear_attention(model: Any, seed: int = 0) -> Any:
    """A model with random weights, whose logits are neither all alike nor so large that a softmax is a maximum."""
    made = with_random_weights(model, seed)
    for name, parameter in made.named_parameters():
        if "logit_scale" in name:
            parameter.data = 1.0 + parameter.data.abs()
    return made
