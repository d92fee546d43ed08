"""Monte-Carlo tests of the assumptions about the noise: images are compared with images drawn from the noise model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from attentest.checks import as_generator, strictly_between_0_and_1, whole_number
from attentest.errors import InputError, shortened
from attentest.noise.derived import NoiseLike, as_noise
from attentest.noise.model import FitsNoise, FloatArray, NoiseModel, check_shape, complete
from attentest.noise.reference_images import ReferenceImages, reference_images
from attentest.simulation.noise_check.autocorrelation import mean_deviations, region_sides
from attentest.simulation.noise_check.measures import (
    BRIGHTNESS,
    CLIPPING,
    CORRELATION,
    GAIN,
    INDEPENDENCE,
    NORMAL_QUANTILES,
    STATIONARY,
    Measures,
    ValueRange,
    bin_edges,
    correlation_names,
    measure,
    on_grid,
    value_range,
)
from attentest.simulation.noise_check.noise_check import BROKEN, HOLDS, SMALL, Assumption, MeasuredNoise, NoiseCheck
from attentest.simulation.noise_check.words import ORDER, Measured

if TYPE_CHECKING:
    from attentest.images.sample import ImageLike


ONE_SIDED = frozenset({STATIONARY, INDEPENDENCE, GAIN, BRIGHTNESS, CLIPPING})
"""Assumptions against which only large measures speak: a fit that is too good is no fault."""

ROUNDING = 1e-9
"""Measures that vary by less than this, relative to their size, are the same up to rounding."""

HARMLESS = {
    HOLDS: "Images drawn from the model show as much.",
    SMALL: "This is more than images drawn from the model show, and too little to change conclusions.",
}
"""What is said of assumptions that are not broken."""

SMALLEST_DEVIATION = 1e-6
"""Standard deviations of a mean below this, in units of that of a pixel, count as this."""


def verdicts(
    found: Sequence[Measures], channels: int, alpha: float, fitted: bool, values: tuple[float, float]
) -> tuple[Assumption, ...]:
    """Return the assumptions with their verdicts.

    Parameters
    ----------
    found
        The measures of the images first, then those of sets of images drawn from the noise model.
    channels
        Number of channels of the images.
    alpha
        Error rate of all verdicts together.
    fitted
        Whether the noise model was fitted to the same images.
    values
        Least and greatest pixel value.
    """
    ranks = {name: ranked(np.array([one.tested[name] for one in found]), name in ONE_SIDED) for name in ORDER}
    adjusted = holm([pvalue for pvalue, _ in ranks.values()])
    own = found[0]
    model = np.mean([one.correlation for one in found[1:]], axis=0)
    sides = region_sides((own.correlation.shape[0] - 1, own.correlation.shape[1] - 1))
    ratios = mean_deviations(own.correlation, sides) / np.maximum(mean_deviations(model, sides), SMALLEST_DEVIATION)
    lags = correlation_names(own.correlation, channels)
    assumptions = []
    for (name, (statement, words)), after in zip(ORDER.items(), adjusted, strict=True):
        pvalue, place = ranks[name]
        finding = words(
            Measured(
                effects=own.effects[name],
                simulated=np.mean([one.effects[name] for one in found[1:]], axis=0),
                place=place,
                fitted=fitted,
                region_ratios=dict(zip(sides, ratios.tolist(), strict=True)),
                lag=lags[place] if name == CORRELATION else "",
                value_range=values,
            )
        )
        verdict = HOLDS if after > alpha else BROKEN if finding.matters else SMALL
        assumptions.append(
            Assumption(
                name=name,
                statement=statement,
                statistic=finding.statistic,
                statistic_name=finding.statistic_name,
                pvalue=pvalue,
                adjusted_pvalue=after,
                verdict=verdict,
                finding=finding.finding,
                consequence=HARMLESS.get(verdict, finding.consequence),
                advice=finding.advice if verdict == BROKEN else "",
            )
        )
    return tuple(assumptions)


def ranked(measures: FloatArray, one_sided: bool) -> tuple[float, int]:
    """Return the Monte-Carlo p-value of the first row of measures (B+1, d), and its most conspicuous column.

    Columns are standardised by all rows alike, so that under the hypothesis every row has the same chance to have the
    greatest of all deviations, and p is exact.
    """
    centre, spread = measures.mean(axis=0), measures.std(axis=0)
    varies = spread > ROUNDING * np.maximum(np.abs(centre), 1.0)
    scores = np.where(varies, (measures - centre) / np.where(varies, spread, 1.0), 0.0)
    deviations = scores if one_sided else np.abs(scores)
    greatest = deviations.max(axis=1)
    as_large = int((greatest[1:] >= greatest[0] - ROUNDING).sum())
    return (1 + as_large) / len(measures), int(deviations[0].argmax())


def holm(pvalues: list[float]) -> list[float]:
    """Return p-values adjusted by Holm's method, in the same order."""
    order = np.argsort(pvalues, kind="stable")
    steps = np.array(pvalues)[order] * np.arange(len(pvalues), 0, -1)
    adjusted = np.empty(len(pvalues))
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return [float(value) for value in adjusted]


Progress: TypeAlias = Callable[[float, "int | None"], None]
"""Called with (simulated sets of images done, their number)."""

LEAST_IMAGES = 3
LEAST_REASON = "because the residuals of two images are the same up to their sign"

LEAST_SIDE = 4
"""Least side of the images in pixels."""

FEWEST, MOST = 19, 100_000
"""Limits of the number of simulated sets of images."""

DRAWN_AT_ONCE = 2**21
"""Most values that are drawn at once, which bounds the memory of models that draw more than they return."""

SMALLEST_SHARE = 1e-6
"""Standard deviations below this share of the greatest count as this: a model may say that pixels have no noise."""

BAND = (0.025, 0.975)
"""Probabilities between which the bands of pictures lie."""


def checked(
    noise: NoiseModel | FitsNoise,
    images: Iterable[ImageLike],
    *,
    alpha: float = 0.05,
    simulations: int = 199,
    rng: Any = 0,
    progress: Progress | None = None,
) -> NoiseCheck:
    """Return whether images agree with a noise model; see :func:`attentest.noise_check`."""
    level = strictly_between_0_and_1(alpha, "alpha")
    count = whole_number(simulations, "simulations", FEWEST, MOST)
    if (len(ORDER) / (count + 1)) > level:
        raise InputError(
            f"simulations must be at least {int(np.ceil(len(ORDER) / level)) - 1} for alpha = {level:g}, because fewer "
            f"never give an adjusted p-value as small as that, got {count}."
        )
    if progress is not None and not callable(progress):
        raise InputError(f"progress must be a function of (done, total) or None, got {shortened(progress)}.")
    generator = as_generator(rng)
    reference = reference_images(images, LEAST_IMAGES, LEAST_REASON)
    shape = reference.mean.shape
    if min(shape[1:]) < LEAST_SIDE:
        raise InputError(
            f"images must have at least {LEAST_SIDE} x {LEAST_SIDE} pixels for a check, got {shape[1]} x {shape[2]}."
        )
    fitting = isinstance(noise, FitsNoise)
    model = _fitted(noise, reference) if isinstance(noise, FitsNoise) else noise
    check_shape(model, (shape[0], shape[1], shape[2]))
    values = reference.mean + reference.residuals
    spread = value_range(values)
    deviations = _deviations(model, shape)
    found = [measure(reference.residuals, deviations, values)]
    for done in range(count):
        if progress is not None:
            progress(done, count)
        drawn = _drawn(model, generator, reference)
        of_drawn = deviations
        if isinstance(noise, FitsNoise):
            of_drawn = _deviations(_fitted(noise, drawn), shape)
        found.append(measure(drawn.residuals, of_drawn, _as_images(drawn, reference, spread)))
    if progress is not None:
        progress(count, count)
    return NoiseCheck(
        assumptions=verdicts(found, shape[0], level, fitting, (spread.low, spread.high)),
        alpha=level,
        simulations=count,
        n_images=reference.count,
        shape=(shape[0], shape[1], shape[2]),
        noise=dict(model.describe()),
        fitted_to=type(noise).__name__ if fitting else None,
        measured=_measured(found, reference, deviations, values, spread),
    )


def _fitted(estimator: FitsNoise, reference: ReferenceImages) -> NoiseModel:
    """Return the noise model that a copy of an estimator finds in images, so that the caller's stays as it is."""
    from attentest.images.sample import Sample  # here because torch is slow to import and noise models do without

    own = copy.deepcopy(estimator)
    own.fit([Sample(pixels=pixels, levels=None) for pixels in reference.mean + reference.residuals])
    model = getattr(own, "noise_", None)
    if not isinstance(model, NoiseModel):
        raise InputError(f"the noise_ of a fitted {type(estimator).__name__} must be a noise model, got {model!r:.60}.")
    return model


def _deviations(noise: NoiseModel, shape: tuple[int, ...]) -> FloatArray:
    """Return the standard deviations (C, H, W) of a noise model."""
    deviations = np.sqrt(complete(noise).variances(int(np.prod(shape)))).reshape(shape)
    return np.asarray(np.maximum(deviations, SMALLEST_SHARE * deviations.max()))


def _drawn(noise: NoiseModel, rng: np.random.Generator, reference: ReferenceImages) -> ReferenceImages:
    """Return as many images as there are, drawn from a noise model, around the same mean."""
    size = reference.mean.size
    at_once = max(1, DRAWN_AT_ONCE // size)
    drawn = np.empty((reference.count, size))
    for start in range(0, reference.count, at_once):
        part = drawn[start : start + at_once]
        part[:] = noise.sample(rng, len(part), size)
    drawn -= drawn.mean(axis=0)
    return replace(reference, residuals=drawn.reshape(reference.residuals.shape))


def _as_images(drawn: ReferenceImages, reference: ReferenceImages, spread: ValueRange) -> FloatArray:
    """Return drawn images as they would be without clipping: with the variance and on the grid of the real ones."""
    factor = float(np.sqrt((reference.residuals**2).mean() / (drawn.residuals**2).mean()))
    return on_grid(reference.mean + factor * drawn.residuals, spread.step)


def _measured(
    found: list[Measures], reference: ReferenceImages, deviations: FloatArray, values: FloatArray, spread: ValueRange
) -> MeasuredNoise:
    """Return what pictures show."""
    own, others = found[0], found[1:]
    counts, edges = np.histogram(values, bins=bin_edges(spread))
    at_low, at_high = own.effects[CLIPPING]
    return MeasuredNoise(
        quantiles=own.quantiles,
        normal_quantiles=NORMAL_QUANTILES,
        quantile_band=np.quantile([one.quantiles for one in others], BAND, axis=0),
        variance_map=np.asarray((np.sqrt(reference.pixel_variance) / deviations).mean(axis=0)),
        correlation=own.correlation,
        model_correlation=np.mean([one.correlation for one in others], axis=0),
        image_scales=own.image_scales,
        scale_band=_whole_band([one.image_scales for one in others]),
        image_means=own.image_means,
        mean_band=_whole_band([one.image_means for one in others]),
        counts=counts.astype(np.float64),
        edges=edges,
        value_range=(spread.low, spread.high),
        at_ends=(float(at_low), float(at_high)),
    )


def _whole_band(sets: list[FloatArray]) -> FloatArray:
    """Return the band (2,) that holds all values of about 95% of sets."""
    ends = [[values.min() for values in sets], [values.max() for values in sets]]
    return np.array([np.quantile(end, share) for end, share in zip(ends, BAND, strict=True)])


def noise_check(
    noise: NoiseLike,
    images: Iterable[ImageLike],
    *,
    alpha: float = 0.05,
    simulations: int = 199,
    rng: Any = 0,
    progress: Progress | None = None,
) -> NoiseCheck:
    """Test whether independent images of the same mean agree with a noise model, assumption by assumption.

    The residuals of the images against their mean are compared with those of images drawn from the model: each
    assumption has a measure, and its p-value is the rank of the images among the drawn ones. Holm's adjustment makes
    ``alpha`` the error rate of all assumptions together. It is exact for a given model, and approximate for an
    estimator.

    Parameters
    ----------
    noise
        A noise model, of attentest or of your own, or a standard deviation. An estimator, fitted or not, is fitted to
        these images, and again to each set of drawn images, so that the error rate allows for it. A model that was
        fitted to these same images is judged too mildly if it is given as a model: give its estimator.
    images
        At least three images of one shape with at least 4 x 4 pixels.
    alpha
        Probability, at most, that an assumption is called broken although all hold.
    simulations
        Number of sets of images that are drawn from the model; at least 8 / alpha.
    rng
        Random generator, or seed, of the drawn images.
    progress
        Function that is called with (sets drawn, their number).
    """
    given = noise if isinstance(noise, FitsNoise) and not isinstance(noise, type) else as_noise(noise)
    return checked(given, images, alpha=alpha, simulations=simulations, rng=rng, progress=progress)
