"""Noise models: the covariance Sigma of the paper's section 2 as an operator, never as an n x n array.

A noise model computes ``Sigma v`` (:meth:`NoiseModel.apply`) and draws noise (:meth:`NoiseModel.sample`). Pixels are
indexed in row-major order; for an image of C channels the vector is the (C, H, W) array flattened.

A covariance that is not known is estimated, from reference images (the estimators) or, approximately, from the tested
image itself (:func:`from_image`).
"""

from __future__ import annotations

from attentest.noise.ar1 import AR1
from attentest.noise.correlation import HasCorrelationLength, correlation_length, with_correlation_length
from attentest.noise.degrees_of_freedom import degrees_of_freedom
from attentest.noise.dense import DEFINITENESS_TOLERANCE, SYMMETRY_TOLERANCE, Dense
from attentest.noise.derived import Averaged, Estimated, NoiseLike, PerChannel, Scaled, as_noise, as_noise_or_maker
from attentest.noise.estimators import (
    AR1Covariance,
    NoiseEstimator,
    PixelVariance,
    PooledVariance,
    ShrunkCovariance,
    StationaryCovariance,
)
from attentest.noise.independent import Diagonal, Isotropic
from attentest.noise.locally_stationary import LocallyStationary, LocallyStationaryCovariance
from attentest.noise.model import (
    LARGEST_SIGMA,
    MOST_DRAWN,
    SMALLEST_SIGMA,
    ChecksImages,
    FitsNoise,
    FloatArray,
    ImageNoise,
    NoiseModel,
    check_noise,
)
from attentest.noise.noise_file import load_noise, save_noise
from attentest.noise.stationary import Stationary
from attentest.noise.tested_image import FromImage, OwnGain, from_image

__all__ = [
    "AR1",
    "DEFINITENESS_TOLERANCE",
    "LARGEST_SIGMA",
    "MOST_DRAWN",
    "SMALLEST_SIGMA",
    "SYMMETRY_TOLERANCE",
    "AR1Covariance",
    "Averaged",
    "ChecksImages",
    "Dense",
    "Diagonal",
    "Estimated",
    "FitsNoise",
    "FloatArray",
    "FromImage",
    "HasCorrelationLength",
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
    "PooledVariance",
    "Scaled",
    "ShrunkCovariance",
    "Stationary",
    "StationaryCovariance",
    "as_noise",
    "as_noise_or_maker",
    "check_noise",
    "correlation_length",
    "degrees_of_freedom",
    "from_image",
    "load_noise",
    "save_noise",
    "with_correlation_length",
]
