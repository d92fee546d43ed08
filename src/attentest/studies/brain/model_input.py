"""What the classifier sees of a slice: its grey values, standardised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attentest.errors import InputError
from attentest.images.preprocessing import Preprocessing
from attentest.studies.brain.slices import SIDE

WHITE = 255


def checked_slices(images: Any) -> NDArray[np.uint8]:
    """Return slices (m, 64, 64) uint8 with m >= 1, or say what was received instead."""
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8:
        received = f"an array of {images.dtype}" if isinstance(images, np.ndarray) else type(images).__name__
        raise InputError(f"images must be an array of uint8, with values from 0 to {WHITE}, got {received}.")
    if images.ndim != 3 or images.shape[1:] != (SIDE, SIDE) or not len(images):
        raise InputError(
            f"images must have the shape (m, {SIDE}, {SIDE}) with at least one slice, got {images.shape}: resize them "
            "and put them in one array."
        )
    return images


def standardisation(images: NDArray[np.uint8]) -> dict[str, Any]:
    """Return the preprocessing that gives the pixels of slices mean 0 and variance 1.

    Parameters
    ----------
    images : (m, 64, 64) uint8
        The training slices.

    Returns
    -------
    dict
        As a ``preprocessor_config.json`` says it.
    """
    scaled = checked_slices(images) / WHITE
    mean, std = float(scaled.mean()), float(scaled.std())
    if std == 0:
        raise InputError(f"images must differ from pixel to pixel, but all are {images.flat[0]}: give real slices.")
    # One mean and one standard deviation for all slices, never those of the slice at hand: the map from pixels to the
    # model's input stays affine, with constants that no tested slice has a part in, and the p-values stay exact.
    return {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": False,
        "size": {"height": SIDE, "width": SIDE},
        "do_rescale": True,
        "rescale_factor": 1 / WHITE,
        "do_normalize": True,
        "image_mean": [mean],
        "image_std": [std],
    }


def model_input(images: NDArray[np.uint8], preprocessing: Mapping[str, Any]) -> Tensor:
    """Return the model's input (m, 1, 64, 64) float32 of slices (m, 64, 64), as `AttentionTest` makes it."""
    pixels = torch.tensor(checked_slices(images), dtype=torch.float64).unsqueeze(1)
    input_map = Preprocessing.from_processor(preprocessing).plan((1, SIDE, SIDE), 1, (0, WHITE))
    return input_map(pixels).float()


def black_level(preprocessing: Mapping[str, Any]) -> float:
    """Return what the model sees of a black pixel."""
    return float(model_input(np.zeros((1, SIDE, SIDE), np.uint8), preprocessing)[0, 0, 0, 0])
