"""Data flows one way: a package imports only from those before it."""

from __future__ import annotations

import ast
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import attentest

PACKAGE = Path(attentest.__file__).parent

FLOW = [
    "errors",  # the exceptions and the warning
    "registry",  # everything that can be chosen by name
    "checks",  # checks of single parameters
    "progress",  # how far a computation is
    "markup",  # small pieces of HTML
    "files",  # files that are written whole or not at all
    "images",  # reading images and preparing them for a model
    "attention",  # from a model to scores on its grid of patches
    "region",  # from scores to the attention region
    "noise",  # the covariance of the pixels
    "contrast",  # what is compared
    "statistics",  # the law of the statistic given the truncation set
    "search",  # the truncation set
    "definition",  # what a test is
    "record",  # the record of a result
    "runs",  # records on disk, engines, failures
    "presentation",  # words, tables, figures, reports
    "cohort",  # many results as a study of patients
    "results",  # a result, many results
    "pipeline",  # AttentionTest: from images to results in one pass
    "simulation",  # synthetic images, calibration, power, check of the noise, randomised models
    "training",  # the bundled classifiers
    "studies",  # what uses the product and is not the product
    "app",  # the web page
    "cli",  # the command line
]
"""The rooms, from the image to the command line: each imports only from those before it."""

MATHEMATICS = {"errors", "registry", "checks", "progress", "statistics", "search"}
"""These know nothing of images or models."""

MOST_ROOMS = 18
"""Folders at the top of the package; with more than this a reader no longer finds the right one by its name."""


@cache
def modules() -> dict[str, Path]:
    """Return the files of the package by their dotted names."""
    named = {".".join(("attentest", *path.relative_to(PACKAGE).with_suffix("").parts)): path for path in files()}
    return {name.removesuffix(".__init__"): path for name, path in named.items()}


def files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@cache
def imported(path: Path) -> set[str]:
    """Return the dotted names of the modules that a file imports, wherever in the file it does."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found.update(name if name in modules() else str(node.module) for name in names)
    return found


def rooms(names: set[str]) -> set[str]:
    return {name.split(".")[1] for name in names if name.startswith("attentest.")}


@cache
def uses() -> dict[str, set[str]]:
    """Return for each room those it imports from."""
    found: dict[str, set[str]] = {}
    for path in files():
        room = path.relative_to(PACKAGE).with_suffix("").parts[0]
        found.setdefault(room, set()).update(rooms(imported(path)))
    return found


def test_every_room_has_its_place() -> None:
    assert set(uses()) - {"__init__", "__main__"} == set(FLOW)
    beside = {"__init__.py", "__init__.pyi", "__main__.py", "py.typed", "__pycache__"}
    top = {path.name for path in PACKAGE.iterdir()} - beside
    assert {name.removesuffix(".py") for name in top} == set(FLOW)
    assert len([name for name in top if not name.endswith(".py")]) <= MOST_ROOMS


def test_imports_follow_the_flow() -> None:
    for room in FLOW:
        later = uses()[room] & set(FLOW[FLOW.index(room) + 1 :])
        assert not later, f"{room} imports {later}, which comes after it"


def test_only_the_command_line_imports_studies_and_the_page() -> None:
    assert {room for room, used in uses().items() if "studies" in used} == {"studies", "cli"}
    assert {room for room, used in uses().items() if "app" in used} == {"app", "cli"}
    assert {room for room, used in uses().items() if "cli" in used} == {"cli", "__main__"}


def test_the_mathematics_knows_nothing_of_models() -> None:
    for room in MATHEMATICS:
        assert uses()[room] <= MATHEMATICS, f"{room} imports {uses()[room] - MATHEMATICS}"


def test_no_file_imports_itself_through_others() -> None:
    inner = set(modules()) - {"attentest"}  # whose imports are made when a name is used
    graph = {name: imported(modules()[name]) & inner for name in inner}
    tuple(TopologicalSorter(graph).static_order())  # raises CycleError, which names the files of the cycle


def test_the_package_uses_no_mocks() -> None:
    assert not [path for path in files() if any(name.startswith("unittest") for name in imported(path))]
