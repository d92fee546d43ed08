"""What all tests share.

NumPy, torch and transformers are imported where they are used: NumPy takes its number of threads when it is imported,
and the process that only hands tests to others, which reads this file as well, would import torch for seconds first.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import numpy as np
    from transformers import ViTForImageClassification

    from attentest import AttentionTest


def pytest_configure(config: pytest.Config) -> None:
    """Give each of several test processes one thread, or they fight over the cores, and seldom search for garbage."""
    gc.set_threshold(100_000)  # the figures and tables of many tests are made of objects, and 700 are soon made
    os.environ.pop("COLUMNS", None)  # pytest-xdist sets it, and what is piped would have the width of its terminal
    if hasattr(config, "workerinput"):
        os.environ["OMP_NUM_THREADS"] = "1"
        import torch

        torch.set_num_threads(1)


def pytest_collection_finish() -> None:
    """Leave what was imported, some million objects, out of every later search for garbage."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def commands_built_once() -> Iterator[None]:
    """Build the commands of the command line once: it takes 60 ms, and tests call them a thousand times."""
    import typer.main
    import typer.testing

    with pytest.MonkeyPatch.context() as patch:
        built = cache(typer.main.get_command)
        patch.setattr(typer.main, "get_command", built)
        patch.setattr(typer.testing, "_get_command", built)
        yield


@pytest.fixture(scope="session", autouse=True)
def nothing_waits_for_the_disk() -> Iterator[None]:
    """Let ``os.fsync`` return at once: no test cuts the power, and thousands of calls would wait for the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # which takes an open file, too
        yield


@pytest.fixture(autouse=True)
def closed_figures() -> Iterator[None]:
    """Close what a test has drawn: pyplot keeps figures, and warns of many."""
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")


@pytest.fixture(scope="session")
def reference_directory() -> Path:
    """The published models and p-values; tests that need them are skipped where they are absent."""
    default = Path(__file__).resolve().parents[2] / "shared" / "reference"
    directory = Path(os.environ.get("ATTENTEST_REFERENCE", default))
    if not (directory / "expected.json").is_file():
        pytest.skip("the reference data is not here (set ATTENTEST_REFERENCE to its directory)")
    return directory


@pytest.fixture(scope="session")
def brain_data() -> Path:
    """The packed slices of Buda et al. (2019); tests that need them are skipped where they are absent."""
    default = Path(__file__).resolve().parents[2] / "shared" / "brain"
    data = Path(os.environ.get("ATTENTEST_BRAIN", default))
    if not data.exists():
        pytest.skip("the brain data are not here (set ATTENTEST_BRAIN to their file or folder)")
    return data


@pytest.fixture(scope="session")
def device() -> str:
    """Where the long tests compute."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(scope="session")
def at_most(device: str) -> Callable[[int, int], int]:
    """``at_most(many, few)``: how many images a long test takes, many on a GPU, few where many would take hours.

    ATTENTEST_SLOW=all asks for many everywhere.
    """
    all_of_them = device == "cuda" or os.environ.get("ATTENTEST_SLOW") == "all"
    return lambda many, few: many if all_of_them else few


@pytest.fixture(scope="session")
def tiny_model() -> ViTForImageClassification:
    from toys import tiny_vit

    return tiny_vit()


@pytest.fixture(scope="session")
def saved_tiny_model(tiny_model: ViTForImageClassification, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "tiny"
    tiny_model.save_pretrained(directory)
    return directory


@pytest.fixture(scope="session")
def tiny_test(tiny_model: ViTForImageClassification) -> AttentionTest:
    from attentest import AttentionTest
    from toys import COARSE

    return AttentionTest(tiny_model, noise=1.0, search=COARSE)


@pytest.fixture(scope="session")
def tiny_images() -> np.ndarray:
    import numpy as np

    return np.random.default_rng(1).normal(size=(8, 8, 8))


@pytest.fixture
def folder_of_scans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved_tiny_model: Path) -> None:
    """A working directory with a model, ``tiny``, and five images for it in ``scans``."""
    import numpy as np

    monkeypatch.chdir(tmp_path)
    Path("tiny").symlink_to(saved_tiny_model)
    Path("scans").mkdir()
    for number, image in enumerate(np.random.default_rng(4).normal(size=(5, 8, 8))):
        np.save(f"scans/{number}.npy", image)
