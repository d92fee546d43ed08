"""Reading attention weights where a model computes them, in the dtype it computes in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

from attentest.attention.aggregation import Aggregation, check_heads, check_rows, check_weights
from attentest.attention.tokens import Tokens
from attentest.errors import ModelError

ATTENTION_NAME = "attentest"
"""Under which transformers knows :func:`plain_attention`."""


class Reader:
    """Collects what an aggregation needs of a forward pass, and ends it once it has that.

    Parameters
    ----------
    aggregation
        What is taken of each layer.
    tokens
        What the tokens are.
    layers
        How many layers the model has.
    images
        How many images pass.
    heads
        If given, how many heads there must be; that rows sum to one is checked, too.
    """

    def __init__(
        self, aggregation: Aggregation, tokens: Tokens, layers: int, images: int, heads: int | None = None
    ) -> None:
        self._aggregation, self._tokens, self._layers, self._images = aggregation, tokens, layers, images
        self._heads = heads
        self._needed = aggregation.layers(layers)
        self._seen = 0
        self._taken: list[Tensor] = []

    def __call__(self, weights: Tensor) -> None:
        """Take one layer's weights (m, heads, N, N)."""
        layer = self._seen
        self._seen += 1
        check_weights(weights, layer, self._images, self._tokens)
        if self._heads is not None:
            self._check(weights, layer, self._heads)
        if layer in self._needed:
            self._taken.append(self._aggregation.take(weights, self._tokens))
        if layer + 1 == self._needed.stop:
            raise Enough

    def _check(self, weights: Tensor, layer: int, heads: int) -> None:
        if weights.shape[1] != heads:
            raise ModelError(
                f"layer {layer} has {heads} heads but {weights.shape[1]} maps of attention, so its output is not their "
                "plain average of values: give a score function of your own."
            )
        check_heads(self._aggregation, heads)
        check_rows(weights, layer)

    def read(self, forward: Callable[[], Any]) -> Tensor:
        """Run a forward pass and return the scores (m, gh, gw)."""
        with _reading(self):
            try:
                forward()
            except Enough:
                return self._aggregation.scores(self._taken, self._tokens)
        raise ModelError(
            f"the model showed attention for {self._seen} of its {self._layers} layers: the rest is fused, or is not "
            "self-attention over all tokens; give a score function of your own."
        )


class Enough(Exception):
    """Raised where the last layer needed has been read: the rest of the forward pass changes nothing."""


_READER: ContextVar[Callable[[Tensor], None] | None] = ContextVar("attentest_reader", default=None)


@contextmanager
def _reading(reader: Reader) -> Iterator[None]:
    token = _READER.set(reader)
    try:
        yield
    finally:
        _READER.reset(token)


def show(weights: Tensor) -> None:
    """Hand attention weights (m, heads, N, N) to whoever reads; nobody does outside a score function."""
    reader = _READER.get()
    if reader is not None:
        reader(weights)


def plain_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attend as transformers' eager function does, but stay in the input's dtype and show the weights.

    That library computes its softmax in float32 whatever the model's dtype, which leaves noise of 1e-10 in
    float64 scores. ``dropout`` is what it passes in training mode; models are read in evaluation mode only.
    """
    logits = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    if attention_mask is not None:
        logits = logits + attention_mask
    weights = torch.softmax(logits, dim=-1)
    show(weights)
    return (weights @ value).transpose(1, 2).contiguous(), None
