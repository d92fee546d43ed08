"""Settings of a training of the paper's classifiers, checked without importing what trains them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from attentest.checks import whole_number
from attentest.errors import InputError
from attentest.training.bundled import ARCHITECTURES, patch_size_of

if TYPE_CHECKING:
    from transformers import ViTConfig


LARGEST_SIDE = 1024
"""Largest side of training images in pixels; the paper's have 64 at most."""

MOST_VALUES = 2**28
"""Most pixels of all training images together, which are drawn at once: 2 GiB of float64."""


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """The settings of a training run; the defaults are the paper's 16x16 base model.

    Parameters
    ----------
    image_size
        Side of the images in pixels. The patch size is max(2, image_size // 8) and must divide it.
    architecture
        "small", "base", "large" or "huge".
    seed
        Seeds the images, the initial weights, the order of the batches and the dropout.
    images_per_class
        Number of training images without and with a signal, each.
    """

    image_size: int = 16
    architecture: str = "base"
    seed: int = 0
    epochs: int = 100
    batch_size: int = 32
    learning_rate: float = 1e-4
    dropout: float = 0.1
    images_per_class: int = 1000

    def __post_init__(self) -> None:
        if self.architecture not in ARCHITECTURES:
            raise InputError(f"architecture must be one of {', '.join(ARCHITECTURES)}, got {self.architecture!r}.")
        bounds = {
            "image_size": (4, LARGEST_SIDE),
            "epochs": (1, 10**6),
            "batch_size": (1, 10**6),
            "images_per_class": (1, 10**6),
            "seed": (0, 2**63 - 1),
        }
        for name, (least, most) in bounds.items():
            object.__setattr__(self, name, whole_number(getattr(self, name), name, least, most))
        if self.image_size % self.patch_size:
            raise InputError(
                f"image_size must be a multiple of the patch size max(2, image_size // 8) "
                f"= {self.patch_size}, got {self.image_size}."
            )
        values = 2 * self.images_per_class * self.image_size**2
        if values > MOST_VALUES:
            raise InputError(
                f"images_per_class is {self.images_per_class} and image_size {self.image_size}, which makes {values} "
                f"pixels in all, but at most {MOST_VALUES} are drawn: use fewer or smaller images."
            )
        if not 0 < self.learning_rate <= 1:
            raise InputError(f"learning_rate must lie in (0, 1], got {self.learning_rate}.")
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout must lie in [0, 1), got {self.dropout}.")

    @property
    def patch_size(self) -> int:
        """Side of a patch: max(2, image_size // 8), as in the paper's own models."""
        return patch_size_of(self.image_size)

    def command(self) -> str:
        """Return the command line that repeats this run."""
        options = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in asdict(self).items())
        return f"attentest train DIRECTORY {options}"

    def model_config(self) -> ViTConfig:
        """Return the Hugging Face configuration of the classifier: one channel, one logit."""
        from attentest.training.classifier import classifier_config

        return classifier_config(self.architecture, self.image_size, self.dropout)
