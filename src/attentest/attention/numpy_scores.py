"""Raw attention scores from a plain NumPy function."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attentest.attention.score_function import MOST_TOGETHER
from attentest.checks import whole_number
from attentest.device import default_memory
from attentest.errors import InputError, ModelError

NumpyFunction: TypeAlias = Callable[[NDArray[np.float64]], NDArray[Any]]

DEFAULT_BATCH = 64

COPIES = 8
"""Arrays of the size of the images that a function is expected to need at a time."""


class NumpyScores:
    """A NumPy function from images (m, C, H, W) to scores (m, gh, gw), smooth in the pixels.

    It is called on the CPU and has no derivative, so the adaptive search cannot use it; the others can.
    """

    def __init__(
        self,
        function: NumpyFunction,
        image_shape: tuple[int, int, int],
        batch_size: int | None = None,
        memory_budget: int | None = None,
    ) -> None:
        try:
            channels, height, width = image_shape
        except (TypeError, ValueError):
            raise InputError(f"image_shape must be (channels, height, width), got {image_shape!r}.") from None
        self.image_shape = (
            whole_number(channels, "channels of image_shape", 1, 2**20),
            whole_number(height, "height of image_shape", 1, 2**20),
            whole_number(width, "width of image_shape", 1, 2**20),
        )
        self.device = torch.device("cpu")
        self.batch_size = self._batch_size(batch_size, memory_budget)
        self._function = function

    def _batch_size(self, batch_size: int | None, memory_budget: int | None) -> int:
        if batch_size is not None:
            return whole_number(batch_size, "batch_size", 1, MOST_TOGETHER)
        memory = default_memory(self.device) if memory_budget is None else memory_budget
        return int(min(DEFAULT_BATCH, max(1, memory // 2 // (COPIES * 8 * math.prod(self.image_shape)))))

    def __call__(self, images: Tensor) -> Tensor:
        """Return scores (m, gh, gw) of images (m, C, H, W)."""
        try:
            pixels = images.numpy().copy()  # the function may write into what it is given
        except RuntimeError:  # torch asks for a derivative
            raise ModelError("a NumPy score function has no derivative: the adaptive search cannot use it.") from None
        returned = self._function(pixels)
        try:
            scores = np.asarray(returned)
        except ValueError:
            raise ModelError("the score function must return an array, but it returned ragged lists.") from None
        if scores.dtype.kind not in "fiu":
            raise ModelError(f"the score function must return real numbers, but it returned {scores.dtype}.")
        return torch.from_numpy(np.array(scores, dtype=np.float64))
