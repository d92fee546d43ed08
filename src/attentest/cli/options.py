"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from attentest.errors import InputError


class SearchName(StrEnum):
    """Searches for the truncation set."""

    spectral = "spectral"
    adaptive = "adaptive"
    fixed = "fixed"
    combination = "combination"


class AlternativeName(StrEnum):
    """Alternatives."""

    two_sided = "two-sided"
    greater = "greater"
    less = "less"


class ArchitectureName(StrEnum):
    """Architectures of the paper."""

    small = "small"
    base = "base"
    large = "large"
    huge = "huge"


SearchOption = Annotated[
    SearchName,
    typer.Option(
        help="How to search the z axis: spectral (attentest's own, fast and with an error bar), or as in the paper: "
        "adaptive steps, a fixed step of 1e-3, or a combination of 1e-4 near the observed statistic and 1e-2 elsewhere."
    ),
]
DEFAULT_TOL = 1e-6
TolOption = Annotated[
    float, typer.Option(help="Width of the error bar of p at which the spectral search stops.", show_default=True)
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object an image, batch by batch.")]
AlphaOption = Annotated[float, typer.Option(help="Significance level of the verdict, between 0 and 1.")]
DeviceOption = Annotated[str, typer.Option(help="Where to compute: cpu, cuda, cuda:1, ...")]


def check_level(alpha: float) -> None:
    """Refuse a significance level outside (0, 1)."""
    if not 0 < alpha < 1:
        raise InputError(f"alpha must lie strictly between 0 and 1, got {alpha}.")
