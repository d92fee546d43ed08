"""Vision transformers of MONAI for images and volumes, as live modules; MONAI itself is never imported."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from attentest.attention.aggregation import Tokens
from attentest.attention.attention_reader import pass_input_to_reader
from attentest.attention.encoder import Encoder, ModelLibrary, by, checked_size, float64_copy, patches_along
from attentest.errors import ModelError


def _is_transformer(module: nn.Module) -> bool:
    """Return whether a module is MONAI's ``ViT`` or ``ViTAutoEnc``, whose encoder is the same."""
    return any(
        base.__name__ in ("ViT", "ViTAutoEnc") and base.__module__.startswith("monai.networks.nets.")
        for base in type(module).__mro__
    )


def _read(module: nn.Module, image_size: Any, device: torch.device | str | None, owned: bool) -> Encoder:
    """Return a float64 copy of a MONAI model that exposes its attention, for its one size of image."""
    kind = f"MONAI {type(module).__name__}"
    if image_size is None:
        raise ModelError(
            f"the model is of type {kind!r} and does not store the size of its input: say which it is with image_size.",
            "image_size",
        )
    model, weights = float64_copy(module, device, kind, owned)
    embedding = model.patch_embedding
    patch, channels = _patches(embedding.patch_embeddings)
    size = checked_size(image_size, patch)
    grid = patches_along(size, patch, patch)
    tokens = Tokens(grid=grid, prefix=int(hasattr(model, "cls_token")), class_token=hasattr(model, "cls_token"))
    patches = int(embedding.position_embeddings.shape[1])
    if tokens.count - tokens.prefix != patches:
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
        forward=nn.Module.__call__,
        kind=kind,
        channels=channels,
        image_size=size,
        patch_size=patch,
        tokens=tokens,
        layers=len(model.blocks),
        heads=int(model.blocks[0].attn.num_heads),
        width=int(embedding.position_embeddings.shape[2]),
        mlp_width=int(model.blocks[0].mlp.linear1.out_features),
        weights=weights,
    )


def _patches(embeddings: Any) -> tuple[tuple[int, ...], int]:
    """Return the sides of a patch, and the channels, of an embedding by convolution or by a linear map of pixels."""
    if not isinstance(embeddings, nn.Sequential):
        return tuple(map(int, embeddings.kernel_size)), int(embeddings.in_channels)
    rearrange: Any = embeddings[0]
    linear: Any = embeddings[1]
    lengths = rearrange.axes_lengths  # of einops: {"p1": 16, "p2": 16, ...}
    patch = tuple(int(lengths[name]) for name in sorted(lengths))
    return patch, int(linear.in_features) // math.prod(patch)


def _class_scores(model: nn.Module, images: Tensor) -> Any:
    """Return the first of what the model returns: class scores, and the tokens after each layer."""
    output = model(images)
    return output[0] if isinstance(output, tuple) else output


LIBRARY = ModelLibrary(
    models=("ViT",), package="monai", recognises=_is_transformer, read=_read, class_scores=_class_scores
)
