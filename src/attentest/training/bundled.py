"""The paper's architectures (appendix C.2), and directories of models: those that are bundled, and new ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

from attentest.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """One row of the paper's table of architectures (appendix C.2)."""

    layers: int
    hidden: int
    heads: int


ARCHITECTURES: Mapping[str, Architecture] = {
    "small": Architecture(layers=4, hidden=32, heads=2),
    "base": Architecture(layers=8, hidden=64, heads=4),
    "large": Architecture(layers=12, hidden=128, heads=8),
    "huge": Architecture(layers=16, hidden=256, heads=16),
}


def patch_size_of(image_size: int) -> int:
    """Return the side of a patch: max(2, image_size // 8), as in the paper's own models."""
    return max(2, image_size // 8)


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


def check_target(directory: Path) -> None:
    """Check that a directory is empty or new and can be written, before hours of training rather than after."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise InputError(f"{directory} already exists and is not an empty directory: name a new one.")
    resolved = directory.resolve()
    for place in (resolved, resolved.parent):  # the model is written beside its place, and then moved there
        nearest = next(folder for folder in (place, *place.parents) if folder.exists())
        try:
            with TemporaryFile(dir=nearest):
                pass
        except OSError as error:
            raise InputError(
                f"{directory} cannot be made: {nearest} cannot be written to ({error.strerror})."
            ) from None
