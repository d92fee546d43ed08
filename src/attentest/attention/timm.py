"""Vision transformers of timm, as live modules; timm itself is never imported."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from attentest.attention import encoder as encoders
from attentest.attention.aggregation import Tokens
from attentest.attention.attention_reader import pass_input_to_reader, resampled_positions, set_constant_method
from attentest.attention.windows import windows_of_stages
from attentest.errors import ModelError


def _is_transformer(module: nn.Module) -> bool:
    """Return whether a module is a timm transformer with prefix tokens, or with windows, and a patch embedding."""
    of_timm = any(base.__module__.startswith("timm.models.") for base in type(module).__mro__)
    has_prefix = all(hasattr(module, name) for name in ("blocks", "num_prefix_tokens"))
    return of_timm and hasattr(module, "patch_embed") and (has_prefix or bool(_stages(module)))


def _stages(model: Any) -> list[list[Any]]:
    """Return the layers of each stage of a model with windows (Swin, Swin V2); none for any other."""
    stages = [list(getattr(stage, "blocks", ())) for stage in getattr(model, "layers", ())]
    shifted = all(stages) and all(hasattr(layer, "shift_size") for layers in stages for layer in layers)
    return stages if shifted else []


def _read(module: nn.Module, image_size: Any, device: torch.device | str | None, owned: bool) -> encoders.Encoder:
    """Return a float64 copy of a timm model that exposes its attention, for one size of image."""
    kind = f"timm {type(module).__name__}"
    model, weights = encoders.float64_copy(module, device, kind, owned)
    stages = _stages(model)
    layers = [layer for stage in stages for layer in stage] or list(model.blocks)
    attentions: list[Any] = [getattr(layer, "attn", None) for layer in layers]
    # Attention of Swin V2 has no fused form.
    needed = ("attn_drop",) if stages else ("fused_attn", "attn_drop")
    if not attentions or any(not all(hasattr(a, name) for name in needed) for a in attentions):
        raise ModelError(
            f"the model is of type {kind!r}, whose blocks are not plain self-attention over all tokens: "
            "give a score function of your own."
        )
    for attention in attentions:
        attention.fused_attn = False  # in the copy only
        attention.attn_drop.register_forward_hook(pass_input_to_reader)
    _set_size(model, kind, image_size)
    size, grid = encoders.pair(model.patch_embed.img_size), encoders.pair(model.patch_embed.grid_size)
    if getattr(model, "rope", None) is not None and getattr(model, "dynamic_img_size", False):
        # timm computes it again for each batch, in float32.
        set_constant_method(model.rope, "get_embed", model.rope.get_embed(shape=grid).to(torch.float64))
    convolution = next(m for m in model.patch_embed.modules() if isinstance(m, nn.Conv2d))
    heads = [int(stage[0].attn.num_heads) for stage in stages]
    device = convolution.weight.device
    windows = windows_of_stages(stages, heads, grid, device, pads_first=False) if stages else ()
    return encoders.Encoder(
        module=model,
        forward=_forward,
        kind=kind,
        channels=int(convolution.in_channels),
        image_size=size,
        patch_size=(size[0] // grid[0], size[1] // grid[1]),
        tokens=Tokens(
            grid=grid,
            prefix=0 if stages else int(model.num_prefix_tokens),
            class_token=getattr(model, "cls_token", None) is not None,
            windows=windows,
        ),
        layers=len(attentions),
        heads=max(heads, default=int(attentions[0].num_heads)),
        width=int(convolution.out_channels if stages else model.embed_dim),
        mlp_width=4 * int(convolution.out_channels if stages else model.embed_dim),
        weights=weights,
    )


def _set_size(model: Any, kind: str, image_size: Any) -> None:
    """Adapt the copy to a size of image; position embeddings are resampled here, because timm does it in float32."""
    embed = model.patch_embed
    patch = encoders.pair(embed.patch_size)
    trained = embed.img_size
    if image_size is None and trained is None:
        raise ModelError(
            f"the model is of type {kind!r} and takes images of any size: say which with image_size.", "image_size"
        )
    size = encoders.checked_size(encoders.pair(trained) if image_size is None else image_size, patch)
    encoders.check_whole_patches(kind, patch, size)
    if trained is not None and size == encoders.pair(trained):
        return
    if not hasattr(model, "set_input_size"):
        encoders.check_same_size(kind, encoders.pair(trained), size)
    before, grid = getattr(model, "pos_embed", None), encoders.pair(embed.grid_size)
    model.set_input_size(img_size=size)
    if before is not None:
        positions = resampled_positions(before, grid, encoders.pair(embed.grid_size), antialias=True)
        model.pos_embed = nn.Parameter(positions, requires_grad=False)
    model.to(dtype=torch.float64).requires_grad_(False)


def _forward(model: nn.Module, images: Tensor) -> Any:
    forward: Any = model.forward_features
    return forward(images)


LIBRARY = encoders.ModelLibrary(models=("ViT", "Swin"), package="timm", recognises=_is_transformer, read=_read)
