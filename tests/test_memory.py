from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
import numpy as np
from attentest import AttentionTest
from attentest.search import Fixed, GridSearch, SpectralSearch

search = SpectralSearch(tol=1e-2) if sys.argv[1] == "spectral" else GridSearch(step=Fixed(step=2.0))
rng = np.random.default_rng(0)

def scores(images):
    return np.exp(images[:, 0].reshape(len(images), 4, 32, 4, 32).mean(axis=(2, 4)))

test = AttentionTest(
    scores, noise=1.0, search=search, image_shape=(1, 128, 128), batch_size=8, confidence_level=None
)
few = test.map(rng.normal(size=(128, 128)) for _ in range(24))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
results = test.map(rng.normal(size=(128, 128)) for _ in range(96))
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
kept = sum(r.attention.nbytes + r.region.nbytes + r.intervals.nbytes for r in results) / 1024
print(after - before - kept)
"""


@pytest.mark.parametrize("search", ["grid", "spectral"])
def test_map_keeps_nothing_but_the_results(search: str) -> None:
    """Peak memory beyond the results, in KiB, does not grow with the number of images."""

    done = subprocess.run([sys.executable, "-c", SCRIPT, search], check=True, capture_output=True, text=True)
    # Keeping one more copy of each of the 96 images, of 128 KiB, would show as 12 MiB.
    assert float(done.stdout) < 6 * 1024
