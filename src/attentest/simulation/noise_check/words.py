"""What was found about each assumption, in words: how large it is, what it does to p-values, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from attentest.noise.model import FloatArray
from attentest.simulation.noise_check.measures import (
    BRIGHTNESS,
    CLIPPING,
    CORRELATION,
    GAIN,
    GAUSSIAN,
    INDEPENDENCE,
    SCALE,
    SPREADS,
    STATIONARY,
)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What the words are about.

    Parameters
    ----------
    effects : (d,)
        The measures of an assumption in units that can be interpreted.
    simulated : (d,)
        Their means over images drawn from the model.
    place
        Which of them is the most conspicuous one.
    fitted
        Whether the noise model was fitted to the same images.
    region_ratios
        By the side of a square region in pixels, the standard error of its mean divided by the model's.
    lag
        For the correlation: what the most conspicuous number is about.
    value_range
        Least and greatest pixel value.
    """

    effects: FloatArray
    simulated: FloatArray
    place: int
    fitted: bool
    region_ratios: Mapping[int, float]
    lag: str
    value_range: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What was found about one assumption.

    Parameters
    ----------
    statistic, statistic_name
        A number that can be interpreted, and what it is.
    size, least
        How large the deviation is, and from which size on it changes conclusions.
    finding, consequence, advice
        Sentences.
    """

    statistic: float
    statistic_name: str
    size: float
    least: float
    finding: str
    consequence: str
    advice: str

    @property
    def matters(self) -> bool:
        """Whether it is large enough to change conclusions."""
        return self.size >= self.least


def _scale(measured: Measured) -> Finding:
    ratio = float(measured.effects[measured.place] / max(measured.simulated[measured.place], 1e-300))
    of = f"of channel {measured.place} " if len(measured.effects) > 1 else ""
    number = f"{ratio:.2f}" if 0.1 < ratio < 10 else f"{ratio:.3g}"
    finding = f"The standard deviation {of}is {number} times the model's"
    finding += ", to which it was fitted." if measured.fitted else "."
    too = (
        f"p-values are too small: what the model calls 3 standard errors is {3 / max(ratio, 1e-300):.2g}."
        if ratio > 1
        else "p-values are too large, and true differences are missed."
    )
    factor = max(ratio, 1 / max(ratio, 1e-300))
    units = " Such a factor comes from units: grey levels of 8 and of 16 bits, or images rescaled to 0 and 1." * (
        factor > 10
    )
    return Finding(
        statistic=ratio,
        statistic_name="standard deviation / model's",
        size=abs(float(np.log(max(ratio, 1e-300)))),
        least=float(np.log(1.02)),
        finding=finding,
        consequence=too + units,
        advice="Check the units of images and noise, or fit the noise to these images.",
    )


def _gaussian(measured: Measured) -> Finding:
    skewness, kurtosis = (float(effect) for effect in measured.effects)
    name, value = ("skewness", skewness) if measured.place == 0 else ("excess kurtosis", kurtosis)
    return Finding(
        statistic=value,
        statistic_name=name,
        size=max(abs(skewness) / 0.1, abs(kurtosis) / 0.3),
        least=1.0,
        finding=f"Skewness is {skewness:z.2f} and excess kurtosis {kurtosis:z.2f}; both are 0 for Gaussian noise.",
        consequence=(
            "Means over regions of many pixels are closer to Gaussian than pixels are, so moderate p-values change "
            "little; very small p-values, and regions of few pixels, are not to be trusted."
        ),
        advice=(
            "Look for outliers (bad pixels, cosmic rays), transform the intensities (square root for counts, log for "
            "speckle), or average repeated images."
        ),
    )


def _variance_map(measured: Measured) -> Finding:
    spread = float(measured.effects[measured.place])
    where = SPREADS[measured.place]
    return Finding(
        statistic=spread,
        statistic_name="standard deviation of the noise level",
        size=spread,
        least=0.05,
        finding=f"Relative to the model, the level of the noise varies by {spread:.1%} {where} (standard deviation).",
        consequence=(
            "p-values are too small where the noise is stronger than the model says, and too large where it is weaker."
        ),
        advice=(
            "Use a noise model whose variance changes over the image (LocallyStationaryCovariance, attentest noise fit "
            "--estimator locally-stationary; PixelVariance if pixels are independent), or leave out the area that "
            "differs."
        ),
    )


def _correlation(measured: Measured) -> Finding:
    side = max(measured.region_ratios, key=lambda one: abs(float(np.log(max(measured.region_ratios[one], 1e-3)))))
    ratio = measured.region_ratios[side]
    found, model = (float(values[measured.place]) for values in (measured.effects, measured.simulated))
    difference = abs(found - model)
    small = "small" if ratio > 1 else "large"
    return Finding(
        statistic=ratio,
        statistic_name=f"standard error of a mean of {side} x {side} pixels / model's",
        size=max(abs(float(np.log(max(ratio, 1e-3)))) / float(np.log(1.05)), difference / 0.05),
        least=1.0,
        finding=(
            f"The correlation of {measured.lag} is {found:z.3f}, and {model:z.3f} by the model; the standard error of "
            f"a mean of {side} x {side} pixels is {ratio:.3g} times the model's."
        ),
        consequence=f"p-values are too {small}.",
        advice=(
            "Fit a stationary covariance (StationaryCovariance, attentest noise fit --estimator stationary); if this "
            "is one, fit it to more images."
        ),
    )


def _independence(measured: Measured) -> Finding:
    value = float(measured.effects[measured.place])
    pair = "two of the images" if measured.place == 0 else "successive images"
    return Finding(
        statistic=value,
        statistic_name=f"correlation of {pair}",
        size=value,
        least=0.05,
        finding=f"The noise of {pair} has a correlation of {value:z.2f}{' on average' * (measured.place == 1)}.",
        consequence="The noise that images share is taken for their mean, so that the noise is underestimated.",
        advice="Leave out copies, and images that share data: neighbouring slices, reconstructions of one scan.",
    )


def _gain(measured: Measured) -> Finding:
    spread = float(measured.effects[measured.place])
    return Finding(
        statistic=spread,
        statistic_name="standard deviation of the gain",
        size=spread,
        least=0.03,
        finding=f"The strength of the noise differs between images by {spread:.1%} (standard deviation).",
        consequence=(
            "One model cannot be right for all images: p-values are too small for those with more noise than average."
        ),
        advice="Bring the images to the same scale first, or fit the noise to those that are like the tested images.",
    )


def _brightness(measured: Measured) -> Finding:
    spread = float(measured.effects[measured.place])
    return Finding(
        statistic=spread,
        statistic_name="standard deviation of the brightness / that of a pixel",
        size=spread,
        least=0.05,
        finding=f"The brightness of whole images differs by {spread:.3g} standard deviations of a pixel.",
        consequence=(
            "A region compared with the rest of the same image is not affected; one compared with a reference image or "
            "with a fixed value is, and its p-values are too small. Estimators take it for correlation."
        ),
        advice="Subtract from each image its mean, or add a constant to the covariance.",
    )


def _clipping(measured: Measured) -> Finding:
    place = int(measured.effects.argmax())
    share = float(measured.effects[place])
    value = measured.value_range[place]
    end = ("least", "greatest")[place]
    return Finding(
        statistic=share,
        statistic_name=f"share of values at the {end} one",
        size=share,
        least=0.001,
        finding=f"{share:.2%} of the values are exactly the {end} one, {value:g}.",
        consequence=(
            "Where the range cuts the noise off, or an area was masked, the noise is smaller and not Gaussian, and the "
            "mean is shifted."
        ),
        advice="Use images before they were clipped, windowed or masked, or leave out the area.",
    )


Words: TypeAlias = Callable[[Measured], Finding]

ORDER: Mapping[str, tuple[str, Words]] = {
    SCALE: ("The standard deviation is the model's.", _scale),
    CORRELATION: ("Pixels are correlated as the model says.", _correlation),
    STATIONARY: ("The noise is as strong as the model says everywhere in the image.", _variance_map),
    GAUSSIAN: ("The noise is Gaussian.", _gaussian),
    CLIPPING: ("The range of values does not cut the noise off.", _clipping),
    GAIN: ("The noise is equally strong in all images.", _gain),
    BRIGHTNESS: ("Images differ by noise, not in brightness.", _brightness),
    INDEPENDENCE: ("Images are independent.", _independence),
}
"""The assumptions in the order of reports, each with its statement and its words."""
