"""Variations of a slice that leave its label what it is: mirrored, moved, brighter or darker."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attentest.checks import real_number, whole_number
from attentest.errors import InputError
from attentest.studies.brain.slices import SIDE


@dataclass(frozen=True, kw_only=True)
class SliceAugmentation:
    """Mirrors half of the slices left to right, moves each by whole pixels and scales its intensities.

    Parameters
    ----------
    shift
        Most pixels that a slice is moved by, in either direction; what comes in is black. Whole pixels, because
        interpolation would smooth the noise of the training slices alone.
    gain
        The intensities, counted from black, are multiplied by a number within 1 - gain and 1 + gain.
    black
        What the model sees of a black pixel.
    """

    shift: int
    gain: float
    black: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "shift", whole_number(self.shift, "shift", 0, SIDE // 2))
        object.__setattr__(self, "gain", real_number(self.gain, "gain"))
        if not 0 <= self.gain < 1:
            raise InputError(f"gain must lie in [0, 1), got {self.gain}.")

    def __call__(self, inputs: Tensor, rng: np.random.Generator) -> Tensor:
        """Return varied inputs.

        Parameters
        ----------
        inputs : (m, 1, h, w)
            What the model sees of the slices.
        rng
            Draws on the CPU, so that all devices see the same slices.

        Returns
        -------
        varied : (m, 1, h, w)
        """
        count, _, height, width = inputs.shape
        mirrored = rng.random(count) < 0.5
        corner = rng.integers(0, 2 * self.shift + 1, (count, 2))
        gain = rng.uniform(1 - self.gain, 1 + self.gain, (count, 1, 1))
        rows = corner[:, :1] + np.arange(height)
        columns = corner[:, 1:] + np.where(mirrored[:, None], np.arange(width)[::-1], np.arange(width))
        padded = torch.nn.functional.pad(inputs[:, 0] - self.black, (self.shift,) * 4)
        images = torch.arange(count, device=inputs.device)
        rows_there, columns_there = (torch.from_numpy(index).to(inputs.device) for index in (rows, columns))
        varied = padded[images[:, None, None], rows_there[:, :, None], columns_there[:, None, :]]
        return (varied * torch.from_numpy(gain).to(inputs) + self.black).unsqueeze(1)
