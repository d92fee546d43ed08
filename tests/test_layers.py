"""Data flows one way: a module imports only from those before it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import attentest

PACKAGE = Path(attentest.__file__).parent

FLOW = [
    "errors",  # the exceptions and the warning
    "registry",  # everything that can be chosen by name
    "checks",  # checks of single parameters
    "files",  # files that are written whole or not at all
    "images",  # reading images and preparing them for a model
    "attention",  # from a model to scores on its grid of patches
    "region",  # from scores to the attention region
    "noise",  # the covariance of the pixels
    "contrast",  # what is compared
    "statistics",  # the law of the statistic given the truncation set
    "search",  # the truncation set
    "results",  # numbers, tables and pictures
    "pipeline",  # from images to results in one pass
    "api",  # AttentionTest
    "simulation",  # synthetic images, calibration
    "training",  # the bundled classifiers
    "studies",  # what uses the product and is not the product
    "cli",  # the command line
]
"""The rooms, from the image to the command line: each imports only from those before it."""

MATHEMATICS = {"errors", "registry", "checks", "statistics", "search"}
"""These know nothing of images or models."""


def imported(path: Path) -> set[str]:
    """The parts of attentest a file imports, wherever in the file it does."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found.update(names if node.module == "attentest" else [node.module])
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        assert not (isinstance(node, ast.ImportFrom) and node.level), f"{path} has a relative import"
    return {name.split(".")[1] for name in found if name.startswith("attentest.")}


def parts() -> dict[str, set[str]]:
    uses: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        part = path.relative_to(PACKAGE).with_suffix("").parts[0]
        uses.setdefault(part, set()).update(imported(path))
    return uses


def test_every_part_has_its_place() -> None:
    assert set(parts()) - {"__init__", "__main__"} == set(FLOW)


def test_imports_follow_the_flow() -> None:
    for part, used in parts().items():
        if part in ("__init__", "__main__"):
            continue
        later = {name for name in used & set(FLOW) if FLOW.index(name) > FLOW.index(part)}
        assert not later, f"{part} imports {later}, which comes after it"


def test_the_mathematics_knows_nothing_of_models() -> None:
    uses = parts()
    for part in MATHEMATICS:
        assert uses[part] <= MATHEMATICS, f"{part} imports {uses[part] - MATHEMATICS}"


def fresh_modules(code: str) -> set[str]:
    """The modules loaded by code in a new interpreter."""
    script = f"{code}\nimport sys\nprint(' '.join(sys.modules))"
    return set(
        subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    )


def test_importing_attentest_is_light() -> None:
    assert not fresh_modules("import attentest") & {"torch", "transformers", "numpy", "scipy", "typer"}
    assert "torch" not in fresh_modules("import attentest.cli")


def test_the_core_needs_no_optional_part() -> None:
    loaded = fresh_modules("from attentest import AttentionTest")
    assert "attentest.api" in loaded
    assert not loaded & {"matplotlib", "typer", "attentest.cli", "attentest.results.plots", "torchvision", "timm"}
