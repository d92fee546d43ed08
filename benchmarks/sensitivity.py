"""What the sensitivity to the noise costs: CPU seconds, and evaluations of the model for the correlation lengths."""

from __future__ import annotations

import time

import numpy as np

from attentest import AttentionTest, bundled_model
from attentest.noise import AR1

IMAGES = 6


def main() -> None:
    """Print a row for each test: medians over images, half of them with a square of height 2."""
    images = np.random.default_rng(0).normal(size=(IMAGES, 16, 16))
    images[::2, 4:9, 6:11] += 2
    columns = ("test: CPU s", "test: evaluations", "25 factors: CPU s", "4 lengths: CPU s", "4 lengths: evaluations")
    print("| noise | gamma |", *(f"{column} |" for column in columns))
    print("|---|---|---|---|---|---|---|")
    for name, noise in (("independent", 1.0), ("AR(1), rho 0.5", AR1(0.5))):
        for gamma in (0.0, 0.5):
            test = AttentionTest.from_pretrained(bundled_model(), noise=noise, randomise=gamma)
            rows = []
            for image in images:
                start = time.process_time()
                result = test(image)
                tested = time.process_time()
                result.sensitivity()
                varied = time.process_time()
                found = test.sensitivity(image, result=result)
                stretched = time.process_time()
                seconds = tested - start, varied - tested, stretched - varied
                rows.append((*seconds, result.evaluations, found.evaluations))
            test_s, factor_s, length_s, evaluations, more = np.median(rows, axis=0)
            print(
                f"| {name} | {gamma:g} | {test_s:.2f} | {evaluations:.0f} | {factor_s:.2f} "
                f"| {length_s - factor_s:.2f} | {more:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
