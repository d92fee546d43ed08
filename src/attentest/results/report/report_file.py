"""The file of a report, and whether it can be written, which is known before anything is computed."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from attentest.errors import InputError
from attentest.files import check_output_path
from attentest.results.figures.figure_file import new_figure

NAME = "the report"
"""What messages call the file."""

JSON_SUFFIX = ".json"
SUFFIXES = (".html", ".htm", JSON_SUFFIX)

USUAL_CARDS = 200
"""Most results that a report describes in detail, unless told otherwise."""

MOST_CARDS = 100_000
"""Upper limit on that number, against typing errors."""


def is_json(path: Path) -> bool:
    """Return whether a report is to be JSON."""
    return path.suffix.lower() == JSON_SUFFIX


def check_report_path(path: Path, inputs: Iterable[Path] = ()) -> None:
    """Refuse a path to which no report can be written, or that would overwrite an input."""
    check_output_path(path, NAME, SUFFIXES, inputs)
    if not is_json(path):
        required_jinja2()
        new_figure(1.0, 1.0)  # refuses where Matplotlib is missing


def required_jinja2() -> Any:
    """Return Jinja2, or refuse where it is not installed."""
    try:
        return import_module("jinja2")
    except ImportError:
        raise InputError("the report needs Jinja2: pip install 'attentest[plots]'.") from None
