"""Is randomised selection valid under correlated noise? sicore's class, unchanged, beside attentest.

    python benchmarks/comparison.py validity --signals 500 --gammas 0.5 --processes 2
    python benchmarks/comparison.py plain --signals 200

A signal of 32 values is noise alone. With what is added to it a part of it is selected, one of eight windows or the
eight largest values, and in the signal itself the mean of that part is compared with the mean of the rest. Along the
line the part stays selected on an interval, which is known in closed form: both packages get it exactly.

- validity: randomised selection, at gamma 0.5 and 1. ``sicore.RandomizedSelectiveInference`` takes independent noise,
  here of gamma^2 times the mean variance of the signal; attentest adds gamma times noise like the signal's own.
  Two-sided p with equal tails, as in sicore, which takes the statistic, given the randomised one, for independent of
  the rest of the randomised signal. With independent noise of variance v that holds if Sigma eta is a multiple of eta:
  the covariance of eta'X with the rest is Sigma eta - (Sigma + v I) eta (eta'Sigma eta) / (eta'(Sigma + v I) eta).
- plain: without randomisation, where both compute the same number.

Needs sicore 3.0.0 (tests/independent_requirements.txt).
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import sicore
from agreement import on_processes, table
from numpy.typing import NDArray
from rates import rate
from scipy import stats
from scipy.linalg import toeplitz

from attentest import AttentionTest
from attentest.noise import Dense

SIZE = 32
Floats = NDArray[np.float64]

COVARIANCES: dict[str, Floats] = {
    "independent": np.eye(SIZE),
    "AR(1), 0.5": toeplitz(0.5 ** np.arange(SIZE)),
    "AR(1), 0.9": toeplitz(0.9 ** np.arange(SIZE)),
    "blurred": toeplitz(np.exp(-(np.arange(SIZE) ** 2) / 8.0)),
    "independent, standard deviation 0.5 to 2": np.diag(np.linspace(0.5, 2.0, SIZE) ** 2),
}


@dataclass(frozen=True)
class Selection:
    """The windows with the greatest means."""

    length: int
    """Values of a window."""
    count: int
    """Windows that are selected."""

    def means(self, signals: Floats) -> Floats:
        """Return the means (m, windows) of the windows of signals (m, SIZE)."""
        return signals.reshape(-1, SIZE // self.length, self.length).mean(axis=2)

    def of(self, means: Floats) -> tuple[int, ...]:
        """Return the windows that are selected by their means (windows,)."""
        return tuple(sorted(int(window) for window in np.argsort(means)[-self.count :]))

    def contrast(self, selected: tuple[int, ...]) -> Floats:
        """Return the weights (SIZE,) of the mean of the selected windows minus that of the rest."""
        inside = np.repeat(np.isin(np.arange(SIZE // self.length), selected), self.length)
        return np.where(inside, 1 / inside.sum(), -1 / (~inside).sum())

    def along(self, a: Floats, b: Floats, z: float) -> tuple[tuple[int, ...], list[list[float]]]:
        """Return what is selected at a + b z, and the interval on which it is: what sicore asks for."""
        offsets, slopes = self.means(a)[0], self.means(b)[0]
        selected = self.of(offsets + slopes * z)
        inside = np.isin(np.arange(len(offsets)), selected)
        ahead, faster = (values[inside][:, None] - values[~inside] for values in (offsets, slopes))
        with np.errstate(divide="ignore"):
            equal = -ahead / faster
        return selected, [[float(equal[faster > 0].max(initial=-np.inf)), float(equal[faster < 0].min(initial=np.inf))]]

    def scores(self, images: Floats) -> Floats:
        """Return the means of windows as the scores of a model of signals."""
        return self.means(images)[:, None, :]


SELECTIONS = {"one of eight windows": Selection(4, 1), "eight of 32 values": Selection(1, 8)}


def pvalue_of_sicore(
    signal: Floats, selection: Selection, covariance: Floats, gamma: float, rng: np.random.Generator
) -> float:
    """Return the p-value of sicore, with randomised selection where gamma is not zero."""
    variance = gamma**2 * float(np.mean(np.diag(covariance)))
    added = rng.normal(scale=np.sqrt(variance), size=SIZE)
    selected = selection.of(selection.means(signal + added)[0])
    eta = selection.contrast(selected)
    if gamma == 0:
        inference = sicore.SelectiveInferenceNorm(signal, covariance, eta)
        found = inference.inference(selection.along, lambda other: other == selected, inference_mode="exhaustive")
        return float(found.p_value)
    randomised = sicore.RandomizedSelectiveInference(signal, covariance.copy(), added, variance, eta)
    return float(randomised.inference(selection.along, lambda other: other == selected).p_value)


def pvalues_of_attentest(signals: Floats, selection: Selection, covariance: Floats, gamma: float) -> Floats:
    """Return the p-values of attentest."""
    test = AttentionTest(
        selection.scores,
        image_shape=(1, 1, SIZE),
        noise=Dense(covariance),
        region_unit="patches",
        top_fraction=selection.count * selection.length / SIZE,
        alternative="equal-tailed",
        randomise=gamma,
        confidence_level=None,
    )
    return np.array([result.pvalue for result in test.map(signals[:, None, :])])


def one_of_sicore(task: tuple[Floats, Selection, Floats, float, int, int]) -> float:
    """Return the p-value of sicore for a signal, whose added noise depends on a seed and its number alone."""
    *given, seed, number = task
    warnings.filterwarnings("ignore", module="scipy.integrate")
    return pvalue_of_sicore(*given, np.random.default_rng([seed, number]))


def pvalues(
    signals: Floats, selection: Selection, covariance: Floats, gamma: float, seed: int, processes: int = 1
) -> tuple[Floats, Floats]:
    """Return the p-values of sicore and of attentest for signals (m, SIZE)."""
    tasks = [(signal, selection, covariance, gamma, seed, number) for number, signal in enumerate(signals)]
    theirs = np.array(list(on_processes(one_of_sicore, tasks, processes)))
    return theirs, pvalues_of_attentest(signals, selection, covariance, gamma)


def cases() -> Iterator[tuple[str, Selection, int, str, Floats]]:
    """Yield each selection with each covariance: name and value of both, and a seed for the covariance."""
    for chosen, selection in SELECTIONS.items():
        for seed, (noise, covariance) in enumerate(COVARIANCES.items()):
            yield chosen, selection, seed, noise, covariance


def drawn(count: int, covariance: Floats, seed: int) -> Floats:
    """Return signals of noise."""
    return np.random.default_rng(seed).normal(size=(count, SIZE)) @ np.linalg.cholesky(covariance).T


def validity(asked: argparse.Namespace) -> None:
    """Print how often both reject at 0.05."""

    def rows() -> Iterator[list[str]]:
        for chosen, selection, seed, name, covariance in cases():
            for gamma in asked.gammas:
                signals = drawn(asked.signals, covariance, seed)
                more = drawn(max(asked.more - asked.signals, 0), covariance, len(COVARIANCES) + seed)
                theirs, ours = pvalues(signals, selection, covariance, gamma, seed, asked.processes)
                further = pvalues_of_attentest(more, selection, covariance, gamma) if len(more) else more
                found = [theirs, ours, np.append(ours, further)]
                rates = [rate(ps <= 0.05) for ps in found]
                uniform = [f"{stats.kstest(ps, 'uniform').pvalue:.2g}" for ps in (found[0], found[2])]
                yield [chosen, name, f"{gamma:g}", str(len(theirs)), *rates[:2], str(len(found[2])), rates[2], *uniform]

    header = ["selection", "noise", "gamma", "signals", "sicore: p at most 0.05", "attentest: p at most 0.05"]
    more = ["signals of attentest alone", "attentest alone: p at most 0.05"]
    table([*header, *more, "sicore: Kolmogorov-Smirnov p", "attentest alone: Kolmogorov-Smirnov p"], rows())


def plain(asked: argparse.Namespace) -> None:
    """Print how far both are from each other without randomisation."""

    def rows() -> Iterator[list[str]]:
        for chosen, selection, seed, name, covariance in cases():
            theirs, ours = pvalues(drawn(asked.signals, covariance, seed), selection, covariance, 0.0, seed)
            yield [
                chosen,
                name,
                str(asked.signals),
                f"{np.abs(theirs - ours).max():.1e}",
                rate(theirs <= 0.05),
                rate(ours <= 0.05),
            ]

    table(
        [
            "selection",
            "noise",
            "signals",
            "greatest difference of p",
            "sicore: p at most 0.05",
            "attentest: p at most 0.05",
        ],
        rows(),
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
