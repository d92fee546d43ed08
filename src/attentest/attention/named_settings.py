"""Settings of a configuration that are names: of a dtype of torch, and of an activation of transformers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch

from attentest.errors import InputError, shortened

DTYPES = ("dtype", "torch_dtype")
"""Names of the setting in configurations, new and old."""

ACTIVATION = "hidden_act"


def check_dtype(config: Mapping[str, Any]) -> None:
    """Refuse a dtype that torch does not have; a model of several parts may name one for each.

    Parameters
    ----------
    config
        The content of config.json.
    """
    for each in _with_vision(config):
        for setting in DTYPES:
            given = each.get(setting)
            for name in given.values() if isinstance(given, Mapping) else (given,):
                if name is not None and not _is_dtype(name):
                    raise InputError(
                        f"{setting!r} must be the name of a dtype of torch, such as float32, float16 or bfloat16, got "
                        f"{shortened(name)}: correct it, or remove it, since weights are used as they are stored."
                    )


def check_activation(config: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuse an activation that is not among those that are known; one that is left out has its default.

    Parameters
    ----------
    config
        The content of config.json.
    known
        The names of the activations of transformers.
    """
    for each in _with_vision(config):
        if ACTIVATION in each and not (isinstance(each[ACTIVATION], str) and each[ACTIVATION] in known):
            raise InputError(
                f"{ACTIVATION!r} must be one of {', '.join(sorted(known))}, got {shortened(each[ACTIVATION])}: use the "
                "config.json that was saved with the weights."
            )


def _with_vision(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return a configuration, and the one of its vision transformer if the model has others beside it."""
    vision = config.get("vision_config")
    return [config, vision] if isinstance(vision, Mapping) else [config]


def _is_dtype(name: object) -> bool:
    return isinstance(name, str) and isinstance(getattr(torch, name, None), torch.dtype)
