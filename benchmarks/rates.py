"""How often p is small, intervals cover, and signals are found: level, coverage and power on images of simulations.

    python benchmarks/rates.py level --images 10000 --device cuda
    python benchmarks/rates.py coverage --images 2000 --device cuda
    python benchmarks/rates.py power --images 1000 --device cuda

Images have --side pixels in both directions, the model is the bundled one of that size or that of --model. Rates have
their standard errors in brackets, and the images of each row are others.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from agreement import table
from numpy.typing import NDArray
from scipy import stats

from attentest import AttentionTest, Results, bundled_model
from attentest.contrast import Filtered
from attentest.noise import AR1, Isotropic, NoiseModel
from attentest.search import SpectralSearch
from attentest.simulation.images import null_images, signal_images

LEVELS = (0.01, 0.05, 0.1)
SEARCH = SpectralSearch(tol=1e-4)
NOISES: dict[str, NoiseModel] = {"independent": Isotropic(1.0), "AR(1), 0.5": AR1(0.5)}

TESTS: dict[str, dict[str, Any]] = {
    "the paper's": {},
    "whole patches": {"region_unit": "patches"},
    "gamma 0.5": {"randomise": 0.5},
    "gamma 1": {"randomise": 1.0},
    "gamma 0.5, whole patches": {"randomise": 0.5, "region_unit": "patches"},
}
OTHER_HYPOTHESES: dict[str, dict[str, Any]] = {
    "equal tails": {"alternative": "equal-tailed"},
    "greater": {"alternative": "greater"},
    "against a ring of radius 3": {"contrast": "neighbourhood:3"},
    "mean of the Laplacian": {"contrast": Filtered("laplacian")},
    "top tenth of the pixels": {"top_fraction": 0.1},
}
DRAWS: dict[str, dict[str, Any]] = {
    "gamma 0.5, 21 draws": {"randomise": 0.5, "draws": 21},
    "gamma 1, 21 draws": {"randomise": 1.0, "draws": 21},
}


def rate(hits: NDArray[np.bool_]) -> str:
    """Return a rate with its standard error."""
    share = float(np.mean(hits))
    return f"{share:.4f} ({np.sqrt(share * (1 - share) / len(hits)):.4f})"


def tested(
    images: NDArray[np.float64], noise: NoiseModel, options: dict[str, Any], asked: argparse.Namespace
) -> Results:
    """Return the results of images."""
    test = AttentionTest.from_pretrained(asked.model, noise=noise, device=asked.device, search=SEARCH, **options)
    return test.map(images)


def level(asked: argparse.Namespace) -> None:
    """Print the rates of small p on null images."""

    def rows() -> Iterator[list[str]]:
        seed = 0
        for noise_name, noise in NOISES.items():
            for name, options in (TESTS | OTHER_HYPOTHESES | DRAWS).items():
                seed += 1
                count = asked.images if "draws" not in options else max(1, asked.images // 10)
                images = null_images(np.random.default_rng([40, seed]), count, asked.side, noise)
                results = tested(images, noise, {"confidence_level": None, **options}, asked)
                pvalues = np.array([result.pvalue for result in results])
                naive = np.array([result.naive_pvalue for result in results])
                uniform = "" if "draws" in options else f"{stats.kstest(pvalues, 'uniform').pvalue:.3f}"
                rates = [rate(pvalues <= alpha) for alpha in LEVELS]
                rejected = "" if "draws" in options else f"{np.mean(naive <= 0.05):.3f}"
                yield [name, noise_name, str(count), *rates, uniform, rejected]

    header = ["test", "noise", "images", *(f"p at most {alpha}" for alpha in LEVELS), "Kolmogorov-Smirnov p"]
    table([*header, "naive p at most 0.05"], rows())


def coverage(asked: argparse.Namespace) -> None:
    """Print how often 95% intervals hold the true difference, and how long they are."""

    def rows() -> Iterator[list[str]]:
        seed = 0
        for noise_name, noise in NOISES.items():
            for height in (0.0, 2.0):
                for name, options in TESTS.items():
                    seed += 1
                    rng = np.random.default_rng([41, seed])
                    images, squares = signal_images(rng, asked.images, asked.side, height, noise)
                    means = height * squares
                    results = tested(images, noise, options, asked)
                    truth = np.array(
                        [
                            mean[result.region].mean() - mean[~result.region].mean()
                            for mean, result in zip(means, results, strict=True)
                        ]
                    )
                    intervals = [result.confidence_interval() for result in results]
                    ends = np.array([[interval.low, interval.high] for interval in intervals])
                    half = stats.norm.ppf(0.975) * np.array([result.standard_error for result in results])
                    naive = np.array([result.difference for result in results])[:, None] + np.outer(half, [-1, 1])
                    below = rate(np.array([result.estimate for result in results]) < truth)
                    yield [
                        name,
                        noise_name,
                        f"{height:g}",
                        str(len(results)),
                        rate((ends[:, 0] <= truth) & (truth <= ends[:, 1])),
                        rate((naive[:, 0] <= truth) & (truth <= naive[:, 1])),
                        below,
                        f"{np.median(np.diff(ends)):.2f}",
                        f"{np.median(np.diff(naive)):.2f}",
                        f"{np.mean([result.evaluations for result in results]):.0f}",
                    ]

    header = ["test", "noise", "signal", "images", "coverage", "naive coverage", "estimate below the truth"]
    table([*header, "median length", "naive length", "evaluations"], rows())


def power(asked: argparse.Namespace) -> None:
    """Print how often p is at most 0.05 in images with a bright square."""

    def rows() -> Iterator[list[str]]:
        for noise_name, noise in NOISES.items():
            for name, options in (TESTS | DRAWS).items():
                count = asked.images if "draws" not in options else max(1, asked.images // 5)
                rates = []
                for height in (1.0, 1.5, 2.0, 3.0):
                    rng = np.random.default_rng([42, int(10 * height)])  # the same images for all tests
                    images, _ = signal_images(rng, count, asked.side, height, noise)
                    results = tested(images, noise, {"confidence_level": None, **options}, asked)
                    rates.append(rate(np.array([result.pvalue for result in results]) <= 0.05))
                yield [name, noise_name, str(count), *rates]

    table(["test", "noise", "images", *(f"signal {height:g}" for height in (1.0, 1.5, 2.0, 3.0))], rows())


def main() -> None:
    """Print the tables of one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {part.__name__: part for part in (level, coverage, power)}
    parser.add_argument("part", choices=parts)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--side", type=int, default=16)
    parser.add_argument("--model", type=Path, help="by default the bundled model of that size")
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    asked.model = asked.model or bundled_model(asked.side)
    parts[asked.part](asked)


if __name__ == "__main__":
    main()
