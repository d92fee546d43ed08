"""Vision transformers of timm, torchvision and MONAI, as live modules; none of these packages is ever imported."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from attentest.attention import encoder as encoders
from attentest.attention.aggregation import Tokens
from attentest.attention.attention_reader import pass_input_to_reader, resampled_positions, set_constant_method
from attentest.attention.encoder import Encoder, ModelLibrary, by, checked_size, float64_copy, pair, patches_along
from attentest.attention.torch_transformer import expose_attention
from attentest.attention.windows import windows_of_stages
from attentest.errors import ModelError


def _is_of(module: nn.Module, package: str, *names: str) -> bool:
    """Return whether a module is of a class of a package, or derived from one; of one of these names, if there are."""
    bases = (base for base in type(module).__mro__ if base.__module__.startswith(package))
    return any(not names or base.__name__ in names for base in bases)


def _is_of_timm(module: nn.Module) -> bool:
    """Return whether a module is a timm transformer with prefix tokens, or with windows, and a patch embedding."""
    has_prefix = all(hasattr(module, name) for name in ("blocks", "num_prefix_tokens"))
    return _is_of(module, "timm.models.") and hasattr(module, "patch_embed") and (has_prefix or bool(_stages(module)))


def _stages(model: Any) -> list[list[Any]]:
    """Return the layers of each stage of a model with windows (Swin, Swin V2); none for any other."""
    stages = [list(getattr(stage, "blocks", ())) for stage in getattr(model, "layers", ())]
    shifted = all(stages) and all(hasattr(layer, "shift_size") for layers in stages for layer in layers)
    return stages if shifted else []


def _read_timm(module: nn.Module, image_size: Any, device: torch.device | str | None, owned: bool) -> Encoder:
    """Return a float64 copy of a timm model that exposes its attention, for one size of image."""
    kind = f"timm {type(module).__name__}"
    model, weights = float64_copy(module, device, kind, owned)
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
    size, grid = pair(model.patch_embed.img_size), pair(model.patch_embed.grid_size)
    if getattr(model, "rope", None) is not None and getattr(model, "dynamic_img_size", False):
        # timm computes it again for each batch, in float32.
        set_constant_method(model.rope, "get_embed", model.rope.get_embed(shape=grid).to(torch.float64))
    convolution = next(m for m in model.patch_embed.modules() if isinstance(m, nn.Conv2d))
    heads = [int(stage[0].attn.num_heads) for stage in stages]
    width = int(convolution.out_channels if stages else model.embed_dim)
    windows = windows_of_stages(stages, heads, grid, convolution.weight.device, pads_first=False)
    return Encoder(
        module=model,
        forward=_timm_features,
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
        width=width,
        mlp_width=4 * width,
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
    encoders.check_whole_patches(kind, patch, size)
    if trained is not None and size == pair(trained):
        return
    if not hasattr(model, "set_input_size"):
        encoders.check_same_size(kind, pair(trained), size)
    before, grid = getattr(model, "pos_embed", None), pair(embed.grid_size)
    model.set_input_size(img_size=size)
    if before is not None:
        positions = resampled_positions(before, grid, pair(embed.grid_size), antialias=True)
        model.pos_embed = nn.Parameter(positions, requires_grad=False)
    model.to(dtype=torch.float64).requires_grad_(False)


def _timm_features(model: Any, images: Tensor) -> Any:
    return model.forward_features(images)


TIMM = ModelLibrary(models=("ViT", "Swin"), package="timm", recognises=_is_of_timm, read=_read_timm)


def _is_of_torchvision(module: nn.Module) -> bool:
    return _is_of(module, "torchvision.models.", "VisionTransformer")


def _read_torchvision(module: nn.Module, image_size: Any, device: torch.device | str | None, owned: bool) -> Encoder:
    """Return a float64 copy of a torchvision model that exposes its attention, for one size of image."""
    kind = "torchvision VisionTransformer"
    model, weights = float64_copy(module, device, kind, owned)
    patch = pair(model.patch_size)
    size = checked_size(int(model.image_size) if image_size is None else image_size, patch)
    grid = size[0] // patch[0], size[1] // patch[1]
    positions = resampled_positions(model.encoder.pos_embedding, pair(int(model.image_size) // patch[0]), grid)
    model.encoder.pos_embedding = nn.Parameter(positions, requires_grad=False)
    attentions = expose_attention(model)
    convolution = next(m for m in model.conv_proj.modules() if isinstance(m, nn.Conv2d))
    return Encoder(
        module=model,
        forward=_torchvision_tokens,
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


def _torchvision_tokens(model: Any, images: Tensor) -> Any:
    """Embed as the model does, without its check that the image is a square of the training size."""
    patches = model.conv_proj(images).flatten(2).transpose(1, 2)
    return model.encoder(torch.cat([model.class_token.expand(len(patches), -1, -1), patches], dim=1))


def _torchvision_scores(model: nn.Module, images: Tensor) -> Any:
    vit: Any = next(part for part in model.modules() if _is_of_torchvision(part))
    return vit.heads(_torchvision_tokens(vit, images)[:, 0])


TORCHVISION = ModelLibrary(
    models=("ViT",),
    package="torchvision",
    recognises=_is_of_torchvision,
    read=_read_torchvision,
    class_scores=_torchvision_scores,
)


def _is_of_monai(module: nn.Module) -> bool:
    """Return whether a module is MONAI's ``ViT`` or ``ViTAutoEnc``, whose encoder is the same."""
    return _is_of(module, "monai.networks.nets.", "ViT", "ViTAutoEnc")


def _read_monai(module: nn.Module, image_size: Any, device: torch.device | str | None, owned: bool) -> Encoder:
    """Return a float64 copy of a MONAI model that exposes its attention, for its one size of image."""
    kind = f"MONAI {type(module).__name__}"
    if image_size is None:
        raise ModelError(
            f"the model is of type {kind!r} and does not store the size of its input: say which it is with image_size.",
            "image_size",
        )
    model, weights = float64_copy(module, device, kind, owned)
    embedding = model.patch_embedding
    patch, channels = _monai_patches(embedding.patch_embeddings)
    size = checked_size(image_size, patch)
    grid = patches_along(size, patch, patch)
    has_class_token = hasattr(model, "cls_token")
    patches, width = map(int, embedding.position_embeddings.shape[1:])
    if math.prod(grid) != patches:
        raise ModelError(
            f"the model is of type {kind!r} and takes {patches} patches of {by(patch)} pixels, but image_size is "
            f"{by(size)}, which makes {by(grid)} of them: give the size that it was made for.",
            "image_size",
        )
    for block in model.blocks:
        block.attn.save_attn = False  # in the copy only
        block.attn.drop_weights.register_forward_hook(pass_input_to_reader)
    return Encoder(
        module=model,
        kind=kind,
        channels=channels,
        image_size=size,
        patch_size=patch,
        tokens=Tokens(grid=grid, prefix=int(has_class_token), class_token=has_class_token),
        layers=len(model.blocks),
        heads=int(model.blocks[0].attn.num_heads),
        width=width,
        mlp_width=int(model.blocks[0].mlp.linear1.out_features),
        weights=weights,
    )


def _monai_patches(embeddings: Any) -> tuple[tuple[int, ...], int]:
    """Return the sides of a patch, and the channels, of an embedding by convolution or by a linear map of pixels."""
    if not isinstance(embeddings, nn.Sequential):
        return tuple(map(int, embeddings.kernel_size)), int(embeddings.in_channels)
    rearrange: Any = embeddings[0]
    linear: Any = embeddings[1]
    lengths = rearrange.axes_lengths  # of einops: {"p1": 16, "p2": 16, ...}
    patch = tuple(int(lengths[name]) for name in sorted(lengths))
    return patch, int(linear.in_features) // math.prod(patch)


def _monai_scores(model: nn.Module, images: Tensor) -> Any:
    """Return the first of what the model returns: class scores, and the tokens after each layer."""
    output = model(images)
    return output[0] if isinstance(output, tuple) else output


MONAI = ModelLibrary(
    models=("ViT",), package="monai", recognises=_is_of_monai, read=_read_monai, class_scores=_monai_scores
)
