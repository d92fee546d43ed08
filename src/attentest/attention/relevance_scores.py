"""Maps of a transformer for a class, in float64 throughout; the caller's model is not changed.

The passes that they need, forward and backward, go through plain layers, or through a model's own modules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from attentest.attention.attention_reader import collected_attention, holding
from attentest.attention.class_scores import ClassScores, HeadOfTokens, TextRelevance, similarity
from attentest.attention.encoder import Encoder, float64_copy
from attentest.attention.forward_pass import (
    Affine,
    Norm,
    PlainLayer,
    PlainPass,
    PlainWeights,
    agrees,
    is_gelu,
    layers_of,
    mapped,
    part_of,
    plain_weights,
)
from attentest.attention.relevance import IntegratedGradients, Relevance
from attentest.attention.vit import ViTScores, transformer_in
from attentest.errors import ModelError

RelevanceForward: TypeAlias = Callable[..., tuple[Tensor, Tensor]]
"""From images (m, C, *axes), classes (m,) and perhaps the way from a baseline, to maps (m, *grid) and class scores
(m, K)."""


def _map_of(relevance: Relevance, encoder: Encoder, taken: list[Tensor]) -> Tensor:
    """Return the map (m, *grid) of what a relevance took of layers, first layer first, or of the input."""
    if relevance.at != "input":
        scores = relevance.scores(taken, encoder.tokens)
        return scores if encoder.sequences == 1 else scores.unflatten(0, (-1, encoder.sequences)).mean(dim=1)
    (values,) = taken
    if getattr(relevance, "per", "") == "pixel":
        return values
    sides = zip(encoder.start, encoder.patch_size, encoder.stride, encoder.tokens.grid, strict=True)
    for axis, (begin, side, step, count) in enumerate(sides, start=1):
        windows = values.narrow(axis, begin, (count - 1) * step + side).unfold(axis, side, step)
        values = windows.sum(dim=-1)  # over the pixels of each patch
    return values


class ModuleRelevance:
    """The pass for a map through the own modules of a model with an encoder, by reverse-mode differentiation."""

    def __init__(self, encoder: Encoder, class_scores: ClassScores, relevance: Relevance) -> None:
        self._encoder, self._class_scores, self._relevance = encoder, class_scores, relevance
        self._first = relevance.first_layer(encoder.layers)
        windows = encoder.tokens.windows
        self._windows = windows[self._first] if windows and relevance.at == "tokens" else None
        self._attention: Any = None
        if relevance.at == "tokens":
            layers = layers_of(encoder.module, encoder.layers)
            self._attention = None if layers is None else part_of(layers[self._first], "attention")
            if self._attention is None:
                raise ModelError(
                    f"the model of type {encoder.kind!r} does not show which tokens enter its layers, and "
                    f"{relevance.name} is made of them: use gradient-rollout, or a map of input gradients.",
                    "attention",
                )
            if _copy_entering not in self._attention._forward_pre_hooks.values():
                self._attention.register_forward_pre_hook(_copy_entering, with_kwargs=True)

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
                with holding(_ENTERING, values):
                    scores = self._class_scores(leaf)
            else:
                scores, values = self._class_scores(leaf), [leaf]
            gradients = torch.autograd.grad(scores.gather(1, target.unsqueeze(1)).sum(), values)
        values = [value.detach() for value in values] if way is None else [way]
        if self._windows is not None:
            values, gradients = [*map(self._windows.joined, values)], tuple(map(self._windows.joined, gradients))
        pairs = zip(values, gradients, strict=True)
        taken = [self._relevance.take(value, slope, self._encoder.tokens) for value, slope in pairs]
        return _map_of(self._relevance, self._encoder, taken), scores.detach()


_ENTERING: ContextVar[list[Tensor] | None] = ContextVar("attentest_entering", default=None)


def _copy_entering(
    module: Any, arguments: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Put a copy in place of the tokens that enter an attention, however often they are given, and add it to a list.

    The copy is (m, N, d). Its gradient is not of what passes by the attention.
    """
    values = _ENTERING.get()
    if values is None:
        return None
    entering = arguments[0] if arguments else next(iter(named.values()))
    if getattr(module, "batch_first", True):
        copied = entering.clone()
        values.append(copied)
    else:
        values.append(entering.transpose(0, 1).clone())
        copied = values[-1].transpose(0, 1)
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


class PlainRelevance(PlainPass):
    """The pass through plain layers, with gradients written out: no derivative of a weight is computed or stored."""

    def __init__(
        self, encoder: Encoder, weights: PlainWeights, class_scores: ClassScores, relevance: Relevance
    ) -> None:
        super().__init__(encoder, weights)
        layers = layers_of(encoder.module, encoder.layers)
        assert layers is not None  # the weights are theirs
        self._encoder, self._relevance = encoder, relevance
        self._first = relevance.first_layer(encoder.layers)
        self._head = HeadOfTokens(class_scores, encoder, layers)
        self._gelu = [is_gelu(layer.activation) for layer in weights.layers]

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
        return _map_of(self._relevance, self._encoder, taken[::-1]), scores

    def _layer(self, x: Tensor, layer: PlainLayer) -> tuple[Tensor, _Saved]:
        """Return the tokens (m, N, d) after a layer, and what its gradient needs."""
        first = _normed(x, layer.first_norm)
        queries, keys, values = self._divided(mapped(first[0], layer.inputs))
        attention = torch.softmax(self._logits(queries, keys), dim=-1)
        between = x + mapped((attention @ values).transpose(1, 2).flatten(2), layer.out)
        second = _normed(between, layer.second_norm)
        hidden = mapped(second[0], layer.up)
        after = between + mapped(layer.activation(hidden), layer.down)
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


def _normed(x: Tensor, norm: Norm) -> tuple[Tensor, Tensor, Tensor]:
    """Return the layer norm of tokens (m, N, d), their means and their inverse standard deviations."""
    return torch.native_layer_norm(x, x.shape[-1:], norm.weight, norm.bias, norm.eps)


def _norm_gradient(slope: Tensor, x: Tensor, norm: Norm, moments: Any) -> Tensor:
    """Return the gradient in tokens (m, N, d) from that in their layer norm."""
    return torch.as_tensor(
        torch.ops.aten.native_layer_norm_backward(
            slope, x, x.shape[-1:], *moments, norm.weight, norm.bias, [True, False, False]
        )[0]
    )


def _unmapped(slope: Tensor, affine: Affine) -> Tensor:
    """Return the gradient in the input of an affine map from that in its output."""
    return (slope if affine.scale is None else slope * affine.scale) @ affine.weight


class RelevanceScores(ViTScores):
    """The map of a transformer with a head for a class; parameters are those of :class:`ViTScores`.

    With the target "predicted" the class depends on the image. The map is then a smooth function of the pixels only
    where the class stays the same, so this joins the conditions of the test: see ``choose`` and ``given``.
    """

    def _read(
        self, model: nn.Module, attention: Any, image_size: Any, device: torch.device | str | None, owned: bool
    ) -> Encoder:
        """Return the encoder within a copy of the model, which is kept with its head."""
        self._map: Relevance = attention
        self.heads = (attention.head,)
        _, library = transformer_in(model)
        whole, stored = float64_copy(model, device, type(model).__name__, owned)
        encoder = library.read(transformer_in(whole)[0], image_size, device, True)
        forward, labels = library.class_scores, labels_of(model)
        if isinstance(self._map, TextRelevance):
            forward, labels = similarity(whole, self._map), (self._map.text,)
        self._class_scores = ClassScores(module=whole, forward=forward, labels=labels)
        layer = self._map.first_layer(encoder.layers)  # the layer of tokens, or the first
        return replace(encoder, weights=stored).on_grid_of(layer)

    @torch.no_grad()
    def _probed(self) -> RelevanceForward:
        """Return the fastest pass; raise an error if the model has no class scores, or not that of the target."""
        self._set_target()
        encoder, image = self._encoder, self._noise()
        if getattr(self._map, "per", "") == "pixel":
            none = (0,) * len(encoder.image_size)
            self.grid_shape, self.start, self.covered, self.overlap = encoder.image_size, none, encoder.image_size, none
        first = torch.zeros(1, dtype=torch.long, device=self.device)
        modules = ModuleRelevance(encoder, self._class_scores, self._map)
        expected, _ = self._tried(lambda: modules(image, first))
        weights = plain_weights(encoder)
        if weights is not None and encoder.sequences == 1:
            plain = PlainRelevance(encoder, weights, self._class_scores, self._map)
            if agrees(lambda: plain(image, first)[0], expected):
                return plain
        return modules

    def _set_target(self) -> None:
        """Find out how many classes there are, and which is the target; raise an error if the model has none."""
        scores = self._tried(lambda: self._class_scores(self._noise()))
        if not isinstance(scores, Tensor) or scores.ndim != 2 or scores.shape[1] == 0:
            raise ModelError(
                f"the model of type {self._encoder.kind!r} has no class scores, which {self._map.name} needs: give a "
                "model with a classification head, or use rollout.",
                "target",
            )
        self.classes = scores.shape[1]
        target = self._class_scores.target(self._map.target, self.classes)
        self._target = 0 if self.classes == 1 else target  # of one class there is nothing to predict

    @property
    def sign(self) -> str:
        """Which values of the map make the region."""
        return self._map.sign

    @property
    def chooses(self) -> bool:
        """Whether the target depends on the image."""
        return self._target is None

    def choose(self, images: Tensor) -> Tensor:
        """Return the target (m,) of images (m, C, *axes): the class that is asked for, or the predicted one."""
        if self._target is not None:
            return torch.full((len(images),), self._target, device=self.device)
        return self.class_scores(images).argmax(dim=1)

    def class_scores(self, images: Tensor) -> Tensor:
        """Return the class scores (m, K) of images (m, C, *axes)."""
        with torch.no_grad():
            return torch.cat([self._class_scores(part) for part in images.to(self.device).split(self._at_once)])

    def ranked(self, image: Tensor, most: int) -> list[tuple[int, str, float]]:
        """Return number, label and score of the classes of an image (1, C, *axes), those of greatest score first."""
        scores = self.class_scores(image)[0]
        top = scores.topk(min(most, self.classes))
        numbers = top.indices.tolist()
        return list(zip(numbers, map(self._class_scores.label, numbers), top.values.tolist(), strict=True))

    def describe_choice(self, images: Tensor, choice: Tensor | None) -> list[Mapping[str, Any]]:
        """Return class, label and score of the targets (m,) of images (m, C, *axes), and whether they were chosen."""
        choice = self.choose(images) if choice is None else choice
        scores = self.class_scores(images).gather(1, choice.unsqueeze(1)).squeeze(1).tolist()
        return [
            {"class": number, "label": self._class_scores.label(number), "score": score, "predicted": self.chooses}
            for number, score in zip(choice.tolist(), scores, strict=True)
        ]

    def __call__(self, images: Tensor) -> Tensor:
        """Return the maps (m, *grid) of images (m, C, *axes), each for its own target."""
        return self._on_grid(self.given(images, self.choose(images)))

    def given(self, images: Tensor, choice: Tensor) -> Tensor:
        """Return the maps of images (m, C, *axes) for classes (m,), and what must be negative for these to be chosen.

        Returns
        -------
        (m, n + K - 1)
            The n values of the map; if the target is the predicted class, by how much the scores of the others exceed
            its own.
        """
        return self._scores(partial(self._map_and_leads, self._forward), images, choice)

    def rough_given(self, images: Tensor, choice: Tensor) -> Tensor:
        """Return the same computed in float32, as float64."""
        return self._rounded(partial(self._map_and_leads, self._rough_pass), images, choice)

    def rough(self, images: Tensor) -> Tensor:
        """Return the maps (m, *grid) of images (m, C, *axes) computed in float32, as float64."""
        return self._on_grid(self.rough_given(images, self.choose(images)))

    def _on_grid(self, values: Tensor) -> Tensor:
        """Return the maps (m, *grid) among values (m, n + K - 1)."""
        maps: Tensor = values[:, : math.prod(self.grid_shape)].unflatten(1, self.grid_shape)
        return maps

    def whole(self) -> tuple[nn.Module, Callable[[], Any]]:
        """Return the copy of the model with its head, and a function that passes an image through it."""
        return self._class_scores.module, lambda: self._class_scores(self._noise())

    def _copy(self) -> None:
        self._class_scores, self._encoder = self._class_scores.cast(self._encoder, torch.float64)

    def describe(self) -> dict[str, Any]:
        """Return type, input, tokens, classes and map of the model, JSON-ready."""
        return {**super().describe(), "classes": self.classes}

    def _in_float32(self) -> RelevanceForward:
        class_scores, encoder = self._class_scores.cast(self._encoder, torch.float32)
        weights = plain_weights(encoder) if isinstance(self._forward, PlainRelevance) else None
        if weights is None:
            return ModuleRelevance(encoder, class_scores, self._map)
        return PlainRelevance(encoder, weights, class_scores, self._map)

    def _map_and_leads(self, forward: RelevanceForward, images: Tensor, choice: Tensor) -> Tensor:
        """Return the maps (m, n) for classes (m,), beside the leads of others where the class was chosen."""
        if not isinstance(self._map, IntegratedGradients):
            values, scores = forward(images, choice)
        else:
            # The gradient is averaged on the way from the baseline, and multiplied by the way.
            way = images - self._map.baseline
            values = torch.zeros(len(images), *self.grid_shape, dtype=images.dtype, device=self.device)
            for share, weight in self._map.nodes:
                values = values + weight * forward(images - (1 - share) * way, choice, way)[0]
            scores = forward(images, choice, way)[1] if self.chooses else values
        if not self.chooses:
            return values.flatten(1)
        # By how much the scores of the other classes exceed that of the target.
        others = torch.arange(scores.shape[1] - 1, device=scores.device).expand(len(scores), -1)
        others = others + (others >= choice.unsqueeze(1))
        leads = scores.gather(1, others) - scores.gather(1, choice.unsqueeze(1))
        return torch.cat([values.flatten(1), leads], dim=1)

    def _bytes_per_image(self) -> int:
        encoder = self._encoder
        # What the backward pass needs of every layer, and its own workspace.
        sizes = [heads * size for heads, size in encoder.attention_sizes]
        attention = sum(sizes) + 5 * max(sizes)
        activations = (encoder.layers + 5) * encoder.most_tokens * (8 * encoder.width + encoder.mlp_width)
        return 8 * encoder.sequences * (attention + activations)


def labels_of(model: nn.Module) -> tuple[str, ...]:
    """Return the labels of the classes of a model, by number, if it has any that say more than the number."""
    labels = getattr(getattr(model, "config", None), "id2label", None) or getattr(model, "labels", None)
    if not isinstance(labels, Mapping):
        return ()
    texts = tuple(str(labels.get(number, labels.get(str(number), ""))) for number in range(len(labels)))
    return () if all(text == f"LABEL_{number}" for number, text in enumerate(texts)) else texts
