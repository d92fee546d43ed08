"""A noise model together with a record of how it was estimated."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from attentest.errors import InputError
from attentest.noise.derived import DerivedNoise
from attentest.noise.model import FloatArray, NoiseModel, facts_of

LONGEST_ORIGIN = 60
"""Most characters of the record that the representation of a model has."""


@dataclass(frozen=True, eq=False)
class Estimated(DerivedNoise):
    """A noise model together with a record of how it was estimated, which is part of its description.

    Parameters
    ----------
    model
        The noise model.
    origin
        The record, by name, as JSON-ready values.
    """

    saved: ClassVar = {"model": NoiseModel, "origin": dict}

    origin: Mapping[str, Any]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.origin, Mapping) or not all(isinstance(key, str) for key in self.origin):
            raise InputError(f"the origin of a noise model must be a mapping with names as keys, got {self.origin!r}.")
        try:
            # A copy, with the types that it has after being saved and loaded.
            own = json.loads(json.dumps(dict(self.origin), allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"the origin of a noise model must be JSON-ready values ({error}).") from None
        object.__setattr__(self, "origin", own)

    @property
    def images(self) -> int | None:
        """Number K of independent reference images, if the record says so."""
        count = self.origin.get("images")
        return count if type(count) is int and count > 1 else None

    def apply(self, v: FloatArray) -> FloatArray:
        """Return ``Sigma v`` along the last axis."""
        return self.model.apply(v)

    def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> FloatArray:
        """Draw ``k`` vectors."""
        return self.model.sample(rng, k, n)

    def describe(self) -> dict[str, Any]:
        """Return name and parameters of the model, and the record."""
        return {**self.origin, **self.model.describe()}

    def facts(self) -> dict[str, str]:
        """Return the record, and what there is to know about the model, in words."""
        return {**{name: str(value) for name, value in self.origin.items()}, **facts_of(self.model)}

    def __repr__(self) -> str:
        origin = ", ".join(f"{name}={value!r}" for name, value in self.origin.items())
        if len(origin) > LONGEST_ORIGIN:
            origin = f"{origin[:LONGEST_ORIGIN]}..."
        return f"Estimated({self.model!r}, {origin})"
