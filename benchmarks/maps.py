"""Maps for a class: uniform p under the null, error bars against a dense grid, evaluations and times beside rollout's.

python benchmarks/maps.py --images 1000 --bars 300 --device cuda

The model is the bundled one of 16 x 16 images, with two classes made of its one score y: -y and y. Images are N(0, 1).
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from typing import Any

import numpy as np
import torch
from scipy import stats

from attentest import AttentionTest, bundled_model
from attentest.attention import (
    GradCAM,
    GradientRollout,
    HiResCAM,
    InputGradient,
    IntegratedGradients,
    RelevanceScores,
    ViTScores,
    load_model,
)
from attentest.pipeline.hypotheses import parts_of

MAPS: dict[str, Any] = {
    "rollout": "rollout",
    "gradient rollout, class 1": GradientRollout(1),
    "gradient rollout, predicted": GradientRollout(),
    "Grad-CAM, class 1, signed": GradCAM(target=1, sign="signed"),
    "Grad-CAM, predicted": GradCAM(),
    "HiResCAM, class 1, signed": HiResCAM(target=1, sign="signed"),
    "HiResCAM, predicted": HiResCAM(),
    "input gradient, class 1": InputGradient(1),
    "input gradient, predicted": InputGradient(),
    "times input, pixels, predicted": InputGradient(times_input=True, per="pixel"),
    "integrated gradients, predicted": IntegratedGradients(steps=8),
}

REACH, STEP = 14.0, 0.01
"""Range of z of the dense grid, and its step; where the region changes within a step, 40 bisections follow."""


def two_classes() -> torch.nn.Module:
    """Return the bundled model with two classes made of its one score."""
    model: Any = load_model(bundled_model(), head="classes").encoder
    with torch.no_grad():
        for name in ("weight", "bias"):
            value = getattr(model.classifier, name)
            setattr(model.classifier, name, torch.nn.Parameter(torch.cat([-value, value])))
    model.labels = {0: "nothing", 1: "signal"}
    return model


def dense_pvalues(test: AttentionTest, images: np.ndarray[Any, Any], step: float) -> np.ndarray[Any, Any]:
    """Return two-sided p-values of images from the regions at points of a grid, with bisection where they change."""
    pipeline = test.pipeline
    observation = pipeline.observe([pipeline.inputs.one(image) for image in images])
    problem, _ = pipeline.problem(observation, parts_of(observation.regions_on_images(), None), None)
    grid = np.arange(-REACH, REACH + step / 2, step)
    points = np.sort(np.column_stack([np.tile(grid, (len(images), 1)), problem.z_obs]), axis=1)
    image = np.repeat(np.arange(len(images)), points.shape[1])
    inside = problem.inside_at(image, points.ravel()).reshape(points.shape)
    row, change = np.nonzero(inside[:, 1:] != inside[:, :-1])
    low, high, first = points[row, change], points[row, change + 1], inside[row, change]
    for _ in range(40 if len(row) else 0):
        middle = (low + high) / 2
        same = problem.inside_at(row, middle) == first
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    pvalues = []
    for number, observed in enumerate(problem.z_obs):
        ends = [[-np.inf] if inside[number, 0] else [], low[row == number], [np.inf] if inside[number, -1] else []]
        pvalues.append(_share(np.concatenate(ends).reshape(-1, 2), abs(observed)))
    return np.array(pvalues)


def _share(ends: np.ndarray[Any, Any], observed: float) -> float:
    def mass(low: Any, high: Any) -> float:
        right = np.maximum(low, 0), np.maximum(high, 0)
        left = np.minimum(low, 0), np.minimum(high, 0)
        return float(
            np.sum(
                stats.norm.sf(right[0]) - stats.norm.sf(right[1]) + stats.norm.cdf(left[1]) - stats.norm.cdf(left[0])
            )
        )

    low, high = ends.T
    extreme = mass(np.clip(low, observed, None), np.clip(high, observed, None))
    extreme += mass(np.clip(low, None, -observed), np.clip(high, None, -observed))
    return extreme / mass(low, high)


def seconds_per_image(scores: Any, images: torch.Tensor, calls: int) -> float:
    """Return the time of an image when images are passed together, after as many calls that are not counted."""
    with torch.no_grad():
        for number in range(2 * calls):
            if number == calls:
                _wait(images)
                start = time.perf_counter()
            scores(images)
        _wait(images)
    return (time.perf_counter() - start) / calls / len(images)


def _wait(images: torch.Tensor) -> None:
    if images.is_cuda:
        torch.cuda.synchronize()


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--bars", type=int, default=300)
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    rng = np.random.default_rng(37)
    images = rng.normal(size=(max(asked.images, asked.bars), 16, 16))
    model = two_classes()
    print("| map | <= 0.01 | <= 0.05 | <= 0.1 | Kolmogorov p | converged | no region | evaluations | s | outside |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, attention in MAPS.items():
        test = AttentionTest(model, noise=1.0, attention=attention, confidence_level=None, device=asked.device)
        start = time.perf_counter()
        results = test.map(list(images[: asked.images]), on_error="row")
        taken = time.perf_counter() - start
        tested = list(results.tested)
        p = np.array([result.pvalue for result in tested])
        shares = " | ".join(f"{(p <= level).mean():.3f}" for level in (0.01, 0.05, 0.1))
        statuses = Counter(result.status for result in tested)
        evaluations = np.median([result.evaluations for result in tested])
        usable = [n for n, result in enumerate(results) if hasattr(result, "pvalue_bounds") and n < asked.bars]
        outside, dense = 0, dense_pvalues(test, images[usable], STEP) if usable else np.empty(0)
        for row, number in enumerate(usable):
            low, high = results[number].pvalue_bounds
            if not low - 1e-9 <= dense[row] <= high + 1e-9 and results[number].status == "converged":
                finer = dense_pvalues(test, images[number : number + 1], STEP / 20)[0]
                outside += not low - 1e-9 <= finer <= high + 1e-9
        kolmogorov = f"{stats.kstest(p, 'uniform').pvalue:.3f}"
        converged, none = f"{statuses['converged']} of {len(tested)}", asked.images - len(tested)
        cells = (name, shares, kolmogorov, converged, none, f"{evaluations:.0f}", f"{taken:.1f}")
        print(f"| {cells[0]}", *cells[1:], f"{outside} of {len(usable)}", sep=" | ", end=" |\n", flush=True)
    print("\n| map | us per image, float64 | times rollout's | float32 | times rollout's |\n|---|---|---|---|---|")
    batch = torch.from_numpy(rng.normal(size=(512 if asked.device != "cpu" else 64, 1, 16, 16))).to(asked.device)
    first: list[float] = []
    for name, attention in MAPS.items():
        kind = ViTScores if attention == "rollout" else RelevanceScores
        scores = kind(model, attention=attention, device=asked.device, batch_size=len(batch))
        costs = [seconds_per_image(function, batch, 10) for function in (scores, scores.rough)]
        first = first or costs
        cells = " | ".join(f"{1e6 * cost:.1f} | {cost / own:.2f}" for cost, own in zip(costs, first, strict=True))
        print(f"| {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
