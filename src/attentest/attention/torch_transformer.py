"""Transformers of plain torch: any module whose layers attend with ``torch.nn.MultiheadAttention``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from attentest.attention import encoder as encoders
from attentest.attention.aggregation import Tokens
from attentest.attention.attention_reader import plain_attention
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
        self.image_size = encoders.checked_size(tuple(sides), self.patch_size, self.stride)
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


def _read(module: nn.Module, image_size: Any, device: torch.device | str | None, owned: bool) -> encoders.Encoder:
    """Return a float64 copy of a transformer of plain torch that exposes its attention."""
    assert isinstance(module, TorchTransformer)
    kind = f"torch {type(module.model).__name__}"
    if image_size is not None:
        encoders.check_same_size(
            kind, module.image_size, encoders.checked_size(image_size, module.patch_size, module.stride)
        )
    model, weights = encoders.float64_copy(module, device, kind, owned)
    attentions = expose_attention(model)
    if not attentions:
        raise ModelError(f"the model is of type {kind!r} and has no layer of torch.nn.MultiheadAttention.")
    width = attentions[0].embed_dim
    layers = (part for part in model.modules() if isinstance(part, nn.TransformerEncoderLayer))
    return encoders.Encoder(
        module=model,
        kind=kind,
        channels=model.channels,
        image_size=model.image_size,
        patch_size=model.patch_size,
        stride=model.stride,
        tokens=Tokens(
            grid=encoders.patches_along(model.image_size, model.patch_size, model.stride),
            prefix=model.prefix,
            class_token=model.class_token,
        ),
        layers=len(attentions),
        heads=attentions[0].num_heads,
        width=width,
        mlp_width=max((layer.linear1.out_features for layer in layers), default=4 * width),
        weights=weights,
    )


LIBRARY = encoders.ModelLibrary(
    models=("TorchTransformer",),
    package="attentest",
    recognises=lambda module: isinstance(module, TorchTransformer),
    read=_read,
)
