"""Noise models: what attentest asks of them, the base class of its own, and checks and words that they share."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attentest.checks import float_array, real_number, whole_number
from attentest.errors import InputError, shortened
from attentest.markup import definition_table
from attentest.registry import NOISE_ESTIMATORS

FloatArray: TypeAlias = NDArray[np.float64]

MOST_DRAWN = 10**12  # largest number of draws or pixels: a larger one is a mistake
SMALLEST_SIGMA, LARGEST_SIGMA = 1e-150, 1e150  # limits between which a variance neither underflows nor overflows

DRAWS = 256
"""Draws from which variances are estimated if a model does not know them: their relative standard error is 9%."""

GIVEN = "given, not estimated by attentest"  # where a noise model comes from, in words, if nothing else is known
AXIS_LETTERS = {1: "T", 2: "H, W", 3: "D, H, W"}  # names of the axes of images by their number, for messages


def named_shape(shape: tuple[int, ...], channels: int = 1) -> str:
    """Return a shape with the names of its axes, such as "(C, H, W) = (3, 8, 8)", or without channels, 0 of them."""
    letters = AXIS_LETTERS.get(len(shape) - channels)
    return f"{shape}" if letters is None else f"({'C, ' * channels}{letters}) = {shape}"


@runtime_checkable
class NoiseModel(Protocol):
    """A covariance Sigma of the pixels; a class of your own with these methods is a noise model, too.

    It may have any other method of :class:`BaseNoise`, and need not inherit from it.
    """

    @property
    def size(self) -> int | None:
        """Length of the vectors it applies to, or None for any length."""

    def apply(self, v: FloatArray) -> FloatArray:
        """Return ``Sigma v`` along the last axis of an array of shape (..., n)."""

    def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> FloatArray:
        """Draw ``k`` noise vectors; shape (k, n). ``n`` is needed where ``size`` is None."""

    def describe(self) -> Mapping[str, Any]:
        """Return the model's name and parameters as JSON-ready values."""


@runtime_checkable
class ImageNoise(Protocol):
    """An estimator of the noise of each tested image from its own pixels."""

    def for_image(self, pixels: FloatArray) -> NoiseModel:
        """Return the noise model of an image (C, *axes)."""

    def describe(self) -> Mapping[str, Any]:
        """Return the method as JSON-ready values."""


@runtime_checkable
class FitsNoise(Protocol):
    """An estimator from reference images; once fitted, its attribute ``noise_`` is the noise model."""

    def fit(self, images: Any) -> Any:
        """Estimate the noise from independent reference images and return the estimator."""


class BaseNoise:
    """Base class of the noise models: all that a model says about itself.

    A model defines ``apply`` and ``sample`` and overrides what it knows better than the defaults, which follow from
    these two. Models that are registered in ``NOISE_MODELS`` of attentest.registry can be saved.

    Attributes
    ----------
    name
        Its name in records and in noise files.
    parameters
        Its constructor's parameters, which are attributes, too, with their types: ``NoiseModel`` for another noise
        model, ``np.ndarray`` for an array, anything else for JSON values.
    estimator
        Name of the estimator of such noise in ``NOISE_ESTIMATORS`` of attentest.registry, or None.
    """

    name: ClassVar[str]
    parameters: ClassVar[Mapping[str, type]]
    estimator: ClassVar[str | None] = None

    @property
    def size(self) -> int | None:
        """Length of the vectors it applies to, or None for any length."""
        return None

    def apply(self, v: FloatArray) -> FloatArray:
        """Return ``Sigma v`` along the last axis of an array of shape (..., n)."""
        raise NotImplementedError

    def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> FloatArray:
        """Draw ``k`` noise vectors; shape (k, n). ``n`` is needed where ``size`` is None."""
        raise NotImplementedError

    def check_image(self, shape: tuple[int, ...]) -> None:
        """Raise an error if the model does not apply to images (C, *axes), although the number of values is right."""

    def variances(self, n: int) -> FloatArray:
        """Return the variance (n,) of each of the ``n`` values of an image, by default estimated from draws."""
        rng = np.random.default_rng(0)  # the same for the same model
        return sum((self.sample(rng, 1, n)[0] ** 2 for _ in range(DRAWS)), np.zeros(n)) / DRAWS

    def covariances(self, places: NDArray[np.int64], n: int) -> FloatArray:
        """Return the covariances (m, m) of the values of an image of ``n`` at places (m,) of its flattened array.

        The models of attentest need no vectors as long as the image for it; the default applies ``Sigma`` to some.
        """
        units = np.zeros((len(places), n))
        units[np.arange(len(places)), places] = 1.0
        return self.apply(units)[:, places]

    def degrees_of_freedom(self, eta: FloatArray) -> FloatArray:
        """Return the degrees of freedom (k,) of the variances of contrasts (k, n); infinite for noise that is known."""
        return np.full(len(eta), np.inf)

    def degrees_per_image(self, eta: FloatArray, origin: Mapping[str, Any]) -> FloatArray:
        """Return the degrees of freedom (k,) that a residual image adds to estimated variances of contrasts (k, n).

        The variance eta' Sigma eta of a contrast is a quadratic form of the residuals of K reference images: a residual
        image y contributes q(y) = y' Q y, and Q depends on the contrast and on the kind of model. With K - 1 degrees of
        freedom of the residuals its estimate has the mean E q and the variance Var q / (K - 1), so it varies like a
        multiple of a chi-squared variable with (K - 1) 2 (E q)^2 / Var q degrees of freedom (Satterthwaite 1946).
        Returned is 2 (E q)^2 / Var q under the model, which was estimated as ``origin`` records. The default, 1, is the
        least: as if each residual image gave one value of the contrast.
        """
        return np.ones(len(eta))

    def correlation_length(self) -> float:
        """Return the distance in pixels within which correlations fall to 1/e; 0 if pixels are independent."""
        raise InputError(
            f"the noise model {self._class_name} has no correlation length that could be changed: test the image with "
            "each covariance that you think possible."
        )

    def with_correlation_length(self, length: float, shape: tuple[int, ...]) -> NoiseModel:
        """Return noise of the same variances whose correlations reach farther, or less far.

        The correlations of ``AR1`` and ``Stationary`` are stretched, to those at the lags divided by the ratio of the
        two lengths. Independent noise, of ``Isotropic`` and ``Diagonal``, gets the correlation
        exp(-distance / length), with the sum of the distances along all axes. The models that are made of others change
        those.

        Parameters
        ----------
        length
            Correlation length in pixels, 0 for independent pixels; that of the model gives the model itself.
        shape
            The (C, *axes) of the images.
        """
        present = self.correlation_length()
        number = real_number(length, "a correlation length")
        if not 0 <= number < np.inf:
            raise InputError(f"a correlation length must be 0 or a positive number of pixels, got {number}.")
        check_shape(self, shape)
        return self if number == present else self._stretched(number, shape)

    def _stretched(self, length: float, shape: tuple[int, ...]) -> NoiseModel:
        """Return the noise of images (C, *axes) with another correlation length."""
        raise NotImplementedError

    def fresh_estimator(self) -> Any:
        """Return an estimator of such noise, not fitted."""
        if self.estimator is None:
            raise InputError(
                f"no estimator is known for noise of the kind {self._class_name}: say which, one of "
                f"{', '.join(NOISE_ESTIMATORS)}."
            )
        return NOISE_ESTIMATORS.load(self.estimator)()

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments with which the same model can be made again."""
        return {name: getattr(self, name) for name in self.parameters}

    def record(self) -> dict[str, Any]:
        """Return name and parameters as JSON-ready values; instead of arrays, by default, the number of pixels."""
        arguments = self.arguments()
        values = {name: value for name, value in arguments.items() if not isinstance(value, np.ndarray)}
        return {"model": self.name, **values} | ({} if values == arguments else {"size": self.size})

    def words(self) -> str:
        """Return the model in words."""
        return _record_words(self.record())

    def origin_words(self) -> str:
        """Return in words where the model comes from and whether tests allow for its being an estimate."""
        return GIVEN

    def sentence(self) -> str:
        """Return the model and where it comes from in a sentence, for reports."""
        return f"{self.words()}; {self.origin_words()}."

    def describe(self) -> dict[str, Any]:
        """Return the model's name and parameters and its sentence as JSON-ready values."""
        return {**self.record(), "sentence": self.sentence()}

    def _repr_html_(self) -> str:
        return definition_table(type(self).__name__, shown_record(self.record()), [self.sentence()])

    @property
    def _class_name(self) -> str:
        return type(self).__name__


class UserNoise(BaseNoise):
    """A noise model of the user's own: its methods, and the defaults for those that it does not have."""

    def __init__(self, model: NoiseModel) -> None:
        self.model = model
        for name in vars(BaseNoise):
            if not name.startswith("_") and callable(method := getattr(model, name, None)):
                setattr(self, name, method)

    @property
    def size(self) -> int | None:
        """Length of the vectors it applies to, or None for any length."""
        return self.model.size

    def record(self) -> dict[str, Any]:
        """Return the model's description."""
        return dict(self.model.describe())

    @property
    def _class_name(self) -> str:
        return type(self.model).__name__


def complete(noise: NoiseModel) -> BaseNoise:
    """Return a noise model that has all methods of :class:`BaseNoise`: itself, or a user's own with the defaults."""
    return noise if isinstance(noise, BaseNoise) else UserNoise(noise)


def check_shape(noise: NoiseModel | ImageNoise, shape: tuple[int, ...]) -> None:
    """Raise an error if a noise model does not apply to images (C, *axes)."""
    pixels = int(np.prod(shape))
    if isinstance(noise, NoiseModel):
        if noise.size not in (None, pixels):
            raise InputError(f"the noise model is for {noise.size} pixels, but the image has {pixels}.")
        complete(noise).check_image(shape)


def recorded_sentence(record: Mapping[str, Any]) -> str:
    """Return the sentence about a noise model from its description, also if the model is one of the user's own."""
    return str(record.get("sentence", f"{_record_words(record)}; {GIVEN}."))


def shown_record(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of a description as text, by name, with six digits of numbers."""
    return {name: _shown(value) for name, value in record.items()}


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return "(" + ", ".join(f"{name} {part}" for name, part in shown_record(value).items()) + ")"
    if isinstance(value, list):
        return "[" + ", ".join(_shown(part) for part in value) + "]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _record_words(record: Mapping[str, Any]) -> str:
    parameters = shortened(json.dumps({name: value for name, value in record.items() if name != "model"}))
    return f"The model {record.get('model', '')!r} with {parameters}"


def described(noise: NoiseModel | ImageNoise) -> dict[str, Any]:
    """Return the description of a noise model; where that leaves out its many numbers, with one that depends on all."""
    values = dict(noise.describe())
    if isinstance(noise, NoiseModel) and noise.size is not None:
        weights = np.random.default_rng(0).standard_normal((1, noise.size))
        values["checksum"] = float((weights * noise.apply(weights)).sum())
    return values


def standard_deviation(sigma: float) -> float:
    """Return a standard deviation as a plain float."""
    number = real_number(sigma, "sigma (a standard deviation)")
    if not SMALLEST_SIGMA <= number <= LARGEST_SIGMA:
        raise InputError(
            f"sigma (a standard deviation) must be positive and finite, from {SMALLEST_SIGMA:g} to {LARGEST_SIGMA:g} "
            f"so that its square is too, got {number}.",
            "sigma",
        )
    return number


MOST_PIXELS = 2**26  # largest number of values of an image that a noise model is made for, 8,192 x 8,192 pixels


def image_sides(shape: Any, most_axes: int = len(AXIS_LETTERS)) -> tuple[int, ...]:
    """Return the sides of images, one for each axis, as plain ints."""
    sides = tuple(shape) if isinstance(shape, Iterable) and not isinstance(shape, str) else ()
    if not 1 <= len(sides) <= most_axes:
        raise InputError(
            "shape must be the sides of the images, such as (height, width), for one to three axes, got "
            f"{shortened(shape)}."
        )
    checked = tuple(whole_number(side, "shape (each side of the images)", 1, MOST_PIXELS) for side in sides)
    if math.prod(checked) > MOST_PIXELS:
        raise InputError(f"images must have at most {MOST_PIXELS} pixels, but shape = {checked} has more.")
    return checked


def finite_array(values: ArrayLike, name: str) -> FloatArray:
    """Return finite numbers as a new float64 array."""
    array = float_array(values, name)
    if not np.all(np.isfinite(array)):
        raise InputError(f"{name} must be finite, got NaN or infinite entries.")
    return array


def sample_shape(count: int, asked: int | None, size: int | None) -> tuple[int, int]:
    """Return number of draws and number of pixels, of which a caller asks for ``asked`` and a model is for ``size``."""
    if asked is None and size is None:
        raise InputError("this noise model applies to any image: say how many pixels to draw, sample(rng, k, n).")
    if asked is not None and size is not None and asked != size:
        raise InputError(f"this noise model is for {size} pixels, but {asked} were asked for.")
    length = whole_number(asked if size is None else size, "the number of pixels", 1, MOST_DRAWN)
    return whole_number(count, "the number of draws", 0, MOST_DRAWN), length


MOST_LISTED = 4  # most standard deviations that are listed; of more, the least and the greatest are given


def deviations_text(variances: FloatArray) -> str:
    """Return the standard deviations of variances (n,) as text: each of a few, "0.8 to 1.2" of many."""
    if variances.size <= MOST_LISTED:
        return ", ".join(f"{deviation:.3g}" for deviation in np.sqrt(variances))
    ends = (f"{np.sqrt(variance):.3g}" for variance in (variances.min(), variances.max()))
    return " to ".join(dict.fromkeys(ends))  # one number if they are the same


SOLUTION_TOLERANCE = 1e-8  # largest residual, relative to the right-hand side: far below what changes a p-value visibly
MOST_STEPS = 1000  # most steps: a covariance that takes more is nearly singular

TOO_SMOOTH = (
    "the noise that randomised selection added is too smooth to compare with noise of this correlation length (its "
    "covariance is nearly singular)"
)


class NearlySingularError(InputError):
    """A covariance with which no linear system can be solved."""


def solved(noise: NoiseModel, target: FloatArray) -> FloatArray:
    """Return x (n,) with ``Sigma x = target`` (n,), by conjugate gradients."""
    from scipy.sparse.linalg import LinearOperator, cg

    operator = LinearOperator((target.size, target.size), matvec=noise.apply, dtype=np.float64)
    solution, steps = cg(operator, target, rtol=SOLUTION_TOLERANCE, maxiter=MOST_STEPS)
    if steps:
        raise NearlySingularError(f"{TOO_SMOOTH}: choose other correlation lengths, or randomise=0.")
    return np.asarray(solution, dtype=np.float64)
