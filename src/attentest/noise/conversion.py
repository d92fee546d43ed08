"""Conversion of a number, a model or a fitted estimator to a noise model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from attentest.errors import NOISE_GUIDE, InputError
from attentest.noise.estimated import Estimated
from attentest.noise.isotropic import Isotropic
from attentest.noise.model import FitsNoise, ImageNoise, NoiseModel

NoiseLike: TypeAlias = "NoiseModel | FitsNoise | float"


@runtime_checkable
class RecordsEstimation(Protocol):
    """An estimator that says how it estimated its noise model."""

    def record(self) -> Mapping[str, Any]:
        """Return the name of the estimator, the number of images and its parameters as JSON-ready values."""


def as_noise(noise: NoiseLike) -> NoiseModel:
    """Return a noise model as it is, that of a fitted estimator, or independent noise of a standard deviation."""
    if isinstance(noise, (int, float, np.integer, np.floating)) and not isinstance(noise, bool):
        return Isotropic(noise)
    if isinstance(noise, NoiseModel) and not isinstance(noise, type):
        return noise
    if isinstance(noise, FitsNoise) and not isinstance(noise, type):
        return _fitted(noise)
    if isinstance(noise, ImageNoise) and not isinstance(noise, type):
        raise InputError(
            f"one noise model for all images is needed here, but {type(noise).__name__} makes one per image: "
            "call its for_image(pixels) with the image's (C, H, W) pixels."
        )
    raise InputError(
        f"noise must be a standard deviation, or a model or a fitted estimator from attentest.noise, "
        f"got {type(noise).__name__}: see {NOISE_GUIDE}."
    )


def as_noise_or_maker(noise: NoiseLike | ImageNoise) -> NoiseModel | ImageNoise:
    """Return a noise model, or an estimator of the noise from each image as it is."""
    if isinstance(noise, ImageNoise) and not isinstance(noise, (type, NoiseModel)):
        return noise
    return as_noise(noise)  # type: ignore[arg-type]  # raises an error for a class


def _fitted(estimator: FitsNoise) -> NoiseModel:
    name = type(estimator).__name__
    model = getattr(estimator, "noise_", None)
    if model is None:
        raise InputError(f"this {name} is not fitted yet: call its fit(images) with reference images first.")
    if not isinstance(model, NoiseModel):
        raise InputError(f"the noise_ of a fitted {name} must be a noise model, got {type(model).__name__}.")
    if isinstance(model, Estimated):
        return model
    if isinstance(estimator, RecordsEstimation):
        return Estimated(model, estimator.record())
    return Estimated(model, {"estimator": name, "images": getattr(estimator, "n_images_", None)})
