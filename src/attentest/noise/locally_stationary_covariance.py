"""Estimator of noise with a variance that changes over the image and a correlation that depends on the lag."""

from __future__ import annotations

import numpy as np

from attentest.checks import positive_number
from attentest.noise.estimators import EQUAL_GAIN, NoiseEstimator
from attentest.noise.local_variance import default_smoothing, smoothed_variance
from attentest.noise.locally_stationary import LocallyStationary
from attentest.noise.model import NoiseModel
from attentest.noise.per_channel import PerChannel
from attentest.noise.reference_images import ReferenceImages
from attentest.noise.stationary_correlation import checked_max_lag


class LocallyStationaryCovariance(NoiseEstimator):
    """A standard deviation that changes slowly over the image, and a correlation that depends on the lag only.

    The variances of pixels are smoothed; the correlation is that of the residuals divided by the standard deviations.
    Pixels that have the same value in all reference images are left out and have no noise. The model is a
    LocallyStationary; for colour images a PerChannel of LocallyStationary, with one field for all channels.

    Parameters
    ----------
    smoothing
        Standard deviation in pixels of the Gaussian that the variances are smoothed with. By default the least for
        which the variance at a pixel has 100 degrees of freedom, a relative error of 14%, but at most a quarter of the
        shorter side: the more images there are and the shorter correlations are, the less.
    max_lag
        See :class:`StationaryCovariance`.
    gain
        "equal" or "per-image", see :class:`NoiseEstimator`.
    """

    ignore_constant = True

    def __init__(self, smoothing: float | None = None, max_lag: int | None = None, *, gain: str = EQUAL_GAIN) -> None:
        super().__init__(gain=gain)
        self.smoothing = None if smoothing is None else positive_number(smoothing, "smoothing")
        self.max_lag = checked_max_lag(max_lag)

    def _estimate(self, reference: ReferenceImages) -> NoiseModel:
        varying = reference.without_constant_pixels()
        planes = varying.standard_planes
        channels, shape = planes.shape[1], planes.shape[2:]
        degrees = (reference.count - 1) * channels
        smoothing = self.smoothing
        if smoothing is None:
            smoothing = default_smoothing(varying.correlation(planes, self.max_lag), degrees, shape)
        variance = smoothed_variance((planes**2).sum(axis=(0, 1)) / degrees, varying.used, smoothing)
        deviations = np.sqrt(variance)
        standard = np.divide(planes, deviations, out=np.zeros_like(planes), where=varying.used)
        correlation = varying.correlation(standard, self.max_lag)
        covariance = varying.channel_covariance
        if covariance.size == 1:
            return LocallyStationary(float(np.sqrt(covariance[0, 0])) * deviations, correlation)
        return PerChannel(covariance, LocallyStationary(deviations, correlation))
