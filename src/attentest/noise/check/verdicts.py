"""P-values of the assumptions by rank among simulated images, and the verdicts that follow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attentest.noise.check.autocorrelation import mean_deviations, region_sides
from attentest.noise.check.measures import (
    BRIGHTNESS,
    CLIPPING,
    CORRELATION,
    GAIN,
    INDEPENDENCE,
    STATIONARY,
    Measures,
    correlation_names,
)
from attentest.noise.check.noise_check import BROKEN, HOLDS, SMALL, Assumption
from attentest.noise.check.words import ORDER, Measured
from attentest.noise.protocol import FloatArray

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
