"""The assumptions of a noise model: what was found about each, what it does to p-values, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from attentest.errors import worded
from attentest.noise.model import FloatArray
from attentest.simulation.noise_check.measures import (
    BRIGHTNESS,
    CLIPPING,
    CORRELATION,
    GAIN,
    GAUSSIAN,
    INDEPENDENCE,
    SCALE,
    STATIONARY,
    Measures,
    correlation_names,
    mean_deviations,
    region_sides,
    spreads,
)
from attentest.statistics.multiple_testing import adjusted_pvalues

HOLDS, SMALL, BROKEN = "no sign against it", "found, but small", "broken"  # what can be said about an assumption

HARMLESS = {
    HOLDS: "Draws from the model show as much.",
    SMALL: "This is more than draws from the model show, and too little to change conclusions.",
}
"""What is said of assumptions that are not broken."""

BEYOND_CHANCE = "more than chance explains (standard deviation)"
"""What is said of an estimated spread, which is 0 where images differ no more than by their noise."""

ROUNDING = 1e-9  # measures that vary by less than this, relative to their size, are the same up to rounding
SMALLEST_DEVIATION = 1e-6  # standard deviations of a mean below this, in units of that of a pixel, count as this
SMALLEST_RATIO = 1e-300  # ratios of standard deviations below this count as this


@dataclass(frozen=True, kw_only=True)
class Assumption:
    """One assumption of a noise model, and what the images say about it."""

    name: str
    """Its name."""
    statement: str
    """What is assumed, as a sentence."""
    statistic: float
    statistic_name: str
    """What was measured, and what it is."""
    pvalue: float
    """Monte-Carlo p-value: the rank of the images among images drawn from the model."""
    as_extreme: int
    """Number of sets of drawn images that are at least as extreme; if it is 0, p is as small as it can be."""
    adjusted_pvalue: float
    """The p-value after Holm's adjustment for all assumptions."""
    verdict: str
    """One of three: "no sign against it"; "found, but small", if the adjusted p-value is at most alpha and what was
    found is too small to change conclusions; or "broken"."""
    finding: str
    """What was measured, as a sentence."""
    consequence: str
    """What it does to p-values."""
    advice: str
    """What to do, if the assumption is broken."""

    @property
    def holds(self) -> bool:
        """Whether nothing was found that matters."""
        return self.verdict != BROKEN

    @property
    def adjusted_text(self) -> str:
        """The adjusted p-value as text: "0.04 or less" if more simulations might make it smaller."""
        return f"{self.adjusted_pvalue:.3g}{' or less' if self.as_extreme == 0 else ''}"

    def in_words(self) -> str:
        """Return what was found, what it does to p-values and what to do."""
        return " ".join(part for part in (self.finding, self.consequence, self.advice) if part)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON-ready values."""
        return {**asdict(self), "holds": self.holds}


class Finding(NamedTuple):
    """What was found about an assumption, as in :class:`Assumption`, and whether it matters."""

    statistic: float
    statistic_name: str
    matters: bool
    finding: str
    consequence: str
    advice: str


def _scale(value: float, place: int, images: Measures, drawn: Sequence[Measures]) -> Finding:
    expected = float(np.mean([sample.effects[SCALE][place] for sample in drawn]))
    ratio = value / max(expected, SMALLEST_RATIO)
    inverse = 1 / max(ratio, SMALLEST_RATIO)
    channel = f"of channel {place} " if len(images.effects[SCALE]) > 1 else ""
    number = f"{ratio:.2f}" if 0.1 < ratio < 10 else f"{ratio:.3g}"
    consequence = "p-values are too large, and true differences are missed."
    if ratio > 1:
        consequence = f"p-values are too small: what the model calls 3 standard errors is {3 * inverse:.2g}."
    if max(ratio, inverse) > 10:
        consequence += " Such a factor comes from units: grey levels of 8 and of 16 bits, or images rescaled to 0 to 1."
    return Finding(
        ratio,
        "standard deviation / model's",
        max(ratio, inverse) >= 1.02,
        f"The standard deviation {channel}is {number} times the model's.",
        consequence,
        "Check the units of images and noise, or fit the noise to these images.",
    )


def _correlation(value: float, place: int, images: Measures, drawn: Sequence[Measures]) -> Finding:
    expected = float(np.mean([sample.effects[CORRELATION][place] for sample in drawn]))
    lag = correlation_names(images.correlation, len(images.effects[SCALE]))[place]
    sides = region_sides([side - 1 for side in images.correlation.shape])
    by_model = mean_deviations(np.mean([sample.correlation for sample in drawn], axis=0), sides)
    ratios = mean_deviations(images.correlation, sides) / np.maximum(by_model, SMALLEST_DEVIATION)
    logs = np.abs(np.log(np.maximum(ratios, 1e-3)))
    worst = int(logs.argmax())
    region, ratio = " x ".join([str(sides[worst])] * images.correlation.ndim), float(ratios[worst])
    return Finding(
        ratio,
        f"standard error of a mean of {region} pixels / model's",
        bool(logs[worst] >= np.log(1.05)) or abs(value - expected) >= 0.05,
        f"The correlation of {lag} is {value:z.3f}, and {expected:z.3f} by the model; the standard error of a mean "
        f"of {region} pixels is {ratio:.3g} times the model's.",
        f"p-values are too {'small' if ratio > 1 else 'large'}.",
        "Fit a stationary covariance (StationaryCovariance, attentest noise fit --estimator stationary); if this is "
        "one, fit it to more images.",
    )


def _variance_map(value: float, place: int, images: Measures, drawn: Sequence[Measures]) -> Finding:
    return Finding(
        value,
        "standard deviation of the noise level",
        value >= 0.05,
        f"Relative to the model, the level of the noise varies by {value:.1%} "
        f"{spreads(images.correlation.ndim)[place]} {BEYOND_CHANCE}.",
        "p-values are too small where the noise is stronger than the model says, and too large where it is weaker.",
        "Use a noise model whose variance changes over the image (LocallyStationaryCovariance, attentest noise fit "
        "--estimator locally-stationary; PixelVariance if pixels are independent), or leave out the area that differs.",
    )


def _gaussian(value: float, place: int, images: Measures, drawn: Sequence[Measures]) -> Finding:
    skewness, kurtosis = map(float, images.effects[GAUSSIAN])
    return Finding(
        value,
        ("skewness", "excess kurtosis")[place],
        abs(skewness) >= 0.1 or abs(kurtosis) >= 0.3,
        f"Skewness is {skewness:z.2f} and excess kurtosis {kurtosis:z.2f}; both are 0 for Gaussian noise.",
        "Means over regions of many pixels are closer to Gaussian than pixels are, so moderate p-values change little; "
        "very small p-values, and regions of few pixels, are not to be trusted.",
        "Look for outliers (bad pixels, cosmic rays), transform the intensities (square root for counts, log for "
        "speckle), or average repeated images.",
    )


def _clipping(value: float, place: int, images: Measures, drawn: Sequence[Measures]) -> Finding:
    more = int(images.effects[CLIPPING].argmax())
    share, end = float(images.effects[CLIPPING][more]), ("least", "greatest")[more]
    return Finding(
        share,
        f"share of values at the {end} one",
        share >= 0.001,
        f"{share:.2%} of the values are exactly the {end} one, {images.value_range[more]:g}, besides one per image.",
        "Where the range cuts the noise off, or an area was masked, the noise is smaller and not Gaussian, and the "
        "mean is shifted.",
        "Use images before they were clipped, windowed or masked, or leave out the area.",
    )


def _gain(value: float, place: int, images: Measures, drawn: Sequence[Measures]) -> Finding:
    return Finding(
        value,
        "standard deviation of the gain",
        value >= 0.03,
        f"The strength of the noise differs between images by {value:.1%} {BEYOND_CHANCE}.",
        "One model cannot be right for all images: p-values are too small for those with more noise than average.",
        "Bring the images to the same scale first, or fit the noise to those that are like the tested images.",
    )


def _brightness(value: float, place: int, images: Measures, drawn: Sequence[Measures]) -> Finding:
    return Finding(
        value,
        "standard deviation of the brightness / that of a pixel",
        value >= 0.05,
        f"The brightness of whole images differs by {value:.3g} standard deviations of a pixel {BEYOND_CHANCE}.",
        "A region compared with the rest of the same image is not affected; one compared with a reference image or "
        "with a fixed value is, and its p-values are too small. Estimators take it for correlation.",
        "Subtract from each image its mean, or add a constant to the covariance.",
    )


def _independence(value: float, place: int, images: Measures, drawn: Sequence[Measures]) -> Finding:
    pair, average = (("two of the images", ""), ("successive images", " on average"))[place]
    return Finding(
        value,
        f"correlation of {pair}",
        value >= 0.05,
        f"The noise of {pair} has a correlation of {value:z.2f}{average}.",
        "The noise that images share is taken for their mean, so that the noise is underestimated.",
        "Leave out copies, and images that share data: neighbouring slices, reconstructions of one scan.",
    )


class Criterion(NamedTuple):
    """How images are judged by an assumption: its statement, what is found about it, and which measures matter.

    ``find`` is a function of the most conspicuous effect and its place, of the measures of the images, and of those of
    drawn images. Against a one-sided assumption only large measures speak: a fit that is too good is no fault.
    """

    statement: str
    find: Callable[[float, int, Measures, Sequence[Measures]], Finding]
    one_sided: bool


CRITERIA: Mapping[str, Criterion] = {
    SCALE: Criterion("The standard deviation is the model's.", _scale, False),
    CORRELATION: Criterion("Pixels are correlated as the model says.", _correlation, False),
    STATIONARY: Criterion("The noise is as strong as the model says everywhere in the image.", _variance_map, True),
    GAUSSIAN: Criterion("The noise is Gaussian.", _gaussian, False),
    CLIPPING: Criterion("The range of values does not cut the noise off.", _clipping, True),
    GAIN: Criterion("The noise is equally strong in all images.", _gain, True),
    BRIGHTNESS: Criterion("Images differ by noise, not in brightness.", _brightness, True),
    INDEPENDENCE: Criterion("Images are independent.", _independence, True),
}
"""The assumptions in the order of reports."""


def undecided(tested: Mapping[str, Sequence[FloatArray]], most: int, alpha: float) -> list[str]:
    """Return the assumptions whose verdicts more sets of drawn images can still change.

    Of ``most`` sets at least as many will be as extreme as are now, which bounds p-values, and so adjusted p-values,
    from below: those that will be greater than alpha, the error rate of all verdicts together, are decided. Tested are,
    for each assumption, the numbers of the images, and then those of the sets that were drawn.
    """
    ranks = [ranked(np.array(rows), CRITERIA[name].one_sided)[0] * len(rows) for name, rows in tested.items()]
    least = adjusted_pvalues(np.log(np.array(ranks) / (most + 1)), "holm")
    return [name for name, pvalue in zip(tested, least, strict=True) if pvalue <= alpha * (1 + ROUNDING)]


def verdicts(
    images: Measures,
    drawn: Sequence[Measures],
    alpha: float,
    tested: Mapping[str, Sequence[FloatArray]],
) -> tuple[Assumption, ...]:
    """Return the assumptions with their verdicts, from measures of the images and of sets drawn from the noise model.

    Their error rate is alpha for all together. Tested are, for each assumption, the numbers of the images, and then
    those of drawn sets, of which there may be more than ``drawn``.
    """
    ranks = {name: ranked(np.array(tested[name]), criterion.one_sided) for name, criterion in CRITERIA.items()}
    adjusted = adjusted_pvalues(np.log([pvalue for pvalue, _ in ranks.values()]), "holm").tolist()
    assumptions, dimension = [], images.correlation.ndim
    for (name, criterion), adjusted_pvalue in zip(CRITERIA.items(), adjusted, strict=True):
        pvalue, place = ranks[name]
        finding = criterion.find(float(images.effects[name][place]), place, images, drawn)
        verdict = BROKEN if finding.matters else SMALL
        if adjusted_pvalue > alpha * (1 + ROUNDING):
            verdict = HOLDS
        words: dict[str, Any] = {name: value for name, value in finding._asdict().items() if name != "matters"}
        if verdict != BROKEN:
            words |= {"consequence": HARMLESS[verdict], "advice": ""}
        if verdict == HOLDS and pvalue <= alpha * (1 + ROUNDING):
            words["consequence"] = (
                f"Alone this would be conspicuous (p = {pvalue:.2g}), but not among {len(CRITERIA)} assumptions."
            )
        words = {part: worded(said, dimension) if isinstance(said, str) else said for part, said in words.items()}
        assumptions.append(
            Assumption(
                name=name,
                statement=worded(criterion.statement, dimension),
                pvalue=pvalue,
                as_extreme=round(pvalue * len(tested[name])) - 1,
                adjusted_pvalue=adjusted_pvalue,
                verdict=verdict,
                **words,
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
