"""What a 95% confidence interval costs on top of p: evaluations and CPU seconds, with and without the model's share.

Run: python benchmarks/interval_cost.py [--images 60] [--size 16] [--architecture base] [--height 0] [--randomise 0]
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from attentest import AttentionTest, bundled_model
from attentest.search import SearchProblem, SpectralSearch
from attentest.simulation.images import null_images
from attentest.statistics.inference import confidence_intervals_of


def main() -> None:
    """Print a line for p alone, a line for p and the interval, and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=60)
    parser.add_argument("--size", type=int, default=16)
    parser.add_argument("--architecture", default="base")
    parser.add_argument("--height", type=float, default=0.0, help="of a bright square, half as wide as the image")
    parser.add_argument("--randomise", type=float, default=0.0)
    parser.add_argument("--tol", type=float, default=1e-4)
    arguments = parser.parse_args()
    rng = np.random.default_rng(3)
    images = list(null_images(rng, arguments.images, arguments.size))
    half = arguments.size // 2
    for image in images:
        row, column = rng.integers(0, half + 1, 2)
        image[row : row + half, column : column + half] += arguments.height
    in_model = _time_of_scores()
    rows = []
    for level in (None, 0.95):
        test = AttentionTest.from_pretrained(
            bundled_model(arguments.size, arguments.architecture),
            noise=1.0,
            search=SpectralSearch(tol=arguments.tol, precision="float64"),
            confidence_level=level,
            randomise=arguments.randomise,
        )
        test.map(images[:2])
        start, in_model[0] = time.process_time(), 0.0
        results = test.map(images)
        if level is not None:
            confidence_intervals_of(list(results), level)
        seconds = time.process_time() - start
        evaluations = [result.evaluations for result in results]
        rows.append((np.mean(evaluations), seconds, seconds - in_model[0]))
        print(
            f"{'p alone' if level is None else 'p and 95% interval'}: {np.mean(evaluations):.1f} evaluations (median "
            f"{np.median(evaluations):.0f}, at most {max(evaluations)}), {seconds / len(images):.3f} s per image, "
            f"{(seconds - in_model[0]) / len(images):.4f} s outside the model"
        )
    ratios = [interval / alone for alone, interval in zip(*rows, strict=True)]
    print("ratios: {:.2f} of evaluations, {:.2f} of time, {:.2f} of time outside the model".format(*ratios))


def _time_of_scores() -> list[float]:
    """Return a list of one number: the CPU seconds that searches spend in the model from now on."""
    spent = [0.0]
    evaluate = SearchProblem.scores_at

    def timed(self: SearchProblem, *arguments: Any) -> Any:
        start = time.process_time()
        scores = evaluate(self, *arguments)
        spent[0] += time.process_time() - start
        return scores

    SearchProblem.scores_at = timed  # type: ignore[method-assign]
    return spent


if __name__ == "__main__":
    main()
