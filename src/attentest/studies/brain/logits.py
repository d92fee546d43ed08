"""What a trained classifier says of slices."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from attentest.attention.device import usable_device
from attentest.errors import ModelError
from attentest.studies.brain.model_input import checked_slices, model_input
from attentest.training.classifier import TrainedModel, logits_of


def brain_logits(
    source: TrainedModel | str | Path, images: NDArray[np.uint8], device: torch.device | str = "cpu"
) -> NDArray[np.float32]:
    """Return the logits of slices: a tumour is more likely than not where they are positive.

    Parameters
    ----------
    source
        A trained model, or the directory of one.
    images : (m, 64, 64) uint8
        The slices, not standardised.
    device
        Where to compute.

    Returns
    -------
    logits : (m,) float32
    """
    images, device = checked_slices(images), usable_device(device)
    trained = source if isinstance(source, TrainedModel) else TrainedModel.read(source)
    if trained.preprocessing is None:
        raise ModelError("the classifier has no preprocessing, so it is none of slices: train it on slices.")
    model = copy.deepcopy(trained.model).to(device).eval()  # the caller's stays where it is
    return logits_of(model, model_input(images, trained.preprocessing)).numpy()
