"""Level, coverage and power of the test of counts, with standard errors.

Images of 16 x 16 Poisson counts are tested with a bundled model, which sees half of each count. "flat": the same rate
in every pixel. "uneven": within each patch of the model, rates from 0.1 to 1.9 times the mean, so that all patches, and
so all regions of whole patches, have equal mean rates. "any": other rates in every pixel, drawn once for each image, so
that the ratio of the mean rates is not 1, and the intervals must cover it.

    python benchmarks/counts.py [--images 4000]
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray

from attentest import AttentionTest, bundled_model
from attentest.pipeline.hypotheses import law_of_counts, parts_of
from attentest.statistics.selection_laws import BinomialCounts

SIDE, PATCH, ALPHA = 16, 2, 0.05
TOGETHER = 500
RATES = (0.5, 1.0, 4.0, 20.0, 100.0)


def rates(kind: str, mean: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the rate (H, W) of each pixel."""
    if kind == "flat":
        return np.full((SIDE, SIDE), mean)
    if kind == "uneven":
        return np.tile(mean * np.array([[0.1, 1.9], [1.4, 0.6]]), (SIDE // PATCH, SIDE // PATCH))
    return mean * rng.gamma(1.0, size=(SIDE, SIDE))


def laws(test: AttentionTest, counts: NDArray[np.int64], first: int) -> tuple[BinomialCounts, NDArray[np.bool_]]:
    """Return the law of each of images (k, H, W), numbered from the first on, as in a test, and the regions."""
    pipeline = test.pipeline
    observation = pipeline.observe(
        [pipeline.inputs.one(image, identity=first + place) for place, image in enumerate(counts)]
    )
    parts = parts_of(observation.regions_on_images(), None)
    return law_of_counts(observation, parts, pipeline.contrast, test.definition.randomise)[0], parts.regions


def share(happened: list[bool]) -> str:
    """Return how often something happened, with the standard error."""
    mean = float(np.mean(happened))
    return f"{mean:.4f} ({np.sqrt(mean * (1 - mean) / len(happened)):.4f})"


def main() -> None:
    """Print a row for each kind of image and each mean rate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=4000)
    count = parser.parse_args().images
    test = AttentionTest.from_pretrained(bundled_model(16, "small"), noise="poisson", region_unit="patches")
    names = ("two-sided", "equal-tailed", "greater", "less", "naive", "95% interval")
    print("| rates | mean | p <= 0.05: " + " | ".join(names[:-1]) + f" | {names[-1]} covers |")
    print("|---" * (len(names) + 2) + "|")
    for kind in ("flat", "uneven", "any"):
        for mean in RATES:
            rng = np.random.default_rng([*kind.encode(), int(10 * mean)])
            true = [rates(kind, mean, rng) for _ in range(count)]
            columns: dict[str, list[bool]] = {name: [] for name in names}
            for start in range(0, count, TOGETHER):
                some = np.stack(true[start : start + TOGETHER])
                law, regions = laws(test, rng.poisson(some), start)
                for name in names[:4]:
                    columns[name] += (law.log_pvalues(name) <= np.log(ALPHA)).tolist()
                columns["naive"] += (law.naive().log_pvalues("two-sided") <= np.log(ALPHA)).tolist()
                inside, outside = (
                    (some * mask).sum(axis=(1, 2)) / mask.sum(axis=(1, 2)) for mask in (regions, ~regions)
                )
                low, high = law.ratio_ends(np.full(len(some), ALPHA / 2))
                columns["95% interval"] += ((low <= inside / outside) & (inside / outside <= high)).tolist()
            shown = ["-" if kind == "any" and name != names[-1] else share(columns[name]) for name in names]
            print(f"| {kind} | {mean:g} | " + " | ".join(shown) + " |", flush=True)


if __name__ == "__main__":
    main()
