"""The forward pass over plain layers against the model's own modules."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from attentest import bundled_model
from attentest.attention import LayerAttention, Rollout, ViTScores, load_model, split_forward
from attentest.attention.forward_pass import PlainForward, mapped, normed, plain_weights
from attentest.attention.fused_forward import FusedForward
from families import FAMILY_MODELS, VARIANTS, family_model, layers_of, normal

PLAIN = (
    "vit", "deit", "dinov2", "dinov2_with_registers", "vit_mae", "vit_msn", "ijepa", "clip_vision_model",
    "siglip_vision_model",
)  # fmt: skip
AGGREGATIONS = (Rollout(), Rollout(head_fusion="max"), LayerAttention(), LayerAttention(layer=0, head_fusion=1))


@pytest.mark.parametrize("name", FAMILY_MODELS)
def test_the_families_whose_layers_are_plain_are_read_as_such(name: str) -> None:
    assert isinstance(ViTScores(family_model(name))._forward, PlainForward) == (name in PLAIN)


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("aggregation", AGGREGATIONS, ids=str)
def test_scores_are_those_of_the_modules(name: str, aggregation: Any) -> None:
    scores = ViTScores(family_model(name), attention=aggregation, image_size=(12, 8))
    images = normal(5, *scores.image_shape)
    assert isinstance(scores._forward, PlainForward)
    expected = scores.through_modules(images)
    torch.testing.assert_close(scores(images), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", VARIANTS)
def test_scores_of_variants_are_those_of_the_modules(name: str) -> None:
    scores = ViTScores(family_model(name))
    images = normal(2, *scores.image_shape)
    torch.testing.assert_close(scores(images), scores.through_modules(images), rtol=1e-12, atol=1e-14)


def test_pixels_that_fill_no_whole_patch_are_left_out() -> None:
    scores = ViTScores(family_model("vit"), image_size=(13, 10))
    images = normal(2, *scores.image_shape)
    changed = images.clone()
    changed[..., scores.covered[0] :, :] += 5.0
    assert scores.covered[0] < 13
    assert isinstance(scores._forward, PlainForward)
    assert torch.equal(scores(images), scores(changed))


class NormTwice(torch.nn.LayerNorm):
    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return super().forward(super().forward(tokens))


def test_a_layer_that_computes_something_else_is_passed_through_its_modules() -> None:
    """All names and types fit: only the comparison of scores can tell."""
    model = FAMILY_MODELS["vit"]()
    layer = layers_of(model)[0]
    width = layer.layernorm_before.weight.shape
    layer.layernorm_before = NormTwice(width)
    torch.nn.init.normal_(layer.layernorm_before.weight, generator=torch.Generator().manual_seed(0))
    scores = ViTScores(model)
    assert not isinstance(scores._forward, PlainForward)
    images = normal(2, *scores.image_shape)
    torch.testing.assert_close(scores(images), scores.through_modules(images))


def test_no_weights_are_held_twice() -> None:
    scores = ViTScores(family_model("vit"))
    assert isinstance(scores._forward, PlainForward)
    held = {
        part.untyped_storage().data_ptr()
        for layer in scores._forward._weights.layers
        for part in (*layer.inputs[:2], *layer.out[:2], *layer.up[:2], *layer.down[:2])
    }
    of_module = {weights.untyped_storage().data_ptr() for weights in scores._encoder.module.parameters()}
    assert held <= of_module


def test_the_model_of_the_caller_does_not_change() -> None:
    model = FAMILY_MODELS["vit"]()
    before = {name: weights.clone() for name, weights in model.state_dict().items()}
    pointers = {name: weights.data_ptr() for name, weights in model.named_parameters()}
    ViTScores(model)(normal(1, 3, 8, 8))
    assert {name: weights.data_ptr() for name, weights in model.named_parameters()} == pointers
    assert all(torch.equal(weights, before[name]) for name, weights in model.state_dict().items())


def test_float32_scores_are_close() -> None:
    scores = ViTScores(family_model("dinov2"))
    images = normal(3, *scores.image_shape)
    torch.testing.assert_close(scores.rough(images), scores(images), rtol=1e-4, atol=1e-6)
    assert isinstance(scores._rough_forward, PlainForward)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("name", ["vit", "dinov2_with_registers", "siglip_vision_model"])
@pytest.mark.parametrize("aggregation", [Rollout(), LayerAttention(), Rollout(head_fusion="max")], ids=str)
def test_kernels_on_a_gpu_compute_the_scores_of_the_modules(name: str, aggregation: Any) -> None:
    scores = ViTScores(family_model(name), attention=aggregation, device="cuda")
    exact_gelu = name != "siglip_vision_model"
    assert isinstance(scores._forward, FusedForward) == (exact_gelu and aggregation != Rollout(head_fusion="max"))
    images = normal(5, *scores.image_shape).to("cuda")
    expected = scores.through_modules(images)
    torch.testing.assert_close(scores(images), expected, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(scores.rough(images), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("aggregation", [Rollout(), LayerAttention(1)], ids=str)
@pytest.mark.parametrize("name", ["vit", "dinov2_with_registers"])
def test_products_of_halves_on_a_gpu_are_as_accurate_as_float32(
    name: str, aggregation: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(split_forward, "LEAST_WIDTH", 0)
    scores = ViTScores(family_model(name), attention=aggregation, device="cuda")
    images = normal(5, *scores.image_shape).to("cuda")
    torch.testing.assert_close(scores.rough(images), scores(images), rtol=1e-4, atol=1e-6)
    assert isinstance(scores._rough_forward, split_forward.SplitForward)
    assert scores.rough_is_faster


def test_halves_multiply_as_float32_does_and_cannot_overflow() -> None:
    scores = ViTScores(family_model("vit"))
    encoder = scores._encoder.cast(torch.float32)
    weights = plain_weights(encoder)
    assert weights is not None
    plain = weights.layers[0]
    layer = split_forward._SplitLayer.of(plain, encoder.heads)
    x = normal(64, encoder.width).float()
    x[:8] *= 1e6  # whatever reaches a norm, what leaves it is bounded
    tokens = normed(x, plain.first_norm)
    scaled = tokens * layer.first_scale
    high = scaled.to(torch.float16)
    low = (scaled - high.float()).to(torch.float16)
    halves, factors = torch.cat([low, high, high], dim=1).double(), layer.inputs.weight.double()
    product = halves @ factors.t() * layer.inputs.factor
    expected = tokens.double() @ plain.inputs.weight.double().t()
    torch.testing.assert_close(product, expected, rtol=0, atol=1e-6 * float(expected.abs().max()))
    parts = layer.inputs.weight.shape[0] // 3
    values = product * layer.factor / layer.inputs.factor + layer.shift
    hidden = mapped(normed(x, plain.second_norm), plain.up) * layer.hidden_scale
    for numbers in (scaled, values[:, :parts], values[:, parts:], hidden):
        assert 2.0**4 < numbers.abs().max() < split_forward.GREATEST


def test_bundled_models_are_plain() -> None:
    assert isinstance(ViTScores(load_model(bundled_model(8)).encoder)._forward, PlainForward)
