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

PATCHES = {1: 32, 2: 8, 3: 4}  # patches along a side, by the number of axes: 8 in the paper's own models of images


def patch_size_of(image_size: int, axes: int = 2) -> int:
    """Return the side of a patch: max(2, image_size // 8) of images, as in the paper's own models."""
    return max(2, image_size // PATCHES[axes])


BUNDLED = (("base", 8), ("small", 16), ("base", 16), ("base", 32), ("base", 64))
"""Architecture of each model of images, and the side of its images."""

OTHERS = {1: "signal256", 3: "volume16"}  # models of signals and of volumes, by their number of axes

BUNDLED_SERIES = "series-small256"
"""The model of the experiments on series that need no other, as the paper's authors train theirs."""

FOLDER = Path(__file__).parent / "models"


def bundled_model(image_size: int = 16, architecture: str = "base", *, axes: int = 2) -> Path:
    """Return the directory of one of the paper's classifiers, trained by ``attentest train``.

    Its ``training.json`` records the command, the seed and the accuracy.

    Parameters
    ----------
    image_size
        Side of its images in pixels: 8, 16, 32 or 64.
    architecture
        "base", or "small" for 16.
    axes
        2; or 1 for a model of signals of 256 samples, 3 for one of volumes of 16 x 16 x 16 voxels, whatever the
        other two are.
    """
    if axes in OTHERS:
        name = OTHERS[axes]
    elif axes == 2 and (architecture, image_size) in BUNDLED:
        name = f"{architecture}{image_size}"
    else:
        known = ", ".join(f"{name} {size}" for name, size in BUNDLED)
        raise InputError(
            f"the bundled models are {known}, and those with axes=1 and axes=3, got {architecture} {image_size} with "
            f"axes={axes}: train others yourself."
        )
    return FOLDER / name


def model_named(name: str) -> str | Path:
    """Return the directory of the bundled model of a name, such as "signal256"; otherwise the name itself."""
    known = {*(f"{architecture}{size}" for architecture, size in BUNDLED), *OTHERS.values(), BUNDLED_SERIES}
    return FOLDER / name if name in known and not Path(name).exists() else name


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
