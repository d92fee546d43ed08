"""The device and the versions of packages that numbers were computed with."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import scipy
import torch
import transformers

from attentest import __version__


def versions() -> dict[str, str]:
    """Return the versions of attentest and of the packages that its numbers depend on."""
    return {
        "attentest": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }


def described_machine(device: torch.device) -> dict[str, Any]:
    """Return the name of a device, the number of threads and the versions, JSON-ready."""
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine(),
        "device_type": device.type,
        "threads": torch.get_num_threads(),
        "versions": versions(),
    }
