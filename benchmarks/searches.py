"""The spectral search beside the searches of the paper: evaluations, seconds and agreement, in one run.

    python benchmarks/searches.py --images 1000 --grid-images 5 --device cuda

The bundled 16x16 model, p alone. The spectral search has an error bar of 1e-4 and 1e-10; differences of p are from
those of the paper's fixed grid on the images that all searches take.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import numpy as np
from agreement import table

from attentest import AttentionTest, bundled_model
from attentest.search import Search, SpectralSearch
from attentest.simulation.images import null_images


def main() -> None:
    """Print a row for each search."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=10, help="images of the spectral search")
    parser.add_argument("--grid-images", type=int, default=2, help="images of the others")
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    images = null_images(np.random.default_rng(7), max(asked.images, asked.grid_images), 16)
    few = images[: asked.grid_images]
    searches: dict[str, tuple[str | Search, np.ndarray]] = {
        "fixed (the paper's reference)": ("fixed", few),
        "adaptive (the paper's)": ("adaptive", few),
        "combination (the paper's)": ("combination", few),
        "spectral, error bar 1e-4": (SpectralSearch(tol=1e-4), images),
        "spectral, error bar 1e-4, mixed precision": (SpectralSearch(tol=1e-4, precision="mixed"), images),
        "spectral, error bar 1e-10": (SpectralSearch(tol=1e-10), images),
    }

    def rows() -> Iterator[list[str]]:
        reference: list[float] = []
        fixed_seconds = 0.0
        for name, (search, chosen) in searches.items():
            test = AttentionTest.from_pretrained(
                bundled_model(), noise=1.0, device=asked.device, search=search, confidence_level=None
            )
            if chosen is images:
                test.map(chosen[: max(2, len(chosen) // 10)])  # compiles kernels
            start = time.perf_counter()
            results = test.map(chosen)
            seconds = (time.perf_counter() - start) / len(chosen)
            reference = reference or [result.pvalue for result in results]
            fixed_seconds = fixed_seconds or seconds
            difference = max(abs(r.pvalue - p) for r, p in zip(results[: len(few)], reference, strict=True))
            evaluations = np.mean([result.evaluations for result in results])
            ratio = f"{fixed_seconds / seconds:,.1f}"
            yield [name, str(len(chosen)), f"{evaluations:,.0f}", f"{seconds:.2g}", ratio, f"{difference:.1e}"]

    header = ["search", "images", "evaluations", "seconds per image", "times as fast as fixed"]
    table([*header, "greatest difference of p"], rows())


if __name__ == "__main__":
    main()
