"""Is randomised selection valid under correlated noise? sicore's class, unchanged, beside attentest.

    python benchmarks/comparison.py validity --signals 500 --gammas 0.5 --processes 2
    python benchmarks/comparison.py plain --signals 200

A signal of 32 values is noise alone. With what is added to it, one of eight windows has the greatest mean, and in the
signal itself the mean of that window is compared with the mean of the rest. Along the line the window stays the
greatest on an interval, which is known in closed form: both packages get it exactly.

- validity: randomised selection, at gamma 0.5 and 1. ``sicore.RandomizedSelectiveInference`` takes independent noise,
  here of gamma^2 times the mean variance of the signal; attentest adds gamma times noise like the signal's own.
  Two-sided p with equal tails, as in sicore.
- plain: without randomisation, where both compute the same number.

Needs sicore 3.0.0 (tests/independent_requirements.txt).
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import sicore
from agreement import on_processes, table
from numpy.typing import NDArray
from rates import rate
from scipy import stats
from scipy.linalg import toeplitz

from attentest import AttentionTest
from attentest.noise import Dense

SIZE, WINDOWS = 32, 8
LENGTH = SIZE // WINDOWS
Floats = NDArray[np.float64]

COVARIANCES: dict[str, Floats] = {
    "independent": np.eye(SIZE),
    "AR(1), 0.5": toeplitz(0.5 ** np.arange(SIZE)),
    "AR(1), 0.9": toeplitz(0.9 ** np.arange(SIZE)),
    "blurred": toeplitz(np.exp(-(np.arange(SIZE) ** 2) / 8.0)),
    "independent, standard deviation 0.5 to 2": np.diag(np.linspace(0.5, 2.0, SIZE) ** 2),
}


def window_means(signals: Floats) -> Floats:
    """Return the means (m, WINDOWS) of the windows of signals (m, SIZE)."""
    return signals.reshape(-1, WINDOWS, LENGTH).mean(axis=2)


def contrast(window: int) -> Floats:
    """Return the weights (SIZE,) of a window's mean minus that of the rest."""
    inside = np.repeat(np.arange(WINDOWS) == window, LENGTH)
    return np.where(inside, 1 / inside.sum(), -1 / (~inside).sum())


def selection(a: Floats, b: Floats, z: float) -> tuple[int, list[list[float]]]:
    """Return which window is the greatest at a + b z, and the interval on which it is: what sicore asks for."""
    offsets, slopes = window_means(a)[0], window_means(b)[0]
    greatest = int(np.argmax(offsets + slopes * z))
    low, high = -np.inf, np.inf
    for other in np.flatnonzero(np.arange(WINDOWS) != greatest):
        ahead, faster = offsets[greatest] - offsets[other], slopes[greatest] - slopes[other]
        if faster > 0:
            low = max(low, -ahead / faster)
        elif faster < 0:
            high = min(high, -ahead / faster)
    return greatest, [[low, high]]


def pvalue_of_sicore(signal: Floats, covariance: Floats, gamma: float, rng: np.random.Generator) -> float:
    """Return the p-value of sicore, with randomised selection where gamma is not zero."""
    if gamma == 0:
        window = int(np.argmax(window_means(signal)))
        inference = sicore.SelectiveInferenceNorm(signal, covariance, contrast(window))
        found = inference.inference(selection, lambda other: other == window, inference_mode="exhaustive")
        return float(found.p_value)
    variance = gamma**2 * float(np.mean(np.diag(covariance)))
    added = rng.normal(scale=np.sqrt(variance), size=SIZE)
    window = int(np.argmax(window_means(signal + added)))
    randomised = sicore.RandomizedSelectiveInference(signal, covariance.copy(), added, variance, contrast(window))
    return float(randomised.inference(selection, lambda other: other == window).p_value)


def windows_as_scores(images: Floats) -> Floats:
    """Return the means of windows as the scores of a model of signals."""
    return images.reshape(len(images), 1, WINDOWS, LENGTH).mean(axis=3)


def pvalues_of_attentest(signals: Floats, covariance: Floats, gamma: float) -> Floats:
    """Return the p-values of attentest."""
    test = AttentionTest(
        windows_as_scores,
        image_shape=(1, 1, SIZE),
        noise=Dense(covariance),
        region_unit="patches",
        top_fraction=1 / WINDOWS,
        alternative="equal-tailed",
        randomise=gamma,
        confidence_level=None,
    )
    return np.array([result.pvalue for result in test.map(signals[:, None, :])])


def one_of_sicore(task: tuple[Floats, Floats, float, int, int]) -> float:
    """Return the p-value of sicore for a signal, whose added noise depends on a seed and its number alone."""
    signal, covariance, gamma, seed, number = task
    warnings.filterwarnings("ignore", module="scipy.integrate")
    return pvalue_of_sicore(signal, covariance, gamma, np.random.default_rng([seed, number]))


def pvalues(signals: Floats, covariance: Floats, gamma: float, seed: int, processes: int = 1) -> tuple[Floats, Floats]:
    """Return the p-values of sicore and of attentest for signals (m, SIZE)."""
    tasks = [(signal, covariance, gamma, seed, number) for number, signal in enumerate(signals)]
    theirs = np.array(list(on_processes(one_of_sicore, tasks, processes)))
    return theirs, pvalues_of_attentest(signals, covariance, gamma)


def drawn(count: int, covariance: Floats, seed: int) -> Floats:
    """Return signals of noise."""
    return np.random.default_rng(seed).normal(size=(count, SIZE)) @ np.linalg.cholesky(covariance).T


def validity(asked: argparse.Namespace) -> None:
    """Print how often both reject at 0.05."""

    def rows() -> Iterator[list[str]]:
        for seed, (name, covariance) in enumerate(COVARIANCES.items()):
            for gamma in asked.gammas:
                signals = drawn(asked.signals, covariance, seed)
                more = drawn(max(asked.more - asked.signals, 0), covariance, len(COVARIANCES) + seed)
                theirs, ours = pvalues(signals, covariance, gamma, seed, asked.processes)
                found = [
                    theirs,
                    ours,
                    np.append(ours, pvalues_of_attentest(more, covariance, gamma)) if len(more) else ours,
                ]
                rates = [rate(ps <= 0.05) for ps in found]
                uniform = [f"{stats.kstest(ps, 'uniform').pvalue:.2g}" for ps in (found[0], found[2])]
                yield [name, f"{gamma:g}", str(len(theirs)), *rates[:2], str(len(found[2])), rates[2], *uniform]

    header = ["noise", "gamma", "signals", "sicore: p at most 0.05", "attentest: p at most 0.05"]
    more = ["signals of attentest alone", "attentest alone: p at most 0.05"]
    table([*header, *more, "sicore: Kolmogorov-Smirnov p", "attentest alone: Kolmogorov-Smirnov p"], rows())


def plain(asked: argparse.Namespace) -> None:
    """Print how far both are from each other without randomisation."""

    def rows() -> Iterator[list[str]]:
        for seed, (name, covariance) in enumerate(COVARIANCES.items()):
            theirs, ours = pvalues(drawn(asked.signals, covariance, seed), covariance, 0.0, seed)
            yield [
                name,
                str(asked.signals),
                f"{np.abs(theirs - ours).max():.1e}",
                rate(theirs <= 0.05),
                rate(ours <= 0.05),
            ]

    table(
        ["noise", "signals", "greatest difference of p", "sicore: p at most 0.05", "attentest: p at most 0.05"], rows()
    )


def main() -> None:
    """Print the table of one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts: dict[str, Callable[[argparse.Namespace], None]] = {"validity": validity, "plain": plain}
    parser.add_argument("part", choices=parts)
    parser.add_argument("--signals", type=int, default=200)
    parser.add_argument(
        "--more", type=int, default=4000, help="signals of attentest, which takes a hundredth of the time"
    )
    parser.add_argument("--gammas", type=float, nargs="+", default=(0.5, 1.0))
    parser.add_argument("--processes", type=int, default=1)
    asked = parser.parse_args()
    parts[asked.part](asked)


if __name__ == "__main__":
    main()
