"""The models that are bundled with attentest."""

from __future__ import annotations

from pathlib import Path

from attentest.errors import InputError

BUNDLED = (("base", 8), ("small", 16), ("base", 16), ("base", 32), ("base", 64))
"""Architecture of each model, and the side of its images."""


def bundled_model(image_size: int = 16, architecture: str = "base") -> Path:
    """Return the directory of one of the paper's classifiers, trained by ``attentest train``.

    Its ``training.json`` records the command, the seed and the accuracy.

    Parameters
    ----------
    image_size
        Side of its images in pixels: 8, 16, 32 or 64.
    architecture
        "base", or "small" for 16.
    """
    if (architecture, image_size) not in BUNDLED:
        known = ", ".join(f"{name} {size}" for name, size in BUNDLED)
        raise InputError(f"the bundled models are {known}, got {architecture} {image_size}: train others yourself.")
    return Path(__file__).parent / "models" / f"{architecture}{image_size}"
