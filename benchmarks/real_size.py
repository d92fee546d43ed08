"""One RGB photograph-like image through ViT-B/16 at 224 x 224, random weights: time and memory of a p-value.

python benchmarks/real_size.py [--device cuda] [--images 1] [--photograph]
python benchmarks/real_size.py --tiny --height 2000 --width 3000     # a small model: what the image itself costs
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import ViTConfig, ViTModel

from attentest import AttentionTest
from attentest.images.preprocessing import Preprocessing
from attentest.search import SpectralSearch

PREPROCESSING = Preprocessing(resize=(224, 224), rescale=1 / 255, mean=(0.5,) * 3, std=(0.5,) * 3)
"""That of google/vit-base-patch16-224."""


def scene(seed: int, size: tuple[int, int] = (480, 640)) -> NDArray[np.uint8]:
    """Smooth blobs of colour with noise of standard deviation 10 on top, 8 bits."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[: size[0], : size[1]]
    image = np.full((*size, 3), 110.0)
    for _ in range(12):
        centre, spread = rng.uniform(0, size), rng.uniform(20, 90)
        blob = np.exp(-((rows - centre[0]) ** 2 + (columns - centre[1]) ** 2) / (2 * spread**2))
        image += blob[:, :, None] * rng.uniform(-60, 60, size=3)
    return (image + rng.normal(scale=10, size=image.shape)).clip(0, 255).astype(np.uint8)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--images", type=int, default=1)
    parser.add_argument("--photograph", action="store_true", help="use scikit-image's astronaut")
    parser.add_argument("--tiny", action="store_true", help="a model of two layers instead of ViT-B")
    parser.add_argument("--height", type=int, default=480)
    parser.add_argument("--width", type=int, default=640)
    options = parser.parse_args()
    if options.photograph:
        from skimage import data

        images = [data.astronaut()]
    else:
        images = [scene(seed, (options.height, options.width)) for seed in range(options.images)]
    torch.manual_seed(0)
    small = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 96}
    model = ViTModel(ViTConfig(initializer_range=0.1, **small) if options.tiny else ViTConfig())
    cuda = options.device.startswith("cuda")
    print(f"{images[0].shape} images, {sum(p.numel() for p in model.parameters()) / 1e6:.0f} M parameters")
    for precision in ("float64", "mixed"):
        search = SpectralSearch(tol=1e-4, precision=precision)  # type: ignore[arg-type]
        started = time.perf_counter()
        test = AttentionTest(
            model, noise=10.0, preprocessing=PREPROCESSING, search=search, confidence_level=None, device=options.device
        )
        ready = time.perf_counter()
        results = test.map(images)
        seconds = (time.perf_counter() - ready) / len(images)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        on_device = f", {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB on the device" if cuda else ""
        print(
            f"{precision}: ready in {ready - started:.1f} s, {seconds:.2f} s an image, "
            f"{np.mean([r.evaluations for r in results]):.0f} evaluations, {set(r.status for r in results)}, "
            f"peak memory of the process {peak:.2f} GiB{on_device}"
        )
        for result in results[:3]:
            print(f"  statistic {result.statistic:.1f}, log p {result.log_pvalue:.4g}, p {result.pvalue:.4g}")


if __name__ == "__main__":
    main()
