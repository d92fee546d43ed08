"""Maps for a class: uniform p under the null, error bars against a dense grid, evaluations and times beside rollout's.

python benchmarks/maps.py --images 1000 --bars 300 --device cuda

The model of most rows is the bundled one of 16 x 16 images, with two classes made of its one score y: -y and y. Swin,
a head that pools by attention and a model of images and texts are small ones of Hugging Face, trained here to see a
raised square. Images are N(0, 1).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
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
    TextRelevance,
    ViTScores,
    load_model,
)
from attentest.pipeline.hypotheses import parts_of

TEXT = (0, 5, 7, 1)
"""Tokens of the text."""

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
    "input gradient times input, pixels, predicted": InputGradient(times_input=True, per="pixel"),
    "integrated gradients, class 1": IntegratedGradients(steps=4, target=1),
    "integrated gradients, predicted": IntegratedGradients(steps=4),
}

OTHER_MODELS: dict[str, tuple[str, Any]] = {
    "Swin, rollout": ("swin", "rollout"),
    "Swin, gradient rollout, predicted": ("swin", GradientRollout()),
    "Swin, Grad-CAM, class 1": ("swin", GradCAM(target=1, sign="signed")),
    "SigLIP, pooling": ("siglip", "pooling"),
    "CLIP, text": ("clip", TextRelevance("a raised square", tokens=TEXT)),
}

REACH, STEP = 14.0, 0.01
"""Range of z of the dense grid, and its step; where the region changes within a step, 40 bisections follow."""

COARSE_STEP = 0.05
"""The step for maps of which an evaluation takes several gradients."""


def two_classes() -> torch.nn.Module:
    """Return the bundled model with two classes made of its one score."""
    model: Any = load_model(bundled_model(), head="classes").encoder
    with torch.no_grad():
        for name in ("weight", "bias"):
            value = getattr(model.classifier, name)
            setattr(model.classifier, name, torch.nn.Parameter(torch.cat([-value, value])))
    model.labels = {0: "nothing", 1: "signal"}
    return model


STEPS, RAISED = 400, 2.0
"""Steps of training, and by how much the square is raised in half of the images."""


def trained(kind: str, device: str) -> torch.nn.Module:
    """Return a small model of a kind, trained to tell images with a raised square of 6 x 6 pixels from others."""
    import transformers as hf

    torch.manual_seed(37)
    sizes = {"image_size": 16, "patch_size": 2, "num_channels": 1}
    layers = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
    text = {**layers, "vocab_size": 10, "max_position_embeddings": 8, "bos_token_id": 0, "eos_token_id": 1}
    model: Any
    if kind == "swin":
        windows = {"depths": [2, 2], "num_heads": [2, 4], "window_size": 4, "embed_dim": 32}
        model = hf.SwinForImageClassification(hf.SwinConfig(**sizes, **windows, num_labels=2))
    elif kind == "siglip":
        model = hf.SiglipVisionModel(hf.SiglipVisionConfig(**sizes, **layers))
    else:
        vision = {**sizes, **layers}
        model = hf.CLIPModel(hf.CLIPConfig(text_config={**text, "pad_token_id": 1}, vision_config=vision))
    model = model.to(device).train()
    readout = torch.nn.Linear(layers["hidden_size"], 1).to(device)

    def logits(images: torch.Tensor) -> torch.Tensor:
        if kind == "swin":
            classes = model(images).logits
            return classes[:, 1] - classes[:, 0]
        if kind == "siglip":
            return readout(model(images).pooler_output)[:, 0]
        tokens = torch.tensor([TEXT], device=device)
        return model(pixel_values=images, input_ids=tokens).logits_per_image[:, 0] - 10 * readout.bias

    optimizer = torch.optim.AdamW([*model.parameters(), *readout.parameters()], lr=1e-3)
    for _ in range(STEPS):
        images = torch.randn(128, 1, 16, 16, device=device)
        labels = (torch.rand(128, device=device) < 0.5).float()
        corners = torch.randint(0, 11, (128, 2)).tolist()
        for image, label, (row, column) in zip(images, labels.tolist(), corners, strict=True):
            image[:, row : row + 6, column : column + 6] += RAISED * label
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"{kind}: loss {loss.item():.3f} after {STEPS} steps of training", file=sys.stderr)
    return torch.nn.Module.eval(model)


def dense_pvalues(
    test: AttentionTest, images: np.ndarray[Any, Any], step: float, results: Sequence[Any] = ()
) -> np.ndarray[Any, Any]:
    """Return two-sided p-values of images from the regions at points of a grid, with bisection where they change.

    A grid misses what is narrower than its step. With results of the images, the middles of the intervals that they
    have found and of the gaps between these are points too: what is there decides, not what a result says of it.
    """
    pipeline = test.pipeline
    observation = pipeline.observe([pipeline.inputs.one(image) for image in images])
    problem, _ = pipeline.problem(observation, parts_of(observation.regions_on_images(), None), None)
    grid = np.arange(-REACH, REACH + step / 2, step)
    middles = [_middles(result) for result in results] or [np.empty(0)] * len(images)
    most = max(map(len, middles))
    added = [
        np.concatenate([z, np.full(most - len(z), z_obs)]) for z, z_obs in zip(middles, problem.z_obs, strict=True)
    ]
    points = np.sort(np.column_stack([np.tile(grid, (len(images), 1)), problem.z_obs, np.array(added)]), axis=1)
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


def _middles(result: Any) -> np.ndarray[Any, Any]:
    """Return the middles of the intervals of a truncation set, and of what lies between them."""
    ends = np.clip(result.truncation_set.intervals.ravel(), -REACH, REACH)
    return np.asarray((ends[1:] + ends[:-1]) / 2)


def _share(ends: np.ndarray[Any, Any], observed: float) -> float:
    def mass(low: Any, high: Any) -> float:
        right = np.maximum(low, 0), np.maximum(high, 0)
        left = np.minimum(low, 0), np.minimum(high, 0)
        above = stats.norm.sf(right[0]) - stats.norm.sf(right[1])  # each by itself: one half would hide small tails
        return float(np.sum(above + (stats.norm.cdf(left[1]) - stats.norm.cdf(left[0]))))

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
    parser.add_argument("--only", default="", help="rows whose names begin with this, or 'times': that table alone")
    asked = parser.parse_args()
    rng = np.random.default_rng(37)
    images = rng.normal(size=(max(asked.images, asked.bars), 16, 16))
    print("| map | <= 0.01 | <= 0.05 | <= 0.1 | Kolmogorov p | converged | no region | evaluations | s | outside |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    models: dict[str, torch.nn.Module] = {"bundled": two_classes()}
    rows = [(name, "bundled", attention) for name, attention in MAPS.items()]
    rows += [(name, *row) for name, row in OTHER_MODELS.items()]
    for name, kind, attention in rows:
        if not name.startswith(asked.only):
            continue
        if kind not in models:
            models[kind] = trained(kind, asked.device)
        test = AttentionTest(models[kind], noise=1.0, attention=attention, confidence_level=None, device=asked.device)
        start = time.perf_counter()
        results = test.map(list(images[: asked.images]), on_error="row")
        taken = time.perf_counter() - start
        tested = list(results.tested)
        p = np.array([result.pvalue for result in tested])
        shares = " | ".join(f"{(p <= level).mean():.3f}" for level in (0.01, 0.05, 0.1))
        statuses = Counter(result.status for result in tested)
        evaluations = np.median([result.evaluations for result in tested])
        usable = [n for n, result in enumerate(results) if hasattr(result, "pvalue_bounds") and n < asked.bars]
        step = COARSE_STEP if isinstance(attention, IntegratedGradients) else STEP
        found = [results[number] for number in usable]
        outside, dense = [], dense_pvalues(test, images[usable], step, found) if usable else np.empty(0)
        for row, number in enumerate(usable):
            low, high = results[number].pvalue_bounds
            if not low - 1e-9 <= dense[row] <= high + 1e-9 and results[number].status == "converged":
                finer = dense_pvalues(test, images[number : number + 1], step / 20, [results[number]])[0]
                if not low - 1e-9 <= finer <= high + 1e-9:
                    outside.append(f"image {number}: {finer} is not in [{low}, {high}]")
        kolmogorov = f"{stats.kstest(p, 'uniform').pvalue:.3f}"
        converged, none = f"{statuses['converged']} of {len(tested)}", asked.images - len(tested)
        cells = (name, shares, kolmogorov, converged, none, f"{evaluations:.0f}", f"{taken:.1f}")
        print(f"| {cells[0]}", *cells[1:], f"{len(outside)} of {len(usable)}", sep=" | ", end=" |\n", flush=True)
        print(*outside, sep="\n", end="\n" if outside else "", file=sys.stderr)
    if asked.only not in ("", "times"):
        return
    model = models["bundled"]
    print("\n| map | us per image, float64 | times rollout's | float32 | times rollout's |\n|---|---|---|---|---|")
    batch = torch.from_numpy(rng.normal(size=(512 if asked.device != "cpu" else 64, 1, 16, 16))).to(asked.device)
    first: list[float] = []
    for name, attention in MAPS.items():
        kind = ViTScores if attention == "rollout" else RelevanceScores
        scores = kind(model, attention=attention, device=asked.device, batch_size=len(batch))
        functions = (scores, scores.rough)
        if isinstance(scores, RelevanceScores):  # as in a search, where the class has been chosen
            choice = scores.choose(batch)
            functions = tuple(partial(given, choice=choice) for given in (scores.given, scores.rough_given))
        costs = [seconds_per_image(function, batch, 10) for function in functions]
        first = first or costs
        cells = " | ".join(f"{1e6 * cost:.1f} | {cost / own:.2f}" for cost, own in zip(costs, first, strict=True))
        print(f"| {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
