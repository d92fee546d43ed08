"""Methods that return what was computed once."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor, nn


def keep(module: nn.Module, method: str, *values: Tensor) -> None:
    """Let a method return stored tensors; they follow the module to other devices, dtypes and copies."""
    names = ("kept_values",) if len(values) == 1 else ("kept_values", "kept_more")
    for name, value in zip(names, values, strict=True):
        module.register_buffer(name, value.detach().clone(), persistent=False)
    # Not a bound method: pickle would look for it by name on the module.
    setattr(module, method, partial(_kept if len(values) == 1 else _kept_pair, module))


def _kept(module: Any, *_: Any, **__: Any) -> Tensor:
    values: Tensor = module.kept_values
    return values


def _kept_pair(module: Any, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
    return module.kept_values, module.kept_more
