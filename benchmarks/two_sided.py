"""What do the two two-sided p-values cost, how often do they reject, and how often do they contradict the interval?

A bundled model on images of noise, without and with a bright square in the middle, of half the side of the image.

    python benchmarks/two_sided.py --size 8 --images 100

With ``--exact``, their power given a truncation set instead, from the laws and without a model: for differences theta
in standard errors, beside the test that conditions on all of the randomised image (data fission, data thinning).

    python benchmarks/two_sided.py --exact
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import norm

from attentest import AttentionTest, bundled_model
from attentest.presentation.footnotes import contradict
from attentest.search import SpectralSearch
from attentest.statistics.alternative import Alternative
from attentest.statistics.law import Law, Strips
from attentest.statistics.selection_laws import RandomisedNormal, TruncatedNormal

ALPHA = 0.05
THETAS = (-4.0, -2.0, -1.0, 1.0, 2.0, 4.0)
SETS = {
    "1 and more": [(1.0, np.inf)],
    "2 and more": [(2.0, np.inf)],
    "1 to 3": [(1.0, 3.0)],
    "2 and more on either side": [(-np.inf, -2.0), (2.0, np.inf)],
}


def main() -> None:
    """Print a row for each kind of images, selection and p-value."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=16, help="side of the images of the bundled model")
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--exact", action="store_true", help="the power given a set, from the laws")
    options = parser.parse_args()
    if options.exact:
        _print_powers()
        return
    noise = np.random.default_rng(options.seed).normal(size=(options.images, options.size, options.size))
    square = np.pad(np.ones((options.size // 2,) * 2), options.size // 4)
    print("| square | gamma | p | evaluations: p, decision, p and interval | rejected | contradicts the interval |")
    print("|---|---|---|---|---|---|")
    kinds: tuple[Alternative, ...] = ("two-sided", "equal-tailed")
    for height in (0.0, 2.0):
        for gamma in (0.0, 0.5):
            for alternative in kinds:
                row = _row(noise + height * square, gamma, alternative, options)
                print(f"| {height:g} | {gamma:g} | {alternative} | {row} |", flush=True)


def _print_powers() -> None:
    """Print the power of both p-values, and of fission, for differences on either side and several sets."""
    print(f"| set of z | gamma | p | {' | '.join(f'theta = {theta:g}' for theta in THETAS)} |")
    print("|---|---|---|" + "---|" * len(THETAS))
    for name, ends in SETS.items():
        for gamma in (0.0, 0.5, 1.0):
            for alternative in ("two-sided", "equal-tailed"):
                lower, upper = _cutoffs(gamma, ends, alternative)
                powers = (_probability(gamma, ends, theta, lower, upper) for theta in THETAS)
                print(f"| {name} | {gamma:g} | {alternative} | {' | '.join(f'{power:.3f}' for power in powers)} |")
            if gamma:
                units = np.array(THETAS) / np.sqrt(1 + 1 / gamma**2)
                powers = (norm.sf(-norm.ppf(ALPHA / 2) - unit) + norm.cdf(norm.ppf(ALPHA / 2) - unit) for unit in units)
                print(f"| {name} | {gamma:g} | fission | {' | '.join(f'{power:.3f}' for power in powers)} |")


def _cutoffs(gamma: float, ends: list[tuple[float, float]], alternative: str) -> tuple[float, float]:
    """Return up to which T, and from which on, p is at most ALPHA."""
    if alternative == "two-sided":
        upper = brentq(lambda cut: _probability(gamma, ends, 0.0, -cut, cut) - ALPHA, 1e-9, 30.0)
        return -upper, upper
    lower = brentq(lambda cut: _probability(gamma, ends, 0.0, cut, np.inf) - ALPHA / 2, -30.0, 30.0)
    return lower, brentq(lambda cut: _probability(gamma, ends, 0.0, -np.inf, cut) - ALPHA / 2, -30.0, 30.0)


def _probability(gamma: float, ends: list[tuple[float, float]], theta: float, lower: float, upper: float) -> float:
    """Return the probability that T is at most ``lower`` or at least ``upper``, given the set of z."""
    at = np.ones(1)
    law: Law = (
        RandomisedNormal(statistic=at, observed_z=at, gamma=gamma * at) if gamma else TruncatedNormal(statistic=at)
    )
    left, right = np.array(ends).T
    masses = law.log_masses(Strips.of(np.zeros(len(ends), int), left, right, mean=theta, lower=lower, upper=upper))
    extreme, ordinary = (np.logaddexp.reduce(mass) for mass in masses)
    return float(expit(extreme - ordinary))


def _row(images: NDArray[np.float64], gamma: float, alternative: Alternative, options: argparse.Namespace) -> str:
    test = AttentionTest.from_pretrained(
        bundled_model(options.size),
        noise=1.0,
        randomise=gamma,
        alternative=alternative,
        search=SpectralSearch(tol=1e-4),
        device=options.device,
    )
    alone = test.replace(confidence_level=None)
    runs = [alone.map(images), alone.map(images, decide_at=ALPHA), test.map(images)]
    cost = ", ".join(f"{np.mean([result.evaluations for result in run]):.0f}" for run in runs)
    intervals = [result.confidence_interval(1 - ALPHA) for result in runs[2]]
    against = sum(
        contradict(result.reject_at(ALPHA), (interval.low, interval.high), 1 - ALPHA, ALPHA)
        for result, interval in zip(runs[2], intervals, strict=True)
    )
    rejected = sum(decision is True for decision in runs[2].decisions(ALPHA))
    return f"{cost} | {rejected} of {len(images)} | {against}"


if __name__ == "__main__":
    main()
