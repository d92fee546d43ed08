"""Size of the test when the noise is estimated from K reference images, with and without the correction for that.

Each null image is tested with an estimate of its own, from K reference images drawn for it. The table has the rates of
p <= 0.05, 0.01 and 0.001: of the test, which allows for the estimate, and of the same test with the estimate taken for
the truth.

    python benchmarks/few_references.py --images 3000 --device cuda --processes 15
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from collections.abc import Iterator
from functools import partial
from itertools import product

import numpy as np

from attentest import AttentionTest, bundled_model, calibrate
from attentest.noise import AR1, NoiseModel, Stationary
from attentest.search import SpectralSearch

SIDE = 16
ALPHAS = (0.05, 0.01, 0.001)
REFERENCES = (2, 5, 10, 30, 100)
GAMMAS = (0.0, 1.0)
LONGEST = 48
"""Lag in pixels from which exponential correlations are taken to be zero."""


def exponential(length: float) -> NoiseModel:
    """Return noise whose correlation falls with the distance d of pixels as exp(-d / length)."""
    lags = np.arange(-LONGEST, LONGEST + 1)
    return Stationary(np.exp(-np.hypot(lags[:, None], lags) / length), (SIDE, SIDE))


TRUTHS = {
    "AR(1), 0.5": lambda: AR1(0.5),
    "exponential, 1.5 px": lambda: exponential(1.5),
    "exponential, 4 px": lambda: exponential(4.0),
}


def measured(job: tuple[str, int, float], images: int, device: str | None) -> dict[str, object]:
    """Return the rejection rates for one true noise, number of reference images and gamma."""
    name, references, gamma = job
    test = AttentionTest.from_pretrained(
        bundled_model(),
        noise=TRUTHS[name](),
        randomise=gamma,
        confidence_level=None,
        search=SpectralSearch(tol=1e-4),
        device=device,
    )
    # Another seed for each cell: the rates of the table are independent.
    seed = list(product(TRUTHS, REFERENCES, GAMMAS)).index(job)
    found = calibrate(test, images, seed, reference_images=references, alphas=ALPHAS)
    assert found.plug_in_rates is not None
    return {
        "noise": name,
        "references": references,
        "gamma": gamma,
        "images": len(found.pvalues),
        "failures": len(found.failures),
        "corrected": [rate.value for rate in found.rates],
        "plug_in": [rate.value for rate in found.plug_in_rates],
    }


def main() -> None:
    """Print a row for each true correlation, number of reference images and gamma."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--images", type=int, default=1000, help="null images for each cell")
    parser.add_argument("--references", type=int, nargs="*", default=REFERENCES, choices=REFERENCES)
    parser.add_argument("--device", default=None)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object per cell as it is known")
    given = parser.parse_args()
    # Those that take longest first.
    jobs = sorted(product(TRUTHS, given.references, GAMMAS), key=lambda job: (-job[2], -job[1]))
    work = partial(measured, images=given.images, device=given.device)

    def cells() -> Iterator[dict[str, object]]:
        if given.processes == 1:
            yield from map(work, jobs)
            return
        with multiprocessing.get_context("spawn").Pool(given.processes) as pool:
            yield from pool.imap_unordered(work, jobs)

    found = {}
    for cell in cells():
        found[cell["noise"], cell["references"], cell["gamma"]] = cell
        if given.json:
            print(json.dumps(cell), flush=True)
    print(f"{given.images} null images in each cell; standard errors of the rates:", end=" ")
    print(", ".join(f"{np.sqrt(alpha * (1 - alpha) / given.images):.2g} at {alpha:g}" for alpha in ALPHAS))
    print("| true correlation | K | gamma | corrected: 0.05, 0.01, 0.001 | taken for the truth: 0.05, 0.01, 0.001 |")
    print("|---|---|---|---|---|")
    for job in product(TRUTHS, given.references, GAMMAS):
        cell = found[job]
        rates = (", ".join(f"{rate:.4f}" for rate in cell[kind]) for kind in ("corrected", "plug_in"))  # type: ignore[attr-defined]
        print("|", " | ".join([job[0], str(job[1]), f"{job[2]:g}", *rates]), "|")


if __name__ == "__main__":
    main()
