"""A vision transformer as attentest uses it, a float64 copy that exposes its attention, and libraries of them."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from attentest.attention.aggregation import Tokens
from attentest.attention.device import reason_of, usable_device
from attentest.checks import whole_number
from attentest.errors import AttentestWarning, InputError, ModelError, counted, listed, shortened
from attentest.images.resize_matrix import AXES
from attentest.registry import MODEL_LIBRARIES

LARGEST_SIDE = 2**14  # largest side of a model's input in pixels
LONGEST_SIGNAL = 2**20  # most samples of a signal
MOST_PATCHES = 2**15  # most patches of a model's input: the attention of one head over that many takes 8 GiB


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """A transformer over the patches of an image."""

    module: nn.Module
    """The copy of the model, in evaluation mode; no parameter requires a gradient."""
    forward: Callable[[Any, Tensor], Any] = nn.Module.__call__
    """Passes images (m, C, *axes) through the module; each layer passes its attention weights to the active reader
    (``attentest.attention.attention_reader``)."""
    kind: str
    """Name of the type of model in its library."""
    channels: int
    image_size: tuple[int, ...]
    patch_size: tuple[int, ...]
    """Channels of the input, its sides, and those of a patch. The model does not see pixels that fill no whole patch,
    which are on the right and below unless ``start`` says otherwise."""
    tokens: Tokens
    """The tokens of an image."""
    layers: int = 0
    heads: int = 0
    width: int = 0
    mlp_width: int = 0
    """Sizes of the model, which determine the memory it needs; zero for a network without attention."""
    weights: str
    """Dtype in which the weights were stored."""
    stride: tuple[int, ...] = ()
    """Steps from patch to patch along each axis, by default the sides of a patch."""
    start: tuple[int, ...] = ()
    """Place along each axis at which the first patch begins, by default the beginning of the input."""
    sequences: int = 1
    """Sequences of tokens of an image, each of which attends to itself alone; the scores are the mean of theirs."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "stride", self.stride or self.patch_size)
        object.__setattr__(self, "start", self.start or (0,) * len(self.image_size))

    @property
    def overlap(self) -> tuple[int, ...]:
        """Pixels along each axis that neighbouring patches have in common."""
        return tuple(side - step for side, step in zip(self.patch_size, self.stride, strict=True))

    @property
    def covered(self) -> tuple[int, ...]:
        """Sides of the part of the input that the patches cover."""
        patches = zip(self.tokens.grid, self.stride, self.overlap, strict=True)
        return tuple(count * step + shared for count, step, shared in patches)

    @property
    def device(self) -> torch.device:
        """The device it computes on."""
        return next(self.module.parameters()).device

    @property
    def most_tokens(self) -> int:
        """The tokens of the first layer, which has the most where they are merged between layers."""
        return math.prod(self.tokens.windows[0].grid) if self.tokens.windows else self.tokens.count

    @property
    def attention_sizes(self) -> list[tuple[int, int]]:
        """The heads of each layer, and the number of weights of one head's attention of an image."""
        if self.tokens.windows:
            return [(layer.heads, len(layer.places) * layer.places.shape[1] ** 2) for layer in self.tokens.windows]
        return [(self.heads, self.tokens.count**2)] * self.layers

    def on_grid_of(self, layer: int) -> Encoder:
        """Return the encoder with the tokens of a layer as its patches, where patches are merged between layers."""
        finest = self.tokens.grid
        grid = self.tokens.windows[layer].grid if self.tokens.windows else finest
        if any(count % merged for count, merged in zip(finest, grid, strict=True)):
            raise ModelError(
                f"layer {layer} of the model of type {self.kind!r} has {by(grid)} tokens, made of {by(finest)} patches "
                "and of padding, so that its map reaches beyond the image: use rollout, or an image_size of which all "
                "patches are merged evenly.",
                "image_size",
            )
        sides = zip(self.patch_size, finest, grid, strict=True)
        merged = tuple(patch * (fine // coarse) for patch, fine, coarse in sides)
        if grid == finest:
            return self
        return replace(self, patch_size=merged, stride=(), tokens=replace(self.tokens, grid=grid))

    def cast(self, dtype: torch.dtype) -> Encoder:
        """Return a copy that computes in another dtype."""
        return replace(self, module=cast_module(self.module, dtype))


def cast_module(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Return a copy of a module that computes in another dtype."""
    # Weights are copied as they are converted: a copy of all in the old dtype first would take as much as they do.
    converted: dict[int, Any] = {
        id(weight): nn.Parameter(weight.to(dtype, copy=True), requires_grad=False) for weight in module.parameters()
    }
    return copy.deepcopy(module, converted).to(dtype)


def image_of_noise(shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Return an image (1, C, *axes) of noise in float64, by which is seen what a model does."""
    chance = torch.Generator("cpu").manual_seed(0)
    return torch.randn(1, *shape, dtype=torch.float64, generator=chance, device="cpu").to(device)


@dataclass(frozen=True, kw_only=True)
class ModelLibrary:
    """How the models of one library are recognised and read."""

    models: tuple[str, ...]
    """The models that are read, as error messages list them, such as ("ViT", "DeiT")."""
    package: str
    """Name of the library's package. Its modules pass images unchanged to the vision transformer within them."""
    recognises: Callable[[nn.Module], bool]
    """Returns whether a module is a vision transformer of this library that can be read."""
    read: Callable[[nn.Module, Any, torch.device | str | None, bool], Encoder]
    """Called with such a module, the size of the input (a side, all sides, or None for that of training), the device
    (None: where the model is) and whether the module may be changed instead of copied; returns an encoder that computes
    in float64."""
    class_scores: Callable[[nn.Module, Tensor], Any] = nn.Module.__call__
    """From such a module, or one that holds it, and images (m, C, *axes) to class scores (m, K); it returns something
    else if there are none."""


def model_libraries() -> dict[str, ModelLibrary]:
    """Return the registered libraries by name."""
    return {name: part.load() for name, part in MODEL_LIBRARIES.items()}


REASONS = {
    "which attends within windows, and not as those of Swin and Swin V2 that are read": (
        "swin", "vitdet", "sam", "dinat", "nat", "maxvit", "maxxvit", "davit", "gcvit", "nest", "twins", "donut",
    ),
    "which is hierarchical, so its layers do not share one grid of patches": (
        "hiera", "pvt", "cvt", "segformer", "levit", "mvit", "pit", "coat", "crossvit", "mobilevit", "glpn",
    ),
    "which has no self-attention over patches": (
        "resnet", "convnext", "regnet", "efficientnet", "mobilenet", "densenet", "vgg", "bit", "resnext", "mixer",
    ),
    "whose attention is not a plain softmax over all patches": (
        "xcit", "cait", "volo", "focalnet", "swiftformer", "efficientformer", "poolformer", "perceiver", "beit3",
    ),
}  # fmt: skip
"""Why known types of model cannot be read, by the beginnings of their names or of words in them."""


def unreadable(kind: object, model: str) -> ModelError:
    """Return the error for a model, as a message calls it, of a type that no library reads."""
    name = str(kind).lower().replace("-", "_")
    reasons = (
        reason
        for reason, beginnings in REASONS.items()
        if any(name.startswith(beginning) or f"_{beginning}" in name for beginning in beginnings)
    )
    models = ", ".join(f"{listed(library.models)} of {name}" for name, library in model_libraries().items())
    return ModelError(
        f"{model} is of type {kind!r}, {next(reasons, 'which attentest does not know')}: give one of these: "
        f"{models}, a network with a map of its own: AttentionTest(model, image_shape=..., "
        "attention=GradCAM(...)), or a function from images to scores: AttentionTest(function, image_shape=...)."
    )


def float64_copy(
    module: nn.Module, device: torch.device | str | None, kind: str, owned: bool = False, is_function: bool = False
) -> tuple[Any, str]:
    """Return a module in float64 and evaluation mode, and the narrowest floating-point dtype of its weights before.

    The module is a copy, or, if it is owned, the module itself; the dtype is its name, for example "float16". A module
    that is a function of the user's may have no weights, and keeps its hooks and gradients, of which its scores may be
    made.
    """
    if isinstance(module, torch.jit.ScriptModule):
        raise ModelError(f"the model of type {kind!r} is compiled: give the module that it was made from.")
    parameters = list(module.parameters())
    dtypes = {p.dtype for p in parameters if p.dtype.is_floating_point}
    stored = min(dtypes, key=lambda dtype: torch.finfo(dtype).bits, default=torch.float32)
    if not parameters and not is_function:
        raise ModelError(f"the model of type {kind!r} has no weights.")
    if is_function and _has_closures(module):
        raise ModelError(
            f"the model of type {kind!r} has a hook that is a closure, by which a copy would write to the model: "
            f"hook a method of the model (register_forward_hook(self.keep)), or give {AS_IT_IS}."
        )
    try:
        if any(parameter.is_meta for parameter in parameters):
            raise ValueError("some of its weights are on the meta device and have no values")
        whole = {str(p.dtype) for p in parameters if not p.dtype.is_floating_point}
        if whole:
            raise ValueError(f"some of its weights are {min(whole)}: it is quantized")
        own = parameters[0].device if parameters else "cpu"
        where = usable_device(own if device is None else device)
        duplicate = module if owned else copy.deepcopy(module)
        duplicate = duplicate.to(device=where, dtype=torch.float64)
    except InputError:
        raise
    except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
        raise ModelError(
            f"the model of type {kind!r} cannot be copied to float64 ({reason_of(error)}): give it with plain "
            "floating-point weights, not quantized, pruned, sharded, re-parametrised or on the meta device"
            f"{f', or give {AS_IT_IS}' if is_function else ''}."
        ) from None
    if not owned and not is_function:
        _drop_hooks(duplicate)
    return duplicate.eval().requires_grad_(is_function), str(stored).removeprefix("torch.")


AS_IT_IS = "TorchScores(model, image_shape=...), which calls it as it is"
"""What to do with a module that cannot be copied."""


def _has_closures(module: nn.Module) -> bool:
    """Return whether hooks are functions that refer to what is around them; a copy of a module has the same ones."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    hooks = (hook for part in module.modules() for kind in kinds for hook in getattr(part, kind, {}).values())
    return any(getattr(hook, "__closure__", None) and not hasattr(hook, "__self__") for hook in hooks)


def _drop_hooks(duplicate: nn.Module) -> None:
    """Remove the caller's forward hooks from a copy: a hook that collects activations would collect thousands more."""
    dropped = 0
    for module in duplicate.modules():
        makers = [str(getattr(hook, "__module__", "")) for hook in module._forward_hooks.values()]
        # Hooks of transformers itself only collect outputs, so no warning is needed.
        dropped += sum(not maker.startswith("transformers.") for maker in makers)
        module._forward_hooks.clear()
    if dropped:
        warnings.warn(
            f"the model has {counted(dropped, 'forward hook')}, and attentest runs none: where that changes what the "
            "model computes, give a score function instead.",
            AttentestWarning,
            stacklevel=2,
        )


def pair(size: Any) -> tuple[int, int]:
    """Return a size, which may be one number for both sides, as (height, width)."""
    return (int(size[0]), int(size[1])) if isinstance(size, (list, tuple)) else (int(size), int(size))


def patches_along(size: tuple[int, ...], patch_size: tuple[int, ...], stride: tuple[int, ...]) -> tuple[int, ...]:
    """Return the number of whole patches along each axis."""
    return tuple((side - patch) // step + 1 for side, patch, step in zip(size, patch_size, stride, strict=True))


def checked_size(
    image_size: Any, patch_size: tuple[int, ...], stride: tuple[int, ...] | None = None
) -> tuple[int, ...]:
    """Return the sides of a model's input, no smaller than a patch and with at most ``MOST_PATCHES`` of them."""
    axes = AXES[len(patch_size)]
    sides = image_size if isinstance(image_size, (list, tuple)) else (image_size,) * len(axes)
    if len(sides) != len(axes):
        raise InputError(
            f"image_size must be a side or ({', '.join(axes)}) in pixels, got {shortened(image_size)}.", "image_size"
        )
    most = LONGEST_SIGNAL if len(axes) == 1 else LARGEST_SIDE
    named = zip(sides, axes, patch_size, strict=True)
    size = tuple(whole_number(side, f"image_size (the {axis})", least, most) for side, axis, least in named)
    patches = math.prod(patches_along(size, patch_size, stride or patch_size))
    if patches > MOST_PATCHES:
        raise InputError(
            f"image_size is {by(size)} pixels, which makes {patches} patches of {by(patch_size)}, but a model is read "
            f"with at most {MOST_PATCHES}: use smaller images or larger patches.",
            "image_size",
        )
    return size


def check_whole_patches(kind: str, patch: tuple[int, ...], size: tuple[int, ...]) -> None:
    """Check that images are cut into whole patches without a rest, for a model that does not leave one out."""
    if any(side % length for side, length in zip(size, patch, strict=True)):
        raise ModelError(
            f"the model is of type {kind!r} and cuts images into patches of {by(patch)} pixels without a rest, but "
            f"image_size is {by(size)}: use multiples.",
            "image_size",
        )


def check_same_size(kind: str, trained: tuple[int, ...], size: tuple[int, ...]) -> None:
    """Check that a model whose position embeddings are not resampled is read at the size of its training."""
    if size != trained:
        raise ModelError(
            f"the model is of type {kind!r} and takes images of {by(trained)} only, but image_size is {by(size)}.",
            "image_size",
        )


def by(sides: Iterable[int | None]) -> str:
    """Return sides as messages write them: "8 x 12", or "3 x any" if one is not fixed."""
    return " x ".join("any" if side is None else str(side) for side in sides)
