"""Reading attention weights where a model computes them: in its layers, and in a head that pools tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, linear

from attentest.attention.aggregation import Aggregation, Tokens, check_heads_and_rows, check_weights
from attentest.attention.encoder import Encoder
from attentest.errors import ModelError

ATTENTION_NAME = "attentest"  # name under which :func:`plain_attention` is registered with transformers


@dataclass
class AttentionReader:
    """Collects from a forward pass what an aggregation needs, then ends the pass early."""

    aggregation: Aggregation
    tokens: Tokens
    """The tokens of an image."""
    layers: int
    """Layers of the model."""
    images: int
    """Images in the pass."""
    heads: int | None = None
    """Heads of each layer. If given, they are checked, and that attention weights sum to one over tokens."""
    seen: int = 0
    """Layers that were read."""
    taken: list[Tensor] = field(default_factory=list)
    """What was taken of their attention."""

    def __call__(self, weights: Tensor) -> None:
        """Take one layer's weights (m, heads, N, N), or, after those of all layers, the weights of a pooling query."""
        layer = self.seen
        self.seen += 1
        pools = layer == self.layers
        if not pools:
            check_weights(weights, layer, self.images, self.tokens)
        if self.heads is not None:
            heads = self.tokens.windows[layer].heads if self.tokens.windows else self.heads
            if weights.shape[1] != heads and not pools:
                raise ModelError(
                    f"layer {layer} has {heads} heads but {weights.shape[1]} maps of attention, so its output is "
                    "not their plain average of values: give a score function of your own."
                )
            check_heads_and_rows(self.aggregation, weights, layer)
        needed = self.aggregation.layers(self.layers)
        if layer in needed:
            self.taken.append(self.aggregation.take(weights, self.tokens))
        if layer + 1 == needed.stop:
            raise LastLayerRead

    def read(self, forward: Callable[[], Any]) -> Tensor:
        """Run a forward pass and return the scores (m, *grid)."""
        try:
            with holding(_READER, self):
                forward()
        except LastLayerRead:
            return self.aggregation.scores(self.taken, self.tokens)
        raise ModelError(
            f"the model showed attention for {self.seen} of its {self.layers} layers: the rest is fused, or is not "
            "self-attention over all tokens; give a score function of your own."
        )


class LastLayerRead(Exception):
    """Ends a forward pass after the last layer needed: the layers after it do not affect the scores."""


_READER: ContextVar[Callable[[Tensor], None] | None] = ContextVar("attentest_reader", default=None)


@contextmanager
def holding(variable: ContextVar[Any], value: Any) -> Iterator[None]:
    """Give a variable a value for a forward pass of this thread: the hooks of a module are those of all threads."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def collected_attention(forward: Callable[[], Tensor], collected: list[Tensor]) -> Tensor:
    """Run a forward pass, add the attention weights of its layers to a list, and return what the pass returns."""
    with holding(_READER, collected.append):
        return forward()


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
    """Return position embeddings (1, prefix + gh * gw, d) resampled to another grid (gh, gw), in their own dtype.

    They are (1, prefix + rows * columns, d), with the ``trained`` rows and columns; those of the tokens before the
    patches do not change. ``antialias`` smooths where the grid becomes coarser; libraries differ in this. The mode is
    "bicubic" or "bilinear".
    """
    if trained == grid:
        return positions
    prefix = positions.shape[1] - trained[0] * trained[1]
    patches = positions[:, prefix:].unflatten(1, trained).permute(0, 3, 1, 2)
    patches = interpolate(patches, size=grid, mode=mode, align_corners=False, antialias=antialias)
    return torch.cat([positions[:, :prefix], patches.permute(0, 2, 3, 1).flatten(1, 2)], dim=1)


def pooling_head(encoder: Encoder) -> Any:
    """Return the head of an encoder that pools its tokens by attention of one query; None if there is none."""
    parts: list[Any] = list(encoder.module.modules())
    for head in parts:
        if isinstance(getattr(head, "probe", None), Tensor) and isinstance(head.attention, nn.MultiheadAttention):
            return head
        if isinstance(getattr(head, "latent", None), Tensor) and hasattr(head, "kv") and head.latent.shape[1] == 1:
            return head
    return None


def with_pooling(encoder: Encoder) -> Encoder:
    """Return an encoder whose head passes the attention (m, heads, 1, n) of its query to the reader, after all layers.

    The last of its n tokens are the patches. The encoder's module is changed.
    """
    head = pooling_head(encoder)
    if hasattr(head, "probe"):
        head.attention.register_forward_pre_hook(_show_probe)
        return encoder
    if head is not None:
        head.register_forward_pre_hook(_show_latent)
        return replace(encoder, forward=_forward_with_head)
    raise ModelError(
        f"the model of type {encoder.kind!r} has no head that pools its tokens by attention of one query, as those of "
        "SigLIP and models of timm with global_pool='map' do: use rollout or layer:K.",
        "attention",
    )


def _show_probe(attention: Any, arguments: tuple[Tensor, ...]) -> None:
    """Pass on the weights of torch's attention, with probes (m, 1, d) as queries and tokens (m, N, d) as keys."""
    weights, biases = attention.in_proj_weight.chunk(3), attention.in_proj_bias.chunk(3)
    projected = (linear(arguments[i], weights[i], biases[i]) for i in (0, 1))
    _pass_weights(*(part.unflatten(-1, (attention.num_heads, -1)).transpose(1, 2) for part in projected))


def _show_latent(head: Any, arguments: tuple[Tensor, ...]) -> None:
    """Pass on the weights of timm's ``AttentionPoolLatent`` for tokens (m, N, d)."""
    tokens = arguments[0] if head.pos_embed is None else arguments[0] + head.pos_embed
    query = head.q(head.latent.expand(len(tokens), -1, -1))
    key = head.kv(tokens).chunk(2, dim=-1)[0]
    parts = (part.unflatten(-1, (head.num_heads, -1)).transpose(1, 2) for part in (query, key))
    _pass_weights(*(norm(part) for norm, part in zip((head.q_norm, head.k_norm), parts, strict=True)))


def _pass_weights(queries: Tensor, keys: Tensor) -> None:
    scale = queries.shape[-1] ** -0.5
    pass_to_reader(torch.softmax(queries @ keys.transpose(-2, -1) * scale, dim=-1))


def _forward_with_head(model: nn.Module, images: Tensor) -> Any:
    """Pass images through a model of timm and its head, which is no part of its features."""
    timm: Any = model
    return timm.forward_head(timm.forward_features(images))
