"""Models, sizes and aggregations that cannot be read, each refused in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor, nn

from attentest.attention import LayerAttention, Rollout, ViTScores
from attentest.attention.vit import readable
from attentest.errors import AttentestError, InputError, ModelError
from families import FAMILY_MODELS, HEADS, LAYERS, family_model, layers_of, normal

IN_WINDOWS: dict[str, Any] = {
    "image_size": 8, "patch_size": 2, "embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "window_size": 2,
}  # fmt: skip


OTHERS: dict[str, Callable[[], nn.Module]] = {
    "maskformer-swin": lambda: hf.MaskFormerSwinModel(hf.MaskFormerSwinConfig(**IN_WINDOWS)),
    "swin2sr": lambda: hf.Swin2SRModel(hf.Swin2SRConfig(**IN_WINDOWS)),
    "hiera": lambda: hf.HieraModel(
        hf.HieraConfig(
            embed_dim=8,
            image_size=[32, 32],
            patch_stride=[2, 2],
            patch_size=[3, 3],
            patch_padding=[1, 1],
            depths=[1, 1],
            num_heads=[1, 2],
            num_layers=2,
            masked_unit_size=[8, 8],
            masked_unit_attention=[True, False],
            query_stride=[2, 2],
            num_query_pool=1,
        )
    ),
    "pvt": lambda: hf.PvtModel(
        hf.PvtConfig(image_size=32, depths=[1, 1, 1, 1], hidden_sizes=[8, 8, 8, 8], num_attention_heads=[1, 1, 1, 1])
    ),
    "segformer": lambda: hf.SegformerModel(
        hf.SegformerConfig(depths=[1, 1, 1, 1], hidden_sizes=[8, 8, 8, 8], num_attention_heads=[1, 1, 1, 1])
    ),
    "convnext": lambda: hf.ConvNextModel(hf.ConvNextConfig(depths=[1, 1, 1, 1], hidden_sizes=[8, 8, 8, 8])),
    "resnet": lambda: hf.ResNetModel(hf.ResNetConfig(embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1])),
}

REASONS = {
    "maskformer-swin": "attends within windows, and not as those of Swin and Swin V2 that are read",
    "swin2sr": "attends within windows",
    "hiera": "is hierarchical",
    "pvt": "is hierarchical",
    "segformer": "is hierarchical",
    "convnext": "has no self-attention over patches",
    "resnet": "has no self-attention over patches",
}


@pytest.mark.parametrize("kind", sorted(OTHERS))
def test_another_kind_of_model_is_refused_by_its_type(kind: str) -> None:
    with torch.random.fork_rng(devices=[]):
        model = OTHERS[kind]()
    assert not readable(model)
    with pytest.raises(ModelError, match=f"the model is of type '{kind}', which {REASONS[kind]}") as caught:
        ViTScores(model)
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    assert "AttentionTest(function, image_shape=...)" in message  # what to do instead


def test_a_module_that_is_no_vision_transformer_is_refused_by_its_class() -> None:
    for module in (nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3))):
        assert not readable(module)
        with pytest.raises(ModelError, match=f"the model is of type '{type(module).__name__}', which attentest does"):
            ViTScores(module)


def test_a_model_of_texts_is_refused_by_its_type() -> None:
    with torch.random.fork_rng(devices=[]):
        model = hf.CLIPTextModel(hf.CLIPTextConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2))
    with pytest.raises(ModelError, match="the model is of type 'clip_text_model'"):
        ViTScores(model)


class PassThrough(nn.Module):
    """A layer without attention, in the place of another, which returns a tuple in some versions of transformers."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.returns_tuple = "tuple" in str(type(layer).forward.__annotations__.get("return"))

    def forward(self, hidden_states: Tensor, *_: Any, **__: Any) -> Any:
        return (hidden_states,) if self.returns_tuple else hidden_states


@pytest.mark.parametrize("left", [0, 2])
def test_a_model_that_does_not_show_the_attention_of_a_layer_is_refused(left: int) -> None:
    model = FAMILY_MODELS["vit"]()
    for index in range(left, LAYERS):
        layers_of(model)[index] = PassThrough(layers_of(model)[index])
    with pytest.raises(ModelError, match=f"showed attention for {left} of its {LAYERS} layers") as caught:
        ViTScores(model)
    assert "\n" not in str(caught.value)
    # The same after it was read: attention that vanishes later is not taken for attention of before. The layers of BEiT
    # are not plain, so it is passed through its own modules.
    scores = ViTScores(FAMILY_MODELS["beit"]())
    layers = layers_of(scores._encoder.module)
    for index in range(left, LAYERS):
        layers[index] = PassThrough(layers[index])
    with pytest.raises(ModelError, match=f"showed attention for {left} of its {LAYERS} layers"):
        scores(normal(1, 3, 8, 8))


def test_a_model_that_overflows_is_refused() -> None:
    model = FAMILY_MODELS["vit"]()
    layers_of(model)[0].layernorm_before.weight.data[0] = float("nan")
    with pytest.raises(ModelError, match="rows of layer 0's attention should sum to one"):
        ViTScores(model)


def test_a_model_on_the_meta_device_is_refused() -> None:
    with pytest.raises(AttentestError, match="meta") as caught:
        ViTScores(FAMILY_MODELS["vit"]().to("meta"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("size", [(8, 1), (8, 8, 8), (8.5, 8), "8", 0, (), 2**20, True])
def test_an_impossible_size_of_image_is_refused(size: Any) -> None:
    with pytest.raises(InputError, match="image_size") as caught:
        ViTScores(family_model("vit"), image_size=size)
    assert "\n" not in str(caught.value)


def test_a_head_or_a_layer_that_is_not_there_is_refused() -> None:
    model = family_model("vit")
    for aggregation in (Rollout(HEADS), LayerAttention(head_fusion=HEADS)):
        with pytest.raises(InputError, match=f"head_fusion = {HEADS}, but the model has heads 0 to"):
            ViTScores(model, attention=aggregation)
    for layer in (LAYERS, -LAYERS - 1):
        with pytest.raises(InputError, match=f"layer must be from -{LAYERS} to {LAYERS - 1} for this model"):
            ViTScores(model, attention=LayerAttention(layer))
    for fusion in ("median", -1, True, 1.0, None, ["mean"]):
        for aggregation_class in (Rollout, LayerAttention):
            with pytest.raises(InputError, match="head_fusion must be 'mean', 'max', 'min' or the number of a head"):
                aggregation_class(head_fusion=fusion)
    for wrong in (1.5, "last", None):
        with pytest.raises(InputError, match="layer"):
            LayerAttention(wrong)
