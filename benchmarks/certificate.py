"""Certified p-values: are they uniform under the hypothesis, do they agree with the search, and what do they cost?

Run: python benchmarks/certificate.py --device cuda [--images 1000] [--draws 99] [--steps 3 6 12] [--model DIR ...]
Prints for each model a row per kind of image and number of steps, and then the same for two score functions that are
not continuous, on null images alone.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, binomtest, kstest

from attentest import AttentionTest, Certification, Results, bundled_model
from attentest.search import SpectralSearch
from attentest.simulation.synthetic_images import null_images, signal_images

ALPHAS = (0.01, 0.05, 0.10)


def jumping_scores(images: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return scores of 4 x 4 patches that jump at every fifth of a unit of their means."""
    means = images.reshape(len(images), 4, 2, 4, 2).mean(axis=(2, 4))
    return np.floor(5 * means) + 0.01 * np.arange(16).reshape(4, 4)


def scrambled_scores(images: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return scores whose order is scrambled anew whenever the means of 4 x 4 patches change by 0.02."""
    means = images.reshape(len(images), 4, 2, 4, 2).mean(axis=(2, 4))
    return means + 0.5 * np.modf(np.abs(np.sin(1e4 * np.floor(50 * means))) * 1e3)[0]


def report(label: str, test: AttentionTest, images: NDArray[np.float64], draws: int, steps: int, null: bool) -> None:
    """Test and certify images, and print what was found."""
    test.map(images[:2], certification=Certification(draws=draws, steps=1))  # the first call on a device is slow
    start = time.perf_counter()
    results = test.map(images)
    searched = time.perf_counter() - start
    start = time.perf_counter()
    results = test.map(images, certification=Certification(draws=draws, steps=steps))
    seconds = (time.perf_counter() - start - searched) / len(images)
    certificates = [result.certificate for result in results if result.certificate is not None]
    certified = np.array([each.pvalue for each in certificates])
    print(f"\n{label}, {len(images)} {'null images' if null else 'images with signal'}, {draws} draws, {steps} steps")
    print(
        f"  {np.mean([each.evaluations for each in certificates]):.0f} evaluations and {seconds:.4f} s an image; "
        f"chains that moved: {np.mean([each.moved for each in certificates]):.4f}, "
        f"at least {min(each.moved for each in certificates):.2f}"
    )
    for name, pvalues in (("certified", certified), ("selective", results.pvalues)):
        print(f"  {name} p: {_rates(pvalues, null)}")
    if null:
        within = np.random.default_rng(0).random(len(certified)) / (draws + 1)  # from the grid to a continuous law
        print(f"  Kolmogorov-Smirnov p of the certified p: {kstest(certified - within, 'uniform').pvalue:.3f}")
    _print_agreement(results, draws)


def _rates(pvalues: NDArray[np.float64], null: bool) -> str:
    found = []
    for alpha in ALPHAS:
        count = int(np.sum(pvalues <= alpha * (1 + 1e-9)))
        exact = f" (binomial p {binomtest(count, len(pvalues), alpha).pvalue:.3f})" if null else ""
        found.append(f"<= {alpha:g} for {count / len(pvalues):.3f}{exact}")
    return ", ".join(found)


def _print_agreement(results: Results, draws: int) -> None:
    """Print how far certified and selective p-values are apart, and how far they would be by chance alone."""
    bars = np.array([result.pvalue_bounds for result in results])
    statuses = [result.status for result in results]
    shares = ", ".join(f"{name} {statuses.count(name)}" for name in sorted(set(statuses)))
    print(f"  search: {shares}; mean width of the error bar {np.mean(bars[:, 1] - bars[:, 0]):.2g}")
    certificates = [result.certificate for result in results if result.certificate is not None]
    certified = np.array([each.pvalue for each in certificates])
    counts = np.arange(draws + 1)
    away = np.abs((1 + counts) / (draws + 1) - results.pvalues[:, None])
    expected = np.sum(binom.pmf(counts, draws, results.pvalues[:, None]) * away, axis=1)
    agreements = np.array([each.agreement for each in certificates])
    print(
        f"  mean |certified - selective| {np.mean(np.abs(certified - results.pvalues)):.4f}, by chance "
        f"{expected.mean():.4f}; correlation {np.corrcoef(certified, results.pvalues)[0, 1]:.4f}; disagreements "
        f"{sum(not each.agrees for each in certificates)}, agreement below 0.01 for {np.mean(agreements < 0.01):.4f}"
    )


def models(given: Sequence[Path]) -> dict[str, Path]:
    """Return the bundled models of two sizes, and those given."""
    bundled = {f"bundled {size}x{size}": bundled_model(size) for size in (16, 64)}
    return bundled | {str(path): path for path in given}


def main() -> None:
    """Print all rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--draws", type=int, default=99)
    parser.add_argument("--steps", type=int, nargs="+", default=[3, 6, 12])
    parser.add_argument("--model", type=Path, nargs="*", default=[], help="further models, for images of unit noise")
    parser.add_argument("--delta", type=float, default=2.0, help="strength of the signal")
    parser.add_argument("--skip-models", action="store_true", help="only the functions that are not continuous")
    arguments = parser.parse_args()
    for label, source in {} if arguments.skip_models else models(arguments.model).items():
        test = AttentionTest.from_pretrained(
            source, noise=1.0, search=SpectralSearch(tol=1e-4), confidence_level=None, device=arguments.device
        )
        size = test.image_shape[1]
        rng = np.random.default_rng(16)
        null = null_images(rng, arguments.images, size)
        signal, _ = signal_images(rng, arguments.images, size, arguments.delta)
        for steps in arguments.steps:
            report(label, test, null, arguments.draws, steps, null=True)
            report(label, test, signal, arguments.draws, steps, null=False)
    null = null_images(np.random.default_rng(17), arguments.images, 8)
    for function in (jumping_scores, scrambled_scores):
        test = AttentionTest(
            function,
            noise=1.0,
            image_shape=(1, 8, 8),
            search=SpectralSearch(tol=1e-4, max_evaluations=500),
            confidence_level=None,
        )
        report(function.__name__, test, null, arguments.draws, 6, null=True)


if __name__ == "__main__":
    main()
