"""The wheel holds the whole package and nothing else, and works in an environment that has nothing else.

Its dependencies, as its metadata list them, are linked from the environment of the tests, where the package index gave
them under the project's constraints: a gigabyte is not installed twice. What is not there comes from the index, so
`make test` leaves these tests out.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from email import message_from_bytes
from importlib.metadata import Distribution, PackageNotFoundError, PathDistribution, distribution
from importlib.util import cache_from_source
from pathlib import Path
from zipfile import Path as ZipPath
from zipfile import ZipFile

import numpy as np
import pytest
from packaging.requirements import Requirement

import attentest
from attentest.training.bundled import BUNDLED, BUNDLED_SERIES, OTHERS

pytestmark = pytest.mark.wheel

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "attentest"

REMOVED = ("PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV")
"""Variables that would lead the new environment back to this one, or make it compile everything at each start."""

ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in REMOVED} | {
    "PIP_CONSTRAINT": str(ROOT / "constraints.txt"),
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
}


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", directory, ROOT, cwd=directory)
    (built,) = directory.iterdir()
    return built


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin directory of a new environment with the wheel, its dependencies and no extras."""
    directory = tmp_path_factory.mktemp("environment")
    venv.create(directory, with_pip=False, symlinks=True)
    install(directory / "bin", wheel)
    return directory / "bin"


def install(where: Path, wheel: Path, *extras: str) -> None:
    """Install the wheel with its dependencies, those of this environment first."""
    (packages,) = where.parent.glob("lib/python*/site-packages")
    (described,) = (path for path in ZipPath(wheel).iterdir() if path.name.endswith(".dist-info"))
    linked: set[tuple[str, str]] = set()
    link_dependencies(PathDistribution(described), extras, packages, linked)
    assert len(linked) > 10
    wanted = f"{wheel}[{','.join(extras)}]" if extras else str(wheel)
    # Compiling all of torch would take most of the time; what is imported is compiled then.
    pip = (sys.executable, "-m", "pip", "--python", where / "python")
    run(*pip, "install", "--quiet", "--no-compile", wanted, cwd=where)


def link_dependencies(
    dependent: Distribution, extras: tuple[str, ...], packages: Path, linked: set[tuple[str, str]]
) -> None:
    """Link what a distribution with its extras requires, and what that requires, into a folder of packages."""
    for text in dependent.requires or ():
        required = Requirement(text)
        if required.marker is not None and not any(required.marker.evaluate({"extra": it}) for it in ("", *extras)):
            continue
        for extra in ("", *required.extras):
            if (required.name, extra) not in linked:
                linked.add((required.name, extra))
                try:
                    found = distribution(required.name)
                except PackageNotFoundError:
                    continue  # pip looks for it in the package index
                link_files(found, packages)
                link_dependencies(found, (extra,) if extra else (), packages, linked)


def link_files(found: Distribution, packages: Path) -> None:
    for name in found.files or ():
        if ".." in name.parts:
            continue  # a script, which would start this environment
        source = Path(str(found.locate_file(name)))
        compiled = Path(cache_from_source(str(source)))
        for path in (source, compiled) if source.suffix == ".py" else (source,):
            target = packages / path.relative_to(str(found.locate_file("")))
            if path.is_file() and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                try:
                    os.link(path, target)
                except OSError:  # on another file system
                    shutil.copy2(path, target)


def test_it_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (archive.read(name) for name in names if name.endswith(".dist-info/METADATA"))
    held = {name.removeprefix("attentest/") for name in names if name.startswith("attentest/")}
    source = {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*") if path.is_file()}
    assert held == {name for name in source if "__pycache__" not in name}
    assert {name.split("/")[0] for name in names} == {"attentest", f"attentest-{attentest.__version__}.dist-info"}

    models = {
        f"training/models/{name}"
        for name in (*(f"{kind}{size}" for kind, size in BUNDLED), *OTHERS.values(), BUNDLED_SERIES)
    }
    assert len(models) == 8
    for model in models:
        assert {f"{model}/{name}" for name in ("config.json", "model.safetensors", "training.json")} <= held
    assert "py.typed" in held
    for room in ("studies", "studies/brain", "studies/reproduction"):
        assert any(name.startswith(f"{room}/templates/") for name in held), room

    described = message_from_bytes(metadata)
    assert described["Version"] == attentest.__version__
    assert described["License-Expression"] == "MIT"


def test_it_gives_a_p_value_without_extras(bare: Path, tmp_path: Path) -> None:
    image = np.random.default_rng(0).normal(size=(16, 16))
    np.save(tmp_path / "image.npy", image)
    found = "import attentest; print(attentest.__file__, attentest.bundled_model())"
    for path in run(bare / "python", "-I", "-c", found, cwd=tmp_path).split():
        assert Path(path).is_relative_to(bare.parent)
        assert Path(path).exists()
    said = run(bare / "attentest", "test", "image.npy", "--noise", "1.0", "--json", cwd=tmp_path)
    test = attentest.AttentionTest.from_pretrained(attentest.bundled_model(), noise=1.0)
    assert json.loads(said)["pvalue"] == pytest.approx(test(image).pvalue, abs=2e-6)  # two error bars of 1e-6


def test_it_runs_the_demo(bare: Path, wheel: Path, tmp_path: Path) -> None:
    install(bare, wheel, "plots")
    said = run(bare / "attentest", "demo", "--json", "--out", "figure/demo.png", cwd=tmp_path)
    noise, signal = map(json.loads, said.splitlines())
    assert noise["naive_pvalue"] < 0.05 < noise["pvalue"]
    assert signal["pvalue"] < 1e-6
    assert (tmp_path / "figure" / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["figure"]
