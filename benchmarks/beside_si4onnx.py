"""The networks of si4onnx's own examples, tested by si4onnx and by attentest: p and times, measured in one run.

python benchmarks/beside_si4onnx.py --python ENVIRONMENT/bin/python --images 5

The interpreter is that of an environment with si4onnx 0.1.13, which needs NumPy below 2. The networks are those that
its notebooks and tests build, trained as there and exported by torch; both read the same files. Images are N(0, 1),
and both know it. Both have one thread and stop when p is known to 0.001 (si4onnx's default). Seconds are those of the
processor, without loading and without the first image; "together" are those of all images by ``test.map``.

The settings are si4onnx's. Its p is ``alternative="equal-tailed"`` here (sicore 3.0.0 has twice the smaller tail). Its
threshold is ``threshold`` of the map that is scaled from 0 to 1 (``use_norm``), or ``level`` of one that is not;
BackMeanDiff is the usual contrast; NeighborMeanDiff, whose neighbours are those within a square, is Neighbourhood(1.5)
for its range of 1, and of signals Neighbourhood(20) for 20. Its filters have zeros beyond the border: the map below
does it in the same way. Its mask leaves out pixels after scaling, ours before: so with a mask the map is not scaled.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

PRECISION = 1e-3

ROWS: dict[str, dict[str, Any]] = {
    "VAE, averaged residual, level": {"model": "vae", "post": ["InputDiff", "Abs", "AverageFilter"], "level": 0.9},
    "VAE, averaged residual, scaled, neighbourhood": {
        "model": "vae", "post": ["InputDiff", "Abs", "AverageFilter"], "threshold": 0.95, "range": 1,
    },
    "CAM, filtered, scaled": {"model": "cam", "post": ["GaussianFilter"], "threshold": 0.8},
    "U-Net, residual, scaled": {"model": "unet", "post": ["InputDiff", "Abs"], "threshold": 0.5},
    "U-Net, residual, level, mask": {"model": "unet", "post": ["InputDiff", "Abs"], "level": 0.2, "mask": True},
    "U-Net of signals, segmentation, neighbourhood": {
        "model": "unet1d", "post": ["GaussianFilter"], "threshold": 0.95, "range": 20,
    },
    "autoencoder, residual, level": {"model": "autoencoder", "post": ["InputDiff", "Abs"], "level": 2.0},
}  # fmt: skip
"""Networks and settings; ours are those of the autoencoder, whose example needs MNIST, and the level with a mask."""

SHAPES = {"vae": (1, 16, 16), "cam": (1, 16, 16), "unet": (1, 16, 16), "unet1d": (1, 128), "autoencoder": (1, 28, 28)}


class VAE(nn.Module):
    """The variational autoencoder of the notebook of preset hypotheses; evaluated, it decodes the means."""

    def __init__(self) -> None:
        super().__init__()
        first = (nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten())
        self.encoder, self.means, self.logarithms = nn.Sequential(*first), nn.Linear(512, 16), nn.Linear(512, 16)
        self.widen = nn.Linear(16, 512)
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(32, 16, 3, 2, 1, 1), nn.ReLU(), nn.ConvTranspose2d(16, 8, 3, 2, 1, 1), nn.ReLU(),
            nn.ConvTranspose2d(8, 1, 3, 1, 1),
        )  # fmt: skip

    def forward(self, images: torch.Tensor) -> Any:
        """Return reconstructions (m, 1, 16, 16), and in training means and logarithms of variances (m, 16)."""
        features = self.encoder(images)
        means = self.means(features)
        if not self.training:
            return self.decoder(self.widen(means).view(-1, 32, 4, 4))
        logarithms = self.logarithms(features)
        drawn = means + torch.randn_like(means) * torch.exp(logarithms / 2)
        return self.decoder(self.widen(drawn).view(-1, 32, 4, 4)), means, logarithms


class CAM(nn.Module):
    """The class activation map of the notebook of custom hypotheses."""

    def __init__(self) -> None:
        super().__init__()
        first = (nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.features = nn.Sequential(*first, nn.Conv2d(8, 16, 3, padding=1), nn.ReLU())
        self.last = nn.Linear(16, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return maps (m, 1, 16, 16), in training scores (m, 1)."""
        features = self.features(images)
        if self.training:
            return self.last(features.mean(dim=(2, 3)))
        weighted = functional.conv2d(features, self.last.weight[:, :, None, None])
        return functional.interpolate(weighted, size=images.shape[2:], mode="bilinear", align_corners=False)


class UNet(nn.Module):
    """The U-Net of its tests, of images or, with batch normalisation, of signals."""

    def __init__(self, axes: int) -> None:
        super().__init__()
        kind = {"conv": getattr(nn, f"Conv{axes}d"), "norm": nn.BatchNorm1d if axes == 1 else nn.Identity}
        transposed = getattr(nn, f"ConvTranspose{axes}d")

        def double(before: int, after: int) -> nn.Module:
            parts = [(kind["conv"](n, after, 3, padding=1), kind["norm"](after), nn.ReLU()) for n in (before, after)]
            return nn.Sequential(*parts[0], *parts[1])

        self.first, self.down, self.lowest = double(1, 32), double(32, 64), double(64, 128)
        self.pool = getattr(nn, f"MaxPool{axes}d")(2)
        self.raise_lowest, self.middle = transposed(128, 64, 2, 2), double(128, 64)
        self.raise_middle, self.last = transposed(64, 32, 2, 2), double(64, 32)
        self.output = kind["conv"](32, 1, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return maps (m, 1, *axes) of images of that shape."""
        first = self.first(images)
        down = self.down(self.pool(first))
        lowest = self.lowest(self.pool(down))
        middle = self.middle(torch.cat([down, self.raise_lowest(lowest)], dim=1))
        return self.output(self.last(torch.cat([first, self.raise_middle(middle)], dim=1)))


def autoencoder() -> nn.Module:
    """Return the autoencoder of its tests."""
    encoder = [
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    ]  # fmt: skip
    decoder = [
        nn.ConvTranspose2d(4, 4, 2, 2), nn.ReLU(), nn.ConvTranspose2d(4, 16, 3, padding=1), nn.ReLU(),
        nn.ConvTranspose2d(16, 16, 2, 2), nn.ReLU(), nn.ConvTranspose2d(16, 1, 3, padding=1),
    ]  # fmt: skip
    return nn.Sequential(*encoder, *decoder)


def trained(name: str) -> nn.Module:
    """Return a network, trained on N(0, 1): for the class, half of the images have a raised square; signals a step."""
    torch.manual_seed(0)
    made = {"vae": VAE, "cam": CAM, "unet": lambda: UNet(2), "unet1d": lambda: UNet(1), "autoencoder": autoencoder}
    model: nn.Module = made[name]()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001 if name in ("cam", "unet1d") else 0.01)
    images, labels = torch.randn(200, *SHAPES[name]), torch.arange(200) % 2
    if name == "cam":
        images[labels == 1, :, 5:10, 5:10] += 1.0
    if name == "unet1d":
        changes = torch.arange(128) >= torch.randint(20, 108, (200, 1))
        images += (torch.randn(200, 1) * changes).unsqueeze(1)
    for _ in range(16):
        for batch in torch.randperm(200).split(16):
            output = model(images[batch])
            if name == "vae":
                output, means, logarithms = output
                loss = (output - images[batch]).square().sum()
                loss = loss - 0.5 * (1 + logarithms - means.square() - logarithms.exp()).sum()
            elif name == "cam":
                loss = functional.binary_cross_entropy_with_logits(output[:, 0], labels[batch].float())
            elif name == "unet1d":
                loss = functional.binary_cross_entropy_with_logits(output[:, 0], changes[batch].float())
            else:
                loss = functional.mse_loss(output, images[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model.eval()


def mask_of(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return the mask (*axes): all but an eighth at each border."""
    mask = np.zeros(shape[1:], dtype=bool)
    mask[tuple(slice(side // 8, side - side // 8) for side in shape[1:])] = True
    return mask


def theirs(name: str, folder: Path) -> None:
    """Print p, seconds and pieces of each image of a row as si4onnx has them; runs in its environment."""
    import onnx
    import si4onnx
    from si4onnx.hypothesis import NoHypothesisError

    torch.set_num_threads(1)
    row = ROWS[name]
    images = np.load(folder / f"{row['model']}.npy")
    settings = {
        "threshold": row.get("threshold", row.get("level")), "use_norm": "threshold" in row,
        "post_process": [getattr(si4onnx, kind)() for kind in row["post"]],
    }  # fmt: skip
    if "range" in row:
        hypothesis = si4onnx.NeighborMeanDiff(neighborhood_range=row["range"], **settings)
    else:
        hypothesis = si4onnx.BackMeanDiff(**settings)
    tested = si4onnx.load(model=onnx.load(folder / f"{row['model']}.onnx"), hypothesis=hypothesis, seed=0)
    options = {"mask": torch.from_numpy(mask_of(images.shape[1:]))} if "mask" in row else {}
    found = []
    for image in images:
        start = time.process_time()
        try:
            result = tested.inference(torch.from_numpy(image)[None], var=1.0, precision=PRECISION, **options)
            p, steps = float(result.p_value), int(result.search_count)
        except (NoHypothesisError, AssertionError):
            p, steps = None, 0
        found.append((p, time.process_time() - start, steps))
    print(json.dumps(found), flush=True)


def ours(row: dict[str, Any], folder: Path) -> tuple[list[tuple[float | None, float, int]], float]:
    """Return p, seconds and evaluations of each image of a row as attentest has them, and seconds per image of all."""
    from dataclasses import dataclass

    from attentest import AttentionTest
    from attentest.attention.relevance import OutputMap
    from attentest.contrast import Neighbourhood
    from attentest.errors import InputError
    from attentest.search import PiecewiseSearch

    @dataclass(frozen=True)
    class Filtered(OutputMap):
        """What a network returns, or its absolute difference from the image, filtered with zeros beyond the border."""

        name = "filtered"

        def scores(self, images: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
            values = (output - images).abs() if "InputDiff" in row["post"] else output
            axes, last = images.ndim - 2, row["post"][-1]
            if not last.endswith("Filter"):
                return values[:, 0]
            side = torch.tensor([1.0, 1.0, 1.0]) if last == "AverageFilter" else torch.tensor([-1.0, 0.0, 1.0])
            if last == "GaussianFilter":
                side = torch.exp(-side.square() / 2)
            kernel = side if axes == 1 else torch.outer(side, side)
            kernel = (kernel / kernel.sum()).to(values)
            return getattr(functional, f"conv{axes}d")(values, kernel[None, None], padding=1)[:, 0]

    images = np.load(folder / f"{row['model']}.npy")
    contrast = Neighbourhood(1.5 if row["range"] == 1 else row["range"]) if "range" in row else "background"
    rule = {key: row[key] for key in ("threshold", "level") if key in row}
    mask = {"mask": mask_of(images.shape[1:])} if "mask" in row else {}
    test = AttentionTest.from_onnx(
        folder / f"{row['model']}.onnx", noise=1.0, attention=Filtered(), contrast=contrast, confidence_level=None,
        alternative="equal-tailed", search=PiecewiseSearch(tol=PRECISION), **rule, **mask,
    )  # fmt: skip
    found: list[tuple[float | None, float, int]] = []
    for image in images:
        start = time.process_time()
        try:
            result = test(image[0])
            found.append((result.pvalue, time.process_time() - start, result.evaluations))
        except InputError:  # a map without a region
            found.append((None, time.process_time() - start, 0))
    start = time.process_time()
    test.map([image[0] for image in images[1:]], on_error="row")
    return found, (time.process_time() - start) / (len(images) - 1)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--images", type=int, default=20)
    parser.add_argument("--only", default="", metavar="TEXT", help="networks whose name has this text")
    parser.add_argument("--theirs", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.theirs:
        theirs(asked.theirs, asked.folder)
        return
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's exporter says that it is the older one
        folder = Path(place)
        for name, shape in SHAPES.items():
            model = trained(name)
            torch.onnx.export(model, (torch.zeros(1, *shape),), folder / f"{name}.onnx", dynamo=False)
            np.save(folder / f"{name}.npy", np.random.default_rng(0).normal(size=(asked.images + 1, *shape)))
        print(
            "| network, map, region | images | greatest difference of p | si4onnx, s | attentest, s | ratio | "
            "together, s | ratio | pieces of both |"
        )
        print("|---|---|---|---|---|---|---|---|---|")
        for name, row in ROWS.items():
            if asked.only not in name:
                continue
            command = [asked.python, "-P", "-W", "ignore", __file__, "--theirs", name, "--folder", place]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            first, (second, together) = json.loads(done.stdout), ours(row, folder)
            both = list(zip(first[1:], second[1:], strict=True))
            pairs = [(a, b) for a, b in both if None not in (a[0], b[0])]
            others = sum((a[0] is None) != (b[0] is None) for a, b in both)
            if not pairs:
                print(f"| {name} | 0 |", flush=True)
                continue
            apart = max(abs(a[0] - b[0]) for a, b in pairs)
            seconds = [np.mean([pair[i][1] for pair in pairs]) for i in (0, 1)]
            pieces = [np.median([pair[i][2] for pair in pairs]) for i in (0, 1)]
            print(
                f"| {name} | {len(pairs)} | {apart:.1e} | {seconds[0]:.3f} | {seconds[1]:.4f} | "
                f"{seconds[0] / seconds[1]:.1f} | {together:.4f} | {seconds[0] / together:.1f} | "
                f"{pieces[0]:.0f}, {pieces[1]:.0f} |" + (f" {others} refused by one alone" if others else ""),
                flush=True,
            )


if __name__ == "__main__":
    main()
