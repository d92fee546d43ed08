"""Noise models: the covariance Sigma of the paper's section 2 as an operator, never as an n x n array.

A noise model computes ``Sigma v`` (:meth:`NoiseModel.apply`), draws noise (:meth:`NoiseModel.sample`) and says all else
that there is to know about itself (:class:`BaseNoise`). Pixels are indexed in row-major order; for an image of C
channels the vector is the (C, *axes) array flattened.

A covariance that is not known is estimated, from reference images (the estimators) or, approximately, from the tested
image itself (:func:`from_image`).
"""

from __future__ import annotations

from attentest.noise.correlated import AR1, ARAlong, Dense, Diagonal, Isotropic
from attentest.noise.derived import Averaged, Estimated, NoiseLike, PerChannel, Scaled, as_noise
from attentest.noise.estimators import (
    AR1Covariance,
    AutomaticCovariance,
    LocallyStationaryCovariance,
    NoiseEstimator,
    PixelVariance,
    PooledVariance,
    ShrunkCovariance,
    StationaryCovariance,
)
from attentest.noise.model import BaseNoise, FitsNoise, FloatArray, ImageNoise, NoiseModel
from attentest.noise.noise_file import load_noise, save_noise
from attentest.noise.stationary import LocallyStationary, Stationary
from attentest.noise.tested_image import FromImage, OwnGain, Poisson, from_image

__all__ = [
    "AR1",
    "AR1Covariance",
    "ARAlong",
    "AutomaticCovariance",
    "Averaged",
    "BaseNoise",
    "Dense",
    "Diagonal",
    "Estimated",
    "FitsNoise",
    "FloatArray",
    "FromImage",
    "ImageNoise",
    "Isotropic",
    "LocallyStationary",
    "LocallyStationaryCovariance",
    "NoiseEstimator",
    "NoiseLike",
    "NoiseModel",
    "OwnGain",
    "PerChannel",
    "PixelVariance",
    "Poisson",
    "PooledVariance",
    "Scaled",
    "ShrunkCovariance",
    "Stationary",
    "StationaryCovariance",
    "as_noise",
    "from_image",
    "load_noise",
    "save_noise",
]
