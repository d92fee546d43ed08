"""Variations for the training of a classifier: of its images, and of its learning rate."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

WARM_UP = 0.05
"""Fraction of the training over which the learning rate rises, because the first steps of AdamW are too large."""


def augmented(inputs: Tensor, rng: np.random.Generator, *, shift: int, gain: float, black: float) -> Tensor:
    """Return inputs (m, 1, h, w) of which half are mirrored left to right, and all are moved and scaled.

    Parameters
    ----------
    inputs : (m, 1, h, w)
        Input of a model.
    rng
        Draws on the CPU, so that all devices get the same images.
    shift
        Largest number of pixels that an image is moved by in either direction; pixels that come in are black. Moves are
        by whole pixels, because interpolation would smooth the noise of the training images alone.
    gain
        Intensities above black are multiplied by a number between 1 - gain and 1 + gain.
    black
        The model's input for a black pixel.
    """
    count, _, height, width = inputs.shape
    mirrored = rng.random(count) < 0.5
    corner = rng.integers(0, 2 * shift + 1, (count, 2))
    factor = rng.uniform(1 - gain, 1 + gain, (count, 1, 1))
    rows = corner[:, :1] + np.arange(height)
    columns = corner[:, 1:] + np.where(mirrored[:, None], np.arange(width)[::-1], np.arange(width))
    padded = torch.nn.functional.pad(inputs[:, 0] - black, (shift,) * 4)
    images = torch.arange(count, device=inputs.device)
    rows_there, columns_there = (torch.from_numpy(index).to(inputs.device) for index in (rows, columns))
    varied = padded[images[:, None, None], rows_there[:, :, None], columns_there[:, None, :]]
    return (varied * torch.from_numpy(factor).to(inputs) + black).unsqueeze(1)


def warm_up_and_cosine(done: float) -> float:
    """Return the factor of the learning rate after a fraction of the training: a linear rise, then a cosine."""
    if done < WARM_UP:
        return (done + WARM_UP / 10) / (1.1 * WARM_UP)
    return 0.5 * (1 + math.cos(math.pi * (done - WARM_UP) / (1 - WARM_UP)))
