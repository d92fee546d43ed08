"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from attentest.errors import InputError

MODEL, IMAGE, COMPARED, SEARCH, OUTPUT = (
    "The model",
    "The images",
    "What is compared",
    "The search",
    "What comes out",
)
"""Panels of the help."""


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
        "adaptive steps, a fixed step of 1e-3, or a combination of 1e-4 near the observed statistic and 1e-2 "
        "elsewhere.",
        rich_help_panel=SEARCH,
    ),
]
DEFAULT_TOL = 1e-6
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON object an image, batch by batch.", rich_help_panel=OUTPUT)
]
ReportJsonOption = Annotated[
    bool, typer.Option("--json", help="Print all of it as one JSON object.", rich_help_panel=OUTPUT)
]
AlphaOption = Annotated[float, typer.Option(help="Significance level of the verdict, between 0 and 1.")]
DeviceOption = Annotated[str, typer.Option(help="Where to compute: cpu, cuda, cuda:1, ...")]
SeedOption = Annotated[int, typer.Option(help="Seed of the images.", min=0)]
FrameOption = Annotated[
    int | None,
    typer.Option(
        help="Frame, page or slice of each file, counted from 0, or from the end if negative.",
        show_default="the only one",
        rich_help_panel=IMAGE,
    ),
]
WindowOption = Annotated[
    bool, typer.Option("--window", help="Apply the display window of DICOM files.", rich_help_panel=IMAGE)
]


def check_level(alpha: float) -> None:
    """Refuse a significance level outside (0, 1)."""
    if not 0 < alpha < 1:
        raise InputError(f"alpha must lie strictly between 0 and 1, got {alpha}.")
