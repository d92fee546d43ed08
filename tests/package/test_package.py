"""The public names, and the files around the package: version, citation, checks, continuous integration."""

from __future__ import annotations

import ast
import re
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_layers import FLOW, PACKAGE

import attentest

ROOT = Path(__file__).parents[2]


def loaded(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text())


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def make_recipes() -> dict[str, list[str]]:
    """Return the commands of each target of the Makefile."""
    found: dict[str, list[str]] = {}
    target = ""
    for line in (ROOT / "Makefile").read_text().splitlines():
        if rule := re.match(r"([a-z-]+):", line):
            target = rule[1]
            found[target] = []
        elif line.startswith("\t") and target:
            found[target].append(line.strip())
        else:
            target = ""
    return found


def test_dir_lists_the_public_names() -> None:
    assert dir(attentest) == sorted([*attentest.__all__, "__version__"])
    assert sorted(attentest.__all__) == [
        "AttentionTest",
        "AttentionTestResult",
        "Cohort",
        "Preprocessing",
        "ProcessEngine",
        "RayEngine",
        "Results",
        "attention",
        "bundled_model",
        "calibrate",
        "compare",
        "contrast",
        "errors",
        "noise",
        "noise_check",
        "plan",
        "plot_margins",
        "read_image",
        "sanity",
        "search",
    ]


def test_every_public_name_can_be_imported() -> None:
    names: dict[str, Any] = {}
    exec("from attentest import *", names)
    assert set(names) - {"__builtins__"} == set(attentest.__all__)
    assert all(names[name] is getattr(attentest, name) for name in attentest.__all__)
    assert attentest.noise is import_module("attentest.noise")
    assert attentest.calibrate is import_module("attentest.simulation.calibrate").calibrate


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'AttentionTset'"):
        _ = attentest.AttentionTset
    with pytest.raises(ImportError):
        exec("from attentest import AttentionTset")


def test_type_checkers_see_the_public_names() -> None:
    tree = ast.parse((PACKAGE / "__init__.pyi").read_text())
    seen = {}
    for node in ast.walk(tree):
        for alias in node.names if isinstance(node, ast.ImportFrom) else ():
            assert alias.asname == alias.name  # "import x as x" is how a module exports x
            seen[alias.name] = node.module
    assert seen == attentest._DEFINED_IN  # type: ignore[attr-defined]


def test_the_version_is_stated_once() -> None:
    assert "version" not in project()["project"]
    assert project()["project"]["dynamic"] == ["version"]
    assert ROOT / project()["tool"]["hatch"]["version"]["path"] == PACKAGE / "__init__.py"
    assert loaded("CITATION.cff")["version"] == attentest.__version__
    (newest, *_) = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert newest == attentest.__version__


def test_the_citation_is_complete() -> None:
    citation = loaded("CITATION.cff")
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "type", "version", "license", "authors", "references"} <= set(citation)
    assert citation["license"] == project()["project"]["license"]
    assert citation["authors"] == project()["project"]["authors"]
    (paper,) = citation["references"]
    assert {"type", "title", "authors"} <= set(paper)
    for author in paper["authors"]:
        assert set(author) == {"given-names", "family-names"}
    *most, last = [author["family-names"] for author in paper["authors"]]
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert f"{', '.join(most)} and {last}, [*{paper['title']}*]({paper['url']})" in readme


def test_the_hooks_before_a_commit_run_what_make_check_runs() -> None:
    (_, local) = loaded(".pre-commit-config.yaml")["repos"]
    assert local["repo"] == "local"
    hooks = [hook["entry"].replace(" --force-exclude", "") for hook in local["hooks"]]
    checks = [command.replace("$(BIN)", ".venv/bin").replace(" --check", "") for command in make_recipes()["check"]]
    assert hooks == checks


def test_make_help_lists_every_target() -> None:
    recipes = make_recipes()
    described = {re.search(r"make ([a-z-]+) ", line)[1] for line in recipes["help"]}  # type: ignore[index]
    assert described == set(recipes) - {"help"}


def test_hosted_ci_runs_the_supported_versions_of_python() -> None:
    workflow = loaded(".github/workflows/ci.yml")
    versions = workflow["jobs"]["test"]["strategy"]["matrix"]["python-version"]
    declared = [name.split()[-1] for name in project()["project"]["classifiers"] if ":: Python :: 3." in name]
    assert versions == declared == ["3.11", "3.12", "3.13", "3.14"]
    assert project()["project"]["requires-python"] == f">={versions[0]}"
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow["concurrency"]["cancel-in-progress"] is True


def test_hosted_ci_runs_what_must_pass() -> None:
    jobs = loaded(".github/workflows/ci.yml")["jobs"]
    steps = [step["run"] for name, job in jobs.items() if name != "oldest" for step in job["steps"] if "run" in step]
    required = set(re.findall(r"^(?:beside )?make ([\w-]+)", (ROOT / ".ci" / "run").read_text(), re.M))
    assert sorted(step.removesuffix(" PYTHON=python") for step in steps) == sorted(f"make {name}" for name in required)
    assert required <= set(make_recipes())


def test_hosted_ci_tests_models_with_the_oldest_versions() -> None:
    oldest = dict(re.findall(r"^(\w+)==(\S+)$", (ROOT / "constraints-oldest.txt").read_text(), re.M))
    for requirement in project()["project"]["dependencies"]:
        name, least = re.match(r"([\w-]+)>=([\d.]+)", requirement).groups()  # type: ignore[union-attr]
        assert f"{oldest[name]}.".startswith(f"{least}."), requirement
    steps = [step.get("run", "") for step in loaded(".github/workflows/ci.yml")["jobs"]["oldest"]["steps"]]
    assert any("--constraint constraints-oldest.txt" in step for step in steps)


def test_contributing_describes_every_package_in_order() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    table = text[text.index("| package |") : text.index("`statistics` and `search` are")]
    assert re.findall(r"^\| `(\w+)` \|", table, re.M) == FLOW


def test_contributing_names_what_is_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    files = {name: next(base / name for base in (ROOT, PACKAGE) if (base / name).is_file()) for name in named(text)}
    assert len(files) > 10
    for name, path in re.findall(r"`(\w+)` (?:in |\()`([\w/]+\.py)`", text):
        assert name in files[path].read_text(), name
    for registry in re.findall(r"`([A-Z_]+)` \|$", text, re.M):
        assert registry in files["src/attentest/registry.py"].read_text(), registry
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.M)) <= set(make_recipes())


def named(text: str) -> list[str]:
    return re.findall(r"`([\w/]+\.(?:py|txt))`", text)
