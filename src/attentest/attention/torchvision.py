"""Vision transformers of torchvision, as live modules; torchvision itself is never imported."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from attentest.attention.aggregation import Tokens
from attentest.attention.attention_reader import plain_attention, resampled_positions
from attentest.attention.encoder import Encoder, ModelLibrary, checked_size, float64_copy


def _is_transformer(module: nn.Module) -> bool:
    """Return whether a module is a torchvision ``VisionTransformer``."""
    return any(
        base.__name__ == "VisionTransformer" and base.__module__.startswith("torchvision.models.")
        for base in type(module).__mro__
    )


def _read(module: nn.Module, image_size: Any, device: torch.device | str | None, owned: bool) -> Encoder:
    """Return a float64 copy of a torchvision model that exposes its attention, for one size of image."""
    kind = "torchvision VisionTransformer"
    model, weights = float64_copy(module, device, kind, owned)
    patch = int(model.patch_size), int(model.patch_size)
    size = checked_size(int(model.image_size) if image_size is None else image_size, patch)
    grid = size[0] // patch[0], size[1] // patch[1]
    side = int(model.image_size) // patch[0]
    positions = resampled_positions(model.encoder.pos_embedding, (side, side), grid)
    model.encoder.pos_embedding = nn.Parameter(positions, requires_grad=False)
    layers = list(model.encoder.layers)
    for layer in layers:
        layer.self_attention = ReadableAttention(layer.self_attention)
    convolution = next(m for m in model.conv_proj.modules() if isinstance(m, nn.Conv2d))
    return Encoder(
        module=model,
        forward=_forward,
        kind=kind,
        channels=int(convolution.in_channels),
        image_size=size,
        patch_size=patch,
        tokens=Tokens(grid=grid, prefix=1, class_token=True),
        layers=len(layers),
        heads=int(layers[0].num_heads),
        width=int(model.hidden_dim),
        mlp_width=int(model.mlp_dim),
        weights=weights,
    )


class ReadableAttention(nn.Module):
    """torch's ``MultiheadAttention`` of a sequence with itself, with weights that an attention reader can read."""

    def __init__(self, attention: nn.MultiheadAttention) -> None:
        super().__init__()
        self.heads = attention.num_heads
        self.in_proj_weight, self.in_proj_bias = attention.in_proj_weight, attention.in_proj_bias
        self.out_proj = attention.out_proj

    def forward(self, query: Tensor, key: Tensor, value: Tensor, **_: Any) -> tuple[Tensor, None]:
        """Return the output (m, N, d) of a sequence (m, N, d), which is given three times."""
        parts = linear(query, self.in_proj_weight, self.in_proj_bias).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        attended = plain_attention(self, q, k, v)[0]
        return self.out_proj(attended.flatten(2)), None


def _forward(model: nn.Module, images: Tensor) -> Any:
    """Embed as the model does, without its check that the image is a square of the training size."""
    vit: Any = model
    patches = vit.conv_proj(images).flatten(2).transpose(1, 2)
    return vit.encoder(torch.cat([vit.class_token.expand(len(patches), -1, -1), patches], dim=1))


LIBRARY = ModelLibrary(models=("ViT",), package="torchvision", recognises=_is_transformer, read=_read)
