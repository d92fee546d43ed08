"""The device and the versions of packages that numbers were computed with."""

from __future__ import annotations

import platform
from typing import Any

import torch

from attentest.results.versions import versions


def described_machine(device: torch.device) -> dict[str, Any]:
    """Return the name of a device, the number of threads and the versions, JSON-ready."""
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine(),
        "device_type": device.type,
        "threads": torch.get_num_threads(),
        "versions": versions(),
    }
