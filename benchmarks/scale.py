"""Many small images, and a few large ones: what the spectral search costs at scale.

Run: python benchmarks/scale.py --device cuda [--images 10000] [--large 16]
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from transformers import ViTConfig, ViTModel

from attentest import AttentionTest, bundled_model
from attentest.search import SpectralSearch
from attentest.simulation.synthetic_images import null_images


def measure(label: str, test: AttentionTest, images: list[np.ndarray]) -> None:
    """Print seconds and evaluations of ``map``, after a first call that is not counted."""
    test.map(images[: max(1, len(images) // 4)])
    start = time.perf_counter()
    results = test.map(images)
    seconds = time.perf_counter() - start
    evaluations = [result.evaluations for result in results]
    print(
        f"{label}: {len(images)} images in {seconds:.2f} s, {np.mean(evaluations):.1f} evaluations (at most "
        f"{max(evaluations)}), p <= 0.05 for {np.mean([r.pvalue <= 0.05 for r in results]):.4f}, "
        f"{sorted({result.status for result in results})}"
    )


def main() -> None:
    """Print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--large", type=int, default=16)
    arguments = parser.parse_args()
    for precision in ("float64", "mixed"):
        search = SpectralSearch(tol=1e-4, precision=precision)  # type: ignore[arg-type]
        if arguments.images:
            images = list(null_images(np.random.default_rng(3), arguments.images, 16))
            for level, name in ((None, "p alone"), (0.95, "p and 95% interval")):
                test = AttentionTest.from_pretrained(
                    bundled_model(), noise=1.0, search=search, confidence_level=level, device=arguments.device
                )
                measure(f"16x16 base, {precision}, {name}", test, images)
        if arguments.large:
            torch.manual_seed(0)
            config = ViTConfig(image_size=224, patch_size=16, initializer_range=0.06)
            test = AttentionTest(
                ViTModel(config, add_pooling_layer=False),
                noise=1.0,
                search=search,
                confidence_level=None,
                device=arguments.device,
            )
            rng = np.random.default_rng(0)
            measure(f"ViT-B/16, {precision}", test, [rng.normal(size=(224, 224, 3)) for _ in range(arguments.large)])


if __name__ == "__main__":
    main()
