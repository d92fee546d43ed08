"""Maps of a transformer for a class, in float64 throughout; the caller's model is not changed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from attentest.attention.class_scores import ClassScores
from attentest.attention.encoder import Encoder, float64_copy
from attentest.attention.forward_pass import SAME, plain_weights
from attentest.attention.relevance import Relevance, chosen_class, lead_of_others, on_the_way
from attentest.attention.relevance_pass import ModuleRelevance, PlainRelevance, RelevanceForward
from attentest.attention.text import TextRelevance, similarity
from attentest.attention.vit import CPU_BATCH_CAP, CUDA_BATCH_CAP, ViTScores, transformer_in
from attentest.errors import ModelError


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
            try:
                computed, _ = plain(image, first)
            except RuntimeError:  # the weights do not fit together as those of plain layers do
                return modules
            if bool((computed - expected).abs().amax() <= SAME * expected.abs().amax()):
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
        return chosen_class(self.class_scores(images))

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

    def describe_choice(self, images: Tensor, choice: Tensor | None = None) -> list[Mapping[str, Any]]:
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
        return self._given(self._forward, images.to(self.device), choice)

    def rough_given(self, images: Tensor, choice: Tensor) -> Tensor:
        """Return the same computed in float32, as float64."""
        images, choice = images.to(self.device, torch.float32), choice.to(self.device)
        alone = len(images) % self._at_once == 1  # as in ViTScores.rough
        if alone:
            images, choice = torch.cat([images, images[-1:]]), torch.cat([choice, choice[-1:]])
        values = self._given(self._rough_pass, images, choice).to(torch.float64)
        return values[:-1] if alone else values

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

    def _given(self, forward: RelevanceForward, images: Tensor, choice: Tensor) -> Tensor:
        parts = zip(images.split(self._at_once), choice.split(self._at_once), strict=True)
        return torch.cat([self._map_and_leads(forward, *part) for part in parts])

    def _map_and_leads(self, forward: RelevanceForward, images: Tensor, choice: Tensor) -> Tensor:
        """Return the maps (m, n) for classes (m,), beside the leads of others where the class was chosen."""
        if self._map.nodes == ((1.0, 1.0),):
            values, scores = forward(images, choice)
        else:
            # The gradient is averaged on the way from the baseline, and multiplied by the way.
            way = on_the_way(self._map, images)
            values = torch.zeros(len(images), *self.grid_shape, dtype=images.dtype, device=self.device)
            for share, weight in self._map.nodes:
                values = values + weight * forward(images - (1 - share) * way, choice, way)[0]
            scores = forward(images, choice, way)[1] if self.chooses else values
        return (
            torch.cat([values.flatten(1), lead_of_others(scores, choice)], dim=1) if self.chooses else values.flatten(1)
        )

    def _default_batch_size(self, memory: int) -> int:
        encoder = self._encoder
        tokens = encoder.most_tokens
        # What the backward pass needs of every layer, and its own workspace.
        sizes = [heads * size for heads, size in encoder.attention_sizes]
        attention = sum(sizes) + 5 * max(sizes)
        activations = (encoder.layers + 5) * tokens * (8 * encoder.width + encoder.mlp_width)
        cap = CUDA_BATCH_CAP if self.device.type == "cuda" else CPU_BATCH_CAP
        return int(min(cap, max(1, memory // (8 * encoder.sequences * (attention + activations)))))


def labels_of(model: nn.Module) -> tuple[str, ...]:
    """Return the labels of the classes of a model, by number, if it has any that say more than the number."""
    labels = getattr(getattr(model, "config", None), "id2label", None) or getattr(model, "labels", None)
    if not isinstance(labels, Mapping):
        return ()
    texts = tuple(str(labels.get(number, labels.get(str(number), ""))) for number in range(len(labels)))
    return () if all(text == f"LABEL_{number}" for number, text in enumerate(texts)) else texts
