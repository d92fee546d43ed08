"""Where to compute."""

from __future__ import annotations

import torch

from attentest.errors import InputError

FLOAT64_DEVICES = ("cpu", "cuda")
"""Kinds of device that compute in float64."""


def usable_device(device: torch.device | str) -> torch.device:
    """Return a device that exists here and computes in float64, or say why not."""
    try:
        chosen = torch.device(device)
        if chosen.type not in FLOAT64_DEVICES:
            raise RuntimeError("it does not compute in float64")
        torch.empty(1, dtype=torch.float64, device=chosen)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0][:120].rstrip(".")
        raise InputError(f"device {str(device)!r} cannot be used ({reason}): use 'cpu' or 'cuda'.") from None
    return chosen
