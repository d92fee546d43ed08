"""The number, the names and the dtypes of the weights in a safetensors file, from its header alone."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import torch

LARGEST_HEADER = 100_000_000
"""Most bytes of a header, the format's own limit."""

MOST_WEIGHTS_A_BYTE = 2
"""Of the narrowest dtype, of four bits."""

DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "F64": torch.float64}
"""Dtypes of weights that are used as they are stored. Others are whole numbers or so narrow that they need scales."""


@dataclass(frozen=True, kw_only=True)
class StoredWeights:
    """The number of weights in files, their tensors in order, and the dtypes of those named weight or bias."""

    count: int
    names: tuple[str, ...] = ()
    dtypes: frozenset[str] = frozenset()

    @classmethod
    def together(cls, files: Sequence[StoredWeights]) -> StoredWeights:
        """Return what several files hold."""
        return cls(
            count=sum(each.count for each in files),
            names=tuple(name for each in files for name in each.names),
            dtypes=frozenset(dtype for each in files for dtype in each.dtypes),
        )

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype that holds all of them as they are stored; None if theirs are not known."""
        return reduce(torch.promote_types, (DTYPES[name] for name in self.dtypes)) if self.dtypes else None


def weights_in(path: Path) -> StoredWeights:
    """Return what a safetensors file holds; a header that cannot be true, or quantized weights, raise a ValueError."""
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
    tensors = {name: _extent(entry, name, path) for name, entry in header.items() if name != "__metadata__"}
    if sum(taken for _, taken in tensors.values()) > size - 8 - length:
        raise ValueError(f"the tensors in the header of {path.name} take more bytes than the file has")
    dtypes = {
        name: str(entry.get("dtype"))
        for name, entry in header.items()
        if name.endswith((".weight", ".bias"))  # whole numbers beside them are indices
    }
    for name, dtype in dtypes.items():
        if dtype not in DTYPES:
            raise ValueError(
                f"tensor {name[:100]!r} of {path.name} is stored as {dtype[:20]}, not as one of {', '.join(DTYPES)}"
            )
    return StoredWeights(
        count=sum(weights for weights, _ in tensors.values()),
        names=tuple(sorted(tensors, key=lambda name: header[name]["data_offsets"])),
        dtypes=frozenset(dtypes.values()),
    )


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
