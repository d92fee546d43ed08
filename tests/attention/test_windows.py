"""Swin and Swin V2 of Hugging Face: attention within windows, against full matrices that are scattered slowly."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from torch import Tensor

from attentest import AttentionTest
from attentest.attention import (
    GradCAM,
    GradientRollout,
    HiResCAM,
    InputGradient,
    LayerAttention,
    RelevanceScores,
    Rollout,
    ViTScores,
    load_model,
)
from attentest.errors import InputError, ModelError
from families import OtherDtypes, distance, normal
from windowed_attention import SlowLayer, matrices, slow_layers, slow_rollout, with_clear_attention

SAME = 1e-10

SIZES: dict[str, Any] = {
    "image_size": 32,
    "patch_size": 2,
    "num_channels": 3,
    "embed_dim": 8,
    "depths": [2, 2, 1],
    "num_heads": [2, 2, 4],
    "window_size": 4,
    "num_labels": 3,
}

SWIN = {
    "swin": (hf.SwinForImageClassification, hf.SwinConfig),
    "swinv2": (hf.Swinv2ForImageClassification, hf.Swinv2Config),
}

IMAGES = [(32, 32), (40, 56), (36, 44)]
"""Sizes: without padding, with windows padded, and with windows and the tokens to be merged padded."""


@cache
def swin(name: str, **changes: Any) -> Any:
    """A model with random weights, made once: no test changes it."""
    model, config = SWIN[name]
    with torch.random.fork_rng(devices=[]):
        made = model(config(**{**SIZES, **changes}))
    return with_clear_attention(made)


class OwnAttention(torch.nn.Module):
    """The attention of Swin or Swin V2 by the formulas of the papers; it keeps its input and its weights."""

    def __init__(self, attention: Any, heads: int) -> None:
        super().__init__()
        inner = getattr(attention, "self", attention)  # of Swin V2, and of Swin in transformers 4
        self.inner, self.heads = inner, heads
        self.query, self.key, self.value = (
            getattr(inner, name, None) or getattr(inner, older)
            for name, older in (("q_proj", "query"), ("k_proj", "key"), ("v_proj", "value"))
        )
        self.out = attention.o_proj if hasattr(attention, "o_proj") else attention.output.dense
        self.kept: list[tuple[Tensor, Tensor]] = []

    def forward(self, windows: Tensor, mask: Tensor | None = None, *_: Any, **__: Any) -> tuple[Tensor, None]:
        parts = (linear(windows) for linear in (self.query, self.key, self.value))
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in parts)
        inner, size = self.inner, windows.shape[1]
        if hasattr(inner, "logit_scale"):
            q, k = (part / part.norm(dim=-1, keepdim=True).clamp(min=1e-12) for part in (q, k))
            logits = q @ k.mT * inner.logit_scale.clamp(max=np.log(100.0)).exp()
            table = 16 * torch.sigmoid(inner.continuous_position_bias_mlp(inner.relative_coords_table).flatten(0, 2))
            index, times = inner.relative_position_index, 2  # transformers adds its mask twice
        else:
            logits = q @ k.mT / q.shape[-1] ** 0.5
            bias = getattr(inner, "relative_position_bias", inner)
            table, index, times = bias.relative_position_bias_table, bias.relative_position_index, 1
        logits = logits + table[index.flatten()].unflatten(0, (size, size)).permute(2, 0, 1)
        if mask is not None:
            logits = logits + times * mask.repeat(len(windows) // len(mask), 1, 1).unsqueeze(1)
        weights = torch.softmax(logits, dim=-1)
        self.kept.append((windows, weights))
        return self.out((weights @ v).transpose(1, 2).flatten(2)), None


@dataclass(frozen=True)
class Traced:
    """What a float64 copy of a model computes, with attention of our own: see :class:`OwnAttention`."""

    logits: Tensor
    inputs: list[Tensor]
    weights: list[Tensor]
    layers: list[SlowLayer]
    images: Tensor

    def gradients(self, target: int, values: list[Tensor]) -> tuple[Tensor, ...]:
        return torch.autograd.grad(self.logits[:, target].sum(), values)


def traced(model: Any, images: Tensor) -> Traced:
    twin = copy.deepcopy(model).double()
    blocks = [list(stage.blocks) for stage in getattr(twin, twin.base_model_prefix).encoder.layers]
    attentions = []
    for stage, heads in zip(blocks, twin.config.num_heads, strict=True):
        for block in stage:
            block.attention = OwnAttention(block.attention, heads)
            attentions.append(block.attention)
    leaf = images.clone().requires_grad_()
    logits = twin(leaf, interpolate_pos_encoding=True).logits
    inputs, weights = zip(*(attention.kept[0] for attention in attentions), strict=True)
    grid = images.shape[-2] // 2, images.shape[-1] // 2
    return Traced(logits, list(inputs), list(weights), slow_layers(blocks, grid, pads_first=True), leaf)


def all_matrices(weights: list[Tensor], layers: list[SlowLayer], **options: Any) -> list[list[Tensor]]:
    return [matrices(part, layer, 2, **options) for part, layer in zip(weights, layers, strict=True)]


@pytest.mark.parametrize("size", IMAGES)
@pytest.mark.parametrize("name", SWIN)
def test_rollout_is_the_mean_row_of_the_product_of_scattered_matrices(name: str, size: tuple[int, int]) -> None:
    model, images = swin(name), normal(2, 3, *size, seed=1)
    trace = traced(model, images)
    expected = slow_rollout(all_matrices(trace.weights, trace.layers), trace.layers)
    scores = ViTScores(model, image_size=size)
    assert scores.grid_shape == (size[0] // 2, size[1] // 2)
    assert distance(scores(images), expected) < SAME * float(expected.max())
    assert float(expected.std() / expected.mean()) > 0.02  # it is no constant map


@pytest.mark.parametrize("name", SWIN)
def test_the_formulas_of_these_tests_are_the_librarys(name: str) -> None:
    model, images = swin(name), normal(2, 3, 40, 56, seed=5)
    twin = copy.deepcopy(model).double()
    if name == "swin":
        twin.set_attn_implementation("sdpa")  # which computes in float64, as the eager function does not
    with torch.no_grad():
        expected = twin(images).logits
    assert distance(expected, traced(model, images).logits.detach()) < 1e-11


@pytest.mark.parametrize("layer", [0, 1, 3, -1])
@pytest.mark.parametrize("name", SWIN)
def test_a_layer_is_a_map_on_the_grid_of_its_stage(name: str, layer: int) -> None:
    model, images = swin(name), normal(2, 3, 32, 32, seed=2)
    trace = traced(model, images)
    at = trace.layers[layer]
    rows = [matrix.mean(dim=0).unflatten(0, at.grid) for matrix in matrices(trace.weights[layer], at, 2)]
    scores = ViTScores(model, attention=LayerAttention(layer))
    assert scores.grid_shape == at.grid
    assert scores.covered == (32, 32)
    assert distance(scores(images), torch.stack(rows)) < SAME


@pytest.mark.parametrize("fusion", ["max", "min", 1])
def test_heads_are_combined_within_windows(fusion: Any) -> None:
    model, images = swin("swin"), normal(2, 3, 40, 56, seed=3)
    trace = traced(model, images)

    def fused(part: Tensor) -> Tensor:
        if isinstance(fusion, int):
            return part[:, fusion]
        extreme = part.amax(dim=1) if fusion == "max" else part.amin(dim=1)
        return extreme / extreme.sum(dim=-1, keepdim=True)

    expected = slow_rollout(all_matrices(trace.weights, trace.layers, fusion=fused), trace.layers)
    scores = ViTScores(model, attention=Rollout(fusion), image_size=(40, 56))
    assert distance(scores(images), expected) < SAME * float(expected.max())


@pytest.mark.parametrize("name", SWIN)
def test_gradient_rollout_weights_each_window_by_its_gradient(name: str) -> None:
    model, images = swin(name), normal(2, 3, 40, 56, seed=4)
    trace = traced(model, images)
    slopes = trace.gradients(2, trace.weights)
    weighted = [(part * slope).clamp(min=0) for part, slope in zip(trace.weights, slopes, strict=True)]
    expected = slow_rollout(all_matrices(weighted, trace.layers), trace.layers)
    scores = RelevanceScores(model, attention=GradientRollout(2), image_size=(40, 56))
    assert distance(scores(images), expected) < SAME * float(expected.max())


@pytest.mark.parametrize("layer", [1, -1])
@pytest.mark.parametrize("kind", [GradCAM, HiResCAM])
@pytest.mark.parametrize("name", SWIN)
def test_grad_cam_is_of_the_tokens_that_enter_the_attention_of_a_layer(name: str, kind: Any, layer: int) -> None:
    model, images = swin(name), normal(2, 3, 32, 32, seed=6)
    trace = traced(model, images)
    at = trace.layers[layer]
    (slope,) = trace.gradients(1, [trace.inputs[layer]])
    expected = []
    parts = (part.detach().unflatten(0, (2, -1)) for part in (trace.inputs[layer], slope))
    for values, slopes in zip(*parts, strict=True):
        tokens, gradients = at.tokens(values), at.tokens(slopes)
        if kind is GradCAM:
            gradients = gradients.mean(dim=0, keepdim=True)
        expected.append((tokens * gradients).sum(dim=1).unflatten(0, at.grid))
    scores = RelevanceScores(model, attention=kind(layer, 1))
    assert scores.grid_shape == at.grid
    assert scores.covered == (32, 32)
    largest = float(torch.stack(expected).abs().max())
    assert distance(scores(images), torch.stack(expected)) < SAME * largest


@pytest.mark.parametrize("name", SWIN)
def test_input_gradients_are_summed_over_patches_of_the_first_stage(name: str) -> None:
    model, images = swin(name), normal(2, 3, 40, 56, seed=7)
    trace = traced(model, images)
    (slope,) = trace.gradients(0, [trace.images])
    expected = slope.sum(dim=1).unflatten(2, (28, 2)).unflatten(1, (20, 2)).sum(dim=(2, 4))
    scores = RelevanceScores(model, attention=InputGradient(0), image_size=(40, 56))
    assert distance(scores(images), expected) < SAME * float(expected.abs().max())


@pytest.mark.parametrize("name", SWIN)
def test_all_operations_are_float64(name: str) -> None:
    scores = ViTScores(swin(name))
    with OtherDtypes() as others:
        scores(normal(2, 3, 32, 32))
    assert others.operations > 100
    assert not others.seen


@pytest.mark.parametrize("name", SWIN)
def test_images_are_independent_and_rough_scores_are_close(name: str) -> None:
    scores, images = ViTScores(swin(name)), normal(5, 3, 32, 32, seed=8)
    together = scores(images)
    assert distance(scores(images[3:4]), together[3:4]) < 1e-12
    assert distance(scores.rough(images), together) < 1e-4
    _, slope = torch.func.jvp(lambda pixels: scores(pixels), (images,), (normal(5, 3, 32, 32, seed=9),))
    ahead, behind = (scores(images + step * normal(5, 3, 32, 32, seed=9)) for step in (1e-6, -1e-6))
    assert distance(slope, (ahead - behind) / 2e-6) < 1e-6


def test_batches_are_as_large_for_a_coarse_map_as_for_a_fine_one() -> None:
    whole, last = (ViTScores(swin("swin"), attention=name, memory_budget=2**24) for name in ("rollout", "last-layer"))
    assert 1 <= last.batch_size == whole.batch_size < 64


def test_absolute_positions_are_read() -> None:
    model, images = swin("swin", use_absolute_embeddings=True), normal(2, 3, 32, 32, seed=1)
    try:
        model(images.float())
    except RuntimeError:
        with pytest.raises(ModelError, match="fails on an image of shape"):
            ViTScores(model)
        pytest.skip("this version of transformers adds one position too many, and fails")
    trace = traced(model, images)
    expected = slow_rollout(all_matrices(trace.weights, trace.layers), trace.layers)
    assert distance(ViTScores(model)(images), expected) < SAME * float(expected.max())


@cache
def calm_swin(name: str) -> Any:
    """A model whose layers change little, as those of trained models do."""
    model = copy.deepcopy(swin(name))
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.data *= 0.4
    return model


@pytest.mark.parametrize("attention", ["rollout", "layer:1", GradientRollout(1), GradCAM(-1)])
@pytest.mark.parametrize("name", SWIN)
def test_the_search_converges(name: str, attention: Any) -> None:
    test = AttentionTest(calm_swin(name), noise=1.0, attention=attention)
    for result in test.map(list(normal(1, 3, 32, 32, seed=10))):
        assert result.status == "converged"
        assert 0 < result.pvalue < 1


@pytest.mark.parametrize("name", SWIN)
def test_a_saved_model_has_the_same_scores(name: str, tmp_path: Path) -> None:
    swin(name).save_pretrained(tmp_path / "model")
    images = normal(2, 3, 40, 56, seed=11)
    loaded = ViTScores(load_model(tmp_path / "model").encoder, image_size=(40, 56), owned=True)
    assert torch.equal(loaded(images), ViTScores(swin(name), image_size=(40, 56))(images))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"depths": 3}, "'depths' and 'num_heads' must be lists of a number for each of at most 16 stages, got 3"),
        ({"num_heads": [2, 2]}, "'depths' and 'num_heads' must be lists"),
        ({"num_heads": [2, 0, 4]}, "'num_heads' must be at least 1"),
        ({"depths": [2, 2, "x"]}, "'depths' must be a whole number"),
        ({"window_size": 0}, "'window_size' must be at least 1"),
        ({"embed_dim": 800}, "asks for a model with at least"),
        ({"embed_dim": 16}, "asks for a model with at least"),
    ],
)
def test_a_damaged_configuration_is_one_sentence(change: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    swin("swin").save_pretrained(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ModelError, match=sentence) as caught:
        load_model(tmp_path / "model")
    assert "\n" not in str(caught.value)


def test_a_saved_model_without_the_norm_before_its_layers_is_refused(tmp_path: Path) -> None:
    swin("swin").save_pretrained(tmp_path / "model")
    path = tmp_path / "model" / "model.safetensors"
    stored = load_file(path)
    del stored["swin.embeddings.norm.weight"]
    save_file(stored, path, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lack 1 tensor that config.json asks for, .*embeddings.norm.weight first"):
        load_model(tmp_path / "model")


class OwnAggregation:
    """An aggregation that knows nothing of windows."""

    head_fusion = "mean"

    def layers(self, count: int) -> range:
        return range(count)

    def take(self, weights: Tensor, tokens: Any) -> Tensor:
        return weights

    def scores(self, taken: Any, tokens: Any) -> Tensor:
        raise AssertionError

    def describe(self) -> dict[str, Any]:
        return {"name": "own"}


def test_bad_input_is_one_sentence() -> None:
    model = swin("swin")
    with pytest.raises(ModelError, match="patches of 2 x 2 pixels without a rest, but image_size is 33 x 32"):
        ViTScores(model, image_size=(33, 32))
    with pytest.raises(ModelError, match="has 5 x 6 tokens, made of 18 x 22 patches and of padding"):
        ViTScores(model, attention="last-layer", image_size=(36, 44))
    with pytest.raises(ModelError, match="made of 18 x 22 patches and of padding"):
        RelevanceScores(model, attention=GradCAM(), image_size=(36, 44))
    with pytest.raises(InputError, match="layer must be from -5 to 4"):
        ViTScores(model, attention="layer:5")
    with pytest.raises(InputError, match="attends within windows, for which OwnAggregation is not made"):
        ViTScores(model, attention=OwnAggregation())  # type: ignore[arg-type]
    with pytest.raises(InputError, match="head_fusion = 3, but the model has heads 0 to 1 only"):
        ViTScores(model, attention=Rollout(3))
    with pytest.raises(ModelError, match="fails on an image of shape"):
        ViTScores(model, image_size=(8, 8))  # its windows of 4 x 4 do not fit into stages of 2 x 2 and 1 x 1
