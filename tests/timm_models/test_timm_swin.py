"""Swin and Swin V2 of timm: attention within windows, against full matrices that are scattered slowly."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from attentest import AttentionTest
from attentest.attention import GradCAM, GradientRollout, InputGradient, LayerAttention, RelevanceScores, ViTScores
from attentest.errors import ModelError
from families import distance, normal
from windowed_attention import SlowLayer, matrices, slow_layers, slow_rollout, with_clear_attention

ABSENT = "timm and torchvision are neither installed nor in the folder timm of the environment (see conftest.py)"
timm = pytest.importorskip("timm", reason=ABSENT)

SAME = 1e-10

SIZES: dict[str, Any] = {
    "img_size": 32,
    "patch_size": 2,
    "embed_dim": 8,
    "depths": (2, 2, 1),
    "num_heads": (2, 2, 4),
    "window_size": 4,
    "num_classes": 3,
}

CLASSES = {
    "swin": lambda: timm.models.swin_transformer.SwinTransformer,
    "swinv2": lambda: timm.models.swin_transformer_v2.SwinTransformerV2,
}

FORMS: dict[str, dict[str, Any]] = {
    "no padding": {},
    "padded windows": {"img_size": (40, 56)},
    "windows of two sides": {"img_size": (32, 48), "window_size": (4, 6)},
}


def swin(name: str, **changes: Any) -> Any:
    with torch.random.fork_rng(devices=[]):
        model = CLASSES[name]()(**{**SIZES, **changes})
    return with_clear_attention(model)


def traced(model: Any, images: Tensor) -> tuple[Tensor, list[Tensor], list[SlowLayer], Tensor]:
    """Logits, attention weights and layers of a float64 copy of a model, and its input, with a graph of gradients."""
    twin = copy.deepcopy(model).double()
    blocks = [list(stage.blocks) for stage in twin.layers]
    weights: list[Tensor] = []
    for stage in blocks:
        for block in stage:
            block.attn.fused_attn = False
            block.attn.softmax.register_forward_hook(lambda _, __, output: weights.append(output))
    leaf = images.clone().requires_grad_()
    logits = twin(leaf)
    grid = images.shape[-2] // 2, images.shape[-1] // 2
    return logits, weights, slow_layers(blocks, grid, pads_first=False), leaf


def all_matrices(weights: list[Tensor], layers: list[SlowLayer]) -> list[list[Tensor]]:
    return [matrices(part, layer, 2) for part, layer in zip(weights, layers, strict=True)]


def input_of(model: Any) -> tuple[int, int]:
    size = model.patch_embed.img_size
    return int(size[0]), int(size[1])


@pytest.mark.parametrize(
    ("name", "form"),
    # timm cannot make a Swin V2 whose shifted windows are padded.
    [(name, form) for name in CLASSES for form in FORMS if (name, form) != ("swinv2", "padded windows")],
)
def test_rollout_is_the_mean_row_of_the_product_of_scattered_matrices(name: str, form: str) -> None:
    model = swin(name, **FORMS[form])
    images = normal(2, 3, *input_of(model), seed=1)
    _, weights, layers, _ = traced(model, images)
    expected = slow_rollout(all_matrices(weights, layers), layers)
    scores = ViTScores(model)
    assert scores.grid_shape == (images.shape[2] // 2, images.shape[3] // 2)
    assert distance(scores(images), expected) < SAME * float(expected.max())
    assert float(expected.std() / expected.mean()) > 0.02  # it is no constant map


@pytest.mark.parametrize("name", CLASSES)
def test_another_size_is_that_which_timm_sets(name: str) -> None:
    model, images = swin(name), normal(2, 3, 64, 64, seed=2)
    larger = copy.deepcopy(model).double()
    larger.set_input_size(img_size=(64, 64))
    _, weights, layers, _ = traced(larger, images)
    expected = slow_rollout(all_matrices(weights, layers), layers)
    assert distance(ViTScores(model, image_size=64)(images), expected) < 1e-6 * float(expected.max())
    with pytest.raises(ModelError, match="patches of 2 x 2 pixels without a rest"):
        ViTScores(model, image_size=33)


@pytest.mark.parametrize("name", CLASSES)
def test_a_layer_is_a_map_on_the_grid_of_its_stage(name: str) -> None:
    model, images = swin(name), normal(2, 3, 32, 32, seed=3)
    _, weights, layers, _ = traced(model, images)
    rows = [matrix.mean(dim=0).unflatten(0, layers[3].grid) for matrix in matrices(weights[3], layers[3], 2)]
    scores = ViTScores(model, attention=LayerAttention(3))
    assert (scores.grid_shape, scores.covered) == ((8, 8), (32, 32))
    assert distance(scores(images), torch.stack(rows)) < SAME


@pytest.mark.parametrize("name", CLASSES)
def test_maps_for_a_class(name: str) -> None:
    model, images = swin(name), normal(2, 3, 32, 32, seed=4)
    logits, weights, layers, leaf = traced(model, images)
    slopes = torch.autograd.grad(logits[:, 1].sum(), [*weights, leaf])
    weighted = [(part * slope).clamp(min=0) for part, slope in zip(weights, slopes, strict=False)]
    expected = slow_rollout(all_matrices(weighted, layers), layers)
    computed = RelevanceScores(model, attention=GradientRollout(1))(images)
    assert distance(computed, expected) < SAME * float(expected.max())
    on_patches = slopes[-1].sum(dim=1).unflatten(2, (16, 2)).unflatten(1, (16, 2)).sum(dim=(2, 4))
    computed = RelevanceScores(model, attention=InputGradient(1))(images)
    assert distance(computed, on_patches) < SAME * float(on_patches.abs().max())


@pytest.mark.parametrize("name", CLASSES)
def test_grad_cam_is_of_the_tokens_that_enter_the_attention_of_the_last_layer(name: str) -> None:
    model, images = swin(name), normal(2, 3, 32, 32, seed=5)
    twin = copy.deepcopy(model).double()
    entering: list[Tensor] = []
    # The last stage is one window without a shift: its tokens stand in their order.
    twin.layers[-1].blocks[-1].attn.register_forward_pre_hook(lambda _, arguments: entering.append(arguments[0]))
    logits = twin(images.clone().requires_grad_())
    (slope,) = torch.autograd.grad(logits[:, 2].sum(), entering)
    expected = (entering[0] * slope.mean(dim=1, keepdim=True)).sum(dim=2).unflatten(1, (4, 4)).detach()
    scores = RelevanceScores(model, attention=GradCAM(-1, 2))
    assert scores.grid_shape == (4, 4)
    assert distance(scores(images), expected) < SAME * float(expected.abs().max())


@pytest.mark.parametrize("name", CLASSES)
def test_the_search_converges(name: str) -> None:
    model = swin(name)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.data *= 0.4
    result = AttentionTest(model, noise=1.0)(normal(3, 32, 32, seed=6))
    assert result.status == "converged"
    assert 0 < result.pvalue < 1
