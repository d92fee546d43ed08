"""How the attention of layers and heads becomes one score per patch, and which tokens are patches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor

from attentest.attention.windows import Windows, windowed_rollout
from attentest.checks import whole_number
from attentest.errors import InputError, ModelError, counted
from attentest.registry import ATTENTION_MAPS


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """The tokens of one image: first those that are not patches, then the patches, row by row."""

    grid: tuple[int, ...]
    """Patches along each axis: rows and columns of those of an image."""
    prefix: int
    """Number of tokens before the patches: class, distillation and register tokens."""
    class_token: bool
    """Whether the first token is a class token."""
    windows: tuple[Windows, ...] = ()
    """Windows within which the layers attend, one for each layer; none where all tokens attend to all."""

    @property
    def count(self) -> int:
        """Number of all tokens."""
        return self.prefix + math.prod(self.grid)

    def describe(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {"grid": list(self.grid), "prefix_tokens": self.prefix, "class_token": self.class_token}


HeadFusion: TypeAlias = "Literal['mean', 'max', 'min'] | int"

FUSIONS = ("mean", "max", "min")

MOST_LAYERS = 10_000
"""Upper bound of the numbers of layers and heads that can be asked for, above those of any model."""

ROW_SUM_TOLERANCE = 1e-3
"""Largest error of the sum over tokens of attention weights: those of half precision are within it."""


@runtime_checkable
class Aggregation(Protocol):
    """Which attention weights of a model are read, and how they become scores.

    An aggregation may also have an attribute ``class_row_of_last``, False by default: whether of the last layer needed
    it uses only the first row, that of the class token, where the model has one. ``take`` may then get that row alone,
    (m, heads, 1, N). With an attribute ``in_windows`` that is True, it is also used for models whose layers attend
    within ``tokens.windows``: ``take`` then gets the weights (m * windows, heads, n, n) of the windows of a layer, and
    the scores are on the grid of the first layer needed.
    """

    @property
    def head_fusion(self) -> HeadFusion:
        """How the heads of a layer are combined."""

    def layers(self, count: int) -> range:
        """Return the indices of the layers needed out of ``count``."""

    def take(self, weights: Tensor, tokens: Tokens) -> Tensor:
        """Return the part needed of one layer's attention weights (m, heads, N, N)."""

    def scores(self, taken: Sequence[Tensor], tokens: Tokens) -> Tensor:
        """Return the scores (m, *grid) from the parts taken of the layers, first layer first."""

    def describe(self) -> dict[str, Any]:
        """Return name and parameters as JSON-ready values."""


AggregationLike: TypeAlias = "Aggregation | str"
"""An aggregation, or the name of one: see ``attentest.registry.ATTENTION_MAPS``."""


@dataclass(frozen=True)
class Rollout:
    """Attention rollout (appendix A.2): the class token's row of the product of (A_l + I), last layer first.

    Only that row is carried through the product, so a layer costs one vector-matrix product per image. Without
    a class token the rows of all patches are averaged. Where layers attend within windows, A_l is zero between them,
    and where patches are merged, a token is the mean of the four that it is made of.

    Parameters
    ----------
    head_fusion
        "mean" (the paper's), "max" or "min" over heads, or the number of a single head, counted from 0. After
        "max" and "min" each row is divided by its sum, so that it is again a distribution over tokens.
    """

    head_fusion: HeadFusion = "mean"

    class_row_of_last = True
    in_windows = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "head_fusion", _checked_fusion(self.head_fusion))

    def layers(self, count: int) -> range:
        """Return the indices of all layers."""
        return range(count)

    def take(self, weights: Tensor, tokens: Tokens) -> Tensor:
        """Return the weights (m, N, N) with the heads combined."""
        return fused(weights, self.head_fusion)

    def scores(self, taken: Sequence[Tensor], tokens: Tokens) -> Tensor:
        """Return the aggregated attention to each patch, (m, *grid)."""
        if tokens.windows:
            return _on_grid(windowed_rollout(taken, tokens.windows), tokens)
        *before, last = taken
        start = torch.zeros_like(last[:, :1])
        if tokens.class_token:
            start[..., 0] = 1.0
            row = start + last[:, :1]
        else:
            start[..., tokens.prefix :] = 1.0 / (tokens.count - tokens.prefix)
            row = start + start @ last
        for attention in reversed(before):
            row = row + row @ attention
        return _on_grid(row[:, 0], tokens)

    def describe(self) -> dict[str, Any]:
        """Return name and parameters."""
        return {"name": "rollout", "head_fusion": self.head_fusion}


@dataclass(frozen=True)
class LayerAttention:
    """The class token's attention to each patch in one layer; without a class token, the mean over patches.

    Where patches are merged between layers, the map is on the grid of those of the layer.

    Parameters
    ----------
    layer
        Number of the layer, counted from 0, or from the end if negative: -1 is the last.
    head_fusion
        As in :class:`Rollout`.
    """

    layer: int = -1
    head_fusion: HeadFusion = "mean"

    class_row_of_last = True
    in_windows = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "layer", whole_number(self.layer, "layer", -MOST_LAYERS, MOST_LAYERS))
        object.__setattr__(self, "head_fusion", _checked_fusion(self.head_fusion))

    def layers(self, count: int) -> range:
        """Return the index of the one layer."""
        if not -count <= self.layer < count:
            raise InputError(f"layer must be from {-count} to {count - 1} for this model, got {self.layer}.", "layer")
        index = self.layer % count
        return range(index, index + 1)

    def take(self, weights: Tensor, tokens: Tokens) -> Tensor:
        """Return the row (m, N) of the class token, or the mean row of the patches, with the heads combined."""
        if tokens.windows:
            attention, layer = fused(weights, self.head_fusion), tokens.windows[self.layer]
            return layer.attended(layer.mean_row(attention), attention)
        if tokens.class_token:
            return fused(weights[:, :, :1], self.head_fusion)[:, 0]
        return fused(weights, self.head_fusion)[:, tokens.prefix :].mean(dim=1)

    def scores(self, taken: Sequence[Tensor], tokens: Tokens) -> Tensor:
        """Return the attention to each patch, (m, *grid)."""
        return _on_grid(taken[0], tokens)

    def describe(self) -> dict[str, Any]:
        """Return name and parameters."""
        return {"name": "layer", "layer": self.layer, "head_fusion": self.head_fusion}


@dataclass(frozen=True)
class PoolingAttention:
    """The attention to each patch of the query by which a model's head pools its tokens (SigLIP, and models of timm).

    Parameters
    ----------
    head_fusion
        As in :class:`Rollout`; the heads are those of the pooling.
    """

    head_fusion: HeadFusion = "mean"

    def __post_init__(self) -> None:
        object.__setattr__(self, "head_fusion", _checked_fusion(self.head_fusion))

    def layers(self, count: int) -> range:
        """Return the index of the pooling, which follows that of the last layer."""
        return range(count, count + 1)

    def take(self, weights: Tensor, tokens: Tokens) -> Tensor:
        """Return the weights (m, patches) of patches from those of all tokens, (m, heads, 1, n), the patches last."""
        return fused(weights, self.head_fusion)[:, 0, -math.prod(tokens.grid) :]

    def scores(self, taken: Sequence[Tensor], tokens: Tokens) -> Tensor:
        """Return the attention to each patch, (m, *grid)."""
        grid: Tensor = taken[0].unflatten(1, tokens.grid)
        return grid

    def describe(self) -> dict[str, Any]:
        """Return name and parameters."""
        return {"name": "pooling", "head_fusion": self.head_fusion}


def as_aggregation(value: AggregationLike) -> Aggregation:
    """Return an aggregation: one that is given, or that of a name, such as "rollout" or "layer:3"."""
    object_allowed = "an aggregation such as Rollout(...)"
    chosen = ATTENTION_MAPS.create(value, "attention", object_allowed) if isinstance(value, str) else value
    if isinstance(chosen, Aggregation) and not isinstance(chosen, type):
        return chosen
    raise InputError(f"attention must be {ATTENTION_MAPS.choices(object_allowed)}, got {value!r}.")


def fused(weights: Tensor, fusion: HeadFusion) -> Tensor:
    """Return attention weights (m, heads, Q, N) with the heads combined, (m, Q, N), which sum to one over tokens."""
    if fusion == "mean":
        return weights.mean(dim=1)
    if isinstance(fusion, int):
        return weights[:, fusion]
    extreme = weights.amax(dim=1) if fusion == "max" else weights.amin(dim=1)
    return extreme / extreme.sum(dim=-1, keepdim=True)


def scores_from_attentions(
    attentions: Sequence[Tensor | None] | None,
    grid: tuple[int, int],
    *,
    discard: int = 1,
    class_token: bool = True,
    attention: AggregationLike = "rollout",
) -> Tensor:
    """Return the scores (m, *grid) of attentions that a model returned, for a score function of your own.

    Parameters
    ----------
    attentions
        A tensor (m, heads, N, N) per layer, first layer first, rows summing to one. An empty tuple, which models with
        fused attention return, is an error.
    grid
        Rows and columns of patches.
    discard
        Number of tokens before the patches, which are not part of the map: class, distillation and register tokens.
        It must be that of the model, N = discard + rows x columns; it is never guessed.
    class_token
        Whether the first token is a class token; if not, the rows of the patches are averaged.
    attention
        "rollout", "last-layer", "layer:K", or an aggregation.
    """
    aggregation = as_aggregation(attention)
    try:
        rows, columns = grid
    except (TypeError, ValueError):
        raise InputError(f"grid must be (rows, columns) of patches, got {grid!r}.") from None
    tokens = Tokens(
        grid=(
            whole_number(rows, "rows of the grid", 1, 2**20),
            whole_number(columns, "columns of the grid", 1, 2**20),
        ),
        prefix=whole_number(discard, "discard", 0, 2**20),
        class_token=bool(class_token),
    )
    returned = list(attentions or ())
    layers = [layer for layer in returned if layer is not None]
    if not layers or len(layers) < len(returned):
        raise ModelError(
            f"the model returned no attention weights ({counted(len(returned), 'layer')} given), because its attention "
            "is fused: load it with attn_implementation='eager', or give the model itself to AttentionTest."
        )
    for index, weights in enumerate(layers):
        check_weights(weights, index, len(layers[0]), tokens)
        check_heads_and_rows(aggregation, weights, index)
    needed = aggregation.layers(len(layers))
    if needed.stop > len(layers):
        raise InputError(
            "pooling is the attention of a model's head, not of layers: give the model itself.", "attention"
        )
    return aggregation.scores([aggregation.take(layers[i], tokens) for i in needed], tokens)


def check_weights(weights: Tensor, layer: int, images: int, tokens: Tokens) -> None:
    """Check that attention weights have the shape (images, heads, N, N), or that of windows."""
    n = tokens.count
    if tokens.windows:
        windows, n = tokens.windows[layer].places.shape
        images *= windows
    shape = tuple(weights.shape)
    if len(shape) != 4 or shape[0] != images or shape[2:] != (n, n):
        grid = " x ".join(map(str, tokens.grid))
        raise ModelError(
            f"the attention of layer {layer} has shape {shape}, expected ({images}, heads, {n}, {n}): "
            f"{counted(tokens.prefix, 'token')} before {grid} = {n - tokens.prefix} patches, each attending to all."
        )


def check_heads_and_rows(aggregation: Aggregation, weights: Tensor, layer: int) -> None:
    """Check that attention weights (m, heads, N, N) have the head that an aggregation asks for, and rows of sum one."""
    fusion, heads = aggregation.head_fusion, weights.shape[1]
    if isinstance(fusion, int) and fusion >= heads:
        raise InputError(f"head_fusion = {fusion}, but the model has heads 0 to {heads - 1} only.", "head_fusion")
    off = float((weights.sum(dim=-1) - 1).abs().max())
    if not off <= ROW_SUM_TOLERANCE:
        raise ModelError(
            f"the rows of layer {layer}'s attention should sum to one, but one is off by {off:.3g}: these are not "
            "weights after a softmax over tokens, or the model overflows."
        )


def _on_grid(row: Tensor, tokens: Tokens) -> Tensor:
    """Return the entries of rows (m, N) that belong to patches, on their grid (m, *grid)."""
    grid: Tensor = row[:, tokens.prefix :].unflatten(-1, tokens.grid)
    return grid


def _checked_fusion(fusion: Any) -> Any:
    if isinstance(fusion, str) and fusion in FUSIONS:
        return fusion
    try:
        return whole_number(fusion, "head_fusion", 0, MOST_LAYERS)
    except InputError:
        raise InputError(
            f"head_fusion must be 'mean', 'max', 'min' or the number of a head from 0, got {fusion!r}.", "head_fusion"
        ) from None
