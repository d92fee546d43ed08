"""The operators of ONNX that are run, as functions of torch.

Inputs are passed by position, None where one is left out, and attributes by name: an attribute that a function does
not have is not supported. What was an attribute in early opsets and is an input in later ones may be either.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

FLOATS = {1: "float", 10: "float16", 11: "double", 16: "bfloat16"}
"""Floating-point types by their numbers in files; all are computed in the dtype of the images."""

INTEGERS = {2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 12: "uint32", 13: "uint64"}
"""Types of whole numbers, all of which are 64-bit here."""

BOOLEAN = 9

MOST_NUMBERS = 2**24  # most whole numbers that an operator may make: shapes and indices are far fewer

NUMBERS = ("Resize", "Upsample", "Pad", "Range")
"""Operators whose inputs after the first are numbers to read, even where they are no whole numbers."""

TAPS = {"linear": (0, 1), "cubic": (-1, 0, 1, 2)}
"""Neighbours of which an interpolated value is made, counted from the one before it."""


WITHOUT_EFFECT = {
    "extrapolation_value", "kernel_shape", "momentum", "qk_matmul_output_mode", "round_mode", "saturate", "seed",
    "softmax_precision", "stash_type", "storage_order",
}  # fmt: skip
"""Attributes that change nothing in what the functions compute that do not take them."""


class NotSupportedError(ValueError):
    """Something that an operator is asked for and that is not supported; the message is the end of a sentence."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """What some operators need besides inputs and attributes."""

    like: Tensor
    """The images (m, C, *axes): their dtype and device are those of all floating-point numbers."""
    opset: int
    single: bool
    """Whether the file is for one image at a time: its shapes begin with 1 where the images of a batch are counted."""

    def batched(self, value: Tensor, shape: list[int]) -> list[int]:
        """Return the shape that a tensor of all images gets, from that of the file, which may be for one image."""
        count = len(self.like)
        if not (self.single and shape[:1] == [1] and value.is_floating_point()):
            return shape
        whole = len(value) == count if -1 in shape else value.numel() == count * math.prod(shape)
        return [count, *shape[1:]] if whole else shape


def _numbers(value: Any) -> list[Any]:
    """Return the numbers of a tensor or of an attribute."""
    if not isinstance(value, Tensor):
        return list(value)
    if value.is_meta:
        raise NotSupportedError("a shape or an index that depends on the pixels")
    return list(value.flatten().tolist())


def _axes(value: Any, rank: int) -> list[int]:
    return [int(axis) % rank for axis in (range(rank) if value is None else _numbers(value))]


def _bounded(shape: Sequence[int]) -> list[int]:
    if math.prod(shape) > MOST_NUMBERS:
        raise NotSupportedError(f"a tensor of {math.prod(shape):,} numbers that do not depend on the image")
    return [int(side) for side in shape]


@dataclass(frozen=True, kw_only=True)
class Window:
    """How a kernel moves over an image: the attributes that all operators with a kernel have."""

    auto_pad: str = "NOTSET"
    dilations: Any = None
    pads: Any = None
    strides: Any = None

    def along(self, x: Tensor, kernel: Sequence[int]) -> tuple[list[int], list[int], list[int], list[int]]:
        """Return strides, dilations, and the padding before and after each axis."""
        axes = x.ndim - 2
        if axes not in (1, 2, 3):
            raise NotSupportedError(f"{axes} axes besides images and channels")
        strides, dilations = list(self.strides or [1] * axes), list(self.dilations or [1] * axes)
        if self.auto_pad in ("NOTSET", "VALID"):
            pads = list(self.pads or [0] * 2 * axes) if self.auto_pad == "NOTSET" else [0] * 2 * axes
            return strides, dilations, pads[:axes], pads[axes:]
        if self.auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
            raise NotSupportedError(f"auto_pad {self.auto_pad!r}")
        sides = zip(x.shape[2:], kernel, strides, dilations, strict=True)
        totals = [max((-(-side // s) - 1) * s + d * (k - 1) + 1 - side, 0) for side, k, s, d in sides]
        small, large = [total // 2 for total in totals], [total - total // 2 for total in totals]
        return strides, dilations, *((small, large) if self.auto_pad == "SAME_UPPER" else (large, small))


def _padded(x: Tensor, before: list[int], after: list[int], value: float = 0.0) -> Tensor:
    pads = [side for pair in zip(reversed(before), reversed(after), strict=True) for side in pair]
    return functional.pad(x, pads, value=value)


def _along(name: str, axes: int) -> Callable[..., Tensor]:
    """Return the function of torch for a number of axes, such as ``conv2d``."""
    function: Callable[..., Tensor] = getattr(functional, f"{name}{axes}d")
    return function


def _conv(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, window: Window, group: int = 1) -> Tensor:
    strides, dilations, before, after = window.along(x, weight.shape[2:])
    if before != after:
        x, before = _padded(x, before, after), [0] * len(before)
    return _along("conv", len(strides))(x, weight, bias, strides, before, dilations, group)


def _conv_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    window: Window,
    group: int = 1,
    output_padding: Any = None,
    output_shape: Any = None,
) -> Tensor:
    if window.auto_pad not in ("NOTSET", "VALID") or output_shape is not None:
        raise NotSupportedError("auto_pad or output_shape")
    strides, dilations, before, after = window.along(x, weight.shape[2:])
    added = list(output_padding or [0] * len(strides))
    function = _along("conv_transpose", len(strides))
    if before == after:
        return function(x, weight, bias, strides, before, added, group, dilations)
    whole = function(x, weight, bias, strides, 0, added, group, dilations)
    return _padded(whole, [-side for side in before], [-side for side in after])


def _max_pool(x: Tensor, *, window: Window, kernel_shape: list[int], ceil_mode: int = 0) -> Tensor:
    strides, dilations, before, after = window.along(x, kernel_shape)
    if before != after:
        x, before = _padded(x, before, after, -math.inf), [0] * len(before)
    pool = _along("max_pool", len(strides))
    return pool(x, kernel_shape, strides, before, dilations, ceil_mode=bool(ceil_mode))


def _average_pool(
    x: Tensor, *, window: Window, kernel_shape: list[int], ceil_mode: int = 0, count_include_pad: int = 0
) -> Tensor:
    strides, dilations, before, after = window.along(x, kernel_shape)
    if set(dilations) != {1}:
        raise NotSupportedError(f"dilations {dilations}")
    pool = partial(
        _along("avg_pool", len(strides)), kernel_size=kernel_shape, stride=strides, ceil_mode=bool(ceil_mode)
    )
    if before == after:
        return pool(x, padding=before, count_include_pad=bool(count_include_pad))
    sums = pool(_padded(x, before, after))
    return sums if count_include_pad else sums / pool(_padded(torch.ones_like(x[:1, :1]), before, after))


def _batch_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    variance: Tensor,
    *,
    epsilon: float = 1e-5,
    training_mode: int = 0,
    spatial: int = 1,
) -> Tensor:
    if training_mode or not spatial:
        raise NotSupportedError("training_mode, in which an image depends on the others: export it after .eval()")
    return functional.batch_norm(x, mean, variance, scale, bias, False, 0.0, epsilon)


def _layer_norm(
    x: Tensor, scale: Tensor, bias: Tensor | None = None, *, axis: int = -1, epsilon: float = 1e-5
) -> Tensor:
    shape = x.shape[axis % x.ndim :]
    shift = None if bias is None else bias.expand(shape)
    return functional.layer_norm(x, shape, scale.expand(shape), shift, epsilon)


def _group_norm(x: Tensor, scale: Tensor, bias: Tensor, *, num_groups: int, epsilon: float = 1e-5) -> Tensor:
    size = x.shape[1] // len(scale)  # before opset 21, scale and bias are those of groups
    return functional.group_norm(
        x, num_groups, scale.repeat_interleave(size), bias.repeat_interleave(size), eps=epsilon
    )


def _softmax(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(x: Tensor, *, context: Context, axis: int | None = None) -> Tensor:
        if context.opset >= 13:
            return function(x, dim=-1 if axis is None else axis)
        flat = x.flatten((1 if axis is None else axis) % x.ndim)  # before, over all axes from this one on
        return function(flat, dim=-1).reshape(x.shape)

    return run


def _gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # as the attributes are called in files
    transB: int = 0,
) -> Tensor:
    product = (a.mT if transA else a) @ (b.mT if transB else b)
    product = product if alpha == 1 else alpha * product
    return product if c is None or beta == 0 else product + (c if beta == 1 else beta * c)


def _divide(a: Tensor, b: Tensor) -> Tensor:
    whole = not (a.is_floating_point() or b.is_floating_point())
    return torch.div(a, b, rounding_mode="trunc") if whole else a / b


def _reshape(x: Tensor, shape: Any, *, context: Context, allowzero: int = 0) -> Tensor:
    wanted = _numbers(shape)
    if not allowzero:
        wanted = [x.shape[place] if side == 0 else side for place, side in enumerate(wanted)]
    return x.reshape(context.batched(x, wanted))


def _flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    axis = axis if axis == x.ndim else axis % x.ndim
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


def _concat(*parts: Tensor, context: Context, axis: int) -> Tensor:
    count = max(len(part) if part.ndim else 0 for part in parts)
    if context.single and axis % parts[0].ndim and count == len(context.like):
        # What is the same for all images, as a class token, is stored for one.
        parts = tuple(part.expand(count, *part.shape[1:]) if len(part) == 1 else part for part in parts)
    return torch.cat(parts, dim=axis)


def _slice(x: Tensor, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Tensor:
    places = list(range(len(_numbers(starts)))) if axes is None else _axes(axes, x.ndim)
    each = [1] * len(places) if steps is None else _numbers(steps)
    for axis, start, end, step in zip(places, _numbers(starts), _numbers(ends), each, strict=True):
        taken = range(x.shape[axis])[start:end:step]
        if step == 1:
            x = x.narrow(axis, taken.start, len(taken))
        else:
            x = x.index_select(axis, torch.tensor(list(taken), dtype=torch.int64, device=x.device))
    return x


def _split(x: Tensor, split: Any = None, *, axis: int = 0, outputs: int, num_outputs: int | None = None) -> Any:
    if split is not None:
        return x.split(_numbers(split), dim=axis)
    return x.split(-(-x.shape[axis] // (num_outputs or outputs)), dim=axis)


def _squeeze(x: Tensor, axes: Any = None) -> Tensor:
    squeezed = [axis for axis in _axes(axes, x.ndim) if axes is not None or x.shape[axis] == 1]
    if any(x.shape[axis] != 1 for axis in squeezed):
        raise ValueError(f"an axis of {max(x.shape[axis] for axis in squeezed)} cannot be left out")
    return x.reshape([side for axis, side in enumerate(x.shape) if axis not in squeezed])


def _unsqueeze(x: Tensor, axes: Any) -> Tensor:
    for axis in sorted(_axes(axes, x.ndim + len(_numbers(axes)))):
        x = x.unsqueeze(axis)
    return x


def _gather(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    axis %= x.ndim
    places = torch.where(indices < 0, indices + x.shape[axis], indices).to(x.device)
    taken = x.index_select(axis, places.flatten())
    return taken.reshape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))


def _expand(x: Tensor, shape: Any) -> Tensor:
    wanted = torch.broadcast_shapes(x.shape, tuple(_numbers(shape)))
    return x.expand(wanted if x.is_floating_point() else _bounded(wanted))


def _tile(x: Tensor, repeats: Any) -> Tensor:
    times = _numbers(repeats)
    if not x.is_floating_point():
        _bounded([side * time for side, time in zip(x.shape, times, strict=True)])
    return x.repeat(times)


def _constant_of_shape(shape: Any, *, context: Context, value: Tensor | None = None) -> Tensor:
    sides = _bounded(_numbers(shape))
    filling = context.like.new_zeros(()) if value is None else value.reshape(())
    return torch.full(sides, filling.item(), dtype=filling.dtype).to(
        context.like if filling.is_floating_point() else "cpu"
    )


def _range(start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    (first,), (last,), (step,) = _numbers(start), _numbers(limit), _numbers(delta)
    _bounded([max(0, math.ceil((last - first) / step))])
    return torch.arange(first, last, step, dtype=start.dtype, device=start.device)


def _cast(x: Tensor, *, context: Context, to: int) -> Tensor:
    if to in FLOATS:
        return x.to(context.like)
    if to != BOOLEAN and to not in INTEGERS:
        raise NotSupportedError(f"a cast to type {to}")
    return x != 0 if to == BOOLEAN else x.to(torch.int64)


def _pad(
    x: Tensor,
    pads: Any,
    constant: Tensor | None = None,
    axes: Any = None,
    *,
    mode: str = "constant",
    value: float = 0.0,
) -> Tensor:
    modes = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}
    if mode not in modes:
        raise NotSupportedError(f"mode {mode!r}")
    sides, places = _numbers(pads), _axes(axes, x.ndim)
    both = {axis: (sides[n], sides[n + len(places)]) for n, axis in enumerate(places)}
    if mode != "constant" and any(any(pair) for axis, pair in both.items() if axis < 2):
        raise NotSupportedError(f"mode {mode!r} along images or channels")
    first = 0 if mode == "constant" else 2
    listed = [side for axis in range(x.ndim - 1, first - 1, -1) for side in both.get(axis, (0, 0))]
    filling = value if constant is None else _numbers(constant)[0]
    if mode == "constant":
        return functional.pad(x, listed, value=filling)
    return functional.pad(x, listed, mode=modes[mode])


def _resize(
    x: Tensor,
    roi: Any = None,
    scales: Any = None,
    sizes: Any = None,
    *,
    context: Context,
    antialias: int = 0,
    axes: Any = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Tensor:
    stated = (mode in ("nearest", *TAPS), not antialias, not exclude_outside, keep_aspect_ratio_policy == "stretch")
    if not all(stated) or coordinate_transformation_mode not in COORDINATES:
        raise NotSupportedError(
            f"mode {mode!r} with coordinates {coordinate_transformation_mode!r}, or antialias, exclude_outside "
            "or keep_aspect_ratio_policy"
        )
    places = _axes(axes, x.ndim)
    if sizes is not None and _numbers(sizes):
        wanted = _numbers(sizes)
        if context.single and places[0] == 0:
            wanted[0] = len(x)  # images are not resized
        factors = [size / x.shape[axis] for axis, size in zip(places, wanted, strict=True)]
    else:
        factors = _numbers(scales)
        wanted = [math.floor(x.shape[axis] * scale) for axis, scale in zip(places, factors, strict=True)]
    for axis, size, scale in zip(places, wanted, factors, strict=True):
        if size == x.shape[axis] and scale == 1:
            continue
        rule = (mode, coordinate_transformation_mode, nearest_mode, cubic_coeff_a)
        matrix = torch.from_numpy(_interpolation(x.shape[axis], size, scale, *rule)).to(x)
        x = (x.movedim(axis, -1) @ matrix.mT).movedim(-1, axis)
    return x


@lru_cache(maxsize=256)
def _interpolation(
    count: int, size: int, scale: float, mode: str, coordinates: str, nearest: str, bend: float
) -> NDArray[np.float64]:
    """Return the weights (size, count) of values at places 0, 1, ... in those that are asked for."""
    at, same = COORDINATES[coordinates](np.arange(size, dtype=np.float64), scale, count, size), np.eye(count)
    if mode == "nearest":
        if nearest not in NEAREST:
            raise NotSupportedError(f"nearest_mode {nearest!r}")
        places = NEAREST[nearest](at).clip(0, count - 1).astype(np.int64)
        return np.asarray(same[places])
    low = np.floor(at)
    weights = np.zeros((size, count))
    for tap in TAPS[mode]:
        distance = np.abs(at - low - tap)
        near, far = ((bend + 2) * distance - (bend + 3)) * distance**2 + 1, bend * (distance - 1) * (distance - 2) ** 2
        weight = 1 - distance if mode == "linear" else np.where(distance <= 1, near, far)
        place = (low + tap).clip(0, count - 1).astype(np.int64)  # beyond the border, the value there
        weights += same[place] * weight[:, None]
    return weights


COORDINATES: dict[str, Callable[[Any, float, int, int], Any]] = {
    "half_pixel": lambda at, scale, side, size: (at + 0.5) / scale - 0.5,
    "pytorch_half_pixel": lambda at, scale, side, size: (at + 0.5) / scale - 0.5 if size > 1 else at * 0,
    "align_corners": lambda at, scale, side, size: at * (side - 1) / (size - 1) if size > 1 else at * 0,
    "asymmetric": lambda at, scale, side, size: at / scale,
}
"""Places in the input of those in the output, by the name of the convention."""

NEAREST: dict[str, Callable[[Any], Any]] = {
    "round_prefer_floor": lambda at: np.ceil(at - 0.5),
    "round_prefer_ceil": lambda at: np.floor(at + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _reduced(function: Callable[[Tensor, list[int], bool], Tensor]) -> Callable[..., Tensor]:
    def run(x: Tensor, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Tensor:
        given = None if axes is None else _numbers(axes)
        if not given and noop_with_empty_axes:
            return x
        return function(x, _axes(given or None, x.ndim), bool(keepdims))

    return run


def _depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    count, channels, height, width = x.shape
    if mode == "CRD":
        return functional.pixel_shuffle(x, blocksize)
    split = x.reshape(count, blocksize, blocksize, channels // blocksize**2, height, width)
    return split.permute(0, 3, 4, 1, 5, 2).reshape(count, -1, height * blocksize, width * blocksize)


def _space_to_depth(x: Tensor, *, blocksize: int) -> Tensor:
    count, channels, height, width = x.shape
    split = x.reshape(count, channels, height // blocksize, blocksize, width // blocksize, blocksize)
    return split.permute(0, 3, 5, 1, 2, 4).reshape(count, -1, height // blocksize, width // blocksize)


def _scatter(x: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    if reduction not in ("none", "add"):
        raise NotSupportedError(f"reduction {reduction!r}")
    places = tuple(indices.to(x.device).unbind(dim=-1))
    return x.index_put(places, updates.to(x), accumulate=reduction == "add")


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    q_num_heads: int | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
) -> Tensor:
    if past_key is not None or past_value is not None or softcap:
        raise NotSupportedError("keys and values of the past, or softcap")
    flat = query.ndim == 3  # heads beside one another in the last axis
    if flat:
        heads = (q_num_heads, kv_num_heads, kv_num_heads)
        split = zip((query, key, value), heads, strict=True)
        query, key, value = (part.unflatten(-1, (count, -1)).transpose(1, 2) for part, count in split)
    key, value = (part.repeat_interleave(query.shape[1] // part.shape[1], dim=1) for part in (key, value))
    logits = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        mask = mask.to(logits.device)
        logits = logits + mask if mask.is_floating_point() else logits.masked_fill(~mask, -math.inf)
    if is_causal:
        allowed = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device).tril()
        logits = logits.masked_fill(~allowed, -math.inf)
    attended = torch.softmax(logits, dim=-1) @ value
    return attended.transpose(1, 2).flatten(2) if flat else attended


def _of_torch(name: str) -> Callable[..., Tensor]:
    """Return an operator of tensors alone that is the function of torch of the same name."""
    function = getattr(torch, name.lower(), None) or getattr(functional, name.lower())
    return lambda *inputs: function(*inputs)


NAMED_ALIKE = (
    "Abs", "Add", "Ceil", "Cos", "Erf", "Exp", "Floor", "Greater", "HardSwish", "Less", "Log", "MatMul", "Mish", "Mul",
    "Neg", "Pow", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Softsign", "Sqrt", "Sub", "Tanh",
)  # fmt: skip
"""Operators that torch has under the same name."""

OPERATORS: dict[str, Callable[..., Any]] = {
    **{name: _of_torch(name) for name in NAMED_ALIKE},
    "And": lambda a, b: a & b,
    "Attention": _attention,
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Cast": _cast,
    "CastLike": lambda x, target, *, context: _cast(
        x, context=context, to=1 if target.is_floating_point() else BOOLEAN if target.dtype == torch.bool else 7
    ),
    "Celu": lambda x, *, alpha=1.0: functional.celu(x, alpha),
    "Clip": lambda x, min=None, max=None: x if min is None and max is None else torch.clamp(x, min, max),
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "DepthToSpace": _depth_to_space,
    "Div": _divide,
    "Dropout": lambda x, ratio=None, training_mode=None: x,
    "Einsum": lambda *parts, equation: torch.einsum(equation, *parts),
    "Elu": lambda x, *, alpha=1.0: functional.elu(x, alpha),
    "Equal": lambda a, b: a == b,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "Gelu": lambda x, *, approximate="none": functional.gelu(x, approximate=approximate),
    "Gemm": _gemm,
    "GlobalAveragePool": lambda x: x.mean(dim=list(range(2, x.ndim)), keepdim=True),
    "GlobalMaxPool": lambda x: x.amax(dim=list(range(2, x.ndim)), keepdim=True),
    "GreaterOrEqual": lambda a, b: a >= b,
    "GroupNormalization": _group_norm,
    "HardSigmoid": lambda x, *, alpha=0.2, beta=0.5: torch.clamp(alpha * x + beta, 0.0, 1.0),
    "Identity": lambda x: x,
    "InstanceNormalization": lambda x, scale, bias, *, epsilon=1e-5: functional.instance_norm(
        x, weight=scale, bias=bias, eps=epsilon
    ),
    "LayerNormalization": _layer_norm,
    "LeakyRelu": lambda x, *, alpha=0.01: functional.leaky_relu(x, alpha),
    "LessOrEqual": lambda a, b: a <= b,
    "LogSoftmax": _softmax(torch.log_softmax),
    "Max": lambda *parts: reduce(torch.maximum, parts),
    "MaxPool": _max_pool,
    "Min": lambda *parts: reduce(torch.minimum, parts),
    "Mod": lambda a, b, *, fmod=0: torch.fmod(a, b) if fmod else torch.remainder(a, b),
    "Not": lambda a: ~a,
    "Or": lambda a, b: a | b,
    "PRelu": lambda x, slope: functional.relu(x) - slope * functional.relu(-x),
    "Pad": _pad,
    "Range": _range,
    "Reciprocal": lambda x: 1 / x,
    "ReduceL2": _reduced(lambda x, axes, keep: x.square().sum(dim=axes, keepdim=keep).sqrt()),
    "ReduceMax": _reduced(torch.amax),
    "ReduceMean": _reduced(torch.mean),
    "ReduceMin": _reduced(torch.amin),
    "ReduceSum": _reduced(torch.sum),
    "Reshape": _reshape,
    "Resize": _resize,
    "ScatterND": _scatter,
    "Selu": lambda x, *, alpha=1.6732631921768188, gamma=1.0507010221481323: gamma * functional.elu(x, alpha),
    "Shape": lambda x, *, start=0, end=None: torch.tensor(tuple(x.shape)[start:end], dtype=torch.int64),
    "Size": lambda x: torch.tensor(x.numel()),
    "Slice": _slice,
    "Softmax": _softmax(torch.softmax),
    "Softplus": lambda x: functional.softplus(x, threshold=40.0),
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _squeeze,
    "Sum": lambda *parts: reduce(torch.add, parts),
    "Tile": _tile,
    "Transpose": lambda x, *, perm=None: x.permute(*(perm if perm is not None else reversed(range(x.ndim)))),
    "Unsqueeze": _unsqueeze,
    "Upsample": lambda x, scales, *, context, mode="nearest": _resize(
        x, scales=scales, context=context, mode=mode, coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    ),
    "Where": lambda condition, a, b: torch.where(condition.to(a.device), a, b),
}
"""The operators that are run, by their names in files."""
