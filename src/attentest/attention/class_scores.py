"""The class scores of a model: of its images, and of the tokens that its last layer returns."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor, nn

from attentest.attention.encoder import Encoder, cast_module
from attentest.attention.relevance import PREDICTED
from attentest.errors import InputError, ModelError, counted, shortened

LABEL = "label:"  # before a label that would otherwise be taken for a number, or for the predicted class


@dataclass(frozen=True, kw_only=True)
class ClassScores:
    """A model with its head: a float64 copy, of which an encoder is a part."""

    module: nn.Module
    """The whole model."""
    forward: Callable[[nn.Module, Tensor], Tensor]
    """From the module and images (m, C, *axes) to class scores (m, K)."""
    labels: tuple[str, ...]
    """The names of the classes, as the model has them; empty if it has none."""

    def __call__(self, images: Tensor) -> Tensor:
        """Return the class scores (m, K) of images (m, C, *axes)."""
        return self.forward(self.module, images)

    def cast(self, encoder: Encoder, dtype: torch.dtype) -> tuple[ClassScores, Encoder]:
        """Return a copy that computes in another dtype, and the encoder within it."""
        name = next(name for name, part in self.module.named_modules() if part is encoder.module)
        module = cast_module(self.module, dtype)
        return replace(self, module=module), replace(encoder, module=module.get_submodule(name))

    def target(self, asked: int | str, count: int) -> int | None:
        """Return the number of a class out of ``count`` that is asked for; None for the predicted one."""
        if asked == PREDICTED:
            return None
        if isinstance(asked, str) and (asked.startswith(LABEL) or not asked.lstrip("+-").isdecimal()):
            return self._labelled(asked.removeprefix(LABEL))
        number = int(asked)
        if not 0 <= number < count:
            labelled = f"; its label {str(number)!r} is asked for by {LABEL}{number}" * (str(number) in self.labels)
            raise InputError(
                f"target is class {number}, but the model has {counted(count, 'class')}, numbered from 0 to "
                f"{count - 1}{labelled}.",
                "target",
            )
        return number

    def _labelled(self, label: str) -> int:
        same = [number for number, text in enumerate(self.labels) if text == label]
        # Labels of ImageNet list synonyms: "tabby, tabby cat".
        named = [number for number, text in enumerate(self.labels) if label.lower() in text.lower().split(", ")]
        matching = same or named
        if len(matching) == 1:
            return matching[0]
        if matching:
            raise InputError(
                f"target {label!r} is the label of classes {', '.join(map(str, matching[:5]))}: give the number of one "
                "of them.",
                "target",
            )
        near = get_close_matches(label, self.labels, n=3, cutoff=0.5)
        known = near or list(self.labels[:3])
        hint = f": {'nearest are' if near else 'it has'} {', '.join(map(repr, known))}" if known else ": it has none"
        raise InputError(
            f"target {shortened(label)} is not a label of the model{hint}; or give a class number.", "target"
        )

    def label(self, number: int) -> str:
        """Return the name of a class, or an empty text."""
        return self.labels[number] if number < len(self.labels) else ""


class HeadOfTokens:
    """The class scores of the tokens that the last layer returns, for a model whose layers are computed elsewhere.

    It is a copy of the model without its layers, in whose place stands one that returns the tokens given.

    Parameters
    ----------
    class_scores
        The model.
    encoder
        The encoder within it.
    layers
        Its layers.
    """

    def __init__(self, class_scores: ClassScores, encoder: Encoder, layers: Sequence[nn.Module]) -> None:
        whole = class_scores.module
        name, container = next(
            (name, part)
            for name, part in whole.named_modules()
            if isinstance(part, (nn.ModuleList, nn.Sequential)) and list(part) == list(layers)
        )
        parent, attribute = name.rpartition(".")[::2]
        owner = whole.get_submodule(parent)
        self._shape = (encoder.channels, *encoder.image_size)
        given = _Given(_returns_tuple(layers[-1], lambda: class_scores(self._blank(1, next(whole.parameters())))))
        setattr(
            owner,
            attribute,
            type(container)(*[given]) if isinstance(container, nn.Sequential) else nn.ModuleList([given]),
        )
        try:
            self._module = copy.deepcopy(whole)
        finally:
            setattr(owner, attribute, container)
        self._given: Any = self._module.get_submodule(name)[0]  # type: ignore[index]  # a list of modules
        self._forward = class_scores.forward

    def __call__(self, tokens: Tensor) -> Tensor:
        """Return the class scores (m, K) of tokens (m, N, d)."""
        self._given.tokens = tokens
        try:
            return self._forward(self._module, self._blank(len(tokens), tokens))
        finally:
            self._given.tokens = None

    def _blank(self, count: int, like: Tensor) -> Tensor:
        return torch.zeros(1, *self._shape, dtype=like.dtype, device=like.device).expand(count, *self._shape)


class _Given(nn.Module):
    """Stands for all layers: returns the tokens it was given."""

    def __init__(self, as_tuple: bool) -> None:
        super().__init__()
        self.as_tuple = as_tuple
        self.tokens: Tensor | None = None

    def forward(self, *_: Any, **__: Any) -> Any:
        """Return the tokens as a layer does."""
        return (self.tokens,) if self.as_tuple else self.tokens


def _returns_tuple(layer: nn.Module, run: Callable[[], Any]) -> bool:
    """Return whether a layer returns a tuple, in some versions of some libraries, when a model is run."""
    seen: list[bool] = []
    handle = layer.register_forward_hook(lambda *call: seen.append(isinstance(call[-1], tuple)))
    try:
        run()
    finally:
        handle.remove()
    if not seen:
        raise ModelError("the model does not use its last layer.")
    return seen[0]
