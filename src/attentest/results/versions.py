"""The versions of packages that numbers were computed with."""

from __future__ import annotations

import platform
from importlib import metadata

import numpy as np
import scipy
import torch

from attentest import __version__


def versions() -> dict[str, str]:
    """Return the versions of attentest and of the packages that its numbers depend on."""
    return {
        "attentest": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": metadata.version("transformers"),  # which takes seconds to import
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }
