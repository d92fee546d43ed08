"""The options that say where the work of a command is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from attentest.cli.options import WORKERS, names_in
from attentest.errors import InputError
from attentest.registry import ENGINES

if TYPE_CHECKING:
    from attentest.api.engine import Engine

    EngineName = str
else:
    EngineName = names_in(ENGINES)

MOST = 10_000
"""Largest number of workers, or of cores of one."""

LOCAL = "local"
"""The default engine."""


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
            help="For --engine ray: number of workers.",
            metavar="N",
            show_default="one for each GPU or group of cores",
            rich_help_panel=WORKERS,
        ),
    ] = None
    cores: Annotated[
        int | None,
        typer.Option(
            help="For --engine ray: cores of each worker.", metavar="N", show_default="1", rich_help_panel=WORKERS
        ),
    ] = None

    @property
    def is_local(self) -> bool:
        """Whether the work is done in this process."""
        return self.engine == LOCAL

    def check(self) -> None:
        """Refuse options of workers where there are none; nothing is imported."""
        for option, given in (("--address", self.address), ("--workers", self.workers), ("--cores", self.cores)):
            if self.is_local and given is not None:
                raise InputError(f"{option} is for --engine ray, which is not there: add it.")
        for option, number in (("--workers", self.workers), ("--cores", self.cores)):
            if number is not None and not 1 <= number <= MOST:
                raise InputError(f"{option} must be at least 1 and at most {MOST}, got {number}.")

    def chosen(self) -> Engine:
        """Return the engine that the options choose."""
        self.check()
        found: Engine
        if self.is_local:
            found = ENGINES.load(LOCAL)()
        else:
            found = ENGINES.load(str(self.engine))(
                address=self.address, workers=self.workers, cores=1 if self.cores is None else self.cores
            )
        return found
