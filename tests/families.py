"""Tiny models of every family that attentest reads, with random weights, made offline, and how to compare scores."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import transformers as hf
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

LAYERS = 3
HEADS = 2

EXACT = 1e-12
"""Two ways of computing in float64: scores are of order one, so this is a few thousand roundings."""

FLOAT32 = 2e-5
"""The same in float32, after three layers."""

SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 32,
    "image_size": 8,
    "patch_size": 2,
    "num_channels": 3,
}

TEXT_SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 20,
    "max_position_embeddings": 8,
}


def with_random_weights(model: nn.Module, seed: int = 0) -> Any:
    """Give a model in evaluation mode random weights, position embeddings and biases too, and return it.

    Libraries start biases, positions and layer scales at constants, which would hide that one is left out. Weights
    that multiply what passes, of normalisations and layer scales, lie around one: around zero, little would pass and
    attention would hardly depend on the image.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        scales = parameter.ndim == 1 and (
            ("norm" in name and name.endswith("weight")) or "lambda" in name or "gamma" in name or ".ln" in name
        )
        centre = 1.0 if scales and not name.endswith("bias") else 0.0
        spread = 0.4 if parameter.ndim > 1 else 0.2
        parameter.data = centre + spread * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def tiny(model: Callable[[Any], nn.Module], config: type, seed: int = 0, **changes: Any) -> Any:
    """A model in evaluation mode whose every weight is random but reproducible."""
    with torch.random.fork_rng(devices=[]):
        made = model(config(**{**SIZES, **changes}))
    return with_random_weights(made, seed)


def tiny_with_text(model: type, config: type, seed: int = 0) -> Any:
    """A model of images and texts."""
    text = {**TEXT_SIZES, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    with torch.random.fork_rng(devices=[]):
        made = model(config(text_config=text, vision_config=dict(SIZES)))
    return with_random_weights(made, seed)


FAMILY_MODELS: dict[str, Callable[..., Any]] = {
    "vit": lambda **changes: tiny(hf.ViTForImageClassification, hf.ViTConfig, **{"num_labels": 1, **changes}),
    "deit": lambda **changes: tiny(hf.DeiTForImageClassificationWithTeacher, hf.DeiTConfig, **changes),
    "beit": lambda **changes: tiny(
        hf.BeitForImageClassification,
        hf.BeitConfig,
        **{
            "use_relative_position_bias": True,
            "use_shared_relative_position_bias": True,
            "use_absolute_position_embeddings": True,
            "layer_scale_init_value": 0.5,
            **changes,
        },
    ),
    "dinov2": lambda **changes: tiny(hf.Dinov2ForImageClassification, hf.Dinov2Config, **{"mlp_ratio": 2, **changes}),
    "dinov2_with_registers": lambda **changes: tiny(
        hf.Dinov2WithRegistersForImageClassification,
        hf.Dinov2WithRegistersConfig,
        **{"mlp_ratio": 2, "num_register_tokens": 3, **changes},
    ),
    "dinov3_vit": lambda **changes: tiny(
        hf.DINOv3ViTModel, hf.DINOv3ViTConfig, **{"num_register_tokens": 3, **changes}
    ),
    "vit_mae": lambda **changes: tiny(
        hf.ViTMAEForPreTraining,
        hf.ViTMAEConfig,
        **{
            "decoder_hidden_size": 16,
            "decoder_num_hidden_layers": 1,
            "decoder_num_attention_heads": 2,
            "decoder_intermediate_size": 32,
            **changes,
        },
    ),
    "vit_msn": lambda **changes: tiny(hf.ViTMSNForImageClassification, hf.ViTMSNConfig, **changes),
    "ijepa": lambda **changes: tiny(hf.IJepaForImageClassification, hf.IJepaConfig, **changes),
    "clip_vision_model": lambda **changes: tiny(hf.CLIPVisionModel, hf.CLIPVisionConfig, **changes),
    "siglip_vision_model": lambda **changes: tiny(hf.SiglipVisionModel, hf.SiglipVisionConfig, **changes),
}
"""By model type; each takes changes of its configuration."""

VARIANTS: dict[str, Callable[[], Any]] = {
    "dinov2 with SwiGLU": lambda: FAMILY_MODELS["dinov2"](use_swiglu_ffn=True),
    "dinov2 with SwiGLU and registers": lambda: FAMILY_MODELS["dinov2_with_registers"](use_swiglu_ffn=True),
    "dinov3_vit with a gated MLP": lambda: FAMILY_MODELS["dinov3_vit"](use_gated_mlp=True, hidden_act="silu"),
    "beit with relative positions alone": lambda: FAMILY_MODELS["beit"](
        use_absolute_position_embeddings=False, use_shared_relative_position_bias=False, use_mean_pooling=False
    ),
    "beit with absolute positions alone, without layer scale": lambda: FAMILY_MODELS["beit"](
        use_relative_position_bias=False, use_shared_relative_position_bias=False, layer_scale_init_value=0.0
    ),
    "vit without biases of query, key and value": lambda: FAMILY_MODELS["vit"](qkv_bias=False),
    "clip with another activation": lambda: FAMILY_MODELS["clip_vision_model"](hidden_act="gelu"),
}
"""Forms of a family whose attention is computed in another way."""


@cache
def family_model(name: str) -> Any:
    """A model of a family or variant, made once: no test changes it, and one test checks that reading does not."""
    return {**FAMILY_MODELS, **VARIANTS}[name]()


def layers_of(model: nn.Module) -> Any:
    """Return the list of layers of a model, wherever its version of the library has it."""
    return next(part for part in model.modules() if isinstance(part, nn.ModuleList) and len(part) == LAYERS)


def has_class_token(name: str) -> bool:
    """Whether the models of a family have a class token."""
    return not name.startswith(("siglip", "ijepa"))


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Standard normal numbers."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def distance(first: Tensor, second: Tensor) -> float:
    """The greatest difference of two tensors of scores."""
    assert first.shape == second.shape
    assert first.dtype == second.dtype == torch.float64
    return float((first - second).abs().max())


class OtherDtypes(TorchDispatchMode):
    """Records the results of operations in floating point other than float64."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, torch.dtype, Tensor]] = []
        self.operations = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for value in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(value, Tensor) and value.is_floating_point():
                self.operations += 1
                if value.dtype != torch.float64:
                    self.seen.append((str(function), value.dtype, value.detach().clone()))
        return result
