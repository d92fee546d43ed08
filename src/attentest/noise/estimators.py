"""Estimators of the noise from independent reference images, with the interface of scikit-learn.

>>> noise = StationaryCovariance().fit(reference_images).noise_
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from attentest.checks import positive_number, whole_number
from attentest.errors import InputError, speaking_of, worded
from attentest.markup import definition_table
from attentest.noise.correlated import AR1, ARAlong, Dense, Diagonal, Isotropic
from attentest.noise.derived import PerChannel, as_noise
from attentest.noise.model import AXIS_LETTERS, FloatArray, NoiseModel, complete, shown_record
from attentest.noise.reference_images import ReferenceImages, reference_images, varying_pixels
from attentest.noise.residuals import checked_max_lag, equal_strength, stationary_correlation
from attentest.noise.stationary import LocallyStationary, Stationary, default_smoothing

if TYPE_CHECKING:
    from attentest.images.sample import ImageLike

LARGEST_DENSE = 4096
"""Largest number of values per image for a full covariance: 64 x 64 grey pixels, a matrix of 128 MiB."""

CORRELATION_ROUNDING = 1e-9  # a correlation closer to 1 than this is 1 up to rounding error

EQUAL_GAIN, PER_IMAGE_GAIN = "equal", "per-image"
"""Whether reference images are taken as they are, or divided by a gain of their own each."""


class NoiseEstimator(ABC):
    """Base class of the estimators.

    Parameters
    ----------
    gain
        "equal" for reference images with the same mean. "per-image" for images of one scene that differ by a factor as
        well, such as exposures of different lengths: each is divided by its gain against the mean of all, and the
        noise is that of an image with the median gain, which is then 1. For a tested image with another gain g, Sigma
        is g^2 times that; :class:`OwnGain` estimates g.

    Attributes
    ----------
    noise_
        The noise model, after fitting.
    mean_ : (C, *axes)
        Mean of the images, each divided by its gain.
    gains_ : (K,)
        Gains of the images; ones if they were taken as equal.
    n_images_
        Number of images.
    """

    LEAST_IMAGES: ClassVar[int] = 2
    LEAST_REASON: ClassVar[str] = "because noise is estimated from the differences between images"

    gain: str = EQUAL_GAIN
    noise_: NoiseModel
    mean_: FloatArray
    gains_: FloatArray
    n_images_: int
    _used_share: float

    def __init__(self, *, gain: str = EQUAL_GAIN) -> None:
        if gain not in (EQUAL_GAIN, PER_IMAGE_GAIN):
            raise InputError(f"gain must be {EQUAL_GAIN!r} or {PER_IMAGE_GAIN!r}, got {gain!r}.", "gain")
        self.gain = gain

    def fit(self, images: Iterable[ImageLike], dimension: int | None = None) -> Self:
        """Estimate the noise from independent images of one shape and the same mean, and return the estimator.

        Parameters
        ----------
        images
            The images: signals (T,) or (C, T), images (H, W) or (H, W, C), volumes (D, H, W) or (C, D, H, W), such as
            the repeats of a functional volume.
        dimension
            Number of axes, 1 of signals, 2 of images, 3 of volumes; by default 1 if the first image is an array (T,),
            3 if it is (C, D, H, W), and otherwise 2.
        """
        if dimension is not None:
            dimension = whole_number(dimension, "dimension", 1, len(AXIS_LETTERS))
        ignore_constant = getattr(self, "ignore_constant", False)
        reference = reference_images(
            images, self.LEAST_IMAGES, self.LEAST_REASON, self.gain == PER_IMAGE_GAIN, ignore_constant, dimension
        )
        with speaking_of(reference.used.ndim):
            self.noise_ = self._estimate(reference)
        self._used_share = float(reference.used.mean())
        self.mean_, self.gains_, self.n_images_ = reference.mean, reference.gains, reference.count
        return self

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the estimator by name, as JSON-ready values; each is an attribute."""
        return {name: getattr(self, name) for name in signature(type(self)).parameters}

    def record(self) -> dict[str, Any]:
        """Return how the noise was estimated: the estimator, the number of images, and parameters that are no default.

        The noise model of a test has this record, which says how far to trust it.
        """
        record = {"estimator": type(self).__name__, "images": self.n_images_, **self._changed()}
        return record if self._used_share == 1 else {**record, "used_share": self._used_share}

    def _changed(self) -> dict[str, Any]:
        """Return the parameters that are not the default."""
        defaults = {name: parameter.default for name, parameter in signature(type(self)).parameters.items()}
        return {name: value for name, value in self.parameters().items() if value != defaults[name]}

    def __repr__(self) -> str:
        fitted = {"n_images_": self.n_images_, "noise_": self.noise_} if hasattr(self, "noise_") else {}
        shown = (f"{name}={value!r}" for name, value in {**self._changed(), **fitted}.items())
        return f"{type(self).__name__}({', '.join(shown)})"

    def _repr_html_(self) -> str:
        if not hasattr(self, "noise_"):
            return definition_table(repr(self), {"status": "not fitted yet: call fit(images) with reference images"})
        noise = complete(as_noise(self))
        return definition_table(type(self).__name__, shown_record(noise.record()), [noise.sentence()])

    @abstractmethod
    def _estimate(self, reference: ReferenceImages) -> NoiseModel:
        """Return the noise model."""


class _PooledEstimator(NoiseEstimator):
    """Base class of the estimators with one variance for all pixels of a channel; see :class:`PooledVariance`."""

    def __init__(self, *, ignore_constant: bool = False, gain: str = EQUAL_GAIN) -> None:
        super().__init__(gain=gain)
        if not isinstance(ignore_constant, bool):
            raise InputError(f"ignore_constant must be True or False, got {ignore_constant!r}.", "ignore_constant")
        self.ignore_constant = ignore_constant


class PooledVariance(_PooledEstimator):
    """One variance for all pixels: an Isotropic; for colour images a PerChannel with the covariance of the channels.

    Parameters
    ----------
    ignore_constant
        Whether to leave out the pixels that have the same value in all reference images, such as a dark surround: they
        show no noise, and make the variance of the others too small. The noise model has the variance of the others
        there, too.
    gain
        "equal" or "per-image", see :class:`NoiseEstimator`.
    """

    def _estimate(self, reference: ReferenceImages) -> NoiseModel:
        return _with_channels(reference, lambda variance: Isotropic(float(np.sqrt(variance))))


class PixelVariance(NoiseEstimator):
    """A variance per pixel and channel: a Diagonal of shape (C, *axes).

    Parameters
    ----------
    gain
        "equal" or "per-image", see :class:`NoiseEstimator`.
    """

    LEAST_IMAGES = 10
    LEAST_REASON = (
        "because the variance of one pixel has a relative standard error of sqrt(2 / (K - 1)), 47% with K = 10 images"
    )

    def _estimate(self, reference: ReferenceImages) -> NoiseModel:
        return Diagonal(reference.pixel_variance)


class AR1Covariance(_PooledEstimator):
    """First-order autoregressive noise: an AR1 or ARAlong; for several channels a PerChannel of it.

    The correlation is that of neighbours in row-major order, including the last pixel of a row and the first of the
    next, or of neighbours along one axis, and is the same for all channels.

    Parameters
    ----------
    axis
        None for the row-major order, which of a signal is time; otherwise the axis, counted from the last one, -1:
        other places are then independent.
    ignore_constant, gain
        See :class:`PooledVariance`.
    """

    def __init__(self, axis: int | None = None, *, ignore_constant: bool = False, gain: str = EQUAL_GAIN) -> None:
        super().__init__(ignore_constant=ignore_constant, gain=gain)
        self.axis = None if axis is None else whole_number(axis, "axis (counted from the last, -1)", -3, -1)

    def _estimate(self, reference: ReferenceImages) -> NoiseModel:
        shape, axis = reference.used.shape, self.axis
        if axis is not None:
            whole_number(axis, "axis (of these reference images, counted from the last)", -len(shape), -1)
        planes, used = reference.standard_planes, reference.used
        degrees = (reference.count - 1) * planes.shape[1]
        if axis is None:
            planes, used = planes.reshape(-1, used.size), used.ravel()
        else:
            planes, used = np.moveaxis(planes, axis, -1), np.moveaxis(used, axis, -1)
        neighbours = int((used[..., 1:] & used[..., :-1]).sum())
        if not neighbours:
            raise InputError(
                "the reference images have no two neighbouring pixels that differ between images, so that their "
                "correlation cannot be estimated: use another estimator."
            )
        rho = float((planes[..., 1:] * planes[..., :-1]).sum() / (degrees * neighbours))
        if not abs(rho) < 1.0 - CORRELATION_ROUNDING:
            raise InputError(
                f"neighbouring pixels of the reference images have a correlation of {rho:.6g}, but autoregressive "
                "noise needs one strictly between -1 and 1: give more or larger images, or use another estimator."
            )
        kind = partial(AR1, rho) if axis is None else partial(ARAlong, rho, shape=shape, axis=axis)
        return _with_channels(reference, lambda variance: kind(float(np.sqrt(variance))))


class StationaryCovariance(_PooledEstimator):
    """Covariance that depends on the lag between pixels: a Stationary; for colour images a PerChannel of Stationary.

    Parameters
    ----------
    max_lag
        Lag in pixels, along each axis, up to which correlations are taken as they are; they fall to zero at twice
        that. If the noise is known to be correlated over a few pixels only, that number reduces the error of the
        estimate; a smaller one makes it biased. By default half of each side, and at longer lags, which have few
        pairs of pixels, the correlations give way to a smooth curve through those at shorter lags.
    ignore_constant, gain
        See :class:`PooledVariance`.
    """

    def __init__(self, max_lag: int | None = None, *, ignore_constant: bool = False, gain: str = EQUAL_GAIN) -> None:
        super().__init__(ignore_constant=ignore_constant, gain=gain)
        self.max_lag = checked_max_lag(max_lag)

    def _estimate(self, reference: ReferenceImages) -> NoiseModel:
        planes = reference.standard_planes
        return _stationary(reference, stationary_correlation(planes, reference.used, self.max_lag))


def _stationary(reference: ReferenceImages, correlation: FloatArray) -> NoiseModel:
    """Return the stationary noise of reference images (K, C, *axes) with a correlation by lag."""
    return _with_channels(reference, lambda variance: Stationary(variance * correlation, reference.used.shape))


def _with_channels(reference: ReferenceImages, model: Callable[[float], NoiseModel]) -> NoiseModel:
    """Return the noise model of a variance; for colour images that of variance 1 with the covariance of channels."""
    covariance = reference.channel_covariance
    return model(float(covariance[0, 0])) if covariance.size == 1 else PerChannel(covariance, model(1.0))


GAUSSIAN_ENDS = 4.0  # standard deviations at which the Gaussian is cut off


def smoothed_variance(variance: FloatArray, used: NDArray[np.bool_], smoothing: float) -> FloatArray:
    """Return the Gaussian mean (*axes) of the variances of the pixels that are used, 0 at the others.

    The weights of pixels beyond the border and of those that are not used are left out, and the sum of the result is
    that of the variances. The standard deviation of the Gaussian is ``smoothing`` pixels.
    """
    from scipy.ndimage import gaussian_filter  # here because scipy.ndimage is slow to import

    # A Gaussian that is wider than the image is cut off where no two pixels are that far apart.
    radius = tuple(min(int(GAUSSIAN_ENDS * smoothing + 0.5), side - 1) for side in used.shape)
    weights = gaussian_filter(used.astype(np.float64), smoothing, mode="constant", radius=radius)
    means = gaussian_filter(np.where(used, variance, 0.0), smoothing, mode="constant", radius=radius)
    local = np.divide(means, weights, out=np.zeros_like(means), where=used)
    return np.asarray(local * (variance[used].sum() / local.sum()))


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
        shortest side: the more images there are and the shorter correlations are, the less.
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
        planes, used = reference.standard_planes, reference.used
        degrees = (reference.count - 1) * planes.shape[1]
        smoothing = self.smoothing
        if smoothing is None:
            smoothing = default_smoothing(stationary_correlation(planes, used, self.max_lag), degrees, used.shape)
        variance = smoothed_variance((planes**2).sum(axis=(0, 1)) / degrees, used, smoothing)
        deviations = np.sqrt(variance)
        standard = np.divide(planes, deviations, out=np.zeros_like(planes), where=used)
        correlation = stationary_correlation(standard, used, self.max_lag)
        return _with_channels(
            reference, lambda variance: LocallyStationary(np.sqrt(variance) * deviations, correlation)
        )


SMALLEST_SHOWN = 1e-300  # a smaller p of that test is shown as below this: its digits are lost in a float64

CHOICE_LEVEL = 0.05
"""Level of the test by which :class:`AutomaticCovariance` chooses. So often is Gaussian noise that is stationary taken
for locally stationary, and noise of heavy tails more often, which only makes intervals longer; the other mistake makes
p-values wrong."""


class AutomaticCovariance(NoiseEstimator):
    """Locally stationary noise if the images show that its strength differs over the image, else stationary noise.

    A test with the level 0.05 decides: an analysis of variance of the logs of the mean absolute residuals in up to
    eight cells along each axis, with the images as repetitions (attentest.noise.residuals). Two images do not
    tell, and get the stationary model. Which one was chosen and why is in the record of the noise.

    Parameters
    ----------
    max_lag
        See :class:`StationaryCovariance`.
    smoothing
        See :class:`LocallyStationaryCovariance`; without effect on stationary noise.
    ignore_constant, gain
        See :class:`PooledVariance`. Locally stationary noise always leaves constant pixels out.

    Attributes
    ----------
    choice_
        The name of the chosen estimator and the reason, after fitting.
    """

    choice_: str

    def __init__(
        self,
        max_lag: int | None = None,
        smoothing: float | None = None,
        *,
        ignore_constant: bool = False,
        gain: str = EQUAL_GAIN,
    ) -> None:
        chosen = StationaryCovariance(max_lag, ignore_constant=ignore_constant, gain=gain)
        self.max_lag, self.ignore_constant, self.gain = chosen.max_lag, chosen.ignore_constant, chosen.gain
        self.smoothing = LocallyStationaryCovariance(smoothing).smoothing

    def _estimate(self, reference: ReferenceImages) -> NoiseModel:
        planes, used = reference.standard_planes, reference.used
        correlation = stationary_correlation(planes, used, self.max_lag)
        tested, whole = equal_strength(planes, used, correlation), worded("image", used.ndim)
        if tested is None:
            self.choice_ = f"stationary, because so few {whole}s do not tell whether its strength differs"
            return _stationary(reference, correlation)
        pvalue, deviation = tested
        shown = f"= {pvalue:.2g}" if pvalue > SMALLEST_SHOWN else f"< {SMALLEST_SHOWN:g}"
        numbers = f"p {shown} at the level {CHOICE_LEVEL:g}"
        if pvalue > CHOICE_LEVEL:
            self.choice_ = f"stationary, because no part of the {whole} shows stronger noise than others: {numbers}"
            return _stationary(reference, correlation)
        self.choice_ = (
            f"locally-stationary, because the strength of the noise differs between parts of the {whole}, typically by "
            f"a factor of {np.exp(deviation):.3g}: {numbers}"
        )
        local = LocallyStationaryCovariance(self.smoothing, self.max_lag)
        return local._estimate(replace(reference, used=varying_pixels(reference.residuals)))

    def record(self) -> dict[str, Any]:
        """Return how the noise was estimated, with the choice."""
        return {**super().record(), "choice": self.choice_}


class ShrunkCovariance(NoiseEstimator):
    """Full covariance of small images with Ledoit-Wolf shrinkage: a Dense.

    Needs scikit-learn (``pip install 'attentest[estimators]'``).

    Parameters
    ----------
    gain
        "equal" or "per-image", see :class:`NoiseEstimator`.
    """

    LEAST_IMAGES = 10
    LEAST_REASON = "because the amount of shrinkage is estimated from them, too"

    def _estimate(self, reference: ReferenceImages) -> NoiseModel:
        values = reference.mean.size
        if values > LARGEST_DENSE:
            raise InputError(
                f"a full covariance can be estimated for images of at most {LARGEST_DENSE} values, but these have "
                f"{values}: use a stationary covariance, or smaller images."
            )
        try:
            from sklearn.covariance import LedoitWolf  # here because scikit-learn is an optional dependency
        except ImportError:
            raise InputError("ShrunkCovariance needs scikit-learn: pip install 'attentest[estimators]'.") from None
        flat = reference.residuals.reshape(reference.count, values)
        scale = np.abs(flat).max()  # so that fourth powers of the values do not overflow
        # Removing the mean of K images reduces the variance by a factor (K - 1) / K.
        covariance = LedoitWolf(store_precision=False, assume_centered=True).fit(flat / scale).covariance_
        return Dense(covariance * (scale**2 * reference.count / (reference.count - 1)))
