"""The command line run in the test's own process."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from unittest.mock import patch

import pytest

from attentest.cli import main


@dataclass(frozen=True)
class Done:
    """Exit code and output of a command."""

    code: object
    out: str
    err: str


def run_main(capsys: pytest.CaptureFixture[str], *arguments: str) -> Done:
    """Run ``attentest`` with arguments, as the installed command does."""
    capsys.readouterr()
    with (
        patch.object(sys, "argv", ["attentest", *arguments]),
        patch.object(warnings, "showwarning", warnings.showwarning),  # main replaces it for the whole process
        pytest.raises(SystemExit) as ended,
    ):
        main()
    out, err = capsys.readouterr()
    return Done(ended.value.code, out, err)
