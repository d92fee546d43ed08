from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import resource
import numpy as np
from attentest import AttentionTest
from attentest.search import Fixed, GridSearch, SpectralSearch

rng = np.random.default_rng(0)

def scores(images):
    return np.exp(images[:, 0].reshape(len(images), 4, 32, 4, 32).mean(axis=(2, 4)))

def images(count):
    return (rng.normal(size=(128, 128)) for _ in range(count))

for search in (GridSearch(step=Fixed(step=2.0)), SpectralSearch(tol=1e-2)):
    test = AttentionTest(
        scores, noise=1.0, search=search, image_shape=(1, 128, 128), batch_size=8, confidence_level=None
    )
    few = test.map(images(8))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    results = test.map(images(32))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    kept = sum(r.attention.nbytes + r.region.nbytes + r.intervals.nbytes for r in results) / 1024
    print(after - before - kept)
"""


def test_map_keeps_nothing_but_the_results() -> None:
    """Peak memory beyond the results, in KiB, does not grow with the number of images, for either kind of search."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], check=True, capture_output=True, text=True)
    grid, spectral = (float(line) for line in done.stdout.split())
    # Keeping one more copy of each of the 32 images, of 128 KiB, would show as 4 MiB.
    assert grid < 2 * 1024
    assert spectral < 2 * 1024
