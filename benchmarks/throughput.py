"""How long do many small images take? The bundled 16x16 model, tolerance 1e-4, and the searches of the paper beside it.

    python benchmarks/throughput.py --images 10000 --device cuda

Times are of one call of ``map`` after another one that compiled what is compiled.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from typing import Any

import numpy as np
from agreement import table

from attentest import AttentionTest, bundled_model
from attentest.search import SpectralSearch
from attentest.simulation.images import null_images

TESTS: dict[str, dict[str, Any]] = {
    "p alone": {"confidence_level": None},
    "p alone, mixed precision": {
        "confidence_level": None,
        "search": SpectralSearch(tol=1e-4, precision="mixed"),
    },
    "p and 95% interval": {},
    "gamma 0.5, p and 95% interval": {"randomise": 0.5},
    "gamma 1, p and 95% interval": {"randomise": 1.0},
    "gamma 0.5, 21 draws, p alone": {"randomise": 0.5, "draws": 21, "confidence_level": None},
}


def main() -> None:
    """Print a row for each test."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    images = null_images(np.random.default_rng(0), asked.images, 16)
    warm_up = max(2, asked.images // 10)

    def row(label: str, options: dict[str, Any]) -> list[str]:
        chosen = images[: max(1, len(images) // 20)] if "draws" in options else images
        settings = {"noise": 1.0, "device": asked.device, "search": SpectralSearch(tol=1e-4)} | options
        test = AttentionTest.from_pretrained(bundled_model(), **settings)
        test.map(images[:warm_up] if chosen is images else chosen[:2])
        start = time.perf_counter()
        results = test.map(chosen)
        seconds = time.perf_counter() - start
        evaluations = np.mean([result.evaluations for result in results])
        statuses = ", ".join(f"{status} {count}" for status, count in Counter(r.status for r in results).most_common())
        each = 1e3 * seconds / len(chosen)
        return [label, f"{len(chosen)}", f"{seconds:.2f}", f"{each:.3g}", f"{evaluations:.1f}", statuses]

    header = ["test", "images", "seconds", "milliseconds per image", "evaluations per image", "status"]
    table(header, (row(*named) for named in TESTS.items()))


if __name__ == "__main__":
    main()
