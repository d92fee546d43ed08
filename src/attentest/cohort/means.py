"""Means, regression and heterogeneity of estimates of many images with patients as clusters, and sample sizes.

Variances are cluster-robust with the correction CR2 of Bell and McCaffrey (2002), and t quantiles have Satterthwaite's
degrees of freedom: see Pustejovsky and Tipton (2018), *Small-sample methods for cluster-robust variance estimation*.
Without clusters and covariates this is the t-test.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc, chdtri, nctdtr, ndtr, ndtri, stdtr, stdtrit

from attentest.checks import level, positive_number, real_number, strictly_between_0_and_1, whole_number
from attentest.errors import InputError
from attentest.presentation.number_texts import interval_name, interval_text, number_text, with_sign
from attentest.statistics.columns import Floats, Integers
from attentest.statistics.interval_mass import probability

SINGULAR = 1e-10  # share of all other clusters in a coefficient that counts as none
FEWEST_DEGREES = 5.0  # of an estimated noise, for an interval that allows for it approximately
LARGEST_STUDY = 10_000_000  # no plan has more patients


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """An estimate, its standard error with degrees of freedom, an interval, and the two-sided p-value of zero."""

    value: float
    standard_error: float
    degrees: float
    low: float
    high: float
    confidence_level: float
    pvalue: float

    def __str__(self) -> str:
        interval = f"{interval_name(self.confidence_level)} {interval_text(self.low, self.high)}"
        return f"{self.value:.3g} ({interval}, p {with_sign(number_text(self.pvalue))})"


def two_sided(statistic: float, degrees: float) -> float:
    """Return the two-sided p-value of a t statistic, never zero."""
    tail = ndtr(-abs(statistic)) if math.isinf(degrees) else stdtr(degrees, -abs(statistic))
    return max(min(2 * float(tail), 1.0), probability(-math.inf))


def student(value: float, variance: float, degrees: float, confidence_level: float) -> Estimate:
    """Return an estimate with the interval of Student's t."""
    error, share = math.sqrt(max(variance, np.finfo(float).tiny)), (1 + confidence_level) / 2
    half = error * float(ndtri(share) if math.isinf(degrees) else stdtrit(degrees, share))
    interval = {"low": value - half, "high": value + half, "confidence_level": confidence_level}
    p = two_sided(value / error, degrees)
    return Estimate(value=value, standard_error=error, degrees=degrees, pvalue=p, **interval)


def regression(
    x: Floats,
    values: Floats,
    cluster: Integers,
    confidence_level: float,
    correction: Floats | float = 0.0,
    noise_degrees: float = math.inf,
) -> list[Estimate]:
    """Return the coefficients of least squares, with cluster-robust variances.

    Parameters
    ----------
    x, values, cluster : (k, p), (k,), (k,)
        Explanatory variables, of full rank; what is explained; and the number of the cluster of each, from 0.
    confidence_level
        Of the intervals.
    correction, noise_degrees : (k,), float
        What of the values is proportional to a variance that was estimated once for all of them, and the degrees of
        freedom of that variance; infinite if it is known.
    """
    scale = np.abs(x).max(axis=0)
    q, r = np.linalg.qr(x / scale)
    root = np.linalg.inv(r) / scale[:, None]  # root root' is (X'X)^(-1)
    explained = q.T @ values
    coefficients, shift = root @ explained, root @ (q.T @ np.broadcast_to(correction, values.shape))
    residuals = values - q @ explained
    adjusted = np.empty_like(x)  # (I - H_cc)^(-1/2) X_c (X'X)^(-1) for each cluster c
    order = np.argsort(cluster, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(cluster[order])) + 1):
        left, singular, right = np.linalg.svd(q[rows], full_matrices=False)
        rest = 1 - singular**2
        if rest.min() <= SINGULAR:
            raise InputError(
                "one of the clusters alone determines a coefficient, so that nothing tells how much it varies: leave "
                "out one of the covariates, or add patients.",
                *("clusters", "covariates"),
            )
        adjusted[rows] = (left * singular / np.sqrt(rest)) @ right @ root.T
    # The true variance over the estimated one is nu over a chi-squared number; with fewer degrees that has no variance.
    nu = max(noise_degrees, FEWEST_DEGREES)
    relative = 0.0 if math.isinf(nu) else 2 * (nu / (nu - 2)) ** 2 / (nu - 4)
    found = []
    for value, b, shared in zip(coefficients, adjusted.T, relative * shift**2, strict=True):
        scores, norm, *products = (np.bincount(cluster, b * column) for column in (residuals, b, *q.T))
        # The variance is a quadratic form of the values, and its degrees of freedom follow from trace and Frobenius
        # norm of the products of its vectors, diag(norm) - P P'.
        p = np.column_stack(products)
        own = np.einsum("cp,cp->c", p, p)
        frobenius = norm @ norm - 2 * norm @ own + np.sum((p.T @ p) ** 2)
        variance, degrees = float(scores @ scores), float((norm - own).sum() ** 2 / frobenius)
        total = variance + float(shared)
        if shared > 0:  # Satterthwaite's for the sum of two
            degrees = total**2 / (variance**2 / degrees + float(shared) ** 2 / nu)
        found.append(student(float(value), total, degrees, confidence_level))
    return found


@dataclass(frozen=True, kw_only=True)
class RandomEffects:
    """True differences that vary between clusters, or images without clusters."""

    mean: Estimate
    """Mean of the true differences, each weighted by how well it is known: Hartung and Knapp (2001)."""
    deviation: float
    deviation_low: float
    deviation_high: float
    """Standard deviation tau of the true differences by Paule and Mandel (1982), with an interval from the law of Q."""
    heterogeneity: float
    q: float
    q_pvalue: float
    """I^2, the share of the variation that is not noise; Cochran's Q; the p-value of equal true differences."""


def random_effects(values: Floats, plain: Floats, variance: Floats, confidence_level: float) -> RandomEffects:
    """Return mean and spread of true differences.

    Parameters
    ----------
    values : (k,)
        Unbiased estimates, whose mean is returned.
    plain, variance : (k,)
        Unbiased estimates that are normal with known variances, from which the spread is taken.
    confidence_level
        Of the intervals.
    """
    from scipy.optimize import brentq  # here because few results need it

    degrees = len(values) - 1

    def spread(extra: float, of: Floats = plain) -> float:
        weights = 1 / (variance + extra)
        return float(weights @ (of - weights @ of / weights.sum()) ** 2)

    def between(target: float) -> float:
        """Return the variance of true differences at which Q has a value; zero if it has less without any."""
        most = float(np.ptp(plain) ** 2 * len(plain) / target)
        return 0.0 if spread(0.0) <= target else float(brentq(lambda v: spread(v) - target, 0, most, xtol=1e-12 * most))

    q, tail, usual = spread(0.0), (1 - confidence_level) / 2, between(degrees)
    weights = 1 / (variance + usual)
    hartung_knapp = spread(usual, values) / degrees / float(weights.sum())
    return RandomEffects(
        mean=student(float(weights @ values / weights.sum()), hartung_knapp, float(degrees), confidence_level),
        deviation=math.sqrt(usual),
        deviation_low=math.sqrt(between(float(chdtri(degrees, tail)))),
        deviation_high=math.sqrt(between(float(chdtri(degrees, 1 - tail)))),
        heterogeneity=max(0.0, 1 - degrees / q) if q > 0 else 0.0,
        q=q,
        q_pvalue=max(float(chdtrc(degrees, q)), probability(-math.inf)),
    )


def patients_needed(
    effect: float,
    deviation: float,
    *,
    heterogeneity: float = 0.0,
    intraclass_correlation: float = 0.0,
    images_per_patient: int = 1,
    groups: int = 1,
    alpha: float = 0.05,
    power: float = 0.8,
) -> int:
    """Return how many patients a study needs, in each group, by the power of the t-test of their means.

    Parameters
    ----------
    effect
        Mean difference to be found, in the units of the pixels; with two groups, between their means.
    deviation
        Standard deviation of the estimate of an image about its true difference: at most the standard error of the
        naive difference times sqrt(1 + 1 / gamma^2).
    heterogeneity, intraclass_correlation
        Standard deviation of the true differences of images, and correlation of those of one patient.
    images_per_patient, groups, alpha, power
        Images of each patient; 1 or 2 groups; level of the test, and the probability with which it finds the effect.
    """
    size, noise = positive_number(abs(real_number(effect, "effect")), "effect"), positive_number(deviation, "deviation")
    spread = real_number(heterogeneity, "heterogeneity")
    correlation = real_number(intraclass_correlation, "intraclass_correlation")
    each = whole_number(images_per_patient, "images_per_patient", 1, 10**6)
    samples = whole_number(groups, "groups", 1, 2)
    alpha, power = level(alpha), strictly_between_0_and_1(power, "power")
    if not (0 <= spread < math.inf and 0 <= correlation <= 1):
        raise InputError(
            f"heterogeneity must be 0 or more and intraclass_correlation 0 to 1, got {spread} and {correlation}."
        )
    unit = math.sqrt(correlation * spread**2 + ((1 - correlation) * spread**2 + noise**2) / each)

    def finds(patients: int) -> bool:
        degrees, shift = samples * (patients - 1), size / unit * math.sqrt(patients / samples)
        cutoff = float(stdtrit(degrees, 1 - alpha / 2))
        return shift > 2 * cutoff + 30 or 1 - float(nctdtr(degrees, shift, cutoff)) >= power

    low, high = 1, 2
    while not finds(high):
        low, high = high, 2 * high
        if high > LARGEST_STUDY:
            raise InputError(f"an effect of {size:g} needs more than {LARGEST_STUDY:,} patients: plan a larger one.")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if finds(middle) else (middle, high)
    return high
