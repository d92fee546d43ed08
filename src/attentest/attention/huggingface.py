"""Vision transformers of Hugging Face transformers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from attentest.attention.encoder import Encoder, checked_size, float64_copy, pair, stored_dtype
from attentest.attention.positions import resampled_positions
from attentest.attention.precomputed import keep
from attentest.attention.reading import ATTENTION_NAME, plain_attention
from attentest.attention.tokens import Tokens

AttentionInterface.register(ATTENTION_NAME, plain_attention)


@dataclass(frozen=True, kw_only=True)
class Family:
    """What is particular about one kind of model.

    Parameters
    ----------
    model_types
        What configurations call it.
    prefix
        Tokens before the patches besides registers: class and distillation tokens.
    class_token
        Whether the first of them is a class token.
    takes_sizes
        Whether its forward pass wants to be told that the size may be another than in training.
    antialias
        Whether its position embeddings are smoothed when they are made fewer.
    """

    model_types: tuple[str, ...]
    prefix: int = 1
    class_token: bool = True
    takes_sizes: bool = True
    antialias: bool = False


FAMILIES: Mapping[str, Family] = {
    "ViTModel": Family(model_types=("vit",)),
    "DeiTModel": Family(model_types=("deit",), prefix=2),
    "BeitModel": Family(model_types=("beit",), takes_sizes=False),
    "Dinov2Model": Family(model_types=("dinov2",), takes_sizes=False),
    "Dinov2WithRegistersModel": Family(model_types=("dinov2_with_registers",), takes_sizes=False, antialias=True),
    "DINOv3ViTModel": Family(model_types=("dinov3_vit",), takes_sizes=False),
    "ViTMAEModel": Family(model_types=("vit_mae",)),
    "CLIPVisionModel": Family(model_types=("clip", "clip_vision_model")),
    "SiglipVisionModel": Family(model_types=("siglip", "siglip_vision_model"), prefix=0, class_token=False),
}
"""By the class of transformers that holds the encoder."""


BACKBONES: Mapping[str, Family] = {
    "Dinov2Backbone": FAMILIES["Dinov2Model"],
    "Dinov2WithRegistersBackbone": FAMILIES["Dinov2WithRegistersModel"],
    "DINOv3ViTBackbone": FAMILIES["DINOv3ViTModel"],
}
"""The same encoders under another name, with another output."""


def family_of(module: nn.Module) -> Family | None:
    """Return the family of an encoder, None for any other module."""
    for base in type(module).__mro__:
        family = FAMILIES.get(base.__name__) or BACKBONES.get(base.__name__)
        if family is not None and base.__module__.startswith("transformers."):
            return family
    return None


def read_huggingface(
    found: nn.Module, family: Family, image_size: Any, device: torch.device | str | None, owned: bool
) -> Encoder:
    """Return a float64 copy of an encoder that shows its attention, for one size of image."""
    config: Any = found.config
    kind = str(config.model_type)
    patch_size = pair(config.patch_size)
    size = checked_size(pair(config.image_size) if image_size is None else image_size, patch_size)
    grid = size[0] // patch_size[0], size[1] // patch_size[1]
    encoder: Any = float64_copy(found, device, kind, owned)
    encoder.set_attn_implementation(ATTENTION_NAME)
    _fix_positions(encoder, family, grid)
    registers = int(getattr(config, "num_register_tokens", 0) or 0)
    return Encoder(
        module=encoder,
        forward=_forward_of(encoder, family),
        kind=kind,
        channels=int(config.num_channels),
        image_size=size,
        patch_size=patch_size,
        tokens=Tokens(grid=grid, prefix=family.prefix + registers, class_token=family.class_token),
        layers=int(config.num_hidden_layers),
        heads=int(config.num_attention_heads),
        width=int(config.hidden_size),
        mlp_width=int(getattr(config, "intermediate_size", 0) or 4 * config.hidden_size),
        weights=stored_dtype(found),
    )


def _forward_of(encoder: Any, family: Family) -> Callable[[nn.Module, Tensor], Any]:
    if "vit_mae" in family.model_types:
        encoder.config.mask_ratio = 0.0
        return _forward_unmasked
    return _forward_any_size if family.takes_sizes else _forward


def _forward(encoder: nn.Module, images: Tensor) -> Any:
    return encoder(images)


def _forward_any_size(encoder: nn.Module, images: Tensor) -> Any:
    return encoder(images, interpolate_pos_encoding=True)


def _forward_unmasked(encoder: nn.Module, images: Tensor) -> Any:
    """Pass every patch in its own place: what is kept is chosen, and ordered, by sorting the noise."""
    embeddings: Any = encoder.embeddings
    patches = embeddings.kept_values.shape[1] - 1
    order = torch.arange(patches, device=images.device, dtype=images.dtype).expand(len(images), -1)
    return encoder(images, noise=order, interpolate_pos_encoding=True)


def _fix_positions(encoder: Any, family: Family, grid: tuple[int, int]) -> None:
    """Compute what depends on the size of the image alone once, in float64, in place of the library's own way.

    The library does it again for each batch, some of it in float32, and takes every training grid for a square.
    """
    config = encoder.config
    height, width = pair(config.image_size)
    patch_height, patch_width = pair(config.patch_size)
    trained = height // patch_height, width // patch_width
    positions = _positions(encoder.embeddings)
    if positions is not None:
        keep(
            encoder.embeddings,
            "interpolate_pos_encoding",
            resampled_positions(positions, trained, grid, family.antialias),
        )
    if hasattr(encoder, "rope_embeddings"):
        keep(encoder.rope_embeddings, "forward", *_rotations(encoder.rope_embeddings, grid))
    for module in encoder.modules():
        if type(module).__name__ == "BeitRelativePositionBias":
            keep(module, "forward", module(grid))


def _positions(embeddings: Any) -> Tensor | None:
    """Return the position embeddings (1, n, d) as trained, None for a model that has none to add."""
    if getattr(embeddings, "position_embedding", None) is not None:
        return torch.as_tensor(embeddings.position_embedding.weight.unsqueeze(0))
    positions: Tensor | None = getattr(embeddings, "position_embeddings", None)
    return positions


def _rotations(rope: Any, grid: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of the rotary embedding (gh * gw, head_dim), in float64."""
    device = rope.inv_freq.device
    frequencies = 1 / rope.base ** torch.arange(0, 1, 4 / rope.head_dim, dtype=torch.float64, device=device)
    centres = [2 * (torch.arange(n, dtype=torch.float64, device=device) + 0.5) / n - 1 for n in grid]
    places = torch.stack(torch.meshgrid(*centres, indexing="ij"), dim=-1).flatten(0, 1)
    angles = (2 * torch.pi * places[:, :, None] * frequencies).flatten(1, 2).tile(2)
    return torch.cos(angles), torch.sin(angles)
