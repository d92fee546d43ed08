"""The options that say where the work of a command is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from attentest.cli.options import WORKERS, names_in
from attentest.errors import InputError
from attentest.registry import ENGINES

if TYPE_CHECKING:
    from attentest.runs.engine import Engine

    EngineName = str
else:
    EngineName = names_in(ENGINES)

MOST = 10_000
"""Largest number of workers, or of cores of one."""

LOCAL, RAY = "local", "ray"
"""The default engine, and the one that may be on other machines."""

WITH_WORKERS = " or ".join(name for name in ENGINES if name != LOCAL)


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Options that say where the work of a command is done."""

    engine: Annotated[
        EngineName,
        typer.Option(help=f"Where the work is done: {ENGINES.choices()}.", metavar="NAME", rich_help_panel=WORKERS),
    ] = LOCAL
    address: Annotated[
        str | None,
        typer.Option(
            help="For --engine ray: address of a running cluster, such as auto.",
            show_default="one on this machine",
            rich_help_panel=WORKERS,
        ),
    ] = None
    workers: Annotated[
        int | None,
        typer.Option(
            help=f"For --engine {WITH_WORKERS}: number of workers; by default one for each group of cores, or for each "
            "GPU four processes or one worker of ray.",
            metavar="N",
            rich_help_panel=WORKERS,
        ),
    ] = None
    cores: Annotated[
        int | None,
        typer.Option(
            help=f"For --engine {WITH_WORKERS}: cores of each worker; by default one, or for processes on a GPU an "
            "even share of all.",
            metavar="N",
            rich_help_panel=WORKERS,
        ),
    ] = None

    @property
    def is_local(self) -> bool:
        """Whether the work is done in this process."""
        return self.engine == LOCAL

    def check(self) -> None:
        """Refuse options that the engine does not have; nothing is imported."""
        for option, given in (("--address", self.address), ("--workers", self.workers), ("--cores", self.cores)):
            if self.is_local and given is not None:
                engines = RAY if option == "--address" else WITH_WORKERS
                raise InputError(f"{option} is for --engine {engines}, which is not there: add it.")
        if self.address is not None and self.engine != RAY:
            raise InputError(f"--address is for --engine {RAY}, not for --engine {self.engine}: leave it out.")
        for option, number in (("--workers", self.workers), ("--cores", self.cores)):
            if number is not None and not 1 <= number <= MOST:
                raise InputError(f"{option} must be at least 1 and at most {MOST}, got {number}.")

    def chosen(self) -> Engine:
        """Return the engine that the options choose."""
        self.check()
        given = {"address": self.address, "workers": self.workers, "cores": self.cores}
        chosen = {name: value for name, value in given.items() if value is not None}
        found: Engine = ENGINES.load(str(self.engine))(**chosen)
        return found
