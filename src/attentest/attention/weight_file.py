"""The number of weights in a safetensors file, from its header alone."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LARGEST_HEADER = 100_000_000
"""Most bytes of a header, the format's own limit."""

MOST_WEIGHTS_A_BYTE = 2
"""Of the narrowest dtype, of four bits."""


def weights_in(path: Path) -> int:
    """Return the number of weights in a safetensors file; a header that cannot be true raises a ValueError."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(LARGEST_HEADER, size - 8):
            raise ValueError(f"{path.name} has {size} bytes, too few for a header of {length}, or too long a header")
        try:
            header = json.loads(file.read(length))
        except (ValueError, RecursionError):
            raise ValueError(f"the header of {path.name} is damaged") from None
    if not isinstance(header, dict):
        raise ValueError(f"the header of {path.name} is damaged")
    tensors = [_extent(entry, name, path) for name, entry in header.items() if name != "__metadata__"]
    if sum(taken for _, taken in tensors) > size - 8 - length:
        raise ValueError(f"the tensors in the header of {path.name} take more bytes than the file has")
    return sum(weights for weights, _ in tensors)


def _extent(entry: Any, name: str, path: Path) -> tuple[int, int]:
    """Return the number of weights of a tensor and the bytes they take."""
    fields = entry if isinstance(entry, Mapping) else {}
    shape: Any = fields.get("shape")
    offsets: Any = fields.get("data_offsets")
    if not (_are_sizes(shape) and _are_sizes(offsets) and len(offsets) == 2 and offsets[0] <= offsets[1]):
        raise ValueError(f"the header of {path.name} gives tensor {name[:100]!r} no valid shape or place")
    weights, taken = math.prod(shape), offsets[1] - offsets[0]
    if weights > MOST_WEIGHTS_A_BYTE * taken:
        raise ValueError(f"the header of {path.name} gives tensor {name[:100]!r} more weights than bytes")
    return weights, taken


def _are_sizes(values: Any) -> bool:
    """Return whether a value of the header is a list of whole numbers from 0 that fit in 64 bits."""
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**63 for value in values)
