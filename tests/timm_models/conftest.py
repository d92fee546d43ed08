"""Brings in timm and torchvision, from beside the environment where they are not installed in it.

torchvision's binaries load only with the build of torch they were made for, which the CPU build in use for tests need
not be, and transformers imports a torchvision that it finds, and breaks on one whose binaries do not load. So both
packages may lie in a folder ``timm`` of the environment that is on nobody's path (requirements.txt says which
versions): ``pip install --no-deps --target "$VIRTUAL_ENV/timm" -r tests/timm_models/requirements.txt``. Without them
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

KEPT: list[Any] = []
"""What must live as long as the process: operators vanish with the library object that declared them."""


def bring_in(folder: Path) -> None:
    """Import both packages from a folder, leaving no trace that transformers could take for an installation."""
    # transformers remembers its answers, so asking first is enough for it to go on without either package.
    answers = {name: getattr(utils, name)() for name in ASKED_OF_TRANSFORMERS if hasattr(utils, name)}
    declare_operators(folder / "torchvision" / "_meta_registrations.py")
    sys.path.append(str(folder))
    try:
        for package in PACKAGES:
            importlib.import_module(package)
    finally:
        sys.path.remove(str(folder))  # their own modules are found through the packages
    assert {name: getattr(utils, name)() for name in answers} == answers
    assert not any(answers.values())


def declare_operators(registrations: Path) -> None:
    """Declare the operators that torchvision describes on import; its binaries, which would, may not load here.

    They are never called: no model tested here has one.
    """
    text = registrations.read_text(encoding="utf-8")
    names = set(re.findall(r'register_meta\("(\w+)"', text)) | set(re.findall(r'"torchvision::(\w+)"', text))
    library = torch.library.Library("torchvision", "DEF")
    for name in sorted(names):
        library.define(f"{name}() -> ()")
    KEPT.append(library)


assert transformers.__version__  # imported before the path is touched: it looks around when it is
if any(importlib.util.find_spec(package) is None for package in PACKAGES) and BESIDE.is_dir():
    bring_in(BESIDE)
