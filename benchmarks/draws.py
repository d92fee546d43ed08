"""What do several draws of the added noise give: level, power, verdicts and p-values that another seed changes?

Each image is tested with two seeds, so with two sets of draws. For one draw and for rules that make one p-value of
all of them the table has the share of images with p at most 0.05, the share whose verdict differs between the seeds,
and the standard deviation of log10 p between seeds. The rules are valid for exchangeable p-values: m / k times the
k-th smallest, k = ceil(m / 2) (Rueger 1978, the rule of the package); the least over r of twice the median of the
first r (Gasparin, Wang and Ramdas 2024, Combining exchangeable p-values); e times the geometric mean (Vovk and Wang
2020) and the least over r of that of the first r (Gasparin et al.). The second table has the share of 95% intervals
that hold the median of the true differences of the regions drawn, and their length over that of one draw's; the last
one the time of all draws over that of one.

    python benchmarks/draws.py --images 200
    python benchmarks/draws.py --model reference/d16 --model reference/d32 --device cuda --out draws.json
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest import AttentionTest, bundled_model
from attentest.noise import AR1, Isotropic, NoiseModel
from attentest.results.batch import Results
from attentest.simulation.images import signal_images
from attentest.statistics.draws import combined_log_pvalue

ALPHA = 0.05
NOISES: dict[str, tuple[NoiseModel, float]] = {"independent": (Isotropic(1.0), 1.0), "correlated": (AR1(0.5), 1.5)}
"""Noise models, and by how much a signal is higher to be as visible as in independent noise."""

HEIGHTS = (0.0, 16.0, 24.0, 32.0)
"""Heights of the square times the side of the image."""

Floats = NDArray[np.float64]


def ruger(logs: Floats) -> float:
    """Return the rule of the package."""
    return combined_log_pvalue(logs.tolist())


def running_median(logs: Floats) -> float:
    """Return the least of twice the medians of the first draws, the lower one of an even number."""
    return min(math.log(2) + float(np.sort(logs[:r])[(r + 1) // 2 - 1]) for r in range(1, len(logs) + 1))


def geometric_mean(logs: Floats) -> float:
    """Return e times the geometric mean."""
    return 1 + float(logs.mean())


def running_geometric_mean(logs: Floats) -> float:
    """Return the least of e times the geometric means of the first draws."""
    return 1 + float(np.min(np.cumsum(logs) / np.arange(1, len(logs) + 1)))


RULES: dict[str, Callable[[Floats], float]] = {
    "m/k times the k-th": ruger,
    "running 2 x median": running_median,
    "e x geometric mean": geometric_mean,
    "running e x geometric mean": running_geometric_mean,
}


def measured(first: Floats, second: Floats) -> dict[str, float]:
    """Return share rejected, share of verdicts that differ and standard deviation of log10 p, from two seeds."""
    first, second = np.minimum(first, 0.0), np.minimum(second, 0.0)
    rejected = np.array([first, second]) <= math.log(ALPHA)
    share = float(rejected.mean())
    return {
        "rejected": share,
        "error": math.sqrt(max(share * (1 - share), 1e-4) / first.shape[0]),  # at most: two sets of an image are alike
        "flips": float((rejected[0] != rejected[1]).mean()),
        "sd": float(np.sqrt(np.mean((first - second) ** 2) / 2) / math.log(10)),
    }


def logs_of(results: Results) -> Floats:
    """Return the logs of the p-values (images, draws)."""
    return np.array([[draw.log_pvalue for draw in result.draws] for result in results])


def intervals(results: Results, squares: NDArray[np.bool_], height: float) -> dict[str, float]:
    """Return coverage of the median true difference, and lengths over those of the first draw."""
    covered, alone, ratio = [], [], []
    for result, square in zip(results, squares, strict=True):
        true = [height * (square[draw.region].mean() - square[~draw.region].mean()) for draw in result.draws]
        interval, single = result.confidence_interval(), result.draws[0].confidence_interval()
        covered.append(interval.low <= np.median(true) <= interval.high)
        alone.append(single.low <= true[0] <= single.high)
        ratio.append((interval.high - interval.low) / (single.high - single.low))
    return {"covers": float(np.mean(covered)), "one draw": float(np.mean(alone)), "length": float(np.median(ratio))}


def row(options: argparse.Namespace, test: AttentionTest, name: str, noise: str, height: float) -> dict[str, Any]:
    """Return the numbers of one setting."""
    size, draws = test.image_shape[-1], options.draws
    model, factor = NOISES[noise]
    delta = factor * height / size
    rng = np.random.default_rng(options.seed)
    images, squares = signal_images(rng, options.images, size, delta, model)
    level = 0.95 if options.intervals else None
    randomised = test.replace(noise=model, randomise=options.randomise, draws=draws, confidence_level=level)
    results = [randomised.replace(randomise_seed=seed).map(images) for seed in (0, 1)]
    logs = [logs_of(one) for one in results]
    found = {"one draw": measured(*logs)}
    for rule, combined in RULES.items():
        found[rule] = measured(*(np.array([combined(some) for some in one]) for one in logs))
    numbers = {"model": name, "noise": noise, "delta": delta, "rules": found}
    if options.intervals:
        numbers["intervals"] = intervals(results[0], squares, delta)
    print(
        f"| {name} | {noise} | {delta:g} | "
        + " | ".join(f"{one['rejected']:.3f}, {one['flips']:.0%}, {one['sd']:.2f}" for one in found.values())
        + (
            " | {covers:.3f}, {one draw:.3f}, {length:.2f} |".format(**numbers["intervals"])
            if options.intervals
            else " |"
        ),
        flush=True,
    )
    return numbers


def timed(options: argparse.Namespace, test: AttentionTest, name: str) -> dict[str, Any]:
    """Return the time of all draws and of one, of the same images, after a run of each."""
    rng = np.random.default_rng(options.seed)
    images, _ = signal_images(rng, options.images, test.image_shape[-1], 24.0 / test.image_shape[-1])
    seconds = []
    for draws in (1, options.draws):
        one = test.replace(noise=1.0, randomise=options.randomise, draws=draws, confidence_level=None)
        one.map(images[:20])
        start = time.perf_counter()
        one.map(images)
        seconds.append(time.perf_counter() - start)
    print(
        f"| {name} | {options.images} | {seconds[0]:.2f} | {seconds[1]:.2f} | {seconds[1] / seconds[0]:.1f} |",
        flush=True,
    )
    return {"model": name, "images": options.images, "seconds": seconds}


def main() -> None:
    """Print the tables, and write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, action="append", help="directories of models; the bundled one if none")
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--draws", type=int, default=21)
    parser.add_argument("--randomise", type=float, default=0.5)
    parser.add_argument("--height", type=float, action="append", help="height of the square times the side")
    parser.add_argument("--noise", choices=NOISES, action="append")
    parser.add_argument("--intervals", action="store_true", help="also coverage and length of intervals")
    parser.add_argument("--time", action="store_true", help="only the time of all draws over that of one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, help="file for the numbers as JSON")
    options = parser.parse_args()
    models = options.model or [bundled_model()]
    tests = {path.name: AttentionTest.from_pretrained(path, noise=1.0, device=options.device) for path in models}
    if options.time:
        print("| model | images | one draw, s | all draws, s | ratio |\n|---|---|---|---|---|")
        found = [timed(options, test, name) for name, test in tests.items()]
    else:
        print(f"gamma {options.randomise:g}, {options.images} images, {options.draws} draws; "
              "each cell: share with p <= 0.05, verdicts that differ, sd of log10 p")  # fmt: skip
        last = " covers, one draw covers, length over one draw's |" if options.intervals else ""
        print("| model | noise | delta | one draw | " + " | ".join(RULES) + " |" + last)
        print("|---" * (4 + len(RULES) + options.intervals) + "|")
        found = [
            row(options, test, name, noise, height)
            for name, test in tests.items()
            for noise in options.noise or NOISES
            for height in options.height or HEIGHTS
        ]
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
