"""The forward pass of a transformer with plain layers: norm, attention, norm and a network of two linear maps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.forward_ad import unpack_dual
from torch.nn.functional import gelu, layer_norm, linear, pad

from attentest.attention.aggregation import Aggregation
from attentest.attention.encoder import Encoder

NAMES = {
    "first norm": ("layernorm_before", "norm1", "layer_norm1", "ln_1", "norm_sublayer1"),
    "second norm": ("layernorm_after", "norm2", "layer_norm2", "ln_2"),
    "attention": ("attention", "self_attn", "attn", "self_attention"),
    "query": ("q_proj", "attention.attention.query"),
    "key": ("k_proj", "attention.attention.key"),
    "value": ("v_proj", "attention.attention.value"),
    "query, key and value": ("attn.qkv", "self_attention"),
    "output": ("o_proj", "out_proj", "attention.output.dense", "attn.proj"),
    "up": ("mlp.fc1", "intermediate.dense", "mlp.0", "mlp.linear1"),
    "down": ("mlp.fc2", "mlp.3", "output.dense", "mlp.linear2"),
    "activation": (
        "mlp.activation_fn", "mlp.activation", "mlp.act", "mlp.1", "intermediate.intermediate_act_fn", "mlp.fn",
    ),
    "first scale": ("layer_scale1", "ls1"),
    "second scale": ("layer_scale2", "ls2"),
    "norm before layers": ("pre_layrnorm", "norm_pre"),
}  # fmt: skip
"""Names of the parts of a layer, and of a norm before the first layer, in transformers, timm, torchvision and MONAI."""


class Norm(NamedTuple):
    """A layer norm: weights (d,), biases (d,) and what is added to the variance."""

    weight: Tensor
    bias: Tensor
    eps: float


class Affine(NamedTuple):
    """An affine map: weights (out, in), biases (out,), and factors (out,) of the result, if there are any."""

    weight: Tensor
    bias: Tensor
    scale: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class PlainLayer:
    """One layer: x + out(attention(norm(x))), and then x + down(activation(up(norm(x)))).

    ``inputs`` are queries, keys and values, one below the other.
    """

    first_norm: Norm
    inputs: Affine
    out: Affine
    second_norm: Norm
    up: Affine
    activation: Callable[[Tensor], Tensor]
    down: Affine


@dataclass(frozen=True, kw_only=True)
class PlainWeights:
    """The weights of an encoder."""

    patches: Tensor
    """(width, C * pixels of a patch). From the pixels of a patch to its token."""
    margin: tuple[int, ...]
    """Zeros around the image along each axis: patches reach so far beyond the encoder's ``patch_size``."""
    constant: Tensor
    """(1, N, width). What is added to the tokens: biases and position embeddings, and the tokens that are not
    patches."""
    norm: Norm | None
    """Norm of the tokens before the first layer, if there is one."""
    layers: tuple[PlainLayer, ...]
    """The layers."""


def plain_weights(encoder: Encoder) -> PlainWeights | None:
    """Return the weights of an encoder with plain layers; None for any other.

    Queries, keys and values of the encoder's module become views of one tensor, so that no weights are held twice.
    """
    module = encoder.module
    layers = layers_of(module, encoder.layers)
    convolutions = [part for part in module.modules() if isinstance(part, (nn.Conv1d, nn.Conv2d, nn.Conv3d))]
    if layers is None or len(convolutions) != 1:
        return None
    embedding = convolutions[0]
    sides = embedding.kernel_size
    margin = (0,) * len(sides) if isinstance(embedding.padding, str) else embedding.padding
    if tuple(side - 2 * more for side, more in zip(sides, margin, strict=True)) != encoder.patch_size:
        return None
    if encoder.tokens.windows:
        return None
    plain = tuple(layer for layer in map(_plain_layer, layers) if layer is not None)
    first = part_of(module, "norm before layers")
    norm = _norm(first)
    constant = _constant(encoder, layers[0] if norm is None else first)
    if constant is None or len(plain) < len(layers):
        return None
    return PlainWeights(patches=embedding.weight.flatten(1), margin=margin, constant=constant, norm=norm, layers=plain)


def layers_of(module: nn.Module, count: int) -> list[nn.Module] | None:
    """Return the layers of a model: the only list of so many modules that have norms of their own, or all in stages."""
    lists = [
        list(part)
        for part in module.modules()
        if isinstance(part, (nn.ModuleList, nn.Sequential))
        and len(part) == count
        and all(part_of(layer, "first norm") for layer in part)
    ]
    shifted = [part for part in module.modules() if hasattr(part, "shift_size")]  # those with windows, in stages
    return lists[0] if len(lists) == 1 else shifted if len(shifted) == count else None


def _plain_layer(layer: nn.Module) -> PlainLayer | None:
    parts: dict[str, Any] = {
        "first_norm": _norm(part_of(layer, "first norm")),
        "inputs": _inputs(layer),
        "out": _affine(part_of(layer, "output"), part_of(layer, "first scale")),
        "second_norm": _norm(part_of(layer, "second norm")),
        "up": _affine(part_of(layer, "up")),
        "activation": part_of(layer, "activation"),
        "down": _affine(part_of(layer, "down"), part_of(layer, "second scale")),
    }
    return None if any(part is None for part in parts.values()) else PlainLayer(**parts)


def part_of(module: nn.Module, part: str) -> Any:
    """Return the part of a module whose name is, or ends in, one of those of ``NAMES``; None if there is none."""
    parts = dict(module.named_modules())
    exact = next((parts[name] for name in NAMES[part] if name in parts), None)
    endings = tuple(f".{name}" for name in NAMES[part])
    return exact or next((module for path, module in parts.items() if path.endswith(endings)), None)


def _norm(part: Any) -> Norm | None:
    if not isinstance(part, nn.LayerNorm) or part.weight is None or part.bias is None:
        return None
    return Norm(part.weight, part.bias, part.eps)


def _affine(part: Any, scale: Any = None) -> Affine | None:
    """Return a linear module as a map, with the factors of a module that scales the features of tokens, if it does."""
    if not isinstance(part, nn.Linear):
        return None
    bias = part.weight.new_zeros(len(part.weight)) if part.bias is None else part.bias
    return Affine(part.weight, bias, getattr(scale, "lambda1", getattr(scale, "gamma", None)))


def _inputs(layer: nn.Module) -> Affine | None:
    """Return queries, keys and values as one map."""
    together = part_of(layer, "query, key and value")
    if together is not None:
        if hasattr(together, "in_proj_weight"):
            return Affine(together.in_proj_weight, together.in_proj_bias)
        return _affine(together)
    modules = [part_of(layer, part) for part in ("query", "key", "value")]
    maps = [affine for affine in map(_affine, modules) if affine is not None]
    if len(maps) < len(modules):
        return None
    weight, bias = torch.cat([affine.weight for affine in maps]), torch.cat([affine.bias for affine in maps])
    lengths = [len(affine.weight) for affine in maps]
    for module, rows, entries in zip(modules, weight.split(lengths), bias.split(lengths), strict=True):
        module.weight.data = rows
        if module.bias is not None:
            module.bias.data = entries
    return Affine(weight, bias)


class _Reached(Exception):
    """Ends a forward pass before a layer; carries the tokens."""


def _constant(encoder: Encoder, layer: nn.Module) -> Tensor | None:
    """Return the tokens (1, N, width) that reach a layer from a blank image."""

    def stop(_: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        raise _Reached(arguments[0] if arguments else next(iter(named.values())))

    weights = next(encoder.module.parameters())
    blank = torch.zeros(1, encoder.channels, *encoder.image_size, dtype=weights.dtype, device=weights.device)
    with layer.register_forward_pre_hook(stop, with_kwargs=True):
        try:
            encoder.forward(encoder.module, blank)
        except _Reached as reached:
            tokens = reached.args[0]
        else:
            return None
    expected = (1, encoder.tokens.count, encoder.width)
    return tokens.detach() if isinstance(tokens, Tensor) and tuple(tokens.shape) == expected else None


SAME = 1e-10
"""Scores that differ by this fraction of the greatest one are equal but for rounding, which some models amplify."""


class PlainPass:
    """What passes over the plain layers of an encoder have in common."""

    def __init__(self, encoder: Encoder, weights: PlainWeights) -> None:
        self._tokens, self._heads, self._weights = encoder.tokens, encoder.heads, weights
        margins = zip(encoder.patch_size, weights.margin, encoder.stride, strict=True)
        self._patches = tuple((side + 2 * margin, step) for side, margin, step in margins)
        self._margin = [end for margin in reversed(weights.margin) for end in (margin, margin)]

    def _embedded(self, images: Tensor) -> Tensor:
        """Return the tokens (m, N, d) of images (m, C, *axes), without the norm before the first layer."""
        cut = pad(images, self._margin) if any(self._margin) else images
        for axis, (side, step) in enumerate(self._patches, start=2):
            cut = cut.unfold(axis, side, step)
        axes = len(self._patches)  # from (m, C, *grid, *sides of a patch) to (m, patches, values of a patch)
        patches = cut.movedim(1, 1 + axes).flatten(1 + axes).flatten(1, axes)
        constant, prefix = self._weights.constant, self._tokens.prefix
        embedded = linear(patches, self._weights.patches) + constant[:, prefix:]
        return torch.cat([constant[:, :prefix].expand(len(images), -1, -1), embedded], dim=1)

    def _divided(self, together: Tensor) -> tuple[Tensor, ...]:
        """Return queries, keys and values (m, heads, N, d / heads) from one tensor (m, N, 3 d)."""
        divided: tuple[Tensor, ...] = together.unflatten(2, (3, self._heads, -1)).permute(2, 0, 3, 1, 4).unbind()
        return divided

    def _logits(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return the logits (m, heads, rows, N) of the attention."""
        scale: float = queries.shape[-1] ** -0.5
        return torch.matmul(queries * scale, keys.transpose(-2, -1))


class PlainForward(PlainPass):
    """From images to scores, as the model's own modules compute them, by its weights and an aggregation.

    Three things make it faster than those: one matrix product for queries, keys and values; of the last layer only the
    row of the class token, where that is all that is needed; and no bookkeeping of modules.
    """

    def __init__(self, encoder: Encoder, weights: PlainWeights, aggregation: Aggregation) -> None:
        super().__init__(encoder, weights)
        self._aggregation = aggregation
        self._needed = aggregation.layers(encoder.layers)
        self._class_row = encoder.tokens.class_token and getattr(aggregation, "class_row_of_last", False)

    @classmethod
    def of(cls, encoder: Encoder, aggregation: Aggregation) -> PlainForward | None:
        """Return the forward pass of an encoder with plain layers; None for any other."""
        pools = aggregation.layers(encoder.layers).stop > encoder.layers
        weights = None if pools else plain_weights(encoder)
        return None if weights is None else cls(encoder, weights, aggregation)

    def __call__(self, images: Tensor) -> Tensor:
        """Return the scores (m, *grid) of images (m, C, *axes)."""
        x = self._entering(images)
        taken = []
        for number, layer in enumerate(self._weights.layers[: self._needed.stop]):
            tokens = normed(x, layer.first_norm)
            if number + 1 == self._needed.stop:
                taken.append(self._aggregation.take(self._last_attention(tokens, layer), self._tokens))
                break
            queries, keys, values = self._divided(mapped(tokens, layer.inputs))
            attention = softmax_(self._logits(queries, keys))
            if number in self._needed:
                taken.append(self._aggregation.take(attention, self._tokens))
            x = x + mapped((attention @ values).transpose(1, 2).flatten(2), layer.out)
            hidden = layer.activation(mapped(normed(x, layer.second_norm), layer.up))
            x = x + mapped(hidden, layer.down)
        return self._aggregation.scores(taken, self._tokens)

    same = SAME
    """Scores that differ by this fraction of the greatest one are the same."""

    def agrees(self, images: Tensor, expected: Tensor) -> bool:
        """Return whether the scores of images are those expected, (m, *grid), to within rounding."""
        return agrees(lambda: self(images), expected, self.same)

    def _entering(self, images: Tensor) -> Tensor:
        """Return the tokens (m, N, d) that reach the first layer."""
        tokens = self._embedded(images)
        return tokens if self._weights.norm is None else normed(tokens, self._weights.norm)

    def _last_attention(self, tokens: Tensor, layer: PlainLayer) -> Tensor:
        """Return the attention (m, heads, rows, N) of the last layer: all of its rows, or that of the class token."""
        width = tokens.shape[2]
        together = linear(tokens, layer.inputs.weight[: 2 * width], layer.inputs.bias[: 2 * width])
        queries, keys = together.unflatten(2, (2, self._heads, -1)).permute(2, 0, 3, 1, 4)
        # The queries of the class tokens by themselves would be a product with as many rows as images, which is rounded
        # otherwise for few of them than for many: a result would depend on what an image is tested with.
        if self._class_row:
            queries = queries[:, :, :1]
        return torch.softmax(self._logits(queries, keys), dim=-1)


def agrees(scores: Callable[[], Tensor], expected: Tensor, same: float = SAME) -> bool:
    """Return whether what a pass over plain layers computes is what is expected, to within rounding."""
    try:
        computed = scores()
    except RuntimeError:  # the weights do not fit together as those of plain layers do
        return False
    return bool((computed - expected).abs().amax() <= same * expected.abs().amax())


def softmax_(logits: Tensor) -> Tensor:
    """Return the softmax of logits (..., N), in their place where that takes less time.

    In float64 it does with the exponential function of Intel's library: a tenth of a forward pass of small models. In
    float32 that function rounds otherwise at other places of a batch.
    """
    in_place = torch.backends.mkl.is_available() and logits.device.type == "cpu" and logits.dtype == torch.float64
    if not in_place or unpack_dual(logits).tangent is not None:
        return torch.softmax(logits, dim=-1)
    weights = logits.sub_(logits.amax(dim=-1, keepdim=True)).exp_()
    return weights.mul_(weights.sum(dim=-1, keepdim=True).reciprocal_())


def normed(x: Tensor, norm: Norm) -> Tensor:
    """Return the layer norm of tokens (m, N, d)."""
    return layer_norm(x, x.shape[-1:], norm.weight, norm.bias, norm.eps)


def mapped(x: Tensor, affine: Affine) -> Tensor:
    """Return an affine map of tokens (m, N, d)."""
    values = linear(x, affine.weight, affine.bias)
    return values if affine.scale is None else values * affine.scale


def is_gelu(activation: Any) -> bool:
    """Return whether an activation is the GELU with the error function."""
    x = torch.linspace(-3, 3, 64, dtype=torch.float64, device="cpu")
    try:
        return bool((activation(x) - gelu(x)).abs().max() < 1e-12)
    except (RuntimeError, TypeError):
        return False
