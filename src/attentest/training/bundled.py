"""The paper's architectures (appendix C.2), the bundled models, and the settings of a training of others.

Settings are checked without importing what trains.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from attentest.definition import option
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


LARGEST_SIDE = 1024  # largest side of training images in pixels; the paper's have 64 at most
MOST_VALUES = 2**28  # most pixels of all training images together, which are drawn at once: 2 GiB of float64


def check_fit(settings: Any, whole: Mapping[str, tuple[int, int]], shares: Iterable[str]) -> None:
    """Check the numbers of the settings of a training, a frozen dataclass, and store them as int and float.

    Every training has a seed, epochs, a batch size and a learning rate. Beyond these it has ``whole`` numbers, with the
    least and the greatest value of each, and ``shares``, which lie in [0, 1).
    """
    from attentest.checks import real_number, whole_number  # here because NumPy is slow to import

    bounds = {"seed": (0, 2**63 - 1), "epochs": (1, 10**6), "batch_size": (1, 10**6), **whole}
    for name, (least, most) in bounds.items():
        object.__setattr__(settings, name, whole_number(getattr(settings, name), name, least, most))
    for name in ("learning_rate", *shares):
        object.__setattr__(settings, name, real_number(getattr(settings, name), name))
    if not 0 < settings.learning_rate <= 1:
        raise InputError(f"learning_rate must lie in (0, 1], got {settings.learning_rate}.", "learning_rate")
    for name in shares:
        if not 0 <= getattr(settings, name) < 1:
            raise InputError(f"{name} must lie in [0, 1), got {getattr(settings, name)}.", name)


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """The settings of a training run; the defaults are the paper's 16x16 base model."""

    image_size: int = option(
        "Side of the images in pixels, a multiple of the patch size max(2, side // 8), of signals side // 32, of "
        "volumes side // 4.",
        default=16,
        text=int,
    )
    axes: int = option("1 for signals, 2 for images, 3 for volumes.", default=2, text=int)
    series: bool = option(
        "Signals as in the authors' experiments on series: patches overlap by half, and a tenth of a signal is raised "
        "by 1 to 4.",
        default=False,
        text=bool,
    )
    architecture: str = option(
        f"Size of the model: {', '.join(ARCHITECTURES)}.", default="base", text=str, choices=ARCHITECTURES
    )
    seed: int = option("Seed of the images, the initial weights, the batches and dropout.", default=0, text=int)
    epochs: int = option("Passes over the training images.", default=100, text=int)
    batch_size: int = option("Images per training step.", default=32, text=int)
    learning_rate: float = option("Adam's learning rate.", default=1e-4, text=float)
    dropout: float = option("Dropout rate during training.", default=0.1, text=float)
    images_per_class: int = option("Training images with a signal, and as many without.", default=1000, text=int)

    def __post_init__(self) -> None:
        if self.architecture not in ARCHITECTURES:
            raise InputError(
                f"architecture must be one of {', '.join(ARCHITECTURES)}, got {self.architecture!r}.", "architecture"
            )
        whole = {"image_size": (4, LARGEST_SIDE), "axes": (1, 3), "images_per_class": (1, 10**6)}
        check_fit(self, whole, ("dropout",))
        if self.series and (self.axes != 1 or self.image_size % 128):
            raise InputError(
                "series are signals whose length is a multiple of 128, because a quarter of a patch must be whole, got "
                f"image_size {self.image_size} with axes {self.axes}: give axes 1 and another image_size.",
                "image_size",
                "axes",
            )
        patch_size = patch_size_of(self.image_size, self.axes)
        if self.image_size % patch_size:
            share = {1: "a thirty-second", 2: "an eighth", 3: "a quarter"}[self.axes]
            raise InputError(
                f"image_size must be a multiple of the patch size, {share} of it and at least 2, which is "
                f"{patch_size}, got {self.image_size}.",
                "image_size",
            )
        values = 2 * self.images_per_class * self.image_size**self.axes
        if values > MOST_VALUES:
            raise InputError(
                f"images_per_class is {self.images_per_class} and image_size {self.image_size}, which makes {values} "
                f"pixels in all, but at most {MOST_VALUES} are drawn: use fewer or smaller images.",
                "images_per_class",
                "image_size",
            )

    def command(self) -> str:
        """Return the command line that repeats this run."""
        values = {name: value for name, value in asdict(self).items() if (name, value) != ("axes", 2)}
        series = " --series" * values.pop("series")
        options = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in values.items())
        return f"attentest train DIRECTORY {options}{series}"
