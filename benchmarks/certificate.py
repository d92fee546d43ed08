"""Certified p-values: are they uniform under the hypothesis, do they agree with the search, and what do they cost?

Run: python benchmarks/certificate.py --device cuda [--images 1000] [--draws 99] [--steps 3 6 12] [--model DIR ...]
Parts: "null" and "signal" are images without and with signal for the bundled models and those given, for each number of
steps; "functions" are null images for two score functions that are not continuous, on the CPU. One model alone:
       python benchmarks/certificate.py --device cuda --parts null --sizes 16 --steps 6
Prints a table for each kind of images, as soon as it is measured. Needs torch, transformers, NumPy and SciPy only.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, binomtest, kstest

from attentest import AttentionTest, Results, bundled_model
from attentest.search import Certification, SpectralSearch
from attentest.simulation.images import null_images, signal_images

ALPHAS = (0.01, 0.05, 0.10)
PARTS = ("null", "signal", "functions")


def jumping_scores(images: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return scores of 4 x 4 patches that jump at every fifth of a unit of their means."""
    means = images.reshape(len(images), 4, 2, 4, 2).mean(axis=(2, 4))
    return np.floor(5 * means) + 0.01 * np.arange(16).reshape(4, 4)


def scrambled_scores(images: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return scores whose order is scrambled anew whenever the means of 4 x 4 patches change by 0.02."""
    means = images.reshape(len(images), 4, 2, 4, 2).mean(axis=(2, 4))
    return means + 0.5 * np.modf(np.abs(np.sin(1e4 * np.floor(50 * means))) * 1e3)[0]


def report(label: str, test: AttentionTest, images: NDArray[np.float64], how: Certification, null: bool) -> None:
    """Test and certify images, and print a table of what was found."""
    test.map(images[:2], certification=Certification(draws=how.draws, steps=1))  # the first call on a device is slow
    start = time.perf_counter()
    test.map(images)
    searched = time.perf_counter() - start
    start = time.perf_counter()
    results = test.map(images, certification=how)
    certified = time.perf_counter() - start - searched
    kind = "null images" if null else "images with signal"
    print(f"\n{label}: {len(images)} {kind}, {how.draws} draws of {how.steps} steps\n")
    print("| | certified p | p of the search |\n|---|---|---|")
    for measure, *cells in rows(results, how.draws, null):
        print(f"| {measure} | {' | '.join(cells)} |")
    print(f"| seconds per image | {certified / len(images):.4f} | {searched / len(images):.4f} |", flush=True)


def rows(results: Results, draws: int, null: bool) -> Iterator[tuple[str, str, str]]:
    """Yield rows about certified p-values and those of the search: rates, agreement and cost."""
    certificates = [result.certificate for result in results if result.certificate is not None]
    certified, searched = np.array([each.pvalue for each in certificates]), results.pvalues
    for alpha in ALPHAS:
        about = " (exact binomial p)" if null else ""
        yield f"at most {alpha:g}{about}", _rate(certified, alpha, null), _rate(searched, alpha, null)
    if null:
        spread = np.random.default_rng(0).random(len(certified)) / (draws + 1)  # from the grid to a continuous law
        yield "Kolmogorov-Smirnov p", *(f"{kstest(p, 'uniform').pvalue:.3f}" for p in (certified - spread, searched))
    counts = np.arange(draws + 1)
    away = np.abs((1 + counts) / (draws + 1) - searched[:, None])
    by_chance = np.sum(binom.pmf(counts, draws, searched[:, None]) * away, axis=1).mean()
    yield "mean difference of the two (by chance)", f"{np.mean(np.abs(certified - searched)):.4f} ({by_chance:.4f})", ""
    yield "correlation of the two", f"{np.corrcoef(certified, searched)[0, 1]:.4f}", ""
    yield "agrees with the search", f"{np.mean([each.agrees for each in certificates]):.4f}", ""
    unlikely = np.mean([each.agreement < 0.01 for each in certificates])
    yield "probability of the draws below 0.01", f"{unlikely:.4f}", ""
    moved = [each.moved for each in certificates]
    yield "chains that moved (least share)", f"{np.mean(moved):.4f} ({min(moved):.2f})", ""
    statuses = Counter(result.status for result in results)
    yield "status", "", ", ".join(f"{name} {count}" for name, count in sorted(statuses.items()))
    yield "mean width of the error bar", "", f"{np.mean([np.diff(result.pvalue_bounds) for result in results]):.2g}"
    costs = ([each.evaluations for each in certificates], [result.evaluations for result in results])
    yield "evaluations per image", *(f"{np.mean(cost):.0f}" for cost in costs)


def _rate(pvalues: NDArray[np.float64], alpha: float, null: bool) -> str:
    count = int(np.sum(pvalues <= alpha * (1 + 1e-9)))  # certified p-values are fractions, such as 5 / 100
    exact = f" ({binomtest(count, len(pvalues), alpha).pvalue:.3f})" if null else ""
    return f"{count / len(pvalues):.3f}{exact}"


def report_model(label: str, source: Path, arguments: argparse.Namespace) -> None:
    """Print the tables of a model, for images of unit noise."""
    test = AttentionTest.from_pretrained(
        source, noise=1.0, search=SpectralSearch(tol=1e-4), confidence_level=None, device=arguments.device
    )
    size, rng = test.image_shape[1], np.random.default_rng(16)
    null = null_images(rng, arguments.images, size)
    signal, _ = signal_images(rng, arguments.images, size, arguments.delta)
    for steps in arguments.steps:
        for part, images in (("null", null), ("signal", signal)):
            if part in arguments.parts:
                report(label, test, images, Certification(draws=arguments.draws, steps=steps), null=part == "null")


def report_functions(arguments: argparse.Namespace) -> None:
    """Print the tables of the functions that are not continuous, with the default number of steps."""
    null = null_images(np.random.default_rng(17), arguments.images, 8)
    for function in (jumping_scores, scrambled_scores):
        test = AttentionTest(
            function,
            noise=1.0,
            image_shape=(1, 8, 8),
            search=SpectralSearch(tol=1e-4, max_evaluations=500),
            confidence_level=None,
        )
        report(function.__name__, test, null, Certification(draws=arguments.draws), null=True)


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--draws", type=int, default=99)
    parser.add_argument("--steps", type=int, nargs="+", default=[3, 6, 12])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--sizes", type=int, nargs="*", default=[16, 64], help="sizes of the bundled models")
    parser.add_argument("--model", type=Path, nargs="*", default=[], help="further models, for images of unit noise")
    parser.add_argument("--delta", type=float, default=2.0, help="strength of the signal")
    arguments = parser.parse_args()
    models = {f"bundled {size}x{size}": bundled_model(size) for size in arguments.sizes}
    models |= {str(path): path for path in arguments.model}
    if {"null", "signal"} & set(arguments.parts):
        for label, source in models.items():
            report_model(label, source, arguments)
    if "functions" in arguments.parts:
        report_functions(arguments)


if __name__ == "__main__":
    main()
