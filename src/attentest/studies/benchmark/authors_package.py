"""The spectral search over ``si4attention``, the later package of the paper's authors, where it is installed.

It runs in a process of its own, because importing it changes torch's settings and random state. attentest does not
depend on it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attentest.attention import ViTScores
from attentest.attention.aggregation import HeadFusion, Tokens
from attentest.studies.benchmark.measurement import (
    BenchSettings,
    NotMeasured,
    Ratio,
    Workload,
    measured_alone,
    side_by_side,
    timed,
)
from attentest.studies.benchmark.variants import ImageCost, cost_ratios

PACKAGE = "si4attention"

GOAL = 1 / 150
"""On a CPU, p alone should take at most this share of the time."""


def authors_package(workload: Workload) -> Iterator[Ratio]:
    """Compare p-values of the same images, one by one; both with the same float64 forward pass of the same model.

    The package interpolates attention between the outermost pixels instead of the centres of patches, so that its
    regions, statistics and p-values are others.
    """
    if find_spec(PACKAGE) is None:
        raise NotMeasured(f"{PACKAGE} is not installed: pip install {PACKAGE} 'sicore<3' in an environment to compare.")
    if workload.device.type != "cpu":
        raise NotMeasured(f"{PACKAGE} computes on the CPU only.")
    settings = workload.settings
    arguments = (settings.size, settings.grid_images, settings.repeats, settings.tol, settings.seed)
    try:
        found = measured_alone("authors_package", arguments)
    except NotMeasured as reason:
        raise NotMeasured(f"{reason} {PACKAGE} 1.0.0 needs sicore older than 3.") from None
    theirs = ImageCost(**found.pop(PACKAGE))
    for name, ours in found.items():
        yield from cost_ratios("authors", name, ImageCost(**ours), PACKAGE, theirs, seconds_goal=GOAL)


class LayerWeights:
    """An aggregation that leaves the attention weights of the layers as they are, with the heads averaged."""

    head_fusion: HeadFusion = "mean"

    def layers(self, count: int) -> range:
        """Return the indices of all layers."""
        return range(count)

    def take(self, weights: Tensor, tokens: Tokens) -> Tensor:
        """Return the weights (m, N, N)."""
        return weights.mean(dim=1)

    def scores(self, taken: Sequence[Tensor], tokens: Tokens) -> Tensor:
        """Return the weights (m, layers, N, N)."""
        return torch.stack(list(taken), dim=1)

    def describe(self) -> dict[str, Any]:
        """Return its name."""
        return {"name": "layer weights"}


class TheirModel(torch.nn.Module):
    """The interface through which the package asks a model for attention weights; it counts the evaluations."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self._weights = ViTScores(model, attention=LayerWeights())
        self.evaluations = 0

    def extract_weights(self, images: Tensor) -> Tensor:
        """Return the attention weights (m, layers, N, N) of images (m, 1, H, W)."""
        self.evaluations += len(images)
        return self._weights(images)


def measure(settings: BenchSettings) -> dict[str, dict[str, float]]:
    """Return mean seconds and evaluations of p-values by each method, image after image."""
    from si4attention import test_attention_map  # type: ignore[import-not-found]  # it need not be installed

    workload = Workload(settings)
    their_model = TheirModel(workload.model)
    tests = {"spectral, float64": workload.test, "spectral, mixed precision": workload.mixed_test}
    found: dict[str, list[tuple[float, int]]] = {name: [] for name in (PACKAGE, *tests)}
    for test in tests.values():
        test(workload.images[0])
    for image in workload.few():
        data = torch.from_numpy(image)[None, None]
        before = their_model.evaluations
        theirs = timed(partial(test_attention_map, their_model, data, 1.0), workload.device)
        found[PACKAGE].append((theirs.seconds, their_model.evaluations - before))
        ours = side_by_side(
            {name: partial(test, image) for name, test in tests.items()}, workload.device, settings.repeats
        )
        for name, one in ours.items():
            found[name].append((one.seconds, one.outcome.evaluations))
    means = {name: np.mean(values, axis=0) for name, values in found.items()}
    return {name: {"seconds": float(mean[0]), "evaluations": float(mean[1])} for name, mean in means.items()}


if __name__ == "__main__":
    size, images, repeats, tol, seed = sys.argv[1:]
    settings = BenchSettings(
        size=int(size),
        images=int(images),
        grid_images=int(images),
        repeats=int(repeats),
        tol=float(tol),
        seed=int(seed),
    )
    print(json.dumps(measure(settings)))
