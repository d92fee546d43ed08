"""Methods of modules replaced by constants that were computed once."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor, nn


def set_constant_method(module: nn.Module, method: str, *values: Tensor) -> None:
    """Make a method return one or two tensors, whatever its arguments are.

    The tensors are buffers of the module: they follow it to other devices, dtypes and copies.
    """
    names = ("constant_result",) if len(values) == 1 else ("constant_result", "second_constant_result")
    for name, value in zip(names, values, strict=True):
        module.register_buffer(name, value.detach().clone(), persistent=False)
    # A partial instead of a bound method, which pickle would look up by its name on the module.
    setattr(module, method, partial(_one_result if len(values) == 1 else _two_results, module))


def _one_result(module: Any, *_: Any, **__: Any) -> Tensor:
    result: Tensor = module.constant_result
    return result


def _two_results(module: Any, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
    return module.constant_result, module.second_constant_result
