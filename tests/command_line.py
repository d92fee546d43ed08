"""The command line run in the test's own process, or killed in one of its own."""

from __future__ import annotations

import random
import resource
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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


@contextmanager
def full_disk(largest_file: int) -> Iterator[None]:
    """Let writes fail that would make a file larger than so many bytes, as on a full disk."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, ignored)


def kill_at_random(
    command: Sequence[str], longest: float, finished: Callable[[], None], kills: int = 10, seed: int = 0
) -> None:
    """Run a command again and again, killed at random moments, and in the end to its end.

    Parameters
    ----------
    command
        The command and its arguments.
    longest
        Seconds; a run is killed at some moment before.
    finished
        Called when a run has come to its end: it checks what is there, and removes it, so that the next begins anew.
    kills
        Number of runs that are killed.
    """
    draw = random.Random(seed)
    while kills:
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                code = process.wait(draw.uniform(0, longest))
            except subprocess.TimeoutExpired:
                process.kill()
                kills -= 1
                continue
        assert code == 0
        finished()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    finished()
