"""Saving noise models to files and loading them, exactly to the last bit."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Protocol

import numpy as np

from attentest.errors import InputError, shortened
from attentest.files import write_complete
from attentest.noise.derived import NoiseLike, as_noise
from attentest.noise.model import BaseNoise, FloatArray, NoiseModel
from attentest.registry import NOISE_FORMATS, NOISE_MODELS

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
        return _encoded(tree)

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
    content = {"format": FORMAT, "version": VERSION, "noise": tree}
    return json.dumps(content, allow_nan=False, default=np.ndarray.tolist).encode()


def _decoded(text: str) -> Any:
    return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_without_duplicates)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; raise an error if it has a name twice, of which JSON readers keep either value."""
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            raise ValueError(f"it gives {shortened(name)} more than once")
        values[name] = value
    return values


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"it has {name} among its numbers")


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


LONGEST_REASON = 200
"""Characters of a file's own text that an error message repeats."""


def save_noise(noise: NoiseLike, path: str | os.PathLike[str]) -> None:
    """Save a noise model of this package, or that of a fitted estimator.

    The file is written under another name and renamed when it is complete, so an existing file is replaced completely
    or not at all.

    Parameters
    ----------
    noise
        Noise model or fitted estimator; the file also holds the estimator's name and number of images.
    path
        Name of the file, with the suffix .json or .safetensors.
    """
    target, suffix, file_format = _path_and_format(path)
    content = file_format.encode(_tree(as_noise(noise)))
    if len(content) > file_format.largest_file:
        larger = [name for name in NOISE_FORMATS if NOISE_FORMATS.load(name).largest_file > file_format.largest_file]
        raise InputError(
            f"the noise model takes {len(content)} bytes as {suffix}, but files of at most {file_format.largest_file} "
            f"are read: {f'save it as {larger[0]}' if larger else 'use a model with fewer parameters'}."
        )
    write_complete(target, content, "the noise file")


def load_noise(path: str | os.PathLike[str]) -> NoiseModel:
    """Load a noise model saved by :func:`save_noise`; its parameters are checked again."""
    source, suffix, file_format = _path_and_format(path)
    try:
        if not source.is_file():
            raise InputError(f"there is no noise file {source}: give one that attentest noise fit or save_noise wrote.")
        size = source.stat().st_size
        if size > file_format.largest_file:
            raise InputError(
                f"the noise file {source} has {size} bytes, but one ending in {suffix} may have at most "
                f"{file_format.largest_file}: is it something else?"
            )
        content, tensors = file_format.read(source)
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"the noise file {source} cannot be read ({_shortened(error)}): save the noise model again."
        ) from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"{source} is no noise file: give one that attentest noise fit or save_noise wrote.")
    if content.get("version") != VERSION or isinstance(content["version"], bool):
        raise InputError(
            f"the noise file {source} has version {str(content.get('version'))[:LONGEST_REASON]}, but this attentest "
            f"reads version {VERSION}: save the noise model again, or use the attentest that wrote it."
        )
    try:
        model = _model(content.get("noise"), tensors)
        if tensors:
            raise InputError(f"it has arrays that no model uses, {min(tensors)!r} first.")
    except (InputError, RecursionError) as error:
        raise InputError(f"the noise file {source} cannot be used: {_shortened(error)}.") from None
    return model


def _path_and_format(path: Any) -> tuple[Path, str, NoiseFormat]:
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"the name of a noise file must be a path, got {type(path).__name__}.")
    file = Path(path)
    suffix = file.suffix.lower()
    if suffix not in NOISE_FORMATS:
        raise InputError(f"a noise file must end in {NOISE_FORMATS.choices()}, got {file}.")
    return file, suffix, NOISE_FORMATS.load(suffix)()


def _tree(noise: NoiseModel) -> dict[str, Any]:
    """Return a model as nested dictionaries with JSON values and arrays as leaves."""
    kind = getattr(noise, "name", None)
    if not isinstance(noise, BaseNoise) or kind not in NOISE_MODELS or type(noise) is not NOISE_MODELS.load(kind):
        raise InputError(
            f"only the noise models of attentest.noise can be saved, got {type(noise).__name__}: save its parameters "
            "in your own way, or a Dense of its covariance."
        )
    arguments = noise.arguments()
    nested = {name: _tree(value) for name, value in arguments.items() if isinstance(value, NoiseModel)}
    return {"kind": kind, **arguments, **nested}


def _model(tree: Any, tensors: dict[str, FloatArray]) -> NoiseModel:
    """Return the model of nested dictionaries, and remove its arrays from ``tensors``."""
    kind = tree.get("kind") if isinstance(tree, Mapping) else None
    if not isinstance(kind, str) or kind not in NOISE_MODELS:
        raise InputError(f"its kind of model must be {NOISE_MODELS.choices()}, got {str(kind)[:LONGEST_REASON]}.")
    values = {name: value for name, value in tree.items() if name != "kind"}
    model = NOISE_MODELS.load(kind)
    if set(values) != set(model.parameters):
        got = ", ".join(sorted(values))[:LONGEST_REASON] or "nothing"
        raise InputError(f"the model {kind!r} needs {', '.join(model.parameters)}, got {got}.")
    arguments = {name: _argument(name, value, model.parameters[name], tensors) for name, value in values.items()}
    loaded: NoiseModel = model(**arguments)
    return loaded


def _argument(name: str, value: Any, kind: type, tensors: dict[str, FloatArray]) -> Any:
    """Return the argument that a file's value stands for, by the type that the model declares for it."""
    if kind is NoiseModel:
        return _model(value, tensors)
    if kind is not np.ndarray or not isinstance(value, Mapping):
        return value
    where = value.get("tensor")
    if not isinstance(where, str) or where not in tensors:
        raise InputError(f"it has no array for {name!r}.")
    return tensors.pop(where)


def _shortened(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return (text if len(text) <= LONGEST_REASON else text[:LONGEST_REASON] + " ...").rstrip(".")
