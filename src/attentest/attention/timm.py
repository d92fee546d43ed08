"""Vision transformers of timm, as live modules; timm itself is never imported."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from attentest.attention.aggregation import Tokens
from attentest.attention.attention_reader import pass_input_to_reader, resampled_positions, set_constant_method
from attentest.attention.encoder import Encoder, ModelLibrary, check_same_size, checked_size, float64_copy, pair
from attentest.errors import ModelError


def _is_transformer(module: nn.Module) -> bool:
    """Return whether a module is a timm transformer with prefix tokens and a patch embedding."""
    of_timm = any(base.__module__.startswith("timm.models.") for base in type(module).__mro__)
    return of_timm and all(hasattr(module, name) for name in ("patch_embed", "blocks", "num_prefix_tokens"))


def _read(module: nn.Module, image_size: Any, device: torch.device | str | None, owned: bool) -> Encoder:
    """Return a float64 copy of a timm model that exposes its attention, for one size of image."""
    kind = f"timm {type(module).__name__}"
    model, weights = float64_copy(module, device, kind, owned)
    attentions: list[Any] = [getattr(block, "attn", None) for block in model.blocks]
    if not attentions or any(not (hasattr(a, "fused_attn") and hasattr(a, "attn_drop")) for a in attentions):
        raise ModelError(
            f"the model is of type {kind!r}, whose blocks are not plain self-attention over all tokens: "
            "give a score function of your own."
        )
    for attention in attentions:
        attention.fused_attn = False  # in the copy only
        attention.attn_drop.register_forward_hook(pass_input_to_reader)
    _set_size(model, kind, image_size)
    size, grid = pair(model.patch_embed.img_size), pair(model.patch_embed.grid_size)
    if getattr(model, "rope", None) is not None and getattr(model, "dynamic_img_size", False):
        # timm computes it again for each batch, in float32.
        set_constant_method(model.rope, "get_embed", model.rope.get_embed(shape=grid).to(torch.float64))
    return Encoder(
        module=model,
        forward=_forward,
        kind=kind,
        channels=int(next(m for m in model.patch_embed.modules() if isinstance(m, nn.Conv2d)).in_channels),
        image_size=size,
        patch_size=(size[0] // grid[0], size[1] // grid[1]),
        tokens=Tokens(
            grid=grid,
            prefix=int(model.num_prefix_tokens),
            class_token=getattr(model, "cls_token", None) is not None,
        ),
        layers=len(attentions),
        heads=int(attentions[0].num_heads),
        width=int(model.embed_dim),
        mlp_width=4 * int(model.embed_dim),
        weights=weights,
    )


def _set_size(model: Any, kind: str, image_size: Any) -> None:
    """Adapt the copy to a size of image; position embeddings are resampled here, because timm does it in float32."""
    embed = model.patch_embed
    patch = pair(embed.patch_size)
    trained = embed.img_size
    if image_size is None and trained is None:
        raise ModelError(
            f"the model is of type {kind!r} and takes images of any size: say which with image_size.", "image_size"
        )
    size = checked_size(pair(trained) if image_size is None else image_size, patch)
    if size[0] % patch[0] or size[1] % patch[1]:
        raise ModelError(
            f"the model is of type {kind!r} and cuts images into patches of {patch[0]} x {patch[1]} pixels without a "
            f"rest, but image_size is {size[0]} x {size[1]}: use multiples.",
            "image_size",
        )
    if trained is not None and size == pair(trained):
        return
    if not hasattr(model, "set_input_size"):
        check_same_size(kind, pair(trained), size)
    before, grid = getattr(model, "pos_embed", None), pair(embed.grid_size)
    model.set_input_size(img_size=size)
    if before is not None:
        positions = resampled_positions(before, grid, pair(embed.grid_size), antialias=True)
        model.pos_embed = nn.Parameter(positions, requires_grad=False)
    model.to(dtype=torch.float64).requires_grad_(False)


def _forward(model: nn.Module, images: Tensor) -> Any:
    forward: Any = model.forward_features
    return forward(images)


LIBRARY = ModelLibrary(models=("ViT",), package="timm", recognises=_is_transformer, read=_read)
