"""Networks that are linear in pieces: p against dense grids, uniform p of a trained CNN, and what a ResNet-18 costs.

python benchmarks/networks.py random --count 500 --processes 2
python benchmarks/networks.py random --count 50 --sampled
python benchmarks/networks.py trained --images 1000 --device cuda
python benchmarks/networks.py resnet --sizes 32 64 128 224 --device cuda

Random networks have the weights that torch gives them; images are N(0, 1). A dense p is that of regions at points of a
grid, bisected where they change.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import torch
from maps import dense_pvalues
from scipy import stats
from torch import nn

from attentest import AttentionTest
from attentest.attention import GradCAM, HiResCAM, InputGradient, Residual, Segmentation
from attentest.errors import InputError
from attentest.search import PiecewiseSearch

STEP = 0.01
"""Step of the dense grid, which also has the middles of what was found; a twentieth of it decides where they differ."""


class Skip(nn.Module):
    """A block whose input is added to its output, as in residual networks."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, padding=1),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return images (m, C, H, W) plus what the inner layers make of them."""
        return torch.relu(x + self.inner(x))


def classifier(axes: int = 2, pool: bool = True, skip: bool = False) -> nn.Module:
    """Return a small CNN with three classes."""
    convolution, average = getattr(nn, f"Conv{axes}d"), getattr(nn, f"AdaptiveAvgPool{axes}d")
    pooling = getattr(nn, f"MaxPool{axes}d")(2) if pool else getattr(nn, f"AvgPool{axes}d")(2)
    middle = Skip(4) if skip else nn.ReLU(inplace=True)
    first = [convolution(1, 4, 3, padding=1), middle, pooling, convolution(4, 8, 3, padding=1), nn.LeakyReLU(0.1)]
    return nn.Sequential(*first, average(1), nn.Flatten(), nn.Linear(8, 3))


def segmenter() -> nn.Module:
    """Return a small network that returns three scores at each pixel."""
    up = nn.Upsample(scale_factor=2, mode="bilinear")
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(), up,
        nn.Conv2d(8, 3, 3, padding=1),
    )  # fmt: skip


def autoencoder() -> nn.Module:
    """Return a small network that returns an image."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.ReLU(), nn.ConvTranspose2d(4, 1, 4, stride=2, padding=1)
    )


KINDS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], Any]] = {
    "Grad-CAM, inner layer": (classifier, (12, 12), GradCAM("1", target=1, sign="signed")),
    "Grad-CAM, predicted": (classifier, (12, 12), GradCAM("2", sign="absolute")),
    "Grad-CAM, skip connections": (lambda: classifier(skip=True), (12, 12), GradCAM("1", target=0, sign="signed")),
    "HiResCAM": (classifier, (12, 12), HiResCAM("1", target=2, sign="signed")),
    "input gradient times input": (classifier, (12, 12), InputGradient(1, times_input=True, per="pixel")),
    "segmentation": (segmenter, (12, 12), Segmentation(1)),
    "residual": (autoencoder, (12, 12), Residual()),
    "residual, averaged": (autoencoder, (12, 12), Residual(width=3)),
    "signals, Grad-CAM": (lambda: classifier(1), (64,), GradCAM("1", target=1, sign="signed")),
    "volumes, Grad-CAM": (lambda: classifier(3, pool=False), (6, 6, 6), GradCAM("1", target=1, sign="signed")),
}


def one(kind: str, seed: int, sampled: bool = False, step: float = STEP) -> tuple[str, float, float, int, str] | None:
    """Return status, error against the dense p, width of the bar, evaluations, and what is wrong, of a network."""
    torch.set_num_threads(1)
    make, axes, attention = KINDS[kind]
    torch.manual_seed(seed)
    model, image = make().eval(), np.random.default_rng(seed).normal(size=axes)
    search = PiecewiseSearch(max_pieces=0) if sampled else "spectral"
    options = {"image_shape": (1, *axes), "noise": 1.0, "confidence_level": None, "search": search}
    test = AttentionTest(model, **options, attention=attention)
    try:
        result = test(image)
    except InputError:  # a map without a region
        return None
    low, high = result.pvalue_bounds
    dense = dense_pvalues(test, image[None], step, [result])[0]
    if not low - 1e-9 <= dense <= high + 1e-9:
        dense = dense_pvalues(test, image[None], step / 20, [result])[0]
    wrong = "" if low - 1e-9 <= dense <= high + 1e-9 else f"network {seed}: {dense} is not in [{low}, {high}]"
    return result.status, abs(dense - result.pvalue), high - low, result.evaluations, wrong


def random_networks(count: int, processes: int, sampled: bool, step: float) -> None:
    """Print a table of random networks of each kind, whose pieces are visited, or sampled where they are many."""
    print(
        "| kind | tested | converged or rough | outside | median distance from dense p | greatest bar | evaluations |"
    )
    print("|---|---|---|---|---|---|---|")
    with ProcessPoolExecutor(processes) as pool:
        for kind in KINDS:
            columns = ([kind] * count, range(count), [sampled] * count, [step] * count)
            found = [row for row in pool.map(one, *columns, chunksize=5) if row is not None]
            statuses, wrong = Counter(row[0] for row in found), [row[4] for row in found if row[4]]
            distance, bar, evaluations = (np.array([row[i] for row in found]) for i in (1, 2, 3))
            print(
                f"| {kind} | {len(found)} | {statuses['converged'] + statuses['rough']} | {len(wrong)} | "
                f"{np.median(distance):.0e} | {bar.max():.1e} | {np.median(evaluations):.0f} |",
                flush=True,
            )
            print(*wrong, sep="\n", end="\n" if wrong else "", file=sys.stderr)


def trained_network(count: int, device: str, only: str) -> None:
    """Print shares of p-values of null images with a CNN trained to see a raised square, of maps with such names."""
    torch.manual_seed(38)
    layers = (nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
    more = (nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
    model = nn.Sequential(*layers, *more, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 2)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(400):
        images, labels = torch.randn(128, 1, 16, 16, device=device), torch.randint(0, 2, (128,), device=device)
        corners = torch.randint(0, 11, (128, 2)).tolist()
        for image, label, (row, column) in zip(images, labels.tolist(), corners, strict=True):
            image[:, row : row + 6, column : column + 6] += 1.0 * label
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f} after training")
    images = np.random.default_rng(38).normal(size=(count, 16, 16))
    print("| map | <= 0.01 | <= 0.05 | <= 0.1 | Kolmogorov p | converged | no region | evaluations | s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, attention in {
        "Grad-CAM, last layer, class 1": GradCAM(target=1, sign="signed"),
        "Grad-CAM, first layer, class 1": GradCAM("2", target=1, sign="signed"),
        "Grad-CAM, first layer, predicted": GradCAM("2", sign="absolute"),
        "HiResCAM, first layer, class 1": HiResCAM("2", target=1, sign="signed"),
    }.items():
        if only not in name:
            continue
        shape = {"image_shape": (1, 16, 16), "device": device, "confidence_level": None}
        test = AttentionTest(model.eval(), noise=1.0, attention=attention, **shape)
        start = time.perf_counter()
        results = test.map(list(images), on_error="row")
        taken = time.perf_counter() - start
        tested = list(results.tested)
        p = np.array([result.pvalue for result in tested])
        shares = " | ".join(f"{(p <= level).mean():.3f}" for level in (0.01, 0.05, 0.1))
        converged = sum(result.status == "converged" for result in tested)
        evaluations = np.median([result.evaluations for result in tested])
        print(
            f"| {name} | {shares} | {stats.kstest(p, 'uniform').pvalue:.3f} | {converged} of {len(tested)} | "
            f"{count - len(tested)} | {evaluations:.0f} | {taken:.1f} |",
            flush=True,
        )


def resnet(sizes: list[int], device: str, tol: float, most: int) -> None:
    """Print pieces, times and bars of a ResNet-18 with random weights."""
    import transformers as hf

    torch.manual_seed(38)
    made = {"embedding_size": 64, "hidden_sizes": [64, 128, 256, 512], "depths": [2] * 4, "layer_type": "basic"}
    model = hf.ResNetForImageClassification(hf.ResNetConfig(**made, num_labels=10)).eval().to(device)
    print("| input | kinks per sd | status | p | bar | pieces visited | s | s per 1,000 pieces | GPU memory, GiB |")
    print("|---|---|---|---|---|---|---|---|---|")
    for size in sizes:
        image = np.random.default_rng(size).normal(size=(size, size, 3))
        test = AttentionTest(
            model, image_shape=(3, size, size), noise=1.0, attention=GradCAM(target=1, sign="signed"), device=device,
            confidence_level=None, search=PiecewiseSearch(tol=tol, max_evaluations=most),
        )  # fmt: skip
        kinks = test.check().kinks
        if device != "cpu":
            torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        result = test(image)
        taken, (low, high) = time.perf_counter() - start, result.pvalue_bounds
        memory = f"{torch.cuda.max_memory_allocated() / 2**30:.1f}" if device != "cpu" else ""
        print(
            f"| {size} x {size} | {kinks:.0f} | {result.status} | {result.pvalue:.4f} | {high - low:.1e} | "
            f"{result.evaluations} | {taken:.1f} | {1000 * taken / result.evaluations:.2f} | {memory} |",
            flush=True,
        )


def main() -> None:
    """Print the table that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=["random", "trained", "resnet"])
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--sampled", action="store_true", help="measure roughness instead of visiting every piece")
    parser.add_argument("--step", type=float, default=STEP, help="step of the dense grid")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--only", default="", metavar="TEXT", help="maps whose name has this text")
    parser.add_argument("--sizes", type=int, nargs="+", default=[32, 64, 128, 224])
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--most", type=int, default=100_000)
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    if asked.table == "random":
        random_networks(asked.count, asked.processes, asked.sampled, asked.step)
    elif asked.table == "trained":
        trained_network(asked.images, asked.device, asked.only)
    else:
        resnet(asked.sizes, asked.device, asked.tol, asked.most)


if __name__ == "__main__":
    main()
