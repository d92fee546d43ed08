"""What do the two two-sided p-values cost, how often do they reject, and how often do they contradict the interval?

A bundled model on images of noise, without and with a bright square in the middle, of half the side of the image.

    python benchmarks/two_sided.py --size 8 --images 100
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray

from attentest import AttentionTest, bundled_model
from attentest.presentation.words import contradict
from attentest.search import SpectralSearch
from attentest.statistics.alternative import Alternative

ALPHA = 0.05


def main() -> None:
    """Print a row for each kind of images, selection and p-value."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=16, help="side of the images of the bundled model")
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
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
