"""Reading attention weights where a model computes them, in the dtype it computes in, token by token."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from attentest.attention.aggregation import Aggregation, Tokens, check_heads_and_rows, check_weights
from attentest.errors import ModelError

ATTENTION_NAME = "attentest"  # name under which :func:`plain_attention` is registered with transformers


class AttentionReader:
    """Collects from a forward pass what an aggregation needs, then ends the pass early.

    Parameters
    ----------
    aggregation
        Chooses what is taken of each layer's attention.
    tokens
        The tokens of an image.
    layers
        Number of layers of the model.
    images
        Number of images in the pass.
    heads
        Number of heads of each layer. If given, it is checked, and that attention weights sum to one over tokens.
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
        """Take one layer's weights (m, heads, N, N), or, after those of all layers, the weights of a pooling query."""
        layer = self._seen
        self._seen += 1
        pools = layer == self._layers
        if not pools:
            check_weights(weights, layer, self._images, self._tokens)
        if self._heads is not None:
            heads = self._tokens.windows[layer].heads if self._tokens.windows else self._heads
            if weights.shape[1] != heads and not pools:
                raise ModelError(
                    f"layer {layer} has {heads} heads but {weights.shape[1]} maps of attention, so its output is "
                    "not their plain average of values: give a score function of your own."
                )
            check_heads_and_rows(self._aggregation, weights, layer)
        if layer in self._needed:
            self._taken.append(self._aggregation.take(weights, self._tokens))
        if layer + 1 == self._needed.stop:
            raise LastLayerRead

    def read(self, forward: Callable[[], Any]) -> Tensor:
        """Run a forward pass and return the scores (m, *grid)."""
        token = _READER.set(self)
        try:
            forward()
        except LastLayerRead:
            return self._aggregation.scores(self._taken, self._tokens)
        finally:
            _READER.reset(token)
        raise ModelError(
            f"the model showed attention for {self._seen} of its {self._layers} layers: the rest is fused, or is not "
            "self-attention over all tokens; give a score function of your own."
        )


class LastLayerRead(Exception):
    """Ends a forward pass after the last layer needed: the layers after it do not affect the scores."""


_READER: ContextVar[Callable[[Tensor], None] | None] = ContextVar("attentest_reader", default=None)


def collected_attention(forward: Callable[[], Tensor], collected: list[Tensor]) -> Tensor:
    """Run a forward pass, add the attention weights of its layers to a list, and return what the pass returns."""
    token = _READER.set(collected.append)
    try:
        return forward()
    finally:
        _READER.reset(token)


def pass_to_reader(weights: Tensor) -> None:
    """Pass attention weights (m, heads, N, N) of a layer to the active reader, if there is one."""
    reader = _READER.get()
    if reader is not None:
        reader(weights)


def pass_input_to_reader(module: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> None:
    """Pass the input of the dropout of attention weights, which does nothing in evaluation mode, to the reader."""
    pass_to_reader(arguments[0])


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
    """Return what the eager attention function of transformers returns, computed in the dtype of the input.

    That library computes its softmax in float32 whatever the model's dtype, which leaves errors of 1e-10 in float64
    scores. The weights are passed to the active reader. ``dropout`` is ignored: the library sets it in training mode,
    and models are read in evaluation mode only.
    """
    logits = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    if attention_mask is not None:
        logits = logits + attention_mask
    weights = torch.softmax(logits, dim=-1)
    pass_to_reader(weights)
    return (weights @ value).transpose(1, 2).contiguous(), None


def set_constant_method(module: nn.Module, method: str, *values: Tensor) -> None:
    """Make a method return a tensor, or a tuple of several, whatever its arguments are.

    The tensors are buffers of the module: they follow it to other devices, dtypes and copies.
    """
    names = tuple(f"constant_result_{number}" for number in range(len(values)))
    for name, value in zip(names, values, strict=True):
        module.register_buffer(name, value.detach().clone(), persistent=False)
    # A partial instead of a bound method, which pickle would look up by its name on the module.
    setattr(module, method, partial(_constant_results, module, names))


def _constant_results(module: nn.Module, names: tuple[str, ...], *_: Any, **__: Any) -> Any:
    results = tuple(getattr(module, name) for name in names)
    return results if len(results) > 1 else results[0]


def resampled_positions(
    positions: Tensor, trained: tuple[int, int], grid: tuple[int, int], antialias: bool = False, mode: str = "bicubic"
) -> Tensor:
    """Return position embeddings (1, prefix + gh * gw, d) resampled to another grid, in their own dtype.

    Parameters
    ----------
    positions : (1, prefix + rows * columns, d)
        As trained; those of the tokens before the patches do not change.
    trained
        Rows and columns of patches in training.
    grid
        Rows and columns (gh, gw) of patches wanted.
    antialias
        Whether to smooth where the grid becomes coarser; libraries differ in this.
    mode
        "bicubic" or "bilinear".
    """
    if trained == grid:
        return positions
    prefix = positions.shape[1] - trained[0] * trained[1]
    patches = positions[:, prefix:].unflatten(1, trained).permute(0, 3, 1, 2)
    patches = interpolate(patches, size=grid, mode=mode, align_corners=False, antialias=antialias)
    return torch.cat([positions[:, :prefix], patches.permute(0, 2, 3, 1).flatten(1, 2)], dim=1)
