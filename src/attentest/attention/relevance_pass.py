"""Forward and backward passes that maps for a class need: through plain layers, or through a model's own modules."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.functional import pad

from attentest.attention import forward_pass
from attentest.attention.attention_reader import collected_attention
from attentest.attention.class_scores import ClassScores, HeadOfTokens
from attentest.attention.encoder import Encoder
from attentest.attention.relevance import Pixels, Relevance
from attentest.errors import ModelError


class RelevanceForward(Protocol):
    """From images (m, C, *axes) and classes (m,) to maps (m, *grid) for these, and class scores (m, K)."""

    def __call__(self, images: Tensor, target: Tensor, way: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return both."""


def map_of(relevance: Relevance, encoder: Encoder, taken: list[Tensor]) -> Tensor:
    """Return the map (m, *grid) of what a relevance took of layers, first layer first, or of the input."""
    if relevance.at != "input":
        scores = relevance.scores(taken, encoder.tokens)
        return scores if encoder.sequences == 1 else scores.unflatten(0, (-1, encoder.sequences)).mean(dim=1)
    (values,) = taken
    if getattr(relevance, "per", "") == "pixel":
        return values
    pixels = Pixels(patch_size=encoder.patch_size, steps=encoder.steps, begin=encoder.begin, grid=encoder.tokens.grid)
    return pixels.summed(values)


class ModuleRelevance:
    """The pass through a model's own modules, by reverse-mode differentiation.

    Parameters
    ----------
    encoder
        The encoder within the model.
    class_scores
        The model.
    relevance
        The map.
    """

    def __init__(self, encoder: Encoder, class_scores: ClassScores, relevance: Relevance) -> None:
        self._encoder, self._class_scores, self._relevance = encoder, class_scores, relevance
        self._first = relevance.first_layer(encoder.layers)
        windows = encoder.tokens.windows
        self._windows = windows[self._first] if windows and relevance.at == "tokens" else None
        self._attention: Any = None
        if relevance.at == "tokens":
            layers = forward_pass.layers_of(encoder.module, encoder.layers)
            self._attention = None if layers is None else forward_pass.part_of(layers[self._first], "attention")
            if self._attention is None:
                raise ModelError(
                    f"the model of type {encoder.kind!r} does not show which tokens enter its layers, and "
                    f"{relevance.name} is made of them: use gradient-rollout, or a map of input gradients.",
                    "attention",
                )

    def __call__(self, images: Tensor, target: Tensor, way: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return maps (m, *grid) and class scores (m, K)."""
        with torch.enable_grad():
            try:
                leaf = images.detach().requires_grad_()
            except RuntimeError:  # torch is computing a derivative
                raise ModelError(
                    f"the model of type {self._encoder.kind!r} has no derivative of its map, which the adaptive search "
                    "needs: use another search.",
                    "search",
                ) from None
            values: list[Tensor] = []
            if self._relevance.at == "attention":
                scores = collected_attention(lambda: self._class_scores(leaf), values)
            elif self._attention is not None:
                handle = self._attention.register_forward_pre_hook(_Entering(values), with_kwargs=True)
                try:
                    scores = self._class_scores(leaf)
                finally:
                    handle.remove()
            else:
                scores, values = self._class_scores(leaf), [leaf]
            gradients = torch.autograd.grad(scores.gather(1, target.unsqueeze(1)).sum(), values)
        values = [value.detach() for value in values] if way is None else [way]
        if self._windows is not None:
            values, gradients = [*map(self._windows.joined, values)], tuple(map(self._windows.joined, gradients))
        pairs = zip(values, gradients, strict=True)
        taken = [self._relevance.take(value, slope, self._encoder.tokens) for value, slope in pairs]
        return map_of(self._relevance, self._encoder, taken), scores.detach()


class _Entering:
    """Adds the tokens (m, N, d) that enter an attention to a list, as a copy: its gradient is not of what passes by."""

    def __init__(self, values: list[Tensor]) -> None:
        self._values = values

    def __call__(self, module: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Return the arguments with the copy in place of the tokens, however often they are given."""
        entering = arguments[0] if arguments else next(iter(named.values()))
        if getattr(module, "batch_first", True):
            copied = entering.clone()
            self._values.append(copied)
        else:
            self._values.append(entering.transpose(0, 1).clone())
            copied = self._values[-1].transpose(0, 1)
        positional = tuple(copied if value is entering else value for value in arguments)
        return positional, {name: copied if value is entering else value for name, value in named.items()}


class _Saved(NamedTuple):
    """What the backward pass of a layer needs: see :meth:`PlainRelevance._layer`."""

    before: Tensor
    first: tuple[Tensor, Tensor, Tensor]
    queries: Tensor
    keys: Tensor
    values: Tensor
    attention: Tensor
    between: Tensor
    second: tuple[Tensor, Tensor, Tensor]
    hidden: Tensor


class PlainRelevance(forward_pass.PlainPass):
    """The pass through plain layers, with the gradients written out: no derivative of a weight is computed or stored.

    Parameters
    ----------
    encoder, weights
        As in :class:`PlainPass`.
    class_scores
        The model.
    relevance
        The map.
    """

    def __init__(
        self, encoder: Encoder, weights: forward_pass.PlainWeights, class_scores: ClassScores, relevance: Relevance
    ) -> None:
        super().__init__(encoder, weights)
        layers = forward_pass.layers_of(encoder.module, encoder.layers)
        assert layers is not None  # the weights are theirs
        self._encoder, self._relevance = encoder, relevance
        self._first = relevance.first_layer(encoder.layers)
        self._head = HeadOfTokens(class_scores, encoder, layers)
        self._gelu = [forward_pass.is_gelu(layer.activation) for layer in weights.layers]

    def __call__(self, images: Tensor, target: Tensor, way: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return maps (m, *grid) for classes (m,) and class scores (m, K) of images (m, C, *axes)."""
        embedded = x = self._embedded(images)
        norm = self._weights.norm
        if norm is not None:
            x, mean, deviation = _normed(x, norm)
        saved = []
        for layer in self._weights.layers:
            x, kept = self._layer(x, layer)
            saved.append(kept)
        of_head: Any = torch.func.vjp(self._head, x)
        scores, pull = of_head
        (slope,) = pull(torch.zeros_like(scores).scatter_(1, target.unsqueeze(1), 1.0))
        taken = []
        for number in reversed(range(self._first, len(saved))):
            slope, attention, tokens = self._backward(slope, number, saved.pop())
            if self._relevance.at == "attention":
                taken.append(self._relevance.take(*attention, self._tokens))
        if self._relevance.at == "tokens":
            taken.append(self._relevance.take(*tokens, self._tokens))
        elif self._relevance.at == "input":
            if norm is not None:
                slope = _norm_gradient(slope, embedded, norm, (mean, deviation))
            taken.append(
                self._relevance.take(images if way is None else way, self._in_pixels(slope, images), self._tokens)
            )
        return map_of(self._relevance, self._encoder, taken[::-1]), scores

    def _layer(self, x: Tensor, layer: forward_pass.PlainLayer) -> tuple[Tensor, _Saved]:
        """Return the tokens (m, N, d) after a layer, and what its gradient needs."""
        first = _normed(x, layer.first_norm)
        queries, keys, values = self._divided(forward_pass.mapped(first[0], layer.inputs))
        attention = torch.softmax(self._logits(queries, keys), dim=-1)
        between = x + forward_pass.mapped((attention @ values).transpose(1, 2).flatten(2), layer.out)
        second = _normed(between, layer.second_norm)
        hidden = forward_pass.mapped(second[0], layer.up)
        after = between + forward_pass.mapped(layer.activation(hidden), layer.down)
        return after, _Saved(x, first, queries, keys, values, attention, between, second, hidden)

    def _backward(
        self, slope: Tensor, number: int, kept: _Saved
    ) -> tuple[Tensor, tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Return the gradient in the tokens before a layer from that after it, (m, N, d).

        With it go attention and tokens after the norm before it, each with the gradient in them. Where no more is
        needed than these, the gradient of the whole layer is not computed.
        """
        layer = self._weights.layers[number]
        slope = slope + _norm_gradient(
            self._activation_gradient(number, kept.hidden, _unmapped(slope, layer.down)) @ layer.up.weight,
            kept.between,
            layer.second_norm,
            kept.second[1:],
        )
        attended = _unmapped(slope, layer.out).unflatten(2, (self._heads, -1)).transpose(1, 2)
        weighted = attended @ kept.values.transpose(-2, -1)
        attention = (kept.attention, weighted)
        if number == self._first and self._relevance.at == "attention":
            return slope, attention, (slope, slope)
        logits = torch._softmax_backward_data(weighted, kept.attention, -1, weighted.dtype)
        scale = kept.queries.shape[-1] ** -0.5
        queries, keys = logits @ kept.keys * scale, logits.transpose(-2, -1) @ kept.queries * scale
        parts = torch.stack([queries, keys, kept.attention.transpose(-2, -1) @ attended], dim=2)
        joined = parts.permute(0, 3, 2, 1, 4).flatten(2)  # from (m, heads, 3, N, e) to (m, N, 3 d)
        entering = joined @ layer.inputs.weight
        if number > self._first or self._relevance.at == "input":
            slope = slope + _norm_gradient(entering, kept.before, layer.first_norm, kept.first[1:])
        return slope, attention, (kept.first[0], entering)

    def _activation_gradient(self, number: int, hidden: Tensor, slope: Tensor) -> Tensor:
        if self._gelu[number]:
            return torch.as_tensor(torch.ops.aten.gelu_backward(slope, hidden))
        pull: Any = torch.func.vjp(self._weights.layers[number].activation, hidden)[1]
        return torch.as_tensor(pull(slope)[0])

    def _in_pixels(self, slope: Tensor, images: Tensor) -> Tensor:
        """Return the gradient (m, C, *axes) in pixels from that in tokens (m, N, d)."""
        values = slope[:, self._tokens.prefix :] @ self._weights.patches
        axes = len(self._patches)
        sides, steps = zip(*self._patches, strict=True)
        values = values.unflatten(1, self._tokens.grid).unflatten(-1, (images.shape[1], *sides)).movedim(1 + axes, 1)
        pixels = pad(torch.zeros_like(images), self._margin)
        places: list[Any] = [slice(None), slice(None)]
        # Place by place within patches: these do not overlap, whatever the patches do.
        for offset in torch.cartesian_prod(*map(torch.arange, sides)).reshape(-1, axes).tolist():
            at = zip(offset, steps, self._tokens.grid, strict=True)
            where = tuple(places + [slice(start, start + step * (count - 1) + 1, step) for start, step, count in at])
            pixels[where] += values[(..., *offset)]
        return pad(pixels, [-end for end in self._margin])


def _normed(x: Tensor, norm: forward_pass.Norm) -> tuple[Tensor, Tensor, Tensor]:
    """Return the layer norm of tokens (m, N, d), their means and their inverse standard deviations."""
    return torch.native_layer_norm(x, x.shape[-1:], norm.weight, norm.bias, norm.eps)


def _norm_gradient(slope: Tensor, x: Tensor, norm: forward_pass.Norm, moments: Any) -> Tensor:
    """Return the gradient in tokens (m, N, d) from that in their layer norm."""
    return torch.as_tensor(
        torch.ops.aten.native_layer_norm_backward(
            slope, x, x.shape[-1:], *moments, norm.weight, norm.bias, [True, False, False]
        )[0]
    )


def _unmapped(slope: Tensor, affine: forward_pass.Affine) -> Tensor:
    """Return the gradient in the input of an affine map from that in its output."""
    return (slope if affine.scale is None else slope * affine.scale) @ affine.weight
