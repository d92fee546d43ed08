"""Formats of noise files: JSON to read and edit, safetensors for large models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Protocol

import numpy as np

from attentest.errors import shortened
from attentest.noise.model import FloatArray

FORMAT, VERSION = "attentest noise", 1
"""Name and version that a noise file begins with."""


class NoiseFormat(Protocol):
    """A format of noise files, exact to the last bit.

    Attributes
    ----------
    largest_file
        Largest file that is read, in bytes: a larger one is something else, or would not fit in memory.
    """

    largest_file: ClassVar[int]

    def encode(self, tree: dict[str, Any]) -> bytes:
        """Return the content of a file for nested dictionaries with JSON values and arrays as leaves."""

    def read(self, path: Path) -> tuple[Any, dict[str, FloatArray]]:
        """Return the JSON values of a file and its arrays by name; where an array belongs is ``{"tensor": name}``.

        A file that cannot be read raises an OSError or a ValueError.
        """


class JsonFormat:
    """JSON, with arrays as nested lists."""

    largest_file: ClassVar[int] = 2**26  # some 3 million numbers

    def encode(self, tree: dict[str, Any]) -> bytes:
        """Return the content of a file."""
        return _encoded(_with_lists(tree))

    def read(self, path: Path) -> tuple[Any, dict[str, FloatArray]]:
        """Return the JSON values of a file, which has no arrays."""
        return _decoded(path.read_text(encoding="utf-8")), {}


class SafetensorsFormat:
    """Safetensors, with everything but the arrays as JSON in the metadata."""

    largest_file: ClassVar[int] = 2**31  # a covariance of 16,384 x 16,384 pixels

    def encode(self, tree: dict[str, Any]) -> bytes:
        """Return the content of a file."""
        from safetensors.numpy import save

        tensors: dict[str, FloatArray] = {}
        without_arrays = _moved_arrays(tree, tensors, "")
        return bytes(save(tensors, {FORMAT: _encoded(without_arrays).decode()}))

    def read(self, path: Path) -> tuple[Any, dict[str, FloatArray]]:
        """Return the JSON values of a file and its arrays by name."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="numpy") as file:
                content = _decoded((file.metadata() or {}).get(FORMAT, "null"))
                if content is None:
                    return None, {}
                return content, {name: _float64(name, file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise ValueError(str(error)) from None


def _encoded(tree: Any) -> bytes:
    return json.dumps({"format": FORMAT, "version": VERSION, "noise": tree}, allow_nan=False).encode()


def _decoded(text: str) -> Any:
    return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_without_duplicates)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; refuse one that gives a name twice, of which JSON readers keep either value."""
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            raise ValueError(f"it gives {shortened(name)} more than once")
        values[name] = value
    return values


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"it has {name} among its numbers")


def _with_lists(value: Any) -> Any:
    """Return a tree with its arrays as nested lists."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return {name: _with_lists(part) for name, part in value.items()} if isinstance(value, dict) else value


def _moved_arrays(value: Any, tensors: dict[str, FloatArray], name: str) -> Any:
    """Return a tree with the names of its arrays in their place, and add the arrays to ``tensors``."""
    if isinstance(value, np.ndarray):
        tensors[name] = np.ascontiguousarray(value)
        return {"tensor": name}
    if not isinstance(value, dict):
        return value
    return {key: _moved_arrays(part, tensors, f"{name}.{key}".strip(".")) for key, part in value.items()}


def _float64(name: str, values: Any) -> FloatArray:
    if values.dtype != np.float64:
        raise ValueError(f"its array {name!r} is of {values.dtype}, not float64")
    array: FloatArray = values
    return array
