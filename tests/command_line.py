"""The command line run in the test's own process, or killed in one of its own."""

from __future__ import annotations

import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
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
    command: Sequence[str],
    longest: float,
    finished: Callable[[], None],
    signals: Sequence[signal.Signals] = (signal.SIGKILL,) * 10,
    seed: int = 0,
) -> None:
    """Run a command again and again, ended by signals at random moments, and in the end to its end.

    Ctrl-C goes to its whole process group, as from a terminal. What a signal ends says one sentence, unless it has said
    what it wrote and is about to end, leaves no process behind and has the exit code of the signal.

    Parameters
    ----------
    command
        The command and its arguments.
    longest
        Seconds; a run is ended at some moment before, after it has begun to answer signals. Once one that began anew
        has come to its end in less, that is the longest.
    finished
        Called when a run has come to its end: it checks what is there, and removes it, so that the next begins anew.
    signals
        The signals, in the order in which they are sent, one to each run.
    """
    draw, mark = random.Random(seed), f"{longest}-{seed}-{os.getpid()}"
    environment = {**os.environ, MARK: mark}
    # A shell that runs the tests in the background has them ignore interrupts, and children inherit that.
    listening = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    pipes: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    waiting, anew = list(signals), True
    while waiting:
        with subprocess.Popen(
            command, env=environment, preexec_fn=listening, start_new_session=True, **pipes
        ) as process:
            while not (listens := _answers_signals(process.pid)) and process.poll() is None:
                time.sleep(0.01)
            assert listens, "it ended before it could be ended"
            start = time.monotonic()
            try:
                _, said = process.communicate(timeout=draw.uniform(0, longest))
            except subprocess.TimeoutExpired:
                sent = waiting[0]
                (os.killpg if sent == signal.SIGINT else os.kill)(process.pid, sent)
                _, said = process.communicate(timeout=120)
                if process.returncode != 0:  # it had not come to its end meanwhile
                    _check_end(process.returncode, sent, said)
                    _wait_until_gone(mark)
                    waiting.pop(0)
                    anew = False
                    continue
        assert process.returncode == 0, said
        longest, anew = min(longest, time.monotonic() - start) if anew else longest, True
        _wait_until_gone(mark)
        finished()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    finished()


MARK = "ATTENTEST_TESTED_PROCESS"
"""Environment variable of a command that is killed, and of all that it starts."""


def _answers_signals(process: int) -> bool:
    """Return whether a process has a handler of SIGTERM, which Python itself has not."""
    with suppress(OSError):
        caught = re.search(r"SigCgt:\s*(\w+)", Path(f"/proc/{process}/status").read_text())
        return caught is not None and bool(int(caught[1], 16) >> (signal.SIGTERM - 1) & 1)
    return False


def _check_end(code: int, sent: signal.Signals, said: str) -> None:
    assert "Traceback" not in said, said
    if sent == signal.SIGKILL:
        assert code == -sent
    else:
        assert code == 128 + sent, (code, sent, said)
        written = "attentest: note: |(table|report|figure): |.* in all$"
        lines = [line for line in said.splitlines() if not re.match(written, line)]
        is_over = re.search("^(table|report|figure): ", said, re.MULTILINE) is not None
        assert len(lines) == 1 or (not lines and is_over), said
        assert all(line.startswith("attentest: interrupted") for line in lines), said


def _wait_until_gone(mark: str, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while left := _marked(mark):
        assert time.monotonic() < until, [Path(f"/proc/{process}/cmdline").read_bytes() for process in left]
        time.sleep(0.05)


def _marked(mark: str) -> list[str]:
    entry, found = f"{MARK}={mark}".encode(), []
    for process in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):  # of another user, or gone
            if entry in Path(f"/proc/{process}/environ").read_bytes().split(b"\0"):
                found.append(process)
    return found
