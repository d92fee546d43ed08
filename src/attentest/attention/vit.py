"""Raw attention scores of a vision transformer, in true float64, without touching the caller's model."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from attentest.attention.aggregation import AggregationLike, as_aggregation
from attentest.attention.device import default_memory
from attentest.attention.encoder import Encoder
from attentest.attention.huggingface import family_of, read_huggingface
from attentest.attention.reading import Reader
from attentest.attention.refusal import refusal
from attentest.attention.score_function import LARGEST_BATCH
from attentest.attention.timm_models import is_timm, read_timm
from attentest.attention.torchvision_models import is_torchvision, read_torchvision
from attentest.checks import whole_number
from attentest.errors import AttentestError, AttentestWarning, ModelError

CPU_BATCH_CAP = 64
"""On the CPU larger batches are no faster: 16 to 128 images cost the same each (docs/measurements.md)."""

CUDA_BATCH_CAP = 4096
"""The batch at which a small ViT saturates a large GPU."""

FAST_FLOAT64 = ((6, 0), (7, 0), (8, 0), (9, 0), (10, 0))
"""CUDA compute capabilities of the GPUs made for float64 (P100, V100, A100, H100 and H200, B200): half the speed of
float32 there, a thirty-second or less on others."""

HALF = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


class ViTScores:
    """Scores of a vision transformer of Hugging Face transformers, timm or torchvision.

    Parameters
    ----------
    model
        The caller's model, whatever attention it was loaded with; a float64 copy of its encoder is made, and the
        original is left as it was.
    attention
        "rollout" (the paper's), "last-layer", or ``Rollout(...)`` or ``LayerAttention(...)``.
    image_size
        Side, or (height, width), of the model's input; by default that of training. For another, position embeddings
        are interpolated as the model's own library does.
    device
        Where to compute; by default where the model is.
    batch_size
        Images a model call; by default as many as are useful within half the memory budget.
    memory_budget
        Bytes; by default a quarter of what is free, and no more than 2 GiB on the CPU.
    owned
        Whether nobody else holds the model, so that it may be changed instead of copied.
    """

    exact = True
    """Scores are computed in float64 throughout."""

    def __init__(
        self,
        model: nn.Module,
        *,
        attention: AggregationLike = "rollout",
        image_size: int | tuple[int, int] | None = None,
        device: torch.device | str | None = None,
        batch_size: int | None = None,
        memory_budget: int | None = None,
        owned: bool = False,
    ) -> None:
        self._aggregation = as_aggregation(attention)
        if batch_size is not None:
            batch_size = whole_number(batch_size, "batch_size", 1, LARGEST_BATCH)
        encoder = read_encoder(model, image_size, device, owned)
        self._encoder = encoder
        self._rough_encoder: Encoder | None = None
        self.image_shape = (encoder.channels, *encoder.image_size)
        self.grid_shape = encoder.tokens.grid
        self.covered = encoder.covered
        self.device = encoder.device
        memory = default_memory(self.device) if memory_budget is None else memory_budget
        self.batch_size = batch_size or self._default_batch_size(memory // 2)
        if encoder.weights in HALF:
            warnings.warn(
                f"the model's weights are {encoder.weights}: they are computed with in float64, exactly as stored, so "
                "attention can differ from what half precision shows.",
                AttentestWarning,
                stacklevel=2,
            )
        self._probe()

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
            self._rough_encoder = self._encoder.cast(torch.float32)
        return self._scores(self._rough_encoder, images.to(torch.float32)).to(torch.float64)

    def describe(self) -> dict[str, Any]:
        """Return what the model is and how it is read, JSON-ready."""
        return {
            "type": self._encoder.kind,
            "weights": self._encoder.weights,
            "input": list(self.image_shape),
            **self._encoder.tokens.describe(),
            "attention": self._aggregation.describe(),
        }

    def _scores(self, encoder: Encoder, images: Tensor) -> Tensor:
        parts = [self._scores_together(encoder, part) for part in images.to(self.device).split(self.batch_size)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _scores_together(self, encoder: Encoder, images: Tensor, heads: int | None = None) -> Tensor:
        # Parameters need no gradient, so no graph is kept; forward-mode derivatives pass through all the same.
        reader = Reader(self._aggregation, encoder.tokens, encoder.layers, len(images), heads)
        return reader.read(lambda: encoder.forward(encoder.module, images))

    @torch.no_grad()
    def _probe(self) -> None:
        """Pass one image through, to see now whether attention comes out as it must."""
        _, height, width = self.image_shape
        image = torch.linspace(-1, 1, height * width, dtype=torch.float64, device=self.device)
        images = image.reshape(1, 1, height, width).expand(1, *self.image_shape)
        try:
            self._scores_together(self._encoder, images, self._encoder.heads)
        except AttentestError:
            raise
        except Exception as error:  # noqa: BLE001  # whatever a foreign model raises
            reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
            raise ModelError(
                f"the model of type {self._encoder.kind!r} fails on an image of shape {self.image_shape} ({reason}): "
                "is it a complete model, and this a size it takes?"
            ) from None

    def _default_batch_size(self, memory: int) -> int:
        encoder = self._encoder
        tokens = encoder.tokens.count
        attention = (encoder.layers + 4 * encoder.heads) * tokens**2
        activations = tokens * (4 * encoder.width + 4 * encoder.mlp_width)
        bytes_per_image = 8 * 3 * (attention + activations)  # float64; value, derivative and workspace
        cap = CUDA_BATCH_CAP if self.device.type == "cuda" else CPU_BATCH_CAP
        return int(min(cap, max(1, memory // bytes_per_image)))


TRANSPARENT = ("transformers.", "timm.", "torchvision.", "peft.", "torch.nn.parallel.", "torch._dynamo.")
"""Where the classes come from that pass images on to the vision transformer within them as they are."""


def readable(model: nn.Module) -> bool:
    """Return whether a module holds a vision transformer that can be read."""
    return bool(_found_in(model))


def _found_in(model: nn.Module) -> list[nn.Module]:
    """Return the vision transformers within a module that are not parts of one another."""
    found: list[nn.Module] = []
    inner: set[int] = set()
    for module in model.modules():
        if id(module) not in inner and (family_of(module) or is_timm(module) or is_torchvision(module)):
            found.append(module)
            inner.update(id(part) for part in module.modules())
    return found


def _check_way_in(model: nn.Module, encoder: nn.Module, kind: str) -> None:
    """Warn if something between a module and the vision transformer within it may change the images on the way."""
    names = [name for name, module in model.named_modules(remove_duplicate=False) if module is encoder]
    steps = names[0].split(".") if names[0] else []
    way = [model.get_submodule(".".join(steps[:depth])) for depth in range(len(steps))]
    foreign = [type(module) for module in way if not type(module).__module__.startswith(TRANSPARENT)]
    if foreign:
        warnings.warn(
            f"attentest reads the {kind!r} within the {foreign[0].__name__} given, and nothing around it: if that "
            "changes images before they get there, say so with preprocessing, or give a score function.",
            AttentestWarning,
            stacklevel=2,
        )


def read_encoder(
    model: nn.Module, image_size: Any = None, device: torch.device | str | None = None, owned: bool = False
) -> Encoder:
    """Return a float64 copy of the vision transformer within a module; refuse what is none."""
    found = _found_in(model)
    if not found:
        raise refusal(model)
    if len(found) > 1:
        raise ModelError(
            f"the {type(model).__name__} given holds {len(found)} vision transformers: give the one that is meant."
        )
    (inner,) = found
    family = family_of(inner)
    if family is not None:
        encoder = read_huggingface(inner, family, image_size, device, owned)
    else:
        encoder = (read_timm if is_timm(inner) else read_torchvision)(inner, image_size, device, owned)
    _check_way_in(model, inner, encoder.kind)
    return encoder
