"""Signals: they end the command in one sentence, at whatever moment they come."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import numpy as np
import pytest

from attentest import __main__ as program

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")

WHILE_IMPORTING = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            try:
                os.kill(os.getpid(), {number})
            except BaseException:  # as some modules do
                pass

sys.meta_path.insert(0, Interrupting())
from attentest.__main__ import main
main()
"""


@pytest.mark.parametrize(("module", "number"), [("typer", signal.SIGINT), ("torch", signal.SIGTERM)])
def test_a_signal_during_an_import_ends_in_one_sentence(module: str, number: signal.Signals, tmp_path: Path) -> None:
    np.save(tmp_path / "null.npy", np.zeros((16, 16)))
    script = WHILE_IMPORTING.format(module=module, number=int(number))
    command = [sys.executable, "-c", script, "test", str(tmp_path / "null.npy"), "--noise", "1", "--json"]
    # A shell that runs the tests in the background has them ignore interrupts, and children inherit that.
    listening = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=listening, timeout=300, check=False)
    assert done.returncode == 128 + number, done.stderr
    assert (done.stdout, done.stderr) == ("", "attentest: interrupted; what was printed and written is complete.\n")


IN_A_COPY = """
import os, signal
import attentest.cli

def command():
    subprocess = os.fork()
    if not subprocess:  # as before it becomes another program, of which libraries start some
        os.kill(os.getpid(), signal.SIGTERM)
        import secrets
    print(os.waitstatus_to_exitcode(os.waitpid(subprocess, 0)[1]))

attentest.cli.main = command
from attentest.__main__ import main
main()
"""


def test_a_copy_of_the_process_ends_without_a_word() -> None:
    done = subprocess.run([sys.executable, "-c", IN_A_COPY], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "143\n", "")


class Ended(BaseException):
    """In place of the end of the process of the tests."""


@pytest.fixture
def entry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[], None]], int]]:
    """Return a function that runs the entry point with another command line and returns its exit code."""

    def end(code: int) -> NoReturn:
        raise Ended(code)

    def run(command: Callable[[], None]) -> int:
        monkeypatch.setattr("attentest.cli.main", command)
        with pytest.raises((Ended, SystemExit)) as ended:
            program.main()
        return int(ended.value.args[0])

    before = {number: signal.getsignal(number) for number in program.SIGNALS}
    for number in before:
        signal.signal(number, signal.default_int_handler)  # a shell may have them ignored
    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(atexit, "register", lambda _: None)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    yield run
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_exit_code_of_a_signal_says_which_whatever_became_of_the_interrupt(
    number: signal.Signals, entry: Callable[[Callable[[], None]], int], capfd: pytest.CaptureFixture[str]
) -> None:
    def orderly() -> None:
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt:
            raise SystemExit(130) from None

    def by_another_error() -> None:
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt:
            raise TypeError("expected a message argument") from None

    def where_nothing_can_be_raised() -> None:
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt as error:  # Python itself would print it, and go on
            sys.unraisablehook(cast(Any, SimpleNamespace(exc_value=error)))

    assert [entry(orderly), capfd.readouterr().err] == [128 + number, ""]
    for command in (by_another_error, where_nothing_can_be_raised):
        assert entry(command) == 128 + number
        said = set(capfd.readouterr().err.splitlines())
        assert said == {"attentest: interrupted; what was printed and written is complete."}
