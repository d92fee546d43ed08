"""Attention on tensor cores in nearly the precision of float32: numbers as sums of two of half precision.

Imported only where CUDA is used and Triton is installed. Of the four products of two such sums the least is left out,
which is as small as what rounding to float32 leaves out.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-any-return"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from attentest.attention.fused_kernels import AT_ONCE, split, store_halves

ROWS, COLUMNS = 128, 64  # queries and keys that one program takes at a time


def halves(values: Tensor, factor: Tensor, shift: Tensor) -> Tensor:
    """Return values (r, n) * factor (n,) + shift (n,) as the sum of two of half precision, (2, r, n)."""
    count = values.numel()
    made = torch.empty(2, *values.shape, dtype=torch.float16, device=values.device)
    _halves_kernel[(triton.cdiv(count, AT_ONCE),)](
        values, factor, shift, made, count, WIDTH=values.shape[1], AT_ONCE=AT_ONCE
    )
    return made


def attended(parts: Tensor, images: int, heads: int, inverse: float) -> tuple[Tensor, Tensor]:
    """Return the weighted means of values, and the logarithms to base 2 of the sums by which weights are divided.

    Parameters
    ----------
    parts : (2, images * N, 3 d)
        Queries, keys and values as halves. Queries times keys times ``inverse`` are logits to base 2.
    images, heads
        Numbers of images and of heads.
    inverse
        See ``parts``.

    Returns
    -------
    means : (images * N, 3 d) float16
        As the next product takes them: low, high and high halves of d features.
    logarithms : (images, heads, N)
        In float32.
    """
    rows, width = parts.shape[1], parts.shape[2] // 3
    tokens, size = rows // images, width // heads
    means = torch.empty(rows, 3 * width, dtype=torch.float16, device=parts.device)
    logarithms = torch.empty(images, heads, tokens, dtype=torch.float32, device=parts.device)
    _attend_kernel[(triton.cdiv(tokens, ROWS), images * heads)](
        parts, means, logarithms, inverse, rows * 3 * width,
        TOKENS=tokens, HEADS=heads, SIZE=size, PADDED=max(16, triton.next_power_of_2(size)),
        ROWS=ROWS, COLUMNS=COLUMNS, num_warps=8, num_stages=2,
    )  # fmt: skip
    return means, logarithms


def mean_attention(parts: Tensor, logarithms: Tensor, inverse: float) -> Tensor:
    """Return the attention (images, N, N) averaged over heads, in float32; parameters as in :func:`attended`."""
    images, heads, tokens = logarithms.shape
    width = parts.shape[2] // 3
    mean = torch.empty(images, tokens, tokens, dtype=torch.float32, device=parts.device)
    _mean_kernel[(triton.cdiv(tokens, ROWS), triton.cdiv(tokens, COLUMNS), images)](
        parts, logarithms, mean, inverse, parts.shape[1] * 3 * width,
        TOKENS=tokens, HEADS=heads, SIZE=width // heads, PADDED=max(16, triton.next_power_of_2(width // heads)),
        ROWS=ROWS, COLUMNS=COLUMNS, num_warps=8, num_stages=2,
    )  # fmt: skip
    return mean


@triton.jit
def _halves_kernel(values, factor, shift, made, count, WIDTH: tl.constexpr, AT_ONCE: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * AT_ONCE + tl.arange(0, AT_ONCE)
    there = place < count
    column = place % WIDTH
    value = tl.load(values + place, mask=there, other=0.0)
    value = value * tl.load(factor + column, mask=there, other=0.0) + tl.load(shift + column, mask=there, other=0.0)
    high, low = split(value)
    tl.store(made + place, high, mask=there)
    tl.store(made + count + place, low, mask=there)


@triton.jit
def _product(first_high, first_low, second_high, second_low):
    small = tl.dot(first_low, second_high)
    small = tl.dot(first_high, second_low, small)
    return tl.dot(first_high, second_high, small)


@triton.jit
def _both(place, plane, there):
    return tl.load(place, mask=there, other=0.0), tl.load(place + plane, mask=there, other=0.0)


@triton.jit
def _attend_kernel(
    parts, means, logarithms, inverse, plane,
    TOKENS: tl.constexpr, HEADS: tl.constexpr, SIZE: tl.constexpr, PADDED: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    image, head = (tl.program_id(1) // HEADS).to(tl.int64), tl.program_id(1) % HEADS
    width: tl.constexpr = HEADS * SIZE
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    feature = tl.arange(0, PADDED)
    start = parts + image * TOKENS * 3 * width + head * SIZE
    row_there = (row < TOKENS)[:, None] & (feature < SIZE)[None, :]
    queries = start + row[:, None] * (3 * width) + feature[None, :]
    query_high, query_low = _both(queries, plane, row_there)
    greatest = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), dtype=tl.float32)
    mean = tl.zeros((ROWS, PADDED), dtype=tl.float32)
    for first in range(0, TOKENS, COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        there = (column < TOKENS)[:, None] & (feature < SIZE)[None, :]
        keys = start + width + column[:, None] * (3 * width) + feature[None, :]
        key_high, key_low = _both(keys, plane, there)
        logits = _product(query_high, query_low, tl.trans(key_high), tl.trans(key_low)) * inverse
        logits = tl.where((column < TOKENS)[None, :], logits, float("-inf"))
        now = tl.maximum(greatest, tl.max(logits, axis=1))
        weights = tl.exp2(logits - now[:, None])
        shrunk = tl.exp2(greatest - now)
        total = total * shrunk + tl.sum(weights, axis=1)
        value_high, value_low = _both(keys + width, plane, there)
        weight_high, weight_low = split(weights * 1024.0)  # so that the low half is no subnormal number
        mean = mean * shrunk[:, None] + _product(weight_high, weight_low, value_high, value_low)
        greatest = now
    place = means + (image * TOKENS + row[:, None]) * (3 * width) + head * SIZE + feature[None, :]
    store_halves(place, mean / (total * 1024.0)[:, None], width, row_there)
    tl.store(logarithms + (image * HEADS + head) * TOKENS + row, greatest + tl.log2(total), mask=row < TOKENS)


@triton.jit
def _mean_kernel(
    parts, logarithms, mean, inverse, plane,
    TOKENS: tl.constexpr, HEADS: tl.constexpr, SIZE: tl.constexpr, PADDED: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(2).to(tl.int64)
    width: tl.constexpr = HEADS * SIZE
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    feature = tl.arange(0, PADDED)
    row_there = (row < TOKENS)[:, None] & (feature < SIZE)[None, :]
    column_there = (column < TOKENS)[:, None] & (feature < SIZE)[None, :]
    start = parts + image * TOKENS * 3 * width
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for head in range(HEADS):
        queries = start + row[:, None] * (3 * width) + head * SIZE + feature[None, :]
        keys = start + width + column[:, None] * (3 * width) + head * SIZE + feature[None, :]
        query_high, query_low = _both(queries, plane, row_there)
        key_high, key_low = _both(keys, plane, column_there)
        logits = _product(query_high, query_low, tl.trans(key_high), tl.trans(key_low)) * inverse
        logarithm = tl.load(logarithms + (image * HEADS + head) * TOKENS + row, mask=row < TOKENS, other=0.0)
        total += tl.exp2(logits - logarithm[:, None])
    place = mean + (image * TOKENS + row[:, None]) * TOKENS + column[None, :]
    tl.store(place, total / HEADS, mask=(row < TOKENS)[:, None] & (column < TOKENS)[None, :])
