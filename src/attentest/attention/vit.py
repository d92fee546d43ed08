"""Raw attention scores of a vision transformer, in float64 throughout; the caller's model is not changed."""

from __future__ import annotations

import copy
import hashlib
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, Self, TypeVar

import torch
from torch import Tensor, nn

from attentest.attention.aggregation import AggregationLike, PoolingAttention
from attentest.attention.attention_reader import AttentionReader, pooling_head, with_pooling
from attentest.attention.device import default_memory, reason_of
from attentest.attention.encoder import Encoder, ModelLibrary, image_of_noise, model_libraries, unreadable
from attentest.attention.forward_pass import PlainForward
from attentest.attention.fused_forward import FusedForward
from attentest.attention.relevance import OutputMap, Relevance, as_attention_map
from attentest.attention.score_function import LARGEST_BATCH
from attentest.attention.split_forward import SplitForward
from attentest.checks import whole_number
from attentest.errors import AttentestError, AttentestWarning, InputError, ModelError
from attentest.registry import ATTENTION_MAPS

CPU_BATCH_CAP = 64
"""Largest default batch on the CPU: 16 to 128 images take the same time per image."""

AT_ONCE_PER_THREAD = 16
"""Images that one thread of a CPU passes through the model together: what lies between two layers then stays in its
cache, which saves a seventh of the time in float32."""

CUDA_BATCH_CAP = 4096  # largest default batch on a GPU: a small ViT saturates a large GPU with it

FAST_FLOAT64 = ((6, 0), (7, 0), (8, 0), (9, 0), (10, 0))
"""CUDA compute capabilities of GPUs on which float64 has half the speed of float32 (P100, V100, A100, H100 and H200,
B200); on others it has a thirty-second of it or less."""

Result = TypeVar("Result")

HALF = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
"""Dtypes of half precision or less, which cause a warning."""


class ViTScores:
    """Attention scores of a transformer over patches of Hugging Face transformers, timm, torchvision, MONAI or torch.

    Parameters
    ----------
    model
        The caller's model, with any attention implementation. A float64 copy of its encoder is made; the model itself
        does not change.
    attention
        "rollout" (the paper's), "last-layer", or ``Rollout(...)`` or ``LayerAttention(...)``.
    image_size
        Side, or all sides, of the model's input; by default that of training. For another, position embeddings are
        interpolated as the model's own library does, if it does.
    device
        Device to compute on; by default that of the model.
    batch_size
        Images per model call; by default as many as are useful within half the memory budget.
    memory_budget
        Bytes; by default a quarter of the free memory, and no more than 2 GiB on the CPU.
    owned
        Whether the model may be changed instead of copied, because nothing else uses it.
    """

    exact = True
    """Scores are computed in float64 throughout."""

    heads: tuple[str, ...] = ()
    """Heads that the model was saved with, if that is known: "classes", "text"."""

    def __init__(
        self,
        model: nn.Module,
        *,
        attention: AggregationLike | Relevance = "rollout",
        image_size: int | tuple[int, ...] | None = None,
        device: torch.device | str | None = None,
        batch_size: int | None = None,
        memory_budget: int | None = None,
        owned: bool = False,
    ) -> None:
        if batch_size is not None:
            batch_size = whole_number(batch_size, "batch_size", 1, LARGEST_BATCH)
        encoder = self._read(model, attention, image_size, device, owned)
        self._encoder = encoder
        self.image_shape = (encoder.channels, *encoder.image_size)
        self.grid_shape = encoder.tokens.grid
        self.start, self.covered, self.overlap = encoder.start, encoder.covered, encoder.overlap
        self.device = encoder.device
        memory = default_memory(self.device) if memory_budget is None else memory_budget
        most = CUDA_BATCH_CAP if self.device.type == "cuda" else CPU_BATCH_CAP
        self.batch_size = batch_size or min(most, max(1, memory // 2 // self._bytes_per_image()))
        threads = AT_ONCE_PER_THREAD * torch.get_num_threads()
        self._at_once = self.batch_size if self.device.type == "cuda" else min(self.batch_size, threads)
        if encoder.weights in HALF:
            warnings.warn(
                f"the model's weights are {encoder.weights}: attention is computed from them in float64 and can differ "
                "from that computed in half precision.",
                AttentestWarning,
                stacklevel=2,
            )
        self._rough_forward: Any = None
        self._forward = self._probed()

    def _read(
        self, model: nn.Module, attention: Any, image_size: Any, device: torch.device | str | None, owned: bool
    ) -> Encoder:
        """Return the encoder of a model."""
        chosen = as_attention_map(attention)
        if isinstance(chosen, (Relevance, OutputMap)):
            raise InputError(f"{chosen.name} is no aggregation of attention: use AttentionTest.", "attention")
        self._map: Any = chosen
        encoder = read_encoder(model, image_size, device, owned)
        if isinstance(chosen, PoolingAttention):
            return with_pooling(encoder)
        if encoder.tokens.windows and not getattr(chosen, "in_windows", False):
            raise InputError(
                f"the model of type {encoder.kind!r} attends within windows, for which {type(chosen).__name__} is not "
                "made (it has no attribute in_windows): use rollout or layer:K.",
                "attention",
            )
        return encoder.on_grid_of(chosen.layers(encoder.layers).start)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(<{self._encoder.kind}>, image_shape={self.image_shape}, attention={self._map!r}, "
            f"device='{self.device}')"
        )

    def __call__(self, images: Tensor) -> Tensor:
        """Return the scores (m, *grid) of images (m, C, *axes); differentiable in forward mode."""
        return self._scores(self._forward, images)

    @property
    def rough_is_faster(self) -> bool:
        """Whether rough scores are clearly faster: on CPUs, on GPUs with few float64 units, and on tensor cores."""
        fast = self.device.type == "cuda" and torch.cuda.get_device_capability(self.device) in FAST_FLOAT64
        return not fast or (isinstance(self._forward, FusedForward) and isinstance(self._rough_pass, SplitForward))

    @property
    def _rough_pass(self) -> Any:
        """The forward pass of rough scores."""
        if self._rough_forward is None:
            self._rough_forward = self._in_float32()
        return self._rough_forward

    def _in_float32(self) -> Any:
        """Return the forward pass in float32, or nearly its precision on tensor cores where these are worth using."""
        encoder = self._encoder.cast(torch.float32)
        if isinstance(self._forward, FusedForward):
            split = SplitForward.of(encoder, self._map)
            if split is not None and split.agrees(self._noise().float(), self._forward(self._noise()).float()):
                return split
        fast = isinstance(self._forward, PlainForward) and self._forward.of(encoder, self._map)
        return fast or partial(self._scores_of_modules, encoder)

    def rough(self, images: Tensor) -> Tensor:
        """Return the scores (m, *grid) of images (m, C, *axes) computed in float32, as float64."""
        return self._rounded(self._rough_pass, images)

    def _rounded(self, forward: Callable[..., Tensor], images: Tensor, *others: Tensor) -> Tensor:
        """Return what a forward pass in float32 returns for images (m, C, *axes), and others (m, ...), as float64."""
        # An image by itself is rounded otherwise than among others (matrix products become products with vectors), and
        # its result would depend on what it is tested with. So it never is by itself.
        alone = len(images) % self._at_once == 1
        arguments = images.to(torch.float32), *others
        paired = [torch.cat([values, values[-1:]]) if alone else values for values in arguments]
        scores = self._scores(forward, *paired).to(torch.float64)
        return scores[:-1] if alone else scores

    def through_modules(self, images: Tensor) -> Tensor:
        """Return the same scores (m, *grid) of images (m, C, *axes) as the model's own modules compute them, slower."""
        return self._scores(partial(self._scores_of_modules, self._encoder), images)

    @property
    def maps(self) -> tuple[str, ...]:
        """Names of the maps that the model can give, as far as its heads are known; "text" is that for a text."""
        without = {"" if pooling_head(self._encoder) is not None else "pooling"}
        without |= {name for name, part in ATTENTION_MAPS.items() if not part.transformers}
        if "classes" not in self.heads:
            without |= {name for name, part in ATTENTION_MAPS.items() if "target" in part.takes}
        maps = (name for name in ATTENTION_MAPS.spelled() if name.partition(":")[0] not in without)
        return (*maps, "text") if "text" in self.heads else tuple(maps)

    def sha256(self) -> str:
        """Return the SHA-256 of all weights, as they are used."""
        digest = hashlib.sha256()
        for name, weights in sorted(self._encoder.module.state_dict().items()):
            digest.update(f"{name} {tuple(weights.shape)}".encode())
            digest.update(weights.detach().cpu().numpy().tobytes())
        return digest.hexdigest()

    def whole(self) -> tuple[nn.Module, Callable[[], Any]]:
        """Return the copy of the model that the map is made of, and a function that passes an image through it."""
        encoder = self._encoder
        return encoder.module, lambda: encoder.forward(encoder.module, self._noise())

    def changed(self, change: Callable[[Self], None]) -> Self:
        """Return the scores of another copy of the model, whose weights a function changes first."""
        other = copy.copy(self)
        other._copy()
        change(other)
        other._rough_forward, other._forward = None, other._probed()
        return other

    def _copy(self) -> None:
        """Replace the model by a copy."""
        self._encoder = self._encoder.cast(torch.float64)

    def describe(self) -> dict[str, Any]:
        """Return type, input, tokens and aggregation of the model, JSON-ready."""
        return {
            "type": self._encoder.kind,
            "weights": self._encoder.weights,
            "input": list(self.image_shape),
            **self._encoder.tokens.describe(),
            "attention": self._map.describe(),
        }

    def _scores(self, forward: Callable[..., Tensor], *arguments: Tensor) -> Tensor:
        """Return what a forward pass returns for images (m, C, *axes), and what else is given for each, in batches."""
        batches = zip(*(values.to(self.device).split(self._at_once) for values in arguments), strict=True)
        parts = [forward(*batch) for batch in batches]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _scores_of_modules(self, encoder: Encoder, images: Tensor, heads: int | None = None) -> Tensor:
        """Return the scores (m, *grid) as the model's own modules compute them."""
        # No parameter requires a gradient, so autograd records nothing; forward-mode derivatives work all the same.
        sequences = len(images) * encoder.sequences
        reader = AttentionReader(self._map, encoder.tokens, encoder.layers, sequences, heads)
        scores = reader.read(lambda: encoder.forward(encoder.module, images))
        return scores if encoder.sequences == 1 else scores.unflatten(0, (len(images), -1)).mean(dim=1)

    @torch.no_grad()
    def _probed(self) -> Any:
        """Return the fastest forward pass; raise an error if the attention of the model cannot be read.

        An image of noise is passed through the model's modules, and through its weights as plain layers if they can be
        read as such: these are used only if they give the same scores.
        """
        encoder, image = self._encoder, self._noise()
        expected = self._tried(lambda: self._scores_of_modules(encoder, image, encoder.heads))
        for kind in (FusedForward, PlainForward):
            fast = kind.of(encoder, self._map)
            if fast is not None and fast.agrees(image, expected):
                return fast
        return partial(self._scores_of_modules, encoder)

    def _noise(self) -> Tensor:
        return image_of_noise(self.image_shape, self.device)

    def _tried(self, run: Callable[[], Result]) -> Result:
        """Return what a call of the model returns; raise an error that says so if it fails."""
        try:
            return run()
        except AttentestError:
            raise
        except Exception as error:  # noqa: BLE001  # a model may raise anything
            raise ModelError(
                f"the model of type {self._encoder.kind!r} fails on an image of shape {self.image_shape} "
                f"({reason_of(error)}): check that the model is complete and takes images of this size."
            ) from None

    def _bytes_per_image(self) -> int:
        """Return the memory that an image takes: in float64; value, derivative and workspace."""
        encoder = self._encoder
        sizes = encoder.attention_sizes
        attention = sum(size for _, size in sizes) + 4 * max(heads * size for heads, size in sizes)
        activations = encoder.most_tokens * (4 * encoder.width + 4 * encoder.mlp_width)
        return 8 * 3 * encoder.sequences * (attention + activations)


UNCHANGED_BY = ("peft.", "torch.nn.parallel.", "torch._dynamo.")
"""Modules of these packages, too, pass images unchanged to the vision transformer within them."""


def readable(model: nn.Module) -> bool:
    """Return whether a module is, or holds, a vision transformer that can be read."""
    return bool(_transformers_in(model))


def read_encoder(
    model: nn.Module, image_size: Any = None, device: torch.device | str | None = None, owned: bool = False
) -> Encoder:
    """Return a float64 copy of the vision transformer within a module; raise an error if it has none or several."""
    transformer, library = transformer_in(model)
    encoder = library.read(transformer, image_size, device, owned)
    _warn_of_wrapper(model, transformer, encoder.kind)
    return encoder


def transformer_in(model: nn.Module) -> tuple[nn.Module, ModelLibrary]:
    """Return the vision transformer within a module, and its library; raise an error if it has none or several."""
    transformers = _transformers_in(model)
    if not transformers:
        kind = getattr(getattr(model, "config", None), "model_type", None) or type(model).__name__
        raise unreadable(str(kind), "the model")
    if len(transformers) > 1:
        raise ModelError(
            f"the {type(model).__name__} given holds {len(transformers)} vision transformers: give the one that is "
            "meant."
        )
    return transformers[0]


def _transformers_in(model: nn.Module) -> list[tuple[nn.Module, ModelLibrary]]:
    """Return the vision transformers within a module that are not parts of one another, with their libraries."""
    libraries = model_libraries().values()
    transformers: list[tuple[nn.Module, ModelLibrary]] = []
    inner: set[int] = set()
    for module in model.modules():
        library = None if id(module) in inner else next((kind for kind in libraries if kind.recognises(module)), None)
        if library is not None:
            transformers.append((module, library))
            inner.update(id(part) for part in module.modules())
    return transformers


def _warn_of_wrapper(model: nn.Module, transformer: nn.Module, kind: str) -> None:
    """Warn if a module around the vision transformer may change images before it."""
    names = [name for name, module in model.named_modules(remove_duplicate=False) if module is transformer]
    steps = names[0].split(".") if names[0] else []
    around = [type(model.get_submodule(".".join(steps[:depth]))) for depth in range(len(steps))]
    unchanged = (*(f"{library.package}." for library in model_libraries().values()), *UNCHANGED_BY)
    wrappers = [kind for kind in around if not kind.__module__.startswith(unchanged)]
    if wrappers:
        warnings.warn(
            f"attentest reads the {kind!r} within the {wrappers[0].__name__} given, and nothing around it: if the "
            "wrapper changes images before they reach the model, give the same preprocessing, or a score function.",
            AttentestWarning,
            stacklevel=2,
        )
