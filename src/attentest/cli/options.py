"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attentest.cli.number_range import within
from attentest.errors import InputError
from attentest.registry import NOISE_ESTIMATORS, REGION_UNITS, SEARCHES, Part, Registry

PANELS = OUTPUT, IMAGE, MODEL, COMPARED, RANDOMISED, SEARCH, CERTIFICATE, WORKERS = (
    "Output",
    "More on the images",
    "More on the model",
    "More on what is compared",
    "Randomised selection",
    "More on the search",
    "A certificate",
    "Workers",
)
"""Panels of the help, after the one of the options that are needed most often."""


OUTPUT_PATHS = {"--out", "--csv", "--parquet", "--figure", "--sensitivity-figure", "--report", "--history", "--record"}
"""Options that name what a command writes."""


def names_in(registry: Registry[Part]) -> Any:
    """Return an enumeration of the names in a registry, as the type of an option."""
    return StrEnum(registry.kind, {name: name for name in registry})


if TYPE_CHECKING:
    SearchName = str
    RegionUnitsName = str
    EstimatorName = str
else:
    SearchName = names_in(SEARCHES)
    RegionUnitsName = names_in(REGION_UNITS)
    EstimatorName = names_in(NOISE_ESTIMATORS)


class AlternativeName(StrEnum):
    """Alternatives."""

    two_sided = "two-sided"
    equal_tailed = "equal-tailed"
    greater = "greater"
    less = "less"


class ArchitectureName(StrEnum):
    """Architectures of the paper."""

    small = "small"
    base = "base"
    large = "large"
    huge = "huge"


SPECTRAL = "spectral"
"""The default search."""

PIXELS = "pixels"
"""What regions consist of by default."""

SearchOption = Annotated[
    SearchName,
    typer.Option(help=f"How to search the z axis: {SEARCHES.choices()}.", metavar="NAME", rich_help_panel=SEARCH),
]
DEFAULT_TOL = 1e-6
"""Default width of the error bar of p, that of SpectralSearch."""

DEFAULT_MAX_EVALUATIONS = 10_000
"""Default of the most evaluations per image, that of SpectralSearch."""

JsonOption = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print one JSON object per image, with its verdict, as soon as its batch is done.",
        rich_help_panel=OUTPUT,
    ),
]
ReportJsonOption = Annotated[
    bool, typer.Option("--json", help="Print everything as one JSON object.", rich_help_panel=OUTPUT)
]
AlphaOption = Annotated[float, typer.Option(help="Significance level of the verdict, between 0 and 1.")]
DeviceOption = Annotated[str, typer.Option(help="Device to compute on: cpu, cuda, cuda:1, ...", metavar="NAME")]
RetryOption = Annotated[
    bool,
    typer.Option("--retry", help="For --out: try the images again that could not be tested.", rich_help_panel=OUTPUT),
]
SeedOption = Annotated[int, typer.Option(help="Seed of the images.", callback=within(0))]
FrameOption = Annotated[
    int | None,
    typer.Option(
        help="Frame, page or slice of each file, from 0, or from the end if negative.",
        metavar="N",
        show_default="the only one",
        rich_help_panel=IMAGE,
    ),
]
WindowOption = Annotated[
    bool, typer.Option("--window", help="Apply the display window of DICOM files.", rich_help_panel=IMAGE)
]


def check_level(level: float, option: str = "--alpha") -> None:
    """Refuse a significance level, or another probability, outside (0, 1)."""
    if not 0 < level < 1:
        raise InputError(f"{option} must lie strictly between 0 and 1, got {level}.")
