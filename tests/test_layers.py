"""Data flows one way: a module imports only from those before it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import attentest

PACKAGE = Path(attentest.__file__).parent

FLOW = [
    "errors",
    "checks",
    "device",
    "machine",
    "quiet",
    "complete_file",
    "table_file",
    "picture",
    "medical_file",
    "image_file",
    "image",
    "resample",
    "processor",
    "preprocessing",
    "attention",
    "view",
    "region",
    "noise",
    "contrast",
    "frame",
    "case",
    "observation",
    "line",
    "comparison",
    "intervals",
    "truncated_normal",
    "conditional_mean",
    "confidence_interval",
    "search",
    "baselines",
    "multiplicity",
    "result",
    "results",
    "attention_test",
    "calibration",
    "bundled",
    "synthetic",
    "classifier",
    "training",
    "plots",
    "rate_plot",
    "document",
    "verdict",
    "record_file",
    "recorded_work",
    "run_log",
    "demo",
    "bench",
    "reproduction",
    "brain",
    "cli",
]
"""The design's order, from image to command line."""

MATHEMATICS = {
    "errors",
    "checks",
    "intervals",
    "search",
    "truncated_normal",
    "conditional_mean",
    "confidence_interval",
    "baselines",
    "multiplicity",
}
"""Below the line nothing knows of images or models."""


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
    assert "attentest.attention_test" in loaded
    assert not loaded & {"matplotlib", "typer", "attentest.cli", "attentest.plots", "torchvision", "timm"}
