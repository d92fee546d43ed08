"""The law of one image as JSON-ready values, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from attentest.statistics.law import Law
from attentest.statistics.randomised_normal import RandomisedNormal
from attentest.statistics.randomised_student import RandomisedStudent
from attentest.statistics.truncated_normal import TruncatedNormal
from attentest.statistics.truncated_student import TruncatedStudent

LAWS: dict[str, type[Law]] = {
    "truncated normal": TruncatedNormal,
    "randomised normal": RandomisedNormal,
    "truncated Student": TruncatedStudent,
    "randomised Student": RandomisedStudent,
}

NAMES = {"observed_z": "z_obs"}
"""What values are called whose name differs from that of the field of the law."""


def law_values(law: Law) -> dict[str, Any]:
    """Return what, with the statistic, defines the law of one image."""
    name = next((name for name, kind in LAWS.items() if type(law) is kind), None)
    if name is None:
        return {"name": type(law).__name__}
    return {"name": name, **{_name(field): float(getattr(law, field)[0]) for field in _fields(type(law))}}


def law_from_values(statistic: float, values: Mapping[str, Any]) -> Law | None:
    """Return the law of one image, given its statistic and :func:`law_values`; None for one that is not attentest's."""
    kind = LAWS.get(values["name"])
    if kind is None:
        return None
    own = {field: np.array([values[_name(field)]]) for field in _fields(kind)}
    return kind(statistic=np.array([statistic]), **own)


def _fields(kind: type[Law]) -> list[str]:
    return [field.name for field in fields(kind) if field.name != "statistic"]


def _name(field: str) -> str:
    return NAMES.get(field, field)
