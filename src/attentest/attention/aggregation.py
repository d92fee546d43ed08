"""How the attention of layers and heads becomes one score per patch, and which tokens are patches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor
from torch.nn.functional import pad

from attentest.checks import whole_number
from attentest.errors import InputError, ModelError, counted, shortened
from attentest.registry import ATTENTION_MAPS


@dataclass(frozen=True, kw_only=True, eq=False)
class Windows:
    """The windows of one layer, which may be shifted, and reach beyond the grid where that is no multiple of them.

    The attention of the layer as a matrix over all of its tokens has the weights within windows, and zeros elsewhere.
    Places beyond the grid have neither rows nor columns in it: nothing of the image is there.
    """

    grid: tuple[int, ...]
    """Rows and columns of the layer's tokens."""
    heads: int
    """Heads of the layer."""
    places: Tensor
    """(windows, n). The token at each place of each window; the number of tokens where there is none."""
    order: Tensor
    """(tokens,). Where each token is among all places, window after window."""

    def divided(self, values: Tensor) -> Tensor:
        """Return values (m, tokens, ...) by windows, (m * windows, n, ...), zero where there is no token."""
        padded = torch.cat([values, torch.zeros_like(values[:, :1])], dim=1)
        return padded[:, self.places].flatten(0, 1)

    def joined(self, values: Tensor) -> Tensor:
        """Return values by windows, (m * windows, n, ...), as values of the tokens, (m, tokens, ...)."""
        of_images: Tensor = values.unflatten(0, (-1, len(self.places)))
        return of_images.flatten(1, 2)[:, self.order]

    def mean_row(self, attention: Tensor) -> Tensor:
        """Return the row (m, tokens) that averages over tokens, for the attention (m * windows, n, n) of images."""
        tokens = math.prod(self.grid)
        return attention.new_full((len(attention) // len(self.places), tokens), 1.0 / tokens)

    def attended(self, row: Tensor, attention: Tensor) -> Tensor:
        """Return the product (m, tokens) of rows with the attention (m * windows, n, n) as a matrix over all tokens."""
        return self.joined((self.divided(row).unsqueeze(1) @ attention).squeeze(1))

    def before_merging(self, row: Tensor, merged: Windows) -> Tensor:
        """Return rows (m, merged tokens) as rows of this layer's tokens: one is the mean of the four it is made of."""
        if merged.grid == self.grid:
            return row
        height, width = self.grid
        on_grid: Tensor = row.unflatten(1, merged.grid)
        repeated = on_grid.repeat_interleave(2, dim=1).repeat_interleave(2, dim=2)
        return repeated[:, :height, :width].flatten(1) / 4


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


class Described:
    """A map with a name, whose parameters are the fields of a dataclass."""

    name: ClassVar[str]

    def describe(self) -> dict[str, Any]:
        """Return name and parameters as JSON-ready values."""
        return {"name": self.name, **asdict(self)}  # type: ignore[call-overload]  # every map is a dataclass


class _OfHeads(Described):
    """An aggregation that combines the heads of layers: what those here have in common."""

    head_fusion: HeadFusion

    def __post_init__(self) -> None:
        fusion = self.head_fusion
        if isinstance(fusion, str) and fusion in FUSIONS:
            return
        try:
            object.__setattr__(self, "head_fusion", whole_number(fusion, "head_fusion", 0, MOST_LAYERS))
        except InputError:
            raise InputError(
                f"head_fusion must be 'mean', 'max', 'min' or the number of a head from 0, got {fusion!r}.",
                "head_fusion",
            ) from None

    def scores(self, taken: Sequence[Tensor], tokens: Tokens) -> Tensor:
        """Return the attention to each patch, (m, *grid)."""
        grid: Tensor = taken[0].unflatten(1, tokens.grid)
        return grid


@dataclass(frozen=True)
class Rollout(_OfHeads):
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

    name = "rollout"
    class_row_of_last = in_windows = True

    def layers(self, count: int) -> range:
        """Return the indices of all layers."""
        return range(count)

    def take(self, weights: Tensor, tokens: Tokens) -> Tensor:
        """Return the weights (m, N, N) with the heads combined."""
        return fused(weights, self.head_fusion)

    def scores(self, taken: Sequence[Tensor], tokens: Tokens) -> Tensor:
        """Return the aggregated attention to each patch, (m, *grid)."""
        if tokens.windows:
            return super().scores([windowed_rollout(taken, tokens.windows)], tokens)
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
        return super().scores([row[:, 0, tokens.prefix :]], tokens)


@dataclass(frozen=True)
class LayerAttention(_OfHeads):
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

    name = "layer"
    class_row_of_last = in_windows = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "layer", whole_number(self.layer, "layer", -MOST_LAYERS, MOST_LAYERS))
        super().__post_init__()

    def layers(self, count: int) -> range:
        """Return the index of the one layer."""
        index = layer_index(self.layer, count)
        return range(index, index + 1)

    def take(self, weights: Tensor, tokens: Tokens) -> Tensor:
        """Return the class token's attention (m, patches), or the mean of the patches', with the heads combined."""
        if tokens.windows:
            attention, layer = fused(weights, self.head_fusion), tokens.windows[self.layer]
            return layer.attended(layer.mean_row(attention), attention)
        if tokens.class_token:
            row = fused(weights[:, :, :1], self.head_fusion)[:, 0]
        else:
            row = fused(weights, self.head_fusion)[:, tokens.prefix :].mean(dim=1)
        return row[:, tokens.prefix :]


@dataclass(frozen=True)
class PoolingAttention(_OfHeads):
    """The attention to each patch of the query by which a model's head pools its tokens (SigLIP, and models of timm).

    Parameters
    ----------
    head_fusion
        As in :class:`Rollout`; the heads are those of the pooling.
    """

    head_fusion: HeadFusion = "mean"

    name = "pooling"

    def layers(self, count: int) -> range:
        """Return the index of the pooling, which follows that of the last layer."""
        return range(count, count + 1)

    def take(self, weights: Tensor, tokens: Tokens) -> Tensor:
        """Return the weights (m, patches) of patches from those of all tokens, (m, heads, 1, n), the patches last."""
        return fused(weights, self.head_fusion)[:, 0, -math.prod(tokens.grid) :]


def layer_index(layer: Any, count: int) -> int:
    """Return the index of a layer out of ``count`` from its number, which may be counted from the end."""
    if isinstance(layer, str) or not -count <= layer < count:
        raise InputError(f"layer must be from {-count} to {count - 1} for this model, got {layer!r}.", "layer")
    return int(layer) % count


def as_map(value: Any, kinds: tuple[type, ...], objects: str) -> Any:
    """Return a map of one of some kinds: one that is given, or that of a name, such as "rollout" or "layer:3"."""
    chosen = ATTENTION_MAPS.create(value, "attention", objects) if isinstance(value, str) else value
    if isinstance(chosen, kinds) and not isinstance(chosen, type):
        return chosen
    raise InputError(f"attention must be {ATTENTION_MAPS.choices(objects)}, got {shortened(value)}.", "attention")


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
    aggregation: Aggregation = as_map(attention, (Aggregation,), "an aggregation such as Rollout(...)")
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


def windowed_rollout(attentions: Sequence[Tensor], windows: Sequence[Windows]) -> Tensor:
    """Return the mean row of the product of (A_l + I) over layers with windows, (m, tokens) of the first layer.

    The attention (m * windows, n, n) of each layer, first layer first, has its heads combined.
    """
    following = windows[-1]
    row = following.mean_row(attentions[-1])
    for attention, layer in zip(reversed(attentions), reversed(windows), strict=True):
        row = layer.before_merging(row, following)
        row = row + layer.attended(row, attention)
        following = layer
    return row


def windows_of_stages(
    stages: Sequence[Sequence[Any]],
    heads: Sequence[int],
    grid: tuple[int, int],
    device: torch.device,
    pads_first: bool,
) -> tuple[Windows, ...]:
    """Return the windows of the layers of a model, each of whose stages but the first merges two by two tokens.

    The layers of each stage have a ``window_size`` and a ``shift_size``; ``heads`` are those of each stage. The grid of
    patches is padded to whole windows before it is shifted (``pads_first``), or after that.
    """
    windows = []
    for layers, count in zip(stages, heads, strict=True):
        windows += [_windows(grid, count, layer, device, pads_first) for layer in layers]
        grid = (grid[0] + 1) // 2, (grid[1] + 1) // 2
    return tuple(windows)


def _windows(grid: tuple[int, int], heads: int, layer: Any, device: torch.device, pads_first: bool) -> Windows:
    tokens = math.prod(grid)
    sides, shifts = (
        tuple(map(int, size)) if isinstance(size, (tuple, list)) else (int(size),) * 2
        for size in (layer.window_size, layer.shift_size)
    )
    numbers = torch.arange(tokens, device=device).unflatten(0, grid)
    beyond = [-length % side for length, side in zip(grid, sides, strict=True)]
    for padding in (pads_first, not pads_first):
        if padding:
            numbers = pad(numbers, (0, beyond[1], 0, beyond[0]), value=tokens)
        else:
            numbers = numbers.roll([-shift for shift in shifts], (0, 1))
    divided = numbers.unflatten(1, (-1, sides[1])).unflatten(0, (-1, sides[0]))
    places = divided.transpose(1, 2).flatten(2).flatten(0, 1)
    return Windows(grid=grid, heads=heads, places=places, order=places.flatten().argsort()[:tokens])
