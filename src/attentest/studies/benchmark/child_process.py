"""Measurements in a process of their own: what they import, and the memory they take, is theirs alone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from attentest.studies.benchmark.ratio import NotMeasured

FRESH = (sys.executable, "-P")
"""A new interpreter, which does not import from the current directory."""


def measured_alone(module: str, arguments: Sequence[object]) -> dict[str, Any]:
    """Run a module of this package as a program and return the object that it prints as JSON.

    Parameters
    ----------
    module
        Name of the module in this package.
    arguments
        What it is called with.
    """
    command = [*FRESH, "-m", f"{__package__}.{module}", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise NotMeasured(f"a process of its own failed ({reason}).")
    values: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return values
