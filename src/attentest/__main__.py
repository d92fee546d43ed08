"""The command ``attentest``, and ``python -m attentest``: signals are answered before anything else is imported."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM)  # Ctrl-C, and what asks a process to end

ENDED = "attentest: interrupted; what was printed and written is complete.\n"


def main() -> None:
    """Run the command line; a signal ends it in one sentence, with the exit code 130 (Ctrl-C) or 143 (SIGTERM)."""
    received: list[int] = []
    process = os.getpid()

    def stop(number: int, frame: FrameType | None) -> None:
        if os.getpid() != process:  # a copy of it that is about to become another program; this one says the sentence
            os._exit(128 + number)
        received.append(number)
        if _is_importing(frame):
            # What a module raises while it is imported may become another error, or nobody's: then nothing would end.
            _end_at_once(number, ENDED)
        raise KeyboardInterrupt

    def unraisable(what: Any) -> None:
        if received and isinstance(what.exc_value, KeyboardInterrupt):  # it came where exceptions cannot be raised
            _end_at_once(received[0], ENDED)
        sys.__unraisablehook__(what)

    atexit.register(_ignore_signals)  # the first to be registered is the last to be called
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup and shells ask of what runs in the background
            signal.signal(number, stop)
    sys.unraisablehook = unraisable
    try:
        from attentest.cli import main as command

        command()
    except BaseException as error:
        is_said = isinstance(error, SystemExit) and error.code == 128 + signal.SIGINT
        if not received or (isinstance(error, SystemExit) and not is_said):
            raise
        _end_at_once(received[0], "" if is_said else ENDED)  # whatever a library has made of the interrupt
    finally:
        for number in SIGNALS:  # all is said
            if signal.getsignal(number) == stop:
                signal.signal(number, lambda number, _: os._exit(128 + number))


def _ignore_signals() -> None:
    """Let a signal no longer end the process, which is over: Python has the system answer it while it frees memory."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code is not main.__code__:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _end_at_once(number: int, sentence: str) -> NoReturn:
    """Say something and end, without what Python does in the end: libraries that were interrupted may crash there.

    Workers end with the process, and records and tables are complete line by line.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    with suppress(OSError):
        os.write(2, sentence.encode())
    os._exit(128 + number)


if __name__ == "__main__":
    main()
