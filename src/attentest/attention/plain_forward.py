"""The forward pass of a transformer with plain layers, in few large steps and no further than the scores need."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import layer_norm, linear

from attentest.attention.aggregation import Aggregation
from attentest.attention.encoder import Encoder
from attentest.attention.plain_layers import Affine, Norm, PlainLayer, PlainWeights, plain_weights

SAME = 1e-10
"""Scores that differ by this fraction of the greatest one are equal but for rounding, which some models amplify."""


class PlainForward:
    """From images to scores, as the model's own modules compute them.

    Three things make it faster than those: one matrix product for queries, keys and values; of the last layer only the
    row of the class token, where that is all that is needed; and no bookkeeping of modules.

    Parameters
    ----------
    encoder
        The model.
    weights
        Its weights.
    aggregation
        How its attention becomes scores.
    """

    def __init__(self, encoder: Encoder, weights: PlainWeights, aggregation: Aggregation) -> None:
        self._tokens, self._heads = encoder.tokens, encoder.heads
        self._patch_size, self._covered = encoder.patch_size, encoder.covered
        self._weights, self._aggregation = weights, aggregation
        self._needed = aggregation.layers(encoder.layers)
        self._class_row = encoder.tokens.class_token and getattr(aggregation, "class_row_of_last", False)

    @classmethod
    def of(cls, encoder: Encoder, aggregation: Aggregation) -> PlainForward | None:
        """Return the forward pass of an encoder with plain layers; None for any other."""
        weights = plain_weights(encoder)
        return None if weights is None else cls(encoder, weights, aggregation)

    def __call__(self, images: Tensor) -> Tensor:
        """Return the scores (m, gh, gw) of images (m, C, H, W)."""
        x = self._embedded(images)
        taken = []
        for number, layer in enumerate(self._weights.layers[: self._needed.stop]):
            tokens = normed(x, layer.first_norm)
            if number + 1 == self._needed.stop:
                taken.append(self._aggregation.take(self._last_attention(tokens, layer), self._tokens))
                break
            queries, keys, values = self._divided(_mapped(tokens, layer.inputs))
            attention = torch.softmax(self._logits(queries, keys), dim=-1)
            if number in self._needed:
                taken.append(self._aggregation.take(attention, self._tokens))
            x = x + _mapped((attention @ values).transpose(1, 2).flatten(2), layer.out)
            hidden = layer.activation(_mapped(normed(x, layer.second_norm), layer.up))
            x = x + _mapped(hidden, layer.down)
        return self._aggregation.scores(taken, self._tokens)

    def agrees(self, images: Tensor, expected: Tensor) -> bool:
        """Return whether the scores of images are those expected, (m, gh, gw), to within rounding."""
        try:
            scores = self(images)
        except RuntimeError:  # the weights do not fit together as those of plain layers do
            return False
        return bool((scores - expected).abs().amax() <= SAME * expected.abs().amax())

    def _embedded(self, images: Tensor) -> Tensor:
        """Return the tokens (m, N, d) that reach the first layer."""
        (rows, columns), (height, width) = self._tokens.grid, self._patch_size
        covered = images[..., : self._covered[0], : self._covered[1]]
        cut = covered.unflatten(3, (columns, width)).unflatten(2, (rows, height))  # m, C, rows, height, columns, width
        patches = cut.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
        constant, prefix = self._weights.constant, self._tokens.prefix
        embedded = linear(patches, self._weights.patches) + constant[:, prefix:]
        tokens = torch.cat([constant[:, :prefix].expand(len(images), -1, -1), embedded], dim=1)
        return tokens if self._weights.norm is None else normed(tokens, self._weights.norm)

    def _divided(self, mapped: Tensor) -> tuple[Tensor, ...]:
        """Return queries, keys and values (m, heads, N, d / heads) from one tensor (m, N, 3 d)."""
        divided: tuple[Tensor, ...] = mapped.unflatten(2, (3, self._heads, -1)).permute(2, 0, 3, 1, 4).unbind()
        return divided

    def _logits(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return the logits (m, heads, rows, N) of the attention."""
        scale: float = queries.shape[-1] ** -0.5
        return torch.matmul(queries * scale, keys.transpose(-2, -1))

    def _last_attention(self, tokens: Tensor, layer: PlainLayer) -> Tensor:
        """Return the attention (m, heads, rows, N) of the last layer: all of its rows, or that of the class token."""
        width = tokens.shape[2]
        mapped = linear(tokens, layer.inputs.weight[: 2 * width], layer.inputs.bias[: 2 * width])
        queries, keys = mapped.unflatten(2, (2, self._heads, -1)).permute(2, 0, 3, 1, 4)
        # The queries of the class tokens by themselves would be a product with as many rows as images, which is rounded
        # otherwise for few of them than for many: a result would depend on what an image is tested with.
        if self._class_row:
            queries = queries[:, :, :1]
        return torch.softmax(self._logits(queries, keys), dim=-1)


def normed(x: Tensor, norm: Norm) -> Tensor:
    """Return the layer norm of tokens (m, N, d)."""
    return layer_norm(x, x.shape[-1:], norm.weight, norm.bias, norm.eps)


def _mapped(x: Tensor, affine: Affine) -> Tensor:
    mapped = linear(x, affine.weight, affine.bias)
    return mapped if affine.scale is None else mapped * affine.scale
