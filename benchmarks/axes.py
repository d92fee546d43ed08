"""Time and memory of signals, images and volumes through transformers of random weights.

The volume's model has the size of MONAI's ViT: 216 patches of 16 x 16 x 16 voxels, 12 layers of width 768. The first
image of each kind warms up, the others are timed. Memory is the peak of the process above that before the first image,
and that of the device, each over that of one image in float64.

    python benchmarks/axes.py
    python benchmarks/axes.py --device cuda --kind volume-96
"""

from __future__ import annotations

import argparse
import math
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attentest import AttentionTest
from attentest.attention.stored_vit import ViTModel, ViTSettings
from attentest.search import SpectralSearch

SMALL: dict[str, Any] = {
    "hidden_size": 64, "num_hidden_layers": 8, "num_attention_heads": 4, "intermediate_size": 256,
}  # fmt: skip
KINDS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "signal-256": ((1, 256), (8,), SMALL),
    "signal-5000": ((12, 5000), (50,), SMALL),
    "image-64": ((1, 64, 64), (8, 8), SMALL),
    "volume-16": ((1, 16, 16, 16), (4, 4, 4), SMALL),
    "video-16": ((3, 16, 112, 112), (2, 16, 16), SMALL),
    "volume-96": ((1, 96, 96, 96), (16, 16, 16), {}),
}
"""Shape of the input, sides of a patch, and the size of the model, by default that of a ViT-B."""

OPTIONS: dict[str, dict[str, Any]] = {
    "pixels": {},
    "patches, gamma 0.5": {"region_unit": "patches", "randomise": 0.5},
}


def model_of(shape: tuple[int, ...], patch: tuple[int, ...], size: dict[str, Any]) -> ViTModel:
    """Return a model with random weights, large enough for its attention to differ between patches."""
    torch.manual_seed(0)
    model = ViTModel(ViTSettings(image_size=shape[1:], patch_size=patch, num_channels=shape[0], **size))
    for name, weights in model.named_parameters():
        if weights.ndim > 1:
            torch.nn.init.normal_(weights, std=2 / math.sqrt(weights.shape[-1]) if "layers" in name else 0.1)
        else:
            torch.nn.init.constant_(weights, float("norm" in name and name.endswith("weight")))
    return model.eval()


def resident() -> float:
    """Return the resident memory of this process in MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=KINDS, action="append", help="some of the kinds; all but the last if none")
    parser.add_argument("--images", type=int, default=4)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    cuda = options.device.startswith("cuda")
    print("| input | patches | region | seconds | evaluations | memory / input | on the device |")
    print("|---|---|---|---|---|---|---|")
    for kind in options.kind or list(KINDS)[:-1]:
        shape, patch, size = KINDS[kind]
        model = model_of(shape, patch, size)
        images = np.random.default_rng(0).normal(size=(options.images + 1, *shape))
        one = images[0].nbytes / 2**20
        for name, chosen in OPTIONS.items():
            search = SpectralSearch(tol=1e-4)
            test = AttentionTest(
                model, noise=1.0, search=search, confidence_level=None, device=options.device, **chosen
            )
            before = resident()
            if cuda:
                torch.cuda.reset_peak_memory_stats()
            arrays = [np.moveaxis(image, 0, -1) if len(shape) == 3 else image for image in images]
            test(arrays[0], name=0)
            start, results = time.perf_counter(), []
            for number, image in enumerate(arrays[1:], start=1):
                results.append(test(image, name=number))
            seconds = (time.perf_counter() - start) / options.images
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
            on_device = f"{torch.cuda.max_memory_allocated() / 2**20 / one:.1f}" if cuda else "-"
            patches = math.prod(side // own for side, own in zip(shape[1:], patch, strict=True))
            evaluations = np.mean([result.evaluations for result in results])
            print(
                f"| {kind}, {' x '.join(map(str, shape))} | {patches} | {name} | {seconds:.3f} | {evaluations:.0f} | "
                f"{max(peak - before, 0.0) / one:.1f} | {on_device} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
