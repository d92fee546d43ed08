"""The forward pass over plain layers on tensor cores, in nearly the precision of float32."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attentest.attention.aggregation import Aggregation
from attentest.attention.encoder import Encoder
from attentest.attention.forward_pass import Affine, Norm, PlainLayer
from attentest.attention.fused_forward import FusedForward

GREATEST = 2.0**15
"""Numbers are scaled to at most this, half of the greatest one of half precision: the low halves of much smaller ones
then keep their digits."""

LEAST_WIDTH = 256
"""Of narrower models the products take less time than what is between them, whatever their precision."""


class _Product(NamedTuple):
    """An affine map whose weights are halves: ``weight`` (out, 3 in) float16, high, low and high."""

    weight: Tensor
    affine: Affine
    factor: float
    """What the product of halves is multiplied by."""

    def of(self, halves: Tensor) -> Tensor:
        """Return the product (r, out) of halves (r, 3 in) and weights, in float32, without bias and factor."""
        product: Tensor = torch.mm(halves, self.weight.t(), out_dtype=torch.float32)
        return product


@dataclass(frozen=True, kw_only=True)
class _SplitLayer:
    """A layer, and the powers of two by which its numbers are multiplied before they are split.

    No number can exceed half precision then, whatever the image: the length of a token after a layer norm is bounded,
    and by it what linear maps, means and a GELU make of it. Queries, keys and values are the product of ``inputs``
    times ``factor`` (3 d,) plus ``shift`` (3 d,); queries times keys times ``inverse`` are logits to base 2.
    """

    first_norm: Norm
    first_scale: float
    inputs: _Product
    factor: Tensor
    shift: Tensor
    inverse: float
    out: _Product
    second_norm: Norm
    second_scale: float
    up: _Product
    hidden_scale: float
    down: _Product

    @classmethod
    def of(cls, layer: PlainLayer, heads: int) -> _SplitLayer:
        """Return a layer with float32 weights."""
        first_scale, first_length = _scale_and_length(layer.first_norm)
        inputs = _product(layer.inputs, first_scale)
        width = len(layer.first_norm.weight)
        to_base_2 = torch.ones_like(layer.inputs.bias)
        to_base_2[:width] = (width // heads) ** -0.5 / math.log(2)  # the logits' scale belongs to the queries
        bounds = to_base_2 * _bounds(layer.inputs, first_length)
        scales = [_power_of_two(float(part.max())) for part in bounds.split(width)]
        by_part = torch.cat([torch.full_like(layer.inputs.bias[:width], scale) for scale in scales])
        second_scale, second_length = _scale_and_length(layer.second_norm)
        hidden_scale = _power_of_two(float(_bounds(layer.up, second_length).max()))
        return cls(
            first_norm=layer.first_norm,
            first_scale=first_scale,
            inputs=inputs,
            factor=inputs.factor * to_base_2 * by_part,
            shift=layer.inputs.bias * to_base_2 * by_part,
            inverse=1 / (scales[0] * scales[1]),
            out=_product(layer.out, scales[2]),
            second_norm=layer.second_norm,
            second_scale=second_scale,
            up=_product(layer.up, second_scale),
            hidden_scale=hidden_scale,
            down=_product(layer.down, hidden_scale),
        )


class SplitForward(FusedForward):
    """The same scores as :class:`FusedForward` to about seven digits, several times as fast on GPUs with tensor cores.

    Every factor of a product is the sum of two numbers of half precision, and a product that of three. The attention of
    single heads is not stored.
    """

    same = 1e-3

    def __init__(self, encoder: Encoder, weights: Any, aggregation: Aggregation) -> None:
        super().__init__(encoder, weights, aggregation)
        self._layers = [_SplitLayer.of(layer, self._heads) for layer in weights.layers[: self._needed.stop]]
        self._weights = replace(weights, layers=())  # their weights are held as halves now

    @classmethod
    def of(cls, encoder: Encoder, aggregation: Aggregation) -> FusedForward | None:
        """Return the forward pass of an encoder in float32 on a GPU whose tensor cores are worth using."""
        if encoder.device.type != "cuda" or encoder.width < LEAST_WIDTH:
            return None
        if torch.cuda.get_device_capability(encoder.device) < (8, 0) or not hasattr(torch.ops.aten.mm, "dtype"):
            return None
        return super().of(encoder, aggregation)

    def __call__(self, images: Tensor) -> Tensor:
        """Return the scores (m, *grid) of images (m, C, *axes), in float32."""
        from attentest.attention import fused_kernels as kernels  # need Triton
        from attentest.attention import split_kernels

        x = self._entering(images).contiguous()
        layers = self._layers
        tokens = kernels.normed(x, layers[0].first_norm, kernels.Halves(1.0, layers[0].first_scale))
        taken = []
        for number, (layer, following) in enumerate(pairwise(layers)):
            parts = split_kernels.halves(layer.inputs.of(tokens), layer.factor, layer.shift)
            means, logarithms = split_kernels.attended(parts, len(images), self._heads, layer.inverse)
            if number in self._needed:
                taken.append(split_kernels.mean_attention(parts, logarithms, layer.inverse))
            between = kernels.Halves(layer.out.factor, layer.second_scale)
            tokens = kernels.added_and_normed(x, layer.out.of(means), layer.out.affine, layer.second_norm, between)
            inner = kernels.Halves(layer.up.factor, layer.hidden_scale)
            hidden = kernels.gelu_(layer.up.of(tokens), layer.up.affine.bias, inner)
            after = kernels.Halves(layer.down.factor, following.first_scale)
            tokens = kernels.added_and_normed(x, layer.down.of(hidden), layer.down.affine, following.first_norm, after)
        taken.append(self._aggregation.take(self._row_of_last(tokens, len(images)), self._tokens))
        return self._aggregation.scores(taken, self._tokens)

    def _row_of_last(self, tokens: Tensor, images: int) -> Tensor:
        """Return the attention (m, heads, rows, N) of the last layer from halves (m * N, 3 d)."""
        layer = self._layers[-1]
        width = len(layer.first_norm.weight)
        affine = layer.inputs.affine
        together = layer.inputs._replace(weight=layer.inputs.weight[: 2 * width]).of(tokens)
        together = together.mul_(layer.inputs.factor).add_(affine.bias[: 2 * width])
        queries, keys = together.unflatten(0, (images, -1)).unflatten(2, (2, self._heads, -1)).permute(2, 0, 3, 1, 4)
        if self._class_row:
            queries = queries[:, :, :1]
        return torch.softmax(self._logits(queries, keys), dim=-1)


def _product(affine: Affine, scale: float) -> _Product:
    """Return an affine map of numbers that are multiplied by a scale."""
    own = _power_of_two(float(affine.weight.abs().max()))
    scaled = affine.weight * own
    high = scaled.to(torch.float16)
    low = (scaled - high.float()).to(torch.float16)
    without = affine._replace(weight=affine.weight.new_empty(0))  # no view, which would keep all of the weights
    return _Product(torch.cat([high, low, high], dim=1), without, 1 / (own * scale))


def _scale_and_length(norm: Norm) -> tuple[float, float]:
    """Return what layer norms are multiplied by before they are split, and the greatest length of one."""
    root = math.sqrt(len(norm.weight))
    greatest = float((root * norm.weight.abs() + norm.bias.abs()).max())
    return _power_of_two(greatest), float(root * norm.weight.abs().max() + norm.bias.norm())


def _bounds(affine: Affine, length: float) -> Tensor:
    """Return bounds (out,) of the absolute values of an affine map of vectors of at most a length."""
    bounds: Tensor = affine.weight.norm(dim=1) * length + affine.bias.abs()
    return bounds


def _power_of_two(greatest: float) -> float:
    """Return a power of two that takes numbers up to the greatest one to at most ``GREATEST``."""
    return 2.0 ** math.floor(math.log2(GREATEST / greatest)) if greatest > 0 else 1.0
