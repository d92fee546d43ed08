"""Vision transformers of plain torch, timm, torchvision and MONAI, as live modules.

Those of plain torch are any modules whose layers attend with ``torch.nn.MultiheadAttention``. None of the other
packages is ever imported.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from attentest.attention.aggregation import Tokens, windows_of_stages
from attentest.attention.attention_reader import (
    pass_input_to_reader,
    plain_attention,
    resampled_positions,
    set_constant_method,
)
from attentest.attention.encoder import (
    Encoder,
    ModelLibrary,
    by,
    check_same_size,
    check_whole_patches,
    checked_size,
    float64_copy,
    pair,
    patches_along,
)
from attentest.attention.score_function import checked_shape
from attentest.checks import whole_number
from attentest.errors import InputError, ModelError


class TorchTransformer(nn.Module):
    """A module of your own over the patches of signals, images or volumes, with what its weights do not say.

    ``AttentionTest(TorchTransformer(model, image_shape=(12, 5000), patch_size=50), noise=...)`` tests its attention.

    Parameters
    ----------
    model
        Takes images (m, C, *axes). Its layers, such as those of ``torch.nn.TransformerEncoder``, attend with
        ``torch.nn.MultiheadAttention`` to their own sequence without a mask, and each is used once: first the tokens
        that are not patches, then the patches, row by row. What follows the last layer makes no difference.
    image_shape
        The shape (C, *axes) of its inputs.
    patch_size, stride
        Sides of a patch and steps from patch to patch, by default the sides: a number for all axes, or one for each. Of
        an embedding by several convolutions, both are the product of their strides.
    prefix
        Number of tokens before the patches.
    class_token
        Whether the first of them is a class token, whose attention is the map; by default so if there are any. If not,
        the map is the mean over patches.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        image_shape: tuple[int, ...],
        patch_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] | None = None,
        prefix: int = 1,
        class_token: bool | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.channels, *sides = checked_shape(image_shape, "image_shape")
        self.patch_size = _steps(patch_size, "patch_size", tuple(sides))
        self.stride = self.patch_size if stride is None else _steps(stride, "stride", self.patch_size)
        self.image_size = checked_size(tuple(sides), self.patch_size, self.stride)
        self.prefix = whole_number(prefix, "prefix", 0, 2**20)
        self.class_token = self.prefix > 0 if class_token is None else bool(class_token)
        if self.class_token and not self.prefix:
            raise InputError("a class token is one of the tokens before the patches, but prefix is 0.")

    def forward(self, images: Tensor) -> Any:
        """Return what the model returns."""
        return self.model(images)


def _steps(value: Any, name: str, most: tuple[int, ...]) -> tuple[int, ...]:
    steps = value if isinstance(value, (tuple, list)) else (value,) * len(most)
    if len(steps) != len(most):
        raise InputError(f"{name} must be a number or one for each of {len(most)} axes, got {value!r}.")
    return tuple(whole_number(step, name, 1, limit) for step, limit in zip(steps, most, strict=True))


class ReadableAttention(nn.MultiheadAttention):
    """torch's attention of a sequence with itself, with weights that an attention reader can read."""

    def forward(  # type: ignore[override]  # it returns no weights
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        **_: Any,
    ) -> tuple[Tensor, None]:
        """Return the output of a sequence, (m, N, d) or, unless ``batch_first``, (N, m, d), given three times."""
        if query is not key or key is not value or key_padding_mask is not None or attn_mask is not None:
            raise ModelError(
                "a layer attends to another sequence than its own, or with a mask: give a score function of your own."
            )
        tokens = query if self.batch_first else query.transpose(0, 1)
        parts = linear(tokens, self.in_proj_weight, self.in_proj_bias).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in parts)
        output = self.out_proj(plain_attention(self, q, k, v)[0].flatten(2))
        return output if self.batch_first else output.transpose(0, 1), None


def expose_attention(model: nn.Module) -> list[ReadableAttention]:
    """Let all layers of a copy compute attention that can be read, and return their attention in order."""
    attentions: list[Any] = [part for part in model.modules() if isinstance(part, nn.MultiheadAttention)]
    for attention in attentions:
        plain = attention._qkv_same_embed_dim and attention.bias_k is None and not attention.add_zero_attn
        if type(attention) is not nn.MultiheadAttention or not plain:
            raise ModelError(
                "a layer's attention is not a plain torch.nn.MultiheadAttention (of another class, with other widths "
                "of keys or values, or with tokens added to them): give a score function of your own."
            )
        attention.__class__ = ReadableAttention
    for layer in model.modules():
        if isinstance(layer, nn.TransformerEncoderLayer):
            layer.activation_relu_or_gelu = 0  # otherwise one fused operation computes the layer
    return attentions


def _read_torch(module: nn.Module, image_size: Any, device: torch.device | str | None, owned: bool) -> Encoder:
    """Return a float64 copy of a transformer of plain torch that exposes its attention."""
    assert isinstance(module, TorchTransformer)
    kind = f"torch {type(module.model).__name__}"
    if image_size is not None:
        check_same_size(kind, module.image_size, checked_size(image_size, module.patch_size, module.stride))
    model, weights = float64_copy(module, device, kind, owned)
    attentions = expose_attention(model)
    if not attentions:
        raise ModelError(f"the model is of type {kind!r} and has no layer of torch.nn.MultiheadAttention.")
    width = attentions[0].embed_dim
    layers = (part for part in model.modules() if isinstance(part, nn.TransformerEncoderLayer))
    return Encoder(
        module=model,
        kind=kind,
        channels=model.channels,
        image_size=model.image_size,
        patch_size=model.patch_size,
        stride=model.stride,
        tokens=Tokens(
            grid=patches_along(model.image_size, model.patch_size, model.stride),
            prefix=model.prefix,
            class_token=model.class_token,
        ),
        layers=len(attentions),
        heads=attentions[0].num_heads,
        width=width,
        mlp_width=max((layer.linear1.out_features for layer in layers), default=4 * width),
        weights=weights,
    )


TORCH = ModelLibrary(
    models=("TorchTransformer",),
    package="attentest",
    recognises=lambda module: isinstance(module, TorchTransformer),
    read=_read_torch,
)


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
    check_whole_patches(kind, patch, size)
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
