"""Attention rollout (appendix A.2): how the class token's attention to the patches adds up over layers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def class_token_rollout(attentions: Sequence[Tensor]) -> Tensor:
    """Return the class token's row of the product of (A_l + I), last layer first.

    Only that row is carried through the product, so a layer costs one vector-matrix product an image.

    Parameters
    ----------
    attentions
        Head-averaged attention weights of the layers, first layer first; each (m, N+1, N+1) with the class
        token at index 0 and rows summing to one.

    Returns
    -------
    Tensor of shape (m, N)
        Aggregated attention to each patch.
    """
    row = torch.zeros_like(attentions[-1][:, :1, :])
    row[..., 0] = 1.0
    for attention in reversed(attentions):
        row = row + row @ attention
    return row[:, 0, 1:]
