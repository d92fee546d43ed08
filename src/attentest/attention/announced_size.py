"""The size of the model that a configuration announces, checked before the model is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attentest.attention.encoder import checked_size
from attentest.checks import positive_number, whole_number
from attentest.errors import InputError

MOST_LAYERS, MOST_CHANNELS, LARGEST_WIDTH, MOST_REGISTERS = 2**12, 2**12, 2**20, 2**12
"""Far more than any model has: a larger number is a mistake."""

MOST_LABELS = 10**6
"""Most classes: the library makes a name for each of them."""


@dataclass(frozen=True, kw_only=True)
class AnnouncedSize:
    """The sizes in a configuration that determine what building the model takes."""

    layers: int
    width: int
    mlp_width: int
    channels: int
    patch_size: tuple[int, int]
    registers: int

    @classmethod
    def of(cls, config: Mapping[str, Any], defaults: Any) -> AnnouncedSize:
        """Read the sizes in a configuration; refuse one that no model has.

        Parameters
        ----------
        config
            The content of config.json.
        defaults
            Configuration of the library with the values of what is left out.
        """
        vision = config.get("vision_config")
        sizes = vision if isinstance(vision, Mapping) else config

        def value(name: str, otherwise: Any = None) -> Any:
            given = sizes.get(name)
            return getattr(defaults, name, otherwise) if given is None else given

        def number(name: str, most: int, least: int = 1, otherwise: Any = None) -> int:
            return whole_number(value(name, otherwise), repr(name), least, most)

        for each in (config, sizes):
            if each.get("num_labels") is not None:
                whole_number(each["num_labels"], "'num_labels'", 0, MOST_LABELS)
        patch_size = _sides(value("patch_size"), "patch_size")
        checked_size(_sides(value("image_size"), "image_size"), patch_size)
        width = number("hidden_size", LARGEST_WIDTH)
        number("num_attention_heads", width)
        if value("intermediate_size") is None:
            mlp_width = int(width * min(positive_number(value("mlp_ratio", 4), "'mlp_ratio'"), LARGEST_WIDTH))
        else:
            mlp_width = number("intermediate_size", LARGEST_WIDTH)
        return cls(
            layers=number("num_hidden_layers", MOST_LAYERS),
            width=width,
            mlp_width=mlp_width,
            channels=number("num_channels", MOST_CHANNELS),
            patch_size=patch_size,
            registers=number("num_register_tokens", MOST_REGISTERS, 0, 0),
        )

    @property
    def least_weights(self) -> int:
        """Least number of weights of such a model: those of its projections, which every family has."""
        layer = 4 * self.width**2 + 2 * self.width * self.mlp_width
        patch = self.patch_size[0] * self.patch_size[1] * self.channels
        return self.layers * layer + self.width * (patch + self.registers)


def _sides(size: Any, name: str) -> tuple[int, int]:
    sides = size if isinstance(size, (list, tuple)) else [size, size]
    if len(sides) != 2:
        raise InputError(f"{name!r} must be a side or a height and a width, got {len(sides)} numbers.")
    height, width = (whole_number(side, repr(name), 1, LARGEST_WIDTH) for side in sides)
    return height, width
