"""Imports timm and torchvision, from a folder of the environment if they are not installed in it.

torchvision's binaries load only with the build of torch they were made for, which need not be the CPU build that tests
use, and transformers imports any torchvision that is installed and fails if its binaries do not load. So both packages
may be in a folder ``timm`` of the environment that is not on the path (requirements.txt lists the versions):
``pip install --no-deps --target "$VIRTUAL_ENV/timm" -r tests/timm_models/requirements.txt``. Without them
the tests here are skipped.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import utils

BESIDE = Path(sys.prefix) / "timm"
PACKAGES = ("timm", "torchvision")
ASKED_OF_TRANSFORMERS = ("is_torchvision_available", "is_torchvision_v2_available", "is_timm_available")

LIBRARIES: list[Any] = []
"""Library objects, referenced until the process ends: the operators that one declared vanish with it."""


def import_from(folder: Path) -> None:
    """Import both packages from a folder, without transformers taking them for installed ones."""
    # transformers caches these answers, so asking before the import makes it work without either package.
    answers = {name: getattr(utils, name)() for name in ASKED_OF_TRANSFORMERS if hasattr(utils, name)}
    declare_operators(folder / "torchvision" / "_meta_registrations.py")
    sys.path.append(str(folder))
    try:
        for package in PACKAGES:
            importlib.import_module(package)
    finally:
        sys.path.remove(str(folder))  # submodules are found through the packages
    assert {name: getattr(utils, name)() for name in answers} == answers
    assert not any(answers.values())


def declare_operators(registrations: Path) -> None:
    """Declare the operators that torchvision registers on import: its binaries, which declare them, may not load.

    They are never called: no model tested here has one.
    """
    text = registrations.read_text(encoding="utf-8")
    names = set(re.findall(r'register_meta\("(\w+)"', text)) | set(re.findall(r'"torchvision::(\w+)"', text))
    library = torch.library.Library("torchvision", "DEF")
    for name in sorted(names):
        library.define(f"{name}() -> ()")
    LIBRARIES.append(library)


assert transformers.__version__  # imported before the path is touched: it looks around when it is
if any(importlib.util.find_spec(package) is None for package in PACKAGES) and BESIDE.is_dir():
    import_from(BESIDE)
