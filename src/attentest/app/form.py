"""The fields of the page that define a test, and the test that they define."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attentest.app.offered import OfferedModel, UploadedImage, read_upload
from attentest.contrast import Contrast, Filtered
from attentest.errors import InputError, shortened
from attentest.images.preprocessing import Preprocessing
from attentest.noise import AR1, FromImage, ImageNoise, Isotropic, NoiseEstimator, NoiseModel, as_noise
from attentest.pipeline.attention_test import AttentionTest
from attentest.registry import CONTRASTS, FILTERS, NOISE_ESTIMATORS
from attentest.statistics.alternative import Alternative

NUMBER, CONTROLS, IMAGE = "number", "controls", "image"
"""Where the noise is known from: a number, images of controls, or the tested image itself."""

THRESHOLD, TOP_FRACTION = "threshold", "top fraction"
"""The rules by which an attention map becomes a region."""

NO_FILTER = "none"
"""The image is compared as it is."""

MOST_CONTROLS = 500
"""Most images from which the noise is estimated."""


@dataclass(frozen=True, kw_only=True)
class Form:
    """The fields of the page; an empty one is None.

    Parameters
    ----------
    noise
        Where the noise is known from: "number", "controls" or "image".
    sigma, rho
        Standard deviation, and AR(1) correlation, for "number".
    controls, estimator
        Uploaded files and the name of an estimator, for "controls".
    method
        How the noise is estimated from the tested image, for "image".
    rule, threshold, top_fraction, region
        How the attention map becomes a region.
    randomise
        gamma of randomised selection.
    contrast, radius
        What the region is compared with, and the radius of a neighbourhood.
    filtered, blur
        The filter of the compared image, and the standard deviation of a blur.
    alternative, alpha
        The alternative and the significance level.
    black, white
        The pixel values of black and white, as texts; empty for those of the file.
    resize
        Whether images of another size are resized for a model that has no preprocessing of its own.
    """

    noise: str = NUMBER
    sigma: float | None = 1.0
    rho: float | None = 0.0
    controls: Sequence[str] | None = None
    estimator: str = "stationary"
    method: str = "wavelet"
    rule: str = THRESHOLD
    threshold: float | None = 0.6
    top_fraction: float | None = 0.1
    region: str = "pixels"
    randomise: float | None = 0.0
    contrast: str = "background"
    radius: float | None = 5.0
    filtered: str = NO_FILTER
    blur: float | None = 1.0
    alternative: Alternative = "two-sided"
    alpha: float | None = 0.05
    black: str | None = None
    white: str | None = None
    resize: bool = True

    def attention_test(
        self, model: OfferedModel, image: UploadedImage, noise: NoiseModel | ImageNoise
    ) -> AttentionTest:
        """Return the test of an image that the fields define."""
        black, white = optional_number(self.black, "black"), optional_number(self.white, "white")
        if (black is None) != (white is None):
            raise InputError("only one of black and white is given: give both pixel values, or neither.")
        by_threshold = _one_of(self.rule, (THRESHOLD, TOP_FRACTION), "the rule of the region") == THRESHOLD
        return AttentionTest(
            model.scores,
            noise=noise,
            threshold=_needed(self.threshold, "the threshold") if by_threshold else None,
            top_fraction=None if by_threshold else _needed(self.top_fraction, "the top fraction"),
            region_unit=self.region,
            preprocessing=self.preprocessing(model, image),
            intensity_range=None if black is None or white is None else (black, white),
            contrast=self._contrast(),
            randomise=_needed(self.randomise, "gamma"),
            alternative=self.alternative,
        )

    def preprocessing(self, model: OfferedModel, image: UploadedImage) -> Preprocessing | None:
        """Return what happens to an image before the model sees it."""
        own: Preprocessing | None = model.preprocessing
        size = model.scores.image_shape[1:]
        return Preprocessing(resize=size) if own is None and self.resize and image.size != size else own

    def noise_model(self) -> NoiseModel | ImageNoise:
        """Return the noise that the fields describe; control images are read here."""
        source = _one_of(self.noise, (NUMBER, CONTROLS, IMAGE), "the noise")
        if source == IMAGE:
            return FromImage(self.method)
        if source == CONTROLS:
            return self._fitted()
        sigma = _needed(self.sigma, "the standard deviation of the noise")
        return AR1(self.rho, sigma) if self.rho else Isotropic(sigma)

    def _fitted(self) -> NoiseModel:
        if not self.controls:
            raise InputError("there are no control images: upload at least two, or give the noise as a number.")
        if len(self.controls) > MOST_CONTROLS:
            raise InputError(f"there are {len(self.controls)} control images: give at most {MOST_CONTROLS}.")
        estimator: NoiseEstimator = NOISE_ESTIMATORS.load(self.estimator)()
        return as_noise(estimator.fit([read_upload(Path(path)).pixels for path in self.controls]))

    def _contrast(self) -> Contrast:
        part = CONTRASTS.get(self.contrast)
        if part is None or self.contrast not in offered_contrasts():
            raise InputError(f"contrast must be {', '.join(offered_contrasts())}, got {self.contrast!r}.")
        radius = f":{_needed(self.radius, 'the width of the ring')}" if part.argument else ""
        compared: Contrast = CONTRASTS.create(f"{self.contrast}{radius}")
        if self.filtered == NO_FILTER:
            return compared
        if self.filtered in FILTERS and FILTERS[self.filtered].argument:
            blur = _needed(self.blur, "the standard deviation of the blur")
            return Filtered(FILTERS.create(f"{self.filtered}:{blur}"), of=compared)
        return Filtered(self.filtered, of=compared)


def offered_contrasts() -> list[str]:
    """Return the names of the contrasts that need no second image."""
    return [name for name in CONTRASTS if name != "reference"]


def optional_number(text: str | None, called: str) -> float | None:
    """Return the number that a text says, or None if it is empty; refuse another text."""
    try:
        return float(text) if text and text.strip() else None
    except ValueError:
        raise InputError(f"{called} must be a number, or empty, got {shortened(text)}.") from None


def _needed(value: Any, called: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"{called} must be a number, got {'an empty field' if value is None else repr(value)}.")
    return float(value)


def _one_of(value: str, names: Sequence[str], called: str) -> str:
    if value not in names:
        raise InputError(f"{called} must be {' or '.join(names)}, got {value!r}.")
    return value
