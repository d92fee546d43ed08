"""The forward pass over plain layers on a GPU, with kernels of its own for all that is not a matrix product."""

from __future__ import annotations

from importlib.util import find_spec

from torch import Tensor
from torch.autograd.forward_ad import unpack_dual
from torch.nn.functional import linear

from attentest.attention.aggregation import Aggregation, LayerAttention, Rollout
from attentest.attention.encoder import Encoder
from attentest.attention.forward_pass import PlainForward, PlainLayer, is_gelu


class FusedForward(PlainForward):
    """The same scores as :class:`PlainForward`, in less than half the time: what is between products is not stored.

    Where derivatives are asked for, it computes as that does.
    """

    @classmethod
    def of(cls, encoder: Encoder, aggregation: Aggregation) -> FusedForward | None:
        """Return the forward pass of an encoder on a GPU, if its kernels compute what the scores need."""
        averaged = isinstance(aggregation, LayerAttention) or aggregation == Rollout()
        if encoder.device.type != "cuda" or not averaged or find_spec("triton") is None:
            return None
        forward = super().of(encoder, aggregation)
        if not isinstance(forward, cls) or not all(is_gelu(layer.activation) for layer in forward._weights.layers):
            return None
        return forward

    def agrees(self, images: Tensor, expected: Tensor) -> bool:
        """Return whether the scores of images are those expected, (m, *grid), to within rounding."""
        try:
            return super().agrees(images, expected)
        except Exception:  # noqa: BLE001  # a kernel may fail to compile in many ways, and can be done without
            return False

    def __call__(self, images: Tensor) -> Tensor:
        """Return the scores (m, *grid) of images (m, C, *axes)."""
        if unpack_dual(images).tangent is not None:
            return super().__call__(images)
        from attentest.attention import fused_kernels as kernels  # needs Triton

        layers = self._weights.layers[: self._needed.stop]
        x = self._entering(images)
        tokens = kernels.normed(x, layers[0].first_norm)
        taken = []
        for number, layer in enumerate(layers[:-1]):
            # Products that add a bias have slower kernels in float64 than those that do not.
            attended, mean = self._attended(linear(tokens, layer.inputs.weight), layer, number in self._needed)
            if mean is not None:
                taken.append(mean)
            tokens = kernels.added_and_normed(x, linear(attended, layer.out.weight), layer.out, layer.second_norm)
            hidden = kernels.gelu_(linear(tokens, layer.up.weight), layer.up.bias)
            following = layers[number + 1].first_norm
            tokens = kernels.added_and_normed(x, linear(hidden, layer.down.weight), layer.down, following)
        taken.append(self._aggregation.take(self._last_attention(tokens, layers[-1]), self._tokens))
        return self._aggregation.scores(taken, self._tokens)

    def _attended(self, mapped: Tensor, layer: PlainLayer, mean_needed: bool) -> tuple[Tensor, Tensor | None]:
        """Return the attention (m, N, d) of queries, keys and values (m, N, 3 d) without biases, and its mean weights.

        These are (m, N, N), averaged over heads, if they are needed.
        """
        from attentest.attention import fused_kernels as kernels

        if mapped.shape[1] <= kernels.MOST_TOKENS:
            return kernels.attended(mapped, layer.inputs.bias, self._heads, mean_needed)
        queries, keys, values = self._divided(mapped.add_(layer.inputs.bias))
        attention = queries @ keys.transpose(-2, -1)
        mean = kernels.softmax_and_mean_(attention, queries.shape[-1] ** -0.5, mean_needed)
        return (attention @ values).transpose(1, 2).flatten(2), mean
