"""Noise models in files: JSON to read and edit, safetensors for large ones, both exact to the last bit."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from attentest.errors import InputError
from attentest.files import write_complete
from attentest.noise.ar1 import AR1
from attentest.noise.averaged import Averaged
from attentest.noise.conversion import NoiseLike, as_noise
from attentest.noise.dense import Dense
from attentest.noise.diagonal import Diagonal
from attentest.noise.estimated import Estimated
from attentest.noise.isotropic import Isotropic
from attentest.noise.model import NoiseModel
from attentest.noise.per_channel import PerChannel
from attentest.noise.stationary import Stationary

FORMAT, VERSION = "attentest noise", 1

LARGEST_FILES = {".json": 2**26, ".safetensors": 2**31}
"""Largest file of each kind, in bytes: some 3 million numbers as JSON, a covariance of 16,384 values as safetensors."""

LONGEST_REASON = 200

KINDS: dict[str, tuple[type, tuple[str, ...]]] = {
    "isotropic": (Isotropic, ("sigma",)),
    "ar1": (AR1, ("rho", "sigma")),
    "diagonal": (Diagonal, ("variance",)),
    "dense": (Dense, ("covariance",)),
    "stationary": (Stationary, ("autocovariance", "shape")),
    "per channel": (PerChannel, ("channels", "spatial")),
    "averaged": (Averaged, ("model", "count")),
    "estimated": (Estimated, ("model", "origin")),
}
"""Name in files, class and constructor arguments of every model that can be saved."""

NESTED = ("spatial", "model")
"""Arguments that are noise models themselves."""


def save_noise(noise: NoiseLike, path: str | os.PathLike[str]) -> None:
    """Save a noise model of this package, or what a fitted estimator found.

    The file is written beside and renamed when it is complete, so a file of that name is replaced by a whole one or
    not at all.

    Parameters
    ----------
    noise
        Noise model or fitted estimator; the name of the estimator and its number of images are kept.
    path
        A name that ends in .json or .safetensors.
    """
    target, suffix = _path(path)
    model = as_noise(noise)
    content = _json_bytes(model) if suffix == ".json" else _safetensors_bytes(model)
    if len(content) > LARGEST_FILES[suffix]:
        raise InputError(
            f"the noise model takes {len(content)} bytes as {suffix}, but at most {LARGEST_FILES[suffix]} are read "
            f"back: {'save it as .safetensors' if suffix == '.json' else 'use a model with fewer parameters'}."
        )
    write_complete(target, content, "the noise file")


def load_noise(path: str | os.PathLike[str]) -> NoiseModel:
    """Load a noise model saved by :func:`save_noise`; every check of its constructor is made again."""
    source, suffix = _path(path)
    try:
        if not source.is_file():
            raise InputError(f"there is no noise file {source}: give one that save_noise wrote.")
        size = source.stat().st_size
        if size > LARGEST_FILES[suffix]:
            raise InputError(
                f"the noise file {source} has {size} bytes, but one ending in {suffix} may have at most "
                f"{LARGEST_FILES[suffix]}: is it something else?"
            )
        content, tensors = _read_json(source) if suffix == ".json" else _read_safetensors(source)
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"the noise file {source} cannot be read ({_first(error)}): save the noise model again."
        ) from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"{source} is no noise file: give one that save_noise wrote.")
    if content.get("version") != VERSION or isinstance(content["version"], bool):
        raise InputError(
            f"the noise file {source} has version {str(content.get('version'))[:LONGEST_REASON]}, but this attentest "
            f"reads version {VERSION}: save the noise model again, or use the attentest that wrote it."
        )
    try:
        model = _model(content.get("noise"), tensors)
        if tensors:
            raise InputError(f"it holds arrays that belong to nothing, {min(tensors)!r} first.")
    except (InputError, RecursionError) as error:
        raise InputError(f"the noise file {source} cannot be used: {_first(error)}.") from None
    return model


def _path(path: Any) -> tuple[Path, str]:
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"the name of a noise file must be a path, got {type(path).__name__}.")
    chosen = Path(path)
    suffix = chosen.suffix.lower()
    if suffix not in LARGEST_FILES:
        raise InputError(f"a noise file must end in .json or .safetensors, got {chosen}.")
    return chosen, suffix


def _tree(noise: Any) -> dict[str, Any]:
    """Return a model as nested dictionaries with arrays as leaves."""
    for kind, (model, arguments) in KINDS.items():
        if type(noise) is model:
            return {"kind": kind, **{name: _argument(noise, name) for name in arguments}}
    raise InputError(
        f"only the noise models of attentest.noise can be saved, got {type(noise).__name__}: save its parameters "
        "in your own way, or a Dense of its covariance."
    )


def _argument(noise: Any, name: str) -> Any:
    value = getattr(noise, name)
    if isinstance(noise, Diagonal):
        return value.reshape(noise.shape)
    return _tree(value) if name in NESTED else value


def _json_bytes(model: NoiseModel) -> bytes:
    return _dumps(_with_lists(_tree(model)))


def _safetensors_bytes(model: NoiseModel) -> bytes:
    from safetensors.numpy import save

    tensors: dict[str, Any] = {}
    tree = _without_arrays(_tree(model), tensors, "")
    return bytes(save(tensors, {FORMAT: _dumps(tree).decode()}))


def _dumps(tree: Any) -> bytes:
    return json.dumps({"format": FORMAT, "version": VERSION, "noise": tree}, allow_nan=False).encode()


def _with_lists(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    return {name: _with_lists(part) for name, part in value.items()} if isinstance(value, dict) else value


def _without_arrays(value: Any, tensors: dict[str, Any], where: str) -> Any:
    """Return a tree with the names of its arrays in their place, and put them under these names."""
    if isinstance(value, np.ndarray):
        tensors[where] = np.ascontiguousarray(value)
        return {"tensor": where}
    if not isinstance(value, dict):
        return value
    return {name: _without_arrays(part, tensors, f"{where}.{name}".strip(".")) for name, part in value.items()}


def _read_json(source: Path) -> tuple[Any, dict[str, Any]]:
    return _loads(source.read_text(encoding="utf-8")), {}


def _read_safetensors(source: Path) -> tuple[Any, dict[str, Any]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(source, framework="numpy") as file:
            content = _loads((file.metadata() or {}).get(FORMAT, "null"))
            if content is None:
                return None, {}
            return content, {name: _float64(name, file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(str(error)) from None


def _float64(name: str, values: Any) -> Any:
    if values.dtype != np.float64:
        raise ValueError(f"its array {name!r} is of {values.dtype}, not float64")
    return values


def _loads(text: str) -> Any:
    return json.loads(text, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"it has {name} among its numbers")


def _model(tree: Any, tensors: dict[str, Any]) -> NoiseModel:
    """Make a model of nested dictionaries and take its arrays out of the tensors."""
    kind = tree.get("kind") if isinstance(tree, Mapping) else None
    if not isinstance(kind, str) or kind not in KINDS:
        raise InputError(f"it must name one of the models {', '.join(KINDS)}, got {str(kind)[:LONGEST_REASON]}.")
    given = {name: value for name, value in tree.items() if name != "kind"}
    model, arguments = KINDS[kind]
    if set(given) != set(arguments):
        got = ", ".join(sorted(given))[:LONGEST_REASON] or "nothing"
        raise InputError(f"the model {kind!r} needs {', '.join(arguments)}, got {got}.")
    values = {name: _value(name, value, tensors) for name, value in given.items()}
    made: NoiseModel = model(**values)
    return made


def _value(name: str, value: Any, tensors: dict[str, Any]) -> Any:
    if name in NESTED:
        return _model(value, tensors)
    if not isinstance(value, Mapping) or name == "origin":
        return value
    where = value.get("tensor")
    if not isinstance(where, str) or where not in tensors:
        raise InputError(f"it has no array for {name!r}.")
    return tensors.pop(where)


def _first(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return (text if len(text) <= LONGEST_REASON else text[:LONGEST_REASON] + " ...").rstrip(".")
