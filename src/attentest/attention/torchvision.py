"""Vision transformers of torchvision, as live modules; torchvision itself is never imported."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from attentest.attention.aggregation import Tokens
from attentest.attention.attention_reader import resampled_positions
from attentest.attention.encoder import Encoder, ModelLibrary, checked_size, float64_copy
from attentest.attention.torch_transformer import expose_attention


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
    attentions = expose_attention(model)
    convolution = next(m for m in model.conv_proj.modules() if isinstance(m, nn.Conv2d))
    return Encoder(
        module=model,
        forward=_forward,
        kind=kind,
        channels=int(convolution.in_channels),
        image_size=size,
        patch_size=patch,
        tokens=Tokens(grid=grid, prefix=1, class_token=True),
        layers=len(attentions),
        heads=attentions[0].num_heads,
        width=int(model.hidden_dim),
        mlp_width=int(model.mlp_dim),
        weights=weights,
    )


def _forward(model: nn.Module, images: Tensor) -> Any:
    """Embed as the model does, without its check that the image is a square of the training size."""
    vit: Any = model
    patches = vit.conv_proj(images).flatten(2).transpose(1, 2)
    return vit.encoder(torch.cat([vit.class_token.expand(len(patches), -1, -1), patches], dim=1))


def _class_scores(model: nn.Module, images: Tensor) -> Any:
    vit: Any = next(part for part in model.modules() if _is_transformer(part))
    return vit.heads(_forward(vit, images)[:, 0])


LIBRARY = ModelLibrary(
    models=("ViT",), package="torchvision", recognises=_is_transformer, read=_read, class_scores=_class_scores
)
