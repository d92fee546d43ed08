"""Raw attention scores of a Hugging Face ViT, in true float64, without touching the caller's model."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, ViTForImageClassification, ViTModel

from attentest.attention.rollout import class_token_rollout
from attentest.attention.score_function import MOST_TOGETHER
from attentest.checks import whole_number
from attentest.device import default_memory, usable_device
from attentest.errors import ModelError

ATTENTION_NAME = "attentest_head_mean"

CPU_BATCH_CAP = 64
"""On the CPU larger batches are no faster: 16 to 128 images cost the same each (docs/measurements.md)."""

CUDA_BATCH_CAP = 4096
"""The batch at which a small ViT saturates a large GPU."""

FAST_FLOAT64 = ((6, 0), (7, 0), (8, 0), (9, 0), (10, 0))
"""CUDA compute capabilities of the GPUs made for float64 (P100, V100, A100, H100 and H200, B200): half the speed of
float32 there, a thirty-second or less on others."""


def head_mean_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """Attend as the library's eager function does, but stay in the input's dtype and return head means.

    The library computes its softmax in float32 whatever the model's dtype, which leaves noise of 1e-10 in
    float64 scores. Averaging over heads here keeps one (N+1, N+1) matrix a layer instead of one a head.
    ``dropout`` is what the library passes in training mode; models are read in evaluation mode only.
    """
    logits = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    if attention_mask is not None:
        logits = logits + attention_mask
    weights = torch.softmax(logits, dim=-1)
    return (weights @ value).transpose(1, 2).contiguous(), weights.mean(dim=1)


AttentionInterface.register(ATTENTION_NAME, head_mean_attention)


class ViTScores:
    """Rollout scores of a ``ViTModel`` or ``ViTForImageClassification``.

    Parameters
    ----------
    model
        The caller's model; a float64 copy of its encoder is made, and the original is left as it was.
    device
        Where to compute; by default where the model is.
    batch_size
        Images a model call; by default as many as are useful within half the memory budget.
    memory_budget
        Bytes; by default a quarter of what is free, and no more than 2 GiB on the CPU.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        device: torch.device | str | None = None,
        batch_size: int | None = None,
        memory_budget: int | None = None,
    ) -> None:
        encoder = model.vit if isinstance(model, ViTForImageClassification) else model
        if not isinstance(encoder, ViTModel):
            name = getattr(getattr(model, "config", None), "model_type", None) or type(model).__name__
            raise ModelError(
                f"the model is of type {name!r}, but attentest reads ViTForImageClassification and ViTModel "
                "of Hugging Face transformers: give one of these, or a score function of your own."
            )
        if batch_size is not None:
            batch_size = whole_number(batch_size, "batch_size", 1, MOST_TOGETHER)
        self._encoder = _copy(encoder, torch.float64, usable_device(encoder.device if device is None else device))
        self._rough_encoder: ViTModel | None = None
        height, width = _pair(encoder.config.image_size)
        patch_height, patch_width = _pair(encoder.config.patch_size)
        if height % patch_height or width % patch_width:
            raise ModelError(
                f"the model cuts images of {height} x {width} pixels into patches of {patch_height} x {patch_width}, "
                "which leaves a border it never sees: its image_size must be a multiple of its patch_size."
            )
        self.image_shape = (int(encoder.config.num_channels), height, width)
        self.grid_shape = (height // patch_height, width // patch_width)
        self.device = self._encoder.device
        memory = default_memory(self.device) if memory_budget is None else memory_budget
        self.batch_size = batch_size or self._default_batch_size(memory // 2)

    def __call__(self, images: Tensor) -> Tensor:
        """Return scores (m, gh, gw) of images (m, C, H, W); differentiable in forward mode."""
        return self._scores(self._encoder, images)

    @property
    def rough_is_faster(self) -> bool:
        """Whether float32 is worth it: on CPUs, and on GPUs with few units for float64."""
        return not (self.device.type == "cuda" and torch.cuda.get_device_capability(self.device) in FAST_FLOAT64)

    def rough(self, images: Tensor) -> Tensor:
        """Return scores computed in float32, as float64."""
        if self._rough_encoder is None:
            self._rough_encoder = _copy(self._encoder, torch.float32, self.device)
        return self._scores(self._rough_encoder, images.to(torch.float32)).to(torch.float64)

    def _scores(self, encoder: ViTModel, images: Tensor) -> Tensor:
        parts = [self._scores_together(encoder, part) for part in images.to(self.device).split(self.batch_size)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _scores_together(self, encoder: ViTModel, images: Tensor) -> Tensor:
        # Parameters need no gradient, so no graph is kept; forward-mode derivatives pass through all the same.
        attentions = encoder(images, output_attentions=True).attentions
        self._check(attentions, len(images))
        scores: Tensor = class_token_rollout(attentions).unflatten(-1, self.grid_shape)
        return scores

    def _check(self, attentions: tuple[Tensor | None, ...] | None, count: int) -> None:
        layers = int(self._encoder.config.num_hidden_layers)
        given = [] if attentions is None else [a for a in attentions if a is not None]
        tokens = self.grid_shape[0] * self.grid_shape[1] + 1
        if len(given) != layers:
            raise ModelError(
                f"the model returned attention for {len(given)} of its {layers} layers: "
                "it must compute attention through transformers' attention interface and return it."
            )
        for layer, attention in enumerate(given):
            if tuple(attention.shape) != (count, tokens, tokens):
                raise ModelError(
                    f"the attention of layer {layer} has shape {tuple(attention.shape)}, "
                    f"expected {(count, tokens, tokens)}: one class token and {tokens - 1} patches."
                )

    def _default_batch_size(self, memory: int) -> int:
        config = self._encoder.config
        tokens = self.grid_shape[0] * self.grid_shape[1] + 1
        attention = (config.num_hidden_layers + 4 * config.num_attention_heads) * tokens**2
        activations = tokens * (4 * config.hidden_size + 4 * config.intermediate_size)
        bytes_per_image = 8 * 3 * (attention + activations)  # float64; value, derivative and workspace
        cap = CUDA_BATCH_CAP if self.device.type == "cuda" else CPU_BATCH_CAP
        return int(min(cap, max(1, memory // bytes_per_image)))


def _copy(encoder: ViTModel, dtype: torch.dtype, device: torch.device) -> ViTModel:
    duplicate = copy.deepcopy(encoder).to(device=device, dtype=dtype)
    duplicate.pooler = None  # not part of the attention
    duplicate.set_attn_implementation(ATTENTION_NAME)
    return duplicate.eval().requires_grad_(False)


def _pair(size: Any) -> tuple[int, int]:
    return (int(size[0]), int(size[1])) if isinstance(size, (list, tuple)) else (int(size), int(size))
