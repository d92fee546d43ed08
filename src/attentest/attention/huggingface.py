"""Vision transformers of Hugging Face transformers."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attentest.attention.aggregation import Tokens
from attentest.attention.attention_reader import (
    ATTENTION_NAME,
    pass_input_to_reader,
    plain_attention,
    resampled_positions,
    set_constant_method,
)
from attentest.attention.encoder import Encoder, ModelLibrary, checked_size, float64_copy, pair
from attentest.attention.stored_vit import ViTModel
from attentest.errors import ModelError


def _forward_any_size(encoder: nn.Module, images: Tensor) -> Any:
    """Allow images of another size than in training, which is an error in some families unless they are told so."""
    return encoder(images, interpolate_pos_encoding=True)


def _forward_unmasked(encoder: nn.Module, images: Tensor) -> Any:
    """Pass all patches in their order: ViT-MAE chooses and orders the patches it uses by sorting a noise tensor."""
    embeddings: Any = encoder.embeddings
    patches = embeddings.interpolate_pos_encoding().shape[1] - 1
    order = torch.arange(patches, device=images.device, dtype=images.dtype).expand(len(images), -1)
    return encoder(images, noise=order, interpolate_pos_encoding=True)


@dataclass(frozen=True)
class Family:
    """One kind of model, and how it differs from others.

    Parameters
    ----------
    name
        What messages and documentation call it.
    model_types
        Its ``model_type`` in configurations.
    encoder
        The class of transformers that is its encoder. A class that ends in "Backbone" instead of "Model" may be the
        same encoder with another output, and one that ends in "Transformer" the encoder within it (transformers 4).
    prefix
        Number of tokens before the patches besides registers: class and distillation tokens.
    class_token
        Whether the first of them is a class token.
    antialias
        Whether its position embeddings are smoothed when they are resampled to a coarser grid.
    pooler
        Whether its encoder has a pooling layer by default, which is no part of the attention.
    processor
        Its image processor in transformers, whose defaults hold where none was saved with a model.
    forward
        Passes images through the encoder, where that takes more than calling it.
    """

    name: str
    model_types: tuple[str, ...]
    encoder: str
    prefix: int = 1
    class_token: bool = True
    antialias: bool = False
    pooler: bool = False
    processor: str = "ViTImageProcessor"
    forward: Callable[[nn.Module, Tensor], Any] | None = None


FAMILIES = (
    Family("ViT", ("vit",), "ViTModel", pooler=True),
    Family("DeiT", ("deit",), "DeiTModel", prefix=2, pooler=True, processor="DeiTImageProcessor"),
    Family("BEiT", ("beit",), "BeitModel", pooler=True, processor="BeitImageProcessor"),
    Family("DINOv2", ("dinov2",), "Dinov2Model", processor="BitImageProcessor"),
    Family(
        "DINOv2 with registers",
        ("dinov2_with_registers",),
        "Dinov2WithRegistersModel",
        antialias=True,
        processor="BitImageProcessor",
    ),
    Family("DINOv3 ViT", ("dinov3_vit",), "DINOv3ViTModel", processor="DINOv3ViTImageProcessor"),
    Family("ViT-MAE", ("vit_mae",), "ViTMAEModel", forward=_forward_unmasked),
    Family("CLIP vision", ("clip", "clip_vision_model"), "CLIPVisionModel", processor="CLIPImageProcessor"),
    Family(
        "SigLIP vision",
        ("siglip", "siglip_vision_model"),
        "SiglipVisionModel",
        prefix=0,
        class_token=False,
        processor="SiglipImageProcessor",
    ),
)
"""The families that are read, in the order in which messages list them."""


DEFINED_IN = ("transformers.", ViTModel.__module__)
"""Beginnings of the names of modules whose classes are encoders of these families."""


def family_of(module: nn.Module) -> Family | None:
    """Return the family of an encoder, None for any other module."""
    if not hasattr(module, "embeddings"):  # such as a backbone that holds an encoder
        return None
    bases = {base.__name__ for base in type(module).__mro__ if base.__module__.startswith(DEFINED_IN)}
    names = {re.sub("(Backbone|Transformer)$", "Model", name) for name in bases}
    return next((family for family in FAMILIES if family.encoder in names), None)


def family_of_type(model_type: object) -> Family | None:
    """Return the family of a ``model_type`` of configurations, None for any other value."""
    return next((family for family in FAMILIES if model_type in family.model_types), None)


def encoder_class(family: Family) -> Any:
    """Return the class of a family's encoder; only the file of transformers that defines it is imported, in seconds."""
    import transformers

    try:
        return getattr(transformers, family.encoder)
    except AttributeError:
        raise ModelError(
            f"transformers {transformers.__version__} has no {family.name}: install a newer version of it."
        ) from None


def _read(module: nn.Module, image_size: Any, device: torch.device | str | None, owned: bool) -> Encoder:
    """Return a float64 copy of an encoder that exposes its attention, for one size of image."""
    family = family_of(module)
    assert family is not None
    config: Any = module.config
    kind = str(config.model_type)
    patch_size = pair(config.patch_size)
    size = checked_size(pair(config.image_size) if image_size is None else image_size, patch_size)
    grid = size[0] // patch_size[0], size[1] // patch_size[1]
    encoder, weights = float64_copy(module, device, kind, owned)
    if not isinstance(encoder, ViTModel):
        _expose_attention(encoder)
    if hasattr(encoder.config, "mask_ratio"):
        encoder.config.mask_ratio = 0.0  # no patch is left out
    _fix_positions(encoder, family, grid)
    any_size = "interpolate_pos_encoding" in inspect.signature(encoder.forward).parameters
    registers = int(getattr(config, "num_register_tokens", 0) or 0)
    return Encoder(
        module=encoder,
        forward=family.forward or (_forward_any_size if any_size else nn.Module.__call__),
        kind=kind,
        channels=int(config.num_channels),
        image_size=size,
        patch_size=patch_size,
        tokens=Tokens(grid=grid, prefix=family.prefix + registers, class_token=family.class_token),
        layers=int(config.num_hidden_layers),
        heads=int(config.num_attention_heads),
        width=int(config.hidden_size),
        mlp_width=int(getattr(config, "intermediate_size", 0) or 4 * config.hidden_size),
        weights=weights,
    )


def _expose_attention(encoder: Any) -> None:
    """Let all layers of a copy compute their attention by our function, or pass their weights to the reader."""
    from transformers.modeling_utils import AttentionInterface  # slow to import, and here imported by the model before

    AttentionInterface.register(ATTENTION_NAME, plain_attention)
    encoder.config.output_attentions = False  # the model's output is not used, and would need another function
    encoder.config._attn_implementation = ATTENTION_NAME
    for module in encoder.modules():
        # Before transformers 5.10, BEiT has attention of its own, whose eager version computes in the model's dtype.
        eager = next((base for base in type(module).__mro__ if base.__name__ == "BeitSelfAttention"), None)
        if eager is not None:
            module.__class__ = eager
            module.dropout.register_forward_hook(pass_input_to_reader)


def _fix_positions(encoder: Any, family: Family, grid: tuple[int, int]) -> None:
    """Replace what depends on the size of the image alone by constants, computed in float64.

    The library computes it again for each batch, some of it in float32, and assumes that training images were square.
    """
    config = encoder.config
    height, width = pair(config.image_size)
    patch_height, patch_width = pair(config.patch_size)
    trained = height // patch_height, width // patch_width
    positions = _positions(encoder.embeddings)
    if positions is not None:
        resampled = resampled_positions(positions, trained, grid, family.antialias)
        set_constant_method(encoder.embeddings, "interpolate_pos_encoding", resampled)
    if hasattr(encoder, "rope_embeddings"):
        set_constant_method(encoder.rope_embeddings, "forward", *_rotations(encoder.rope_embeddings, grid))
    for module in encoder.modules():
        if type(module).__name__ == "BeitRelativePositionBias":
            set_constant_method(module, "forward", module(grid))


def _positions(embeddings: Any) -> Tensor | None:
    """Return the position embeddings (1, n, d) as trained, None for a model without."""
    if getattr(embeddings, "position_embedding", None) is not None:
        return torch.as_tensor(embeddings.position_embedding.weight.unsqueeze(0))
    positions: Tensor | None = getattr(embeddings, "position_embeddings", None)
    return positions


def _rotations(rope: Any, grid: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of the rotary position embedding, each (gh * gw, head_dim), in float64."""
    device = rope.inv_freq.device
    frequencies = 1 / rope.base ** torch.arange(0, 1, 4 / rope.head_dim, dtype=torch.float64, device=device)
    centres = [2 * (torch.arange(n, dtype=torch.float64, device=device) + 0.5) / n - 1 for n in grid]
    places = torch.stack(torch.meshgrid(*centres, indexing="ij"), dim=-1).flatten(0, 1)
    angles = (2 * torch.pi * places[:, :, None] * frequencies).flatten(1, 2).tile(2)
    return torch.cos(angles), torch.sin(angles)


LIBRARY = ModelLibrary(
    models=tuple(family.name for family in FAMILIES),
    package="transformers",
    recognises=lambda module: family_of(module) is not None,
    read=_read,
)
