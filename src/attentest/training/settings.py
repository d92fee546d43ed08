"""Settings of a training of the paper's classifiers, checked without importing what trains them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from attentest.definition import option
from attentest.errors import InputError
from attentest.training.bundled import ARCHITECTURES, patch_size_of

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
