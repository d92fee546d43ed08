"""What the config.json of a saved model declares, checked before the model is built."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from attentest.attention.encoder import checked_size
from attentest.checks import positive_number, real_number, whole_number
from attentest.errors import InputError, ModelError, shortened

MOST_LAYERS, MOST_CHANNELS, LARGEST_WIDTH, MOST_REGISTERS = 2**12, 2**12, 2**20, 2**12
"""Far more than any model has: a larger number is a mistake."""

MOST_LABELS = 10**6
"""Most classes: the library makes a name for each of them."""

DTYPE_SETTINGS = ("dtype", "torch_dtype")
"""Names of the setting of the dtype, new and old."""


class ModelConfig:
    """The configuration of a saved model.

    Parameters
    ----------
    settings
        The content of config.json.
    source
        Where the model is, for errors.
    """

    def __init__(self, settings: Mapping[str, Any], source: str) -> None:
        self.settings, self._source = settings, source
        vision = settings.get("vision_config")
        # A model of images and texts nests the settings of its vision transformer.
        self._vision = vision if isinstance(vision, Mapping) else settings
        self._sections = (settings,) if self._vision is settings else (settings, self._vision)

    @property
    def model_type(self) -> Any:
        """The type of the model, as transformers names it."""
        return self.settings.get("model_type")

    @contextmanager
    def _checking(self) -> Iterator[None]:
        try:
            yield
        except InputError as error:
            raise ModelError(f"the config.json of {self._source} cannot be used: {error}") from None

    def check_dtype(self) -> None:
        """Check that torch has the dtype; a model of several parts may name a dtype for each of them."""
        with self._checking():
            for setting, value in ((name, section.get(name)) for section in self._sections for name in DTYPE_SETTINGS):
                for name in value.values() if isinstance(value, Mapping) else (value,):
                    if name is not None and not _is_dtype(name):
                        raise InputError(
                            f"{setting!r} must be the name of a dtype of torch, such as float32, float16 or bfloat16, "
                            f"got {shortened(name)}: correct it, or remove it, since weights are used as they are "
                            "stored."
                        )

    def check_activation(self, known: Collection[str]) -> None:
        """Check that the activation is among those that transformers knows; if it is left out, it has its default."""
        with self._checking():
            for name in (section["hidden_act"] for section in self._sections if "hidden_act" in section):
                if not (isinstance(name, str) and name in known):
                    raise InputError(
                        f"'hidden_act' must be one of {', '.join(sorted(known))}, got {shortened(name)}: use the "
                        "config.json that was saved with the weights."
                    )

    def least_weights(self, defaults: Any) -> int:
        """Return the least number of weights of such a model: those of its projections, which every family has.

        Parameters
        ----------
        defaults
            Configuration of the library with the values of what is left out.
        """
        with self._checking():
            for section in self._sections:
                if section.get("num_labels") is not None:
                    whole_number(section["num_labels"], "'num_labels'", 0, MOST_LABELS)
            patch_size = self._sides("patch_size", defaults)
            checked_size(self._sides("image_size", defaults), patch_size)
            width = self._number("hidden_size", defaults, 1, LARGEST_WIDTH)
            self._number("num_attention_heads", defaults, 1, width)
            real_number(self._value("layer_norm_eps", defaults, 0.0), "'layer_norm_eps'")
            layers = self._number("num_hidden_layers", defaults, 1, MOST_LAYERS)
            channels = self._number("num_channels", defaults, 1, MOST_CHANNELS)
            registers = self._number("num_register_tokens", defaults, 0, MOST_REGISTERS, 0)
            if self._value("intermediate_size", defaults) is None:
                ratio = positive_number(self._value("mlp_ratio", defaults, 4), "'mlp_ratio'")
                mlp_width = int(width * min(ratio, LARGEST_WIDTH))
            else:
                mlp_width = self._number("intermediate_size", defaults, 1, LARGEST_WIDTH)
        layer = 4 * width**2 + 2 * width * mlp_width
        return layers * layer + width * (patch_size[0] * patch_size[1] * channels + registers)

    def _value(self, name: str, defaults: Any, otherwise: Any = None) -> Any:
        value = self._vision.get(name)
        return getattr(defaults, name, otherwise) if value is None else value

    def _number(self, name: str, defaults: Any, least: int, most: int, otherwise: Any = None) -> int:
        return whole_number(self._value(name, defaults, otherwise), repr(name), least, most)

    def _sides(self, name: str, defaults: Any) -> tuple[int, int]:
        size = self._value(name, defaults)
        sides = size if isinstance(size, (list, tuple)) else [size, size]
        if len(sides) != 2:
            raise InputError(f"{name!r} must be a side or a height and a width, got {len(sides)} numbers.")
        height, width = (whole_number(side, repr(name), 1, LARGEST_WIDTH) for side in sides)
        return height, width


def _is_dtype(name: object) -> bool:
    return isinstance(name, str) and isinstance(getattr(torch, name, None), torch.dtype)
