"""The list of runs in an output directory: command, time and warnings of each."""

from __future__ import annotations

import shlex
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from attentest.errors import AttentestWarning


class RunLog:
    """Takes note of the warnings of attentest for as long as the context lasts; they are shown as before."""

    def __init__(self) -> None:
        self._started, self._clock = datetime.now(UTC), time.monotonic()
        self._warnings: list[str] = []
        self._show = warnings.showwarning

    def __enter__(self) -> Self:
        def show(message: Warning | str, category: type[Warning], *where: Any, **also: Any) -> None:
            if issubclass(category, AttentestWarning) and str(message) not in self._warnings:
                self._warnings.append(str(message))
            self._show(message, category, *where, **also)

        warnings.showwarning = show
        return self

    def __exit__(self, *_: object) -> None:
        warnings.showwarning = self._show

    @contextmanager
    def written_to(self, directory: Path | None) -> Iterator[None]:
        """Add this run to the list of runs in a directory, if there is one, when the context ends, however it does."""
        try:
            yield
        finally:
            if directory is not None:
                from attentest.runs.records import record_run

                record_run(
                    directory,
                    {
                        "command": shlex.join(["attentest", *sys.argv[1:]]),
                        "started": self._started.strftime("%Y-%m-%d %H:%M UTC"),
                        "seconds": round(time.monotonic() - self._clock, 3),
                        "warnings": self._warnings,
                    },
                )
