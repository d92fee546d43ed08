"""Steps of a forward pass between its matrix products, each one kernel on a GPU.

Imported only where CUDA is used and Triton is installed, which comes with torch there. Each kernel is compiled when it
is first used, in about a second, and kept on disk by Triton.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-any-return"

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from attentest.attention.forward_pass import Affine, Norm

AT_ONCE = 1024  # elements that one program of the elementwise kernel takes
ROWS = 32  # queries that one program of the attention kernel takes


def softmax_and_mean_(logits: Tensor, scale: float, mean_needed: bool) -> Tensor | None:
    """Replace logits (m, heads, N, N) by the softmax of scale * logits; return its mean over heads if needed."""
    images, heads, rows, tokens = logits.shape
    mean = logits.new_empty((images, rows, tokens) if mean_needed else 1)
    first, rest = _blocks(tokens)
    _softmax_kernel[(images, rows)](
        logits,
        mean,
        SCALE=scale,
        HEADS=heads,
        ROWS=rows,
        TOKENS=tokens,
        FIRST=first,
        REST=rest,
        MEAN=mean_needed,
        num_warps=1 if tokens <= 1024 else 2,
    )
    return mean if mean_needed else None


MOST_TOKENS = 128  # with more, the weights of a few rows do not fit into the registers of a program


def attended(mapped: Tensor, bias: Tensor, heads: int, mean_needed: bool) -> tuple[Tensor, Tensor | None]:
    """Return the attention of at most ``MOST_TOKENS`` tokens, in one kernel, which stores no weights of single heads.

    Parameters
    ----------
    mapped : (m, N, 3 d)
        Queries, keys and values of all heads, without their biases.
    bias : (3 d,)
        Their biases.
    heads
        Number of heads.
    mean_needed
        Whether the weights, averaged over heads, are asked for.

    Returns
    -------
    values : (m, N, d)
        The weighted means of values.
    mean : (m, N, N) or None
        The weights averaged over heads.
    """
    images, tokens, width = mapped.shape[0], mapped.shape[1], mapped.shape[2] // 3
    size = width // heads
    values = mapped.new_empty(images, tokens, width)
    mean = mapped.new_empty((images, tokens, tokens) if mean_needed else 1)
    first, rest = _blocks(tokens)
    _attention_kernel[(triton.cdiv(tokens, ROWS), images)](
        mapped,
        bias,
        values,
        mean,
        SCALE=size**-0.5,
        TOKENS=tokens,
        HEADS=heads,
        SIZE=size,
        PADDED=max(16, triton.next_power_of_2(size)),
        ROWS=ROWS,
        FIRST=first,
        REST=rest,
        MEAN=mean_needed,
        num_warps=2,
        num_stages=3,
    )
    return values, mean if mean_needed else None


def _blocks(tokens: int) -> tuple[int, int]:
    """Return the sizes of two blocks that hold all tokens; the second may be zero.

    Kernels take blocks of a power of two, and one for 65 tokens would be half empty.
    """
    first = max(16, 1 << (tokens.bit_length() - 1))
    return first, max(16, triton.next_power_of_2(tokens - first)) if tokens > first else 0


class Halves(NamedTuple):
    """The factors with which a kernel reads a product of halves, and writes its own result as halves."""

    factor: float
    """What the product is multiplied by."""
    scale: float
    """What the result is multiplied by before it is split."""


def normed(x: Tensor, norm: Norm, halves: Halves | None = None) -> Tensor:
    """Return the layer norm of x (m, N, d), or its halves (m * N, 3 d)."""
    return _normed(x, None, None, norm, halves)


def added_and_normed(x: Tensor, change: Tensor, affine: Affine, norm: Norm, halves: Halves | None = None) -> Tensor:
    """Add (change + bias) * scale to x (m, N, d), in place, and return the layer norm of the sum, or its halves."""
    return _normed(x, change, affine, norm, halves)


def _normed(x: Tensor, change: Tensor | None, affine: Affine | None, norm: Norm, halves: Halves | None) -> Tensor:
    normed = torch.empty_like(x) if halves is None else _halves_of(x)
    width = x.shape[-1]
    scale = None if affine is None else affine.scale
    factor, split_scale = halves or (1.0, 1.0)
    _norm_kernel[(x.numel() // width,)](
        x,
        x if change is None else change,  # a place without use must be filled, too
        x if affine is None else affine.bias,
        x if scale is None else scale,
        norm.weight,
        norm.bias,
        normed,
        factor,
        split_scale,
        EPS=norm.eps,
        WIDTH=width,
        PADDED=triton.next_power_of_2(width),
        ADDED=change is not None,
        SCALED=scale is not None,
        SPLIT=halves is not None,
        num_warps=1 if width <= 128 else 4,
    )
    return normed


def gelu_(hidden: Tensor, bias: Tensor, halves: Halves | None = None) -> Tensor:
    """Replace hidden (m, N, n) by the exact GELU of hidden + bias; or return its halves (m * N, 3 n)."""
    count = hidden.numel()
    made = hidden if halves is None else _halves_of(hidden)
    _gelu_kernel[(triton.cdiv(count, AT_ONCE),)](
        hidden,
        bias,
        made,
        count,
        *(halves or (1.0, 1.0)),
        ROOT_HALF=math.sqrt(0.5),
        WIDTH=hidden.shape[-1],
        AT_ONCE=AT_ONCE,
        SPLIT=halves is not None,
    )
    return made


def _halves_of(x: Tensor) -> Tensor:
    """Return room for x (..., n) as low, high and high halves, which meet the high, low and high ones of weights.

    The small products come first: tensor cores cut off what they add, and less of it while the sum is small.
    """
    return torch.empty(x.numel() // x.shape[-1], 3 * x.shape[-1], dtype=torch.float16, device=x.device)


# Constants are made tensors of the dtype in question: Triton rounds a number by itself to float32.


@triton.jit
def _softmax_kernel(
    logits,
    mean,
    SCALE: tl.constexpr,
    HEADS: tl.constexpr,
    ROWS: tl.constexpr,
    TOKENS: tl.constexpr,
    FIRST: tl.constexpr,
    REST: tl.constexpr,
    MEAN: tl.constexpr,
):
    dtype = logits.dtype.element_ty
    image, row = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = tl.arange(0, FIRST)
    total = tl.zeros((FIRST,), dtype=dtype)
    scale = tl.full((), SCALE, dtype)
    if REST > 0:
        column_2 = FIRST + tl.arange(0, REST)
        total_2 = tl.zeros((REST,), dtype=dtype)
    for head in range(HEADS):
        place = logits + ((image * HEADS + head) * ROWS + row) * TOKENS
        value = tl.load(place + column, mask=column < TOKENS, other=float("-inf")) * scale
        greatest = tl.max(value, axis=0)
        if REST > 0:
            value_2 = tl.load(place + column_2, mask=column_2 < TOKENS, other=float("-inf")) * scale
            greatest = tl.maximum(greatest, tl.max(value_2, axis=0))
        weights = tl.exp(value - greatest)
        divisor = tl.sum(weights, axis=0)
        if REST > 0:
            weights_2 = tl.exp(value_2 - greatest)
            divisor += tl.sum(weights_2, axis=0)
        share = 1.0 / divisor  # products take a tenth of the time of divisions
        weights *= share
        tl.store(place + column, weights, mask=column < TOKENS)
        total += weights
        if REST > 0:
            weights_2 *= share
            tl.store(place + column_2, weights_2, mask=column_2 < TOKENS)
            total_2 += weights_2
    if MEAN:
        place = mean + (image * ROWS + row) * TOKENS
        tl.store(place + column, total / HEADS, mask=column < TOKENS)
        if REST > 0:
            tl.store(place + column_2, total_2 / HEADS, mask=column_2 < TOKENS)


@triton.jit
def _of_head(place, bias, token, feature, TOKENS: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr):
    """Load queries, keys or values (tokens, features) of a head, and add their biases."""
    there = feature < SIZE
    value = tl.load(
        place + token[:, None] * (3 * WIDTH) + feature[None, :],
        mask=(token < TOKENS)[:, None] & there[None, :],
        other=0.0,
    )
    return value + tl.load(bias + feature, mask=there, other=0.0)[None, :]


@triton.jit
def _attention_kernel(
    mapped,
    bias,
    values,
    mean,
    SCALE: tl.constexpr,
    TOKENS: tl.constexpr,
    HEADS: tl.constexpr,
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
    ROWS: tl.constexpr,
    FIRST: tl.constexpr,
    REST: tl.constexpr,
    MEAN: tl.constexpr,
):
    dtype = mapped.dtype.element_ty
    width: tl.constexpr = HEADS * SIZE
    image = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    feature = tl.arange(0, PADDED)
    column = tl.arange(0, FIRST)
    scale = tl.full((), SCALE, dtype)
    total = tl.zeros((ROWS, FIRST), dtype=dtype)
    if REST > 0:
        column_2 = FIRST + tl.arange(0, REST)
        total_2 = tl.zeros((ROWS, REST), dtype=dtype)
    for head in range(HEADS):
        place, biases = mapped + image * TOKENS * 3 * width + head * SIZE, bias + head * SIZE
        queries = _of_head(place, biases, row, feature, TOKENS, SIZE, width) * scale
        keys = _of_head(place + width, biases + width, column, feature, TOKENS, SIZE, width)
        logits = tl.dot(queries, tl.trans(keys), out_dtype=dtype, input_precision="ieee")
        logits = tl.where((column < TOKENS)[None, :], logits, float("-inf"))
        greatest = tl.max(logits, axis=1)
        if REST > 0:
            keys = _of_head(place + width, biases + width, column_2, feature, TOKENS, SIZE, width)
            logits_2 = tl.dot(queries, tl.trans(keys), out_dtype=dtype, input_precision="ieee")
            logits_2 = tl.where((column_2 < TOKENS)[None, :], logits_2, float("-inf"))
            greatest = tl.maximum(greatest, tl.max(logits_2, axis=1))
        weights = tl.exp(logits - greatest[:, None])
        divisor = tl.sum(weights, axis=1)
        if REST > 0:
            weights_2 = tl.exp(logits_2 - greatest[:, None])
            divisor += tl.sum(weights_2, axis=1)
        share = (1.0 / divisor)[:, None]  # a product takes a tenth of the time of a division
        total += weights * share
        of_head = _of_head(place + 2 * width, biases + 2 * width, column, feature, TOKENS, SIZE, width)
        result = tl.dot(weights, of_head, out_dtype=dtype, input_precision="ieee")
        if REST > 0:
            total_2 += weights_2 * share
            of_head = _of_head(place + 2 * width, biases + 2 * width, column_2, feature, TOKENS, SIZE, width)
            result += tl.dot(weights_2, of_head, out_dtype=dtype, input_precision="ieee")
        there = (row < TOKENS)[:, None] & (feature < SIZE)[None, :]
        to = values + (image * TOKENS + row[:, None]) * width + head * SIZE + feature[None, :]
        tl.store(to, result * share, mask=there)
    if MEAN:
        to = mean + (image * TOKENS + row[:, None]) * TOKENS
        there = (row < TOKENS)[:, None]
        tl.store(to + column[None, :], total / HEADS, mask=there & (column < TOKENS)[None, :])
        if REST > 0:
            tl.store(to + column_2[None, :], total_2 / HEADS, mask=there & (column_2 < TOKENS)[None, :])


@triton.jit
def _norm_kernel(
    x,
    change,
    bias,
    scale,
    weight,
    shift,
    normed,
    factor,
    split_scale,
    EPS: tl.constexpr,
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,
    ADDED: tl.constexpr,
    SCALED: tl.constexpr,
    SPLIT: tl.constexpr,
):
    start = tl.program_id(0).to(tl.int64) * WIDTH
    features = tl.arange(0, PADDED)
    there = features < WIDTH
    value = tl.load(x + start + features, mask=there, other=0.0)
    if ADDED:
        added = tl.load(change + start + features, mask=there, other=0.0)
        if SPLIT:
            added = added * factor
        added = added + tl.load(bias + features, mask=there, other=0.0)
        if SCALED:
            added = added * tl.load(scale + features, mask=there, other=0.0)
        value = value + added
        tl.store(x + start + features, value, mask=there)
    centred = tl.where(there, value - tl.sum(value, axis=0) / WIDTH, 0.0)
    variance = tl.sum(centred * centred, axis=0) / WIDTH + tl.full((), EPS, x.dtype.element_ty)
    scaled = centred / tl.sqrt(variance) * tl.load(weight + features, mask=there, other=0.0)
    result = scaled + tl.load(shift + features, mask=there, other=0.0)
    if SPLIT:
        store_halves(normed + 3 * start + features, result * split_scale, WIDTH, there)
    else:
        tl.store(normed + start + features, result, mask=there)


@triton.jit
def split(value):
    """Return two numbers of half precision whose sum is a number of float32, but for its last two bits."""
    high = value.to(tl.float16)
    return high, (value - high.to(tl.float32)).to(tl.float16)


@triton.jit
def store_halves(place, value, WIDTH: tl.constexpr, there):
    """Store numbers as low, high and high halves, each WIDTH places from the one before."""
    high, low = split(value)
    tl.store(place, low, mask=there)
    tl.store(place + WIDTH, high, mask=there)
    tl.store(place + 2 * WIDTH, high, mask=there)


@triton.jit
def _gelu_kernel(
    hidden,
    bias,
    made,
    count,
    factor,
    split_scale,
    ROOT_HALF: tl.constexpr,
    WIDTH: tl.constexpr,
    AT_ONCE: tl.constexpr,
    SPLIT: tl.constexpr,
):
    place = tl.program_id(0).to(tl.int64) * AT_ONCE + tl.arange(0, AT_ONCE)
    there = place < count
    value = tl.load(hidden + place, mask=there, other=0.0)
    if SPLIT:
        value = value * factor
    value = value + tl.load(bias + place % WIDTH, mask=there, other=0.0)
    root_half = tl.full((), ROOT_HALF, hidden.dtype.element_ty)
    result = 0.5 * value * (1.0 + tl.erf(value * root_half))
    if SPLIT:
        store_halves(made + 3 * place - 2 * (place % WIDTH), result * split_scale, WIDTH, there)
    else:
        tl.store(made + place, result, mask=there)
