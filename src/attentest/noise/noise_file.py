"""Saving noise models to files and loading them, exactly to the last bit."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np

from attentest.errors import InputError, shortened
from attentest.files import write_complete
from attentest.images.image_file import LONGEST_REASON, reason
from attentest.noise.derived import NoiseLike, as_noise
from attentest.noise.model import BaseNoise, FloatArray, NoiseModel
from attentest.registry import NOISE_FORMATS, NOISE_MODELS

FORMAT, VERSION = "attentest noise", 1  # name and version that a noise file begins with


class JsonFormat:
    """A format of noise files, exact to the last bit: JSON, with arrays as nested lists."""

    largest_file: ClassVar[int] = 2**26  # some 3 million numbers
    """Largest file that is read, in bytes: a larger one is something else, or would not fit in memory."""

    def encode(self, tree: dict[str, Any]) -> bytes:
        """Return the content of a file for nested dictionaries with JSON values and arrays as leaves."""
        return _encoded(tree)

    def read(self, path: Path) -> Any:
        """Return what a file holds, with arrays, or nested lists of their numbers, in their places.

        A file that cannot be read raises an OSError or a ValueError.
        """
        content = _decoded(path.read_text(encoding="utf-8"))
        _check_content(content, {})
        return content


class SafetensorsFormat(JsonFormat):
    """Safetensors, with everything but the arrays as JSON in the metadata; there an array is ``{"tensor": name}``."""

    largest_file: ClassVar[int] = 2**31  # a covariance of 16,384 x 16,384 pixels

    def encode(self, tree: dict[str, Any]) -> bytes:
        """Return the content of a file."""
        from safetensors.numpy import save

        tensors: dict[str, FloatArray] = {}
        without_arrays = _moved_arrays(tree, tensors, "")
        return bytes(save(tensors, {FORMAT: _encoded(without_arrays, tensors).decode()}))

    def read(self, path: Path) -> Any:
        """Return what a file holds, with its arrays."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="numpy") as file:
                unused, arrays = set(file.keys()), {}

                def array(name: str) -> FloatArray:
                    if name not in unused:
                        raise ValueError(f"it has no array for {name!r}")
                    unused.remove(name)
                    values: FloatArray = file.get_tensor(name)
                    if values.dtype != np.float64:
                        raise ValueError(f"its array {name!r} is of {values.dtype}, not float64")
                    arrays[name] = values
                    return values

                text = (file.metadata() or {}).get(FORMAT, "null")
                content = _decoded(text, array)
        except SafetensorError as error:
            raise ValueError(str(error)) from None
        if content is not None and unused:
            raise ValueError(f"it has arrays that no model uses, {min(unused)!r} first")
        _check_content(_decoded(text), arrays)
        return content


def _encoded(tree: Any, arrays: Mapping[str, FloatArray] | None = None) -> bytes:
    """Return a tree as JSON; ``arrays`` are those that are stored elsewhere and belong to it."""
    content = {"format": FORMAT, "version": VERSION, "checksum": _checksum(tree, arrays or {}), "noise": tree}
    return _as_json(content)


def _as_json(tree: Any) -> bytes:
    return json.dumps(tree, allow_nan=False, default=np.ndarray.tolist).encode()


def _checksum(tree: Any, arrays: Mapping[str, FloatArray]) -> str:
    """Return a checksum of a tree and of the arrays that are stored elsewhere: one bit of them may change p."""
    checksum = blake2b(_as_json(tree), digest_size=16)
    for name in sorted(arrays):
        checksum.update(name.encode())
        checksum.update(np.ascontiguousarray(arrays[name]).data)
    return checksum.hexdigest()


def _check_content(content: Any, arrays: Mapping[str, FloatArray]) -> None:
    """Check the checksum of what was read, if there is one: a file of JSON may be written by hand."""
    checksum = content.get("checksum") if isinstance(content, dict) else None
    if checksum is not None and checksum != _checksum(content.get("noise"), arrays):
        raise ValueError("its checksum is not that of its content; a file that is changed by hand must have none")


def _decoded(text: str, array: Callable[[str], FloatArray] | None = None) -> Any:
    """Return JSON values, with arrays in the places of their names; names that occur twice and NaN are errors."""

    def values_of(pairs: list[tuple[str, Any]]) -> Any:
        values: dict[str, Any] = {}
        for name, value in pairs:
            if name in values:  # of which JSON readers keep either value
                raise ValueError(f"it gives {shortened(name)} more than once")
            values[name] = value
        return array(values["tensor"]) if array is not None and set(values) == {"tensor"} else values

    def no_constant(name: str) -> NoReturn:
        raise ValueError(f"it has {name} among its numbers")

    return json.loads(text, parse_constant=no_constant, object_pairs_hook=values_of)


def _moved_arrays(value: Any, tensors: dict[str, FloatArray], name: str) -> Any:
    """Return a tree with the names of its arrays in their place, and add the arrays to ``tensors``."""
    if isinstance(value, np.ndarray):
        tensors[name] = np.ascontiguousarray(value)
        return {"tensor": name}
    if not isinstance(value, dict):
        return value
    return {key: _moved_arrays(part, tensors, f"{name}.{key}".strip(".")) for key, part in value.items()}


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
        content = file_format.read(source)
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"the noise file {source} cannot be read ({reason(error)}): save the noise model again."
        ) from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"{source} is no noise file: give one that attentest noise fit or save_noise wrote.")
    if content.get("version") != VERSION or isinstance(content["version"], bool):
        raise InputError(
            f"the noise file {source} has version {str(content.get('version'))[:LONGEST_REASON]}, but this attentest "
            f"reads version {VERSION}: save the noise model again, or use the attentest that wrote it."
        )
    try:
        return _model(content.get("noise"))
    except (InputError, RecursionError) as error:
        raise InputError(f"the noise file {source} cannot be used: {reason(error)}.") from None


def _path_and_format(path: Any) -> tuple[Path, str, JsonFormat]:
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


def _model(tree: Any) -> NoiseModel:
    """Return the model of nested dictionaries."""
    kind = tree.get("kind") if isinstance(tree, Mapping) else None
    if not isinstance(kind, str) or kind not in NOISE_MODELS:
        raise InputError(f"its kind of model must be {NOISE_MODELS.choices()}, got {str(kind)[:LONGEST_REASON]}.")
    values = {name: value for name, value in tree.items() if name != "kind"}
    model = NOISE_MODELS.load(kind)
    if set(values) != set(model.parameters):
        got = ", ".join(sorted(values))[:LONGEST_REASON] or "nothing"
        raise InputError(f"the model {kind!r} needs {', '.join(model.parameters)}, got {got}.")
    nested = {name: _model(value) for name, value in values.items() if model.parameters[name] is NoiseModel}
    loaded: NoiseModel = model(**{**values, **nested})
    return loaded
