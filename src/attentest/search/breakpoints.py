"""Functions that are linear in pieces, along a line: values, slopes, and where the piece of each point ends.

Between two breakpoints every unit of such a network is a linear function of z. Its value and slope at one point, which
forward-mode differentiation gives together, tell where its activation has its next kink; the nearest of all units end
the piece. Functions of torch are followed as they are called, so that any module can be followed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.functional import pad
from torch.overrides import TorchFunctionMode

from attentest.errors import ModelError

Kind: TypeAlias = Literal["linear in pieces", "smooth in pieces", "smooth", "neither"]
"""What a function is along lines: linear between breakpoints, smooth between breakpoints that are known, without any,
or with kinks whose places are not known."""

NEGLIGIBLE = 64 * torch.finfo(torch.float64).eps
"""A unit whose value and slope are both smaller than this, relative to the greatest of its layer, is rounding."""

LINES = 3  # lines that are followed to see what a function is
CURVED = "_attentest_curved"  # attribute of tensors that are not linear in z within a piece


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


LINEAR = _names("""
    __add__ __get__ __getitem__ __neg__ __radd__ __rsub__ __setitem__ __sub__ __iadd__ __isub__ adaptive_avg_pool1d
    adaptive_avg_pool2d adaptive_avg_pool3d add alias as_tensor atleast_1d avg_pool1d avg_pool2d avg_pool3d
    broadcast_tensors broadcast_to cat channel_shuffle chunk clone concat concatenate constant_pad_nd contiguous copy
    cumsum diagonal diff double dropout dropout2d dropout3d expand expand_as flatten flip float fold
    gather hstack index_select interpolate masked_fill masked_select mean movedim moveaxis mT T narrow nan_to_num neg
    negative new_tensor pad permute pixel_shuffle pixel_unshuffle positive ravel repeat repeat_interleave reshape
    reshape_as roll rsub select split split_with_sizes squeeze stack sub subtract sum swapaxes t tensor_split tile to
    transpose tril triu type type_as unbind unflatten unfold unsqueeze upsample upsample_bilinear upsample_nearest view
    view_as vstack where dstack zero feature_dropout alpha_dropout index_put scatter scatter_add slice_scatter
    requires_grad cpu cuda real unpack_dual make_dual take_along_dim column_stack narrow_copy swapdims""")
"""Functions that are linear in all their tensors."""

PRODUCTS = _names("""
    __matmul__ __mul__ __rmatmul__ __rmul__ __imul__ addbmm addcmul addmm addmv baddbmm bilinear bmm conv1d conv2d
    conv3d conv_transpose1d conv_transpose2d conv_transpose3d dot einsum inner linear matmul mm mul multiply mv outer
    tensordot convolution chain_matmul kron lerp""")
"""Functions that are linear in each of their tensors: linear, if only one depends on z."""

QUOTIENTS = _names("__truediv__ div divide true_divide __itruediv__")
"""Functions that are linear if what they divide by does not depend on z."""

DECISIONS = _names("""
    argmax argmin argsort bucketize ceil floor fmod frac kthvalue median mode msort nonzero quantile remainder round
    searchsorted sort topk trunc unique item tolist __bool__ __int__ __float__ numpy cummax cummin hardshrink
    softshrink max_unpool2d fractional_max_pool2d dist cdist norm histc __array__ __index__ __contains__ equal allclose
    is_nonzero""")
"""Functions with kinks, or decisions, whose places are not worked out."""

SHAPED = _names("""
    empty_like full_like new_empty new_full new_ones new_tensor new_zeros ones_like rand_like randn_like zeros_like
    make_dual unpack_dual native_layer_norm native_layer_norm_backward""")
"""Functions that return tensors which do not depend on the values of theirs, those of the derivative itself, and norms,
which hide means and deviations that their own gradient alone takes, and computes again."""

LIKE_ANOTHER = _names("expand_as reshape_as to type_as view_as")
"""Functions that take another tensor for its shape or its type alone."""

Line: TypeAlias = tuple[Tensor, Tensor]
"""Values and slopes of units."""


class Breakpoints(TorchFunctionMode):
    """Follows what is computed of m points on lines, each with a tangent, and collects their nearest breakpoints.

    The first axis of every tensor runs over the points.
    """

    def __init__(self, count: int, device: torch.device) -> None:
        super().__init__()
        self.before = torch.full((count,), -math.inf, dtype=torch.float64, device=device)
        self.after = torch.full((count,), math.inf, dtype=torch.float64, device=device)
        """(m,). Distances along z to the breakpoints before and after each point, -inf and inf if there is none."""
        self.curved = False  # whether a function was called that is not linear between breakpoints
        self.unknown: set[str] = set()
        """Names of functions whose breakpoints are not known: kinks of something curved, and those not followed."""
        self.kinks = 0  # number of functions with kinks that were called
        self.torn = False  # whether a gradient of something with kinks was taken: it jumps there

    @property
    def kind(self) -> Kind:
        """What the function is, from all that was called so far."""
        if self.unknown:
            return "neither"
        if self.curved:
            return "smooth in pieces" if self.kinks else "smooth"
        return "linear in pieces"

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function, after a look at the kinks that it has along the lines."""
        kwargs = kwargs or {}
        moving = [value for value in _tensors((args, kwargs)) if _slope(value) is not None]
        if not moving:
            return func(*args, **kwargs)
        name = _name(func)
        if name in LIKE_ANOTHER and _slope(args[0]) is None:
            return func(*args, **kwargs)
        if name == "grad":
            self.torn |= self.kinks > 0
            return self._gradient(func(*args, **kwargs))
        bent = any(hasattr(value, CURVED) for value in moving)
        if name in KINKS:
            self._kink(name, bent, args, kwargs)
        elif name in DECISIONS:
            self.unknown.add(name)
        returned = func(*args, **kwargs)
        if name not in KINKS and name not in SHAPED and any(_slope(value) is None for value in _tensors(returned)):
            self.unknown.add(name)  # what it returns depends on z, by steps or in a way that is hidden
        if bent or self._bends(name, args, kwargs, moving, returned):
            for value in _tensors(returned):
                if _slope(value) is not None:
                    setattr(value, CURVED, True)
                    self.curved = True
        return returned

    def _kink(self, name: str, bent: bool, args: Any, kwargs: Any) -> None:
        self.kinks += 1
        if bent:
            self.unknown.add(f"{name} of something that is not linear")
            return
        followed = KINKS[name](*args, **kwargs)
        if followed is None:
            self.unknown.add(name)
            return
        for distance, slope in followed:
            if distance.shape[:1] != self.after.shape:
                self.unknown.add(f"{name} of a tensor whose first axis is not that of the images")
            elif distance.numel():
                self._cross(distance.flatten(1), slope.flatten(1))

    def _bends(self, name: str, args: Any, kwargs: Any, moving: list[Tensor], returned: Any) -> bool:
        """Return whether a function of tensors that are linear in z may return one that is not."""
        if name in KINKS:
            return name in CURVED_KINKS
        if name in LINEAR:
            return False
        if name == "batch_norm":  # linear if means and variances are stored ones
            return bool(kwargs.get("training", args[5] if len(args) > 5 else False))
        if name in PRODUCTS:
            return len(moving) > 1
        if name in QUOTIENTS:
            values = [*args, *kwargs.values()]
            return isinstance(values[1], Tensor) and _slope(values[1]) is not None
        return any(_slope(value) is not None for value in _tensors(returned))

    def _gradient(self, returned: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return gradients; those that are constant within a piece have no slope."""
        gradients = []
        for value in returned:
            slope = _slope(value)
            constant = slope is None or not bool(slope.any())
            gradients.append(forward_ad.unpack_dual(value).primal if constant else value)
            if not constant:
                setattr(value, CURVED, True)
                self.curved = True
        return tuple(gradients)

    def _cross(self, distance: Tensor, slope: Tensor) -> None:
        """Take note of where values (m, n) with these slopes become zero."""
        finite = torch.where(torch.isfinite(distance), distance, 0.0).abs().amax(dim=1, keepdim=True)
        least = NEGLIGIBLE * finite, NEGLIGIBLE * slope.abs().amax(dim=1, keepdim=True)
        rounding = (distance.abs() <= least[0]) & (slope.abs() <= least[1])
        step = -distance / torch.where(rounding | (slope == 0), math.nan, slope)
        self.after = torch.minimum(self.after, torch.where(step >= 0, step, math.inf).amin(dim=1))
        self.before = torch.maximum(self.before, torch.where(step <= 0, step, -math.inf).amax(dim=1))


def _name(func: Any) -> str:
    """Return the name of a function of torch, the same for a function, a method, and what changes its argument."""
    name = str(getattr(func, "__name__", func))
    return name if name.startswith("__") else name.strip("_")


def _tensors(values: Any) -> list[Tensor]:
    if isinstance(values, Tensor):
        return [values]
    found: list[Tensor] = []
    if isinstance(values, (tuple, list, dict)):
        for value in values.values() if isinstance(values, dict) else values:
            if isinstance(value, (Tensor, tuple, list, dict)):  # most are numbers
                found += _tensors(value)
    return found


def _slope(value: Tensor) -> Tensor | None:
    return forward_ad.unpack_dual(value).tangent if value.is_floating_point() else None


def _line(value: Any, like: Tensor | None = None) -> Line:
    """Return values and slopes of a tensor, or of a number beside one."""
    if not isinstance(value, Tensor):
        assert like is not None
        return torch.full_like(like, float(value)), torch.zeros_like(like)
    parts = forward_ad.unpack_dual(value)
    return parts.primal.detach(), torch.zeros_like(parts.primal) if parts.tangent is None else parts.tangent.detach()


def _at(places: tuple[float, ...], value: Tensor, *_: Any, **__: Any) -> list[Line]:
    """Return the crossings of an activation with kinks at fixed places."""
    distance, slope = _line(value)
    return [(distance - place, slope) for place in places]


def _clamped(value: Tensor, low: Any = None, high: Any = None, **named: Any) -> list[Line]:
    low, high = named.get("min", named.get("min_val", low)), named.get("max", named.get("max_val", high))
    return [line for limit in (low, high) if limit is not None for line in _compared(value, limit)]


def _compared(first: Any, second: Any, *_: Any, **__: Any) -> list[Line]:
    like = next(value for value in (first, second) if isinstance(value, Tensor))
    (a, slope_a), (b, slope_b) = (_line(value, like.detach()) for value in (first, second))
    a, b, slope_a, slope_b = torch.broadcast_tensors(a, b, slope_a, slope_b)
    return [(a - b, slope_a - slope_b)]


def _extreme(sign: int, value: Tensor, *others: Any, **named: Any) -> list[Line] | None:
    """Return the crossings of the greatest values (sign 1) or the least (-1) along axes, or of two tensors."""
    dim = named.get("dim", named.get("axis", others[0] if others else None))
    if isinstance(dim, Tensor) or isinstance(named.get("other"), Tensor):
        return _compared(value, dim if isinstance(dim, Tensor) else named["other"])
    if dim is None:
        return None  # over all images at once
    axes = [axis % value.ndim for axis in ([dim] if isinstance(dim, int) else dim)]
    if 0 in axes:
        return None
    rest = [axis for axis in range(value.ndim) if axis not in axes]
    values, slopes = (sign * part.permute(*rest, *axes).flatten(len(rest)) for part in _line(value))
    return [_overtaken(values, slopes)]


def _overtaken(values: Tensor, slopes: Tensor) -> Line:
    """Return by how much each of values (..., n) lies below the greatest of them, and the slopes of that."""
    winner = values.argmax(dim=-1, keepdim=True)
    return values.gather(-1, winner) - values, slopes.gather(-1, winner) - slopes


def _pooled(
    axes: int,
    value: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> list[Line]:
    """Return the crossings within the windows of pooling over so many axes, which are given as to torch."""
    kernel, padding, dilation = (_each(number, axes) for number in (kernel_size, padding, dilation))
    stride = kernel if stride is None or stride == [] else _each(stride, axes)
    values, slopes = _line(value)
    for axis in range(axes):
        place, reach = axis + value.ndim - axes, dilation[axis] * (kernel[axis] - 1) + 1
        spare = stride[axis] - 1 if ceil_mode else 0
        border = [0, 0] * (values.ndim - 1 - place) + [padding[axis], padding[axis] + spare]
        values, slopes = pad(values, border, value=-math.inf), pad(slopes, border)
        values, slopes = (part.unfold(place, reach, stride[axis])[..., :: dilation[axis]] for part in (values, slopes))
    return [_overtaken(values.flatten(-axes), slopes.flatten(-axes))]


def _adaptively_pooled(axes: int, value: Tensor, output_size: Any, *_: Any, **__: Any) -> list[Line] | None:
    sides = value.shape[-axes:]
    wanted = [side if count is None else count for side, count in zip(sides, _each(output_size, axes), strict=True)]
    if any(side % count for side, count in zip(sides, wanted, strict=True)):
        return None
    return _pooled(axes, value, [side // count for side, count in zip(sides, wanted, strict=True)])


def _each(number: Any, axes: int) -> list[Any]:
    numbers = list(number) if isinstance(number, (tuple, list, torch.Size)) else [number]
    return numbers * axes if len(numbers) == 1 else numbers


CURVED_KINKS = _names("elu selu celu hardsigmoid hardswish")
"""Activations that have kinks and are curved between them, or whose slope torch knows to single precision alone."""

KINKS: dict[str, Callable[..., list[Line] | None]] = {
    **dict.fromkeys(_names("relu leaky_relu prelu rrelu abs absolute sign sgn elu selu celu"), partial(_at, (0.0,))),
    "relu6": partial(_at, (0.0, 6.0)),
    **dict.fromkeys(_names("hardsigmoid hardswish"), partial(_at, (-3.0, 3.0))),
    "hardtanh": lambda value, low=-1.0, high=1.0, *_, **named: _clamped(value, low, high, **named),
    **dict.fromkeys(_names("clamp clip"), _clamped),
    **dict.fromkeys(
        _names("""
            threshold clamp_min clamp_max maximum minimum fmax fmin gt ge lt le greater less greater_equal less_equal
            __gt__ __ge__ __lt__ __le__"""),
        _compared,
    ),
    **dict.fromkeys(_names("max amax"), partial(_extreme, 1)),
    **dict.fromkeys(_names("min amin"), partial(_extreme, -1)),
    **{f"max_pool{axes}d{end}": partial(_pooled, axes) for axes in (1, 2, 3) for end in ("", "_with_indices")},
    **{f"adaptive_max_pool{axes}d": partial(_adaptively_pooled, axes) for axes in (1, 2, 3)},
}
"""Functions with kinks, and where these are: values that become zero there, and their slopes."""


@contextmanager
def followed(count: int, device: torch.device) -> Iterator[Breakpoints]:
    """Follow what is computed of tensors that have tangents, m points at a time."""
    with forward_ad.dual_level(), Breakpoints(count, device) as breakpoints:
        yield breakpoints


def followed_along_lines(
    scores: Callable[[Tensor], Tensor], image_shape: tuple[int, ...], device: torch.device, batch_size: int
) -> Breakpoints:
    """Return what a function of images (m, C, *axes) is found to be along a few lines.

    They are followed together, as far as a batch goes, and one by one: a function that mixes images, or that has no
    derivative in forward mode, is neither smooth nor linear in pieces.
    """
    lines = min(LINES, batch_size)  # more would not pass through the network together
    chance = torch.Generator("cpu").manual_seed(0)
    origin, direction = torch.randn(2, lines, *image_shape, dtype=torch.float64, generator=chance).to(device)

    def followed_along(rows: slice) -> Breakpoints:
        z = torch.zeros(len(origin[rows]), dtype=torch.float64, device=device)
        with followed(len(z), device) as breakpoints:
            moving = forward_ad.make_dual(z, torch.ones_like(z)).reshape(-1, *[1] * len(image_shape))
            try:
                scores(origin[rows] + direction[rows] * moving)
            except (RuntimeError, NotImplementedError, ModelError) as error:
                breakpoints.unknown.add(f"what has no derivative in forward mode ({error})")
        return breakpoints

    together = followed_along(slice(None))
    if together.unknown:
        return together
    alone = [followed_along(slice(row, row + 1)) for row in range(lines)]
    ends = torch.cat([torch.cat([one.before, one.after]) for one in alone])
    if not torch.allclose(torch.stack([together.before, together.after], dim=1).flatten(), ends, rtol=1e-6):
        together.unknown.add("what mixes images")
    return together
