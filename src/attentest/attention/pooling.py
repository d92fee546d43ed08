"""Heads that pool the tokens of a transformer by attention of a query of their own (SigLIP), and reading them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from attentest.attention.attention_reader import pass_to_reader
from attentest.attention.encoder import Encoder
from attentest.errors import ModelError


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
