"""ViT-B/16 at 224, ViT-L/16 at 384 and DINOv2-L/14 at 518 pixels on a GPU: seconds of p, and of p with its interval.

python benchmarks/large_models.py B:0.02 L:0.02 D:0.02 B:0.06 --precision auto

A model is B, L or D with the standard deviation of its random weights: with 0.02 attention is nearly uniform, with 0.06
it is about as uneven as that of trained models. Images are those of real_size.py, of the model's size.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from typing import Any

import numpy as np
import torch
import transformers as hf
from real_size import SIGMA, scene

from attentest import AttentionTest
from attentest.images.preprocessing import Preprocessing
from attentest.search import SpectralSearch

IMAGES = {"B": 8, "L": 4, "D": 2}
"""Images that are tested together."""

TESTS: dict[str, dict[str, Any]] = {
    "p": {"confidence_level": None},
    "patches, gamma 0.5, interval": {"randomise": 0.5, "region_unit": "patches"},
}


def model_of(kind: str, spread: float) -> tuple[torch.nn.Module, int]:
    """Return a model with random weights, and the size of its images."""
    torch.manual_seed(0)
    if kind == "B":
        return hf.ViTModel(hf.ViTConfig(initializer_range=spread)).eval(), 224
    large = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "initializer_range": spread}
    if kind == "L":
        return hf.ViTModel(hf.ViTConfig(**large, intermediate_size=4096, image_size=384)).eval(), 384
    return hf.Dinov2Model(hf.Dinov2Config(**large, image_size=518, patch_size=14)).eval(), 518


def main() -> None:
    """Print a row for each model and test."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="KIND:SPREAD")
    parser.add_argument("--precision", default="auto", choices=["auto", "float64", "mixed"])
    asked = parser.parse_args()
    print("| model | test | s per image | one image alone | evaluations | status | greatest bar | GiB |")
    print("|---|---|---|---|---|---|---|---|")
    for name in asked.models:
        kind, spread = name.split(":")
        model, size = model_of(kind, float(spread))
        images = [scene(number, (size, size)) for number in range(IMAGES[kind])]
        preprocessing = Preprocessing(rescale=1 / 255, mean=(0.5,) * 3, std=(0.5,) * 3)
        for label, options in TESTS.items():
            search = SpectralSearch(precision=asked.precision)
            test = AttentionTest(
                model, noise=SIGMA, preprocessing=preprocessing, device="cuda", search=search, **options
            )
            list(test.map(images[:2]))  # compiles kernels
            torch.cuda.reset_peak_memory_stats()
            start = time.perf_counter()
            test(images[0])
            middle = time.perf_counter()
            results = list(test.map(images))
            end = time.perf_counter()
            statuses = ", ".join(f"{status} {count}" for status, count in Counter(r.status for r in results).items())
            bar = max(high - low for low, high in (result.pvalue_bounds for result in results))
            print(
                f"| {name} | {label} | {(end - middle) / len(images):.3f} | {middle - start:.3f} | "
                f"{np.mean([result.evaluations for result in results]):.0f} | {statuses} | {bar:.0e} | "
                f"{torch.cuda.max_memory_allocated() / 2**30:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
