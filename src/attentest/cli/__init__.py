"""The command line: data on standard output, everything else on standard error."""

from __future__ import annotations

import warnings
from typing import Annotated, Any

import typer

from attentest import __version__
from attentest.cli.bench import bench
from attentest.cli.command import Command, Group, with_options
from attentest.cli.demo import demo, train, web_page
from attentest.cli.maps import check, compare, sanity
from attentest.cli.noise import noise
from attentest.cli.output import INTERRUPTED, OUTPUT_CHANGED, Interrupted, fail, say
from attentest.cli.saved_results import cohort, report
from attentest.cli.simulation import calibrate, power
from attentest.cli.studies import brain, reproduce
from attentest.cli.test import test
from attentest.errors import AttentestError, AttentestWarning, OutputError
from attentest.files import NO_ROOM, unwritten

app = typer.Typer(
    name="attentest",
    cls=Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Test whether the region that a Vision Transformer attends to is statistically real.",
    epilog="Start with: attentest demo",
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Test whether the region that a Vision Transformer attends to is statistically real."""


for command in (demo, test, check, compare, report, cohort, calibrate, power, sanity, train, brain):
    app.command(cls=Command)(with_options(command))
app.command("app", cls=Command)(with_options(web_page))
app.add_typer(noise)
app.add_typer(bench, cls=Group)
app.add_typer(reproduce, cls=Group)


def main() -> None:
    """Run the command line; errors of the user end in a message of one sentence and exit code 2."""
    warnings.showwarning = _note
    try:
        app()
    except AttentestError as error:
        fail(str(error), OUTPUT_CHANGED if isinstance(error, OutputError) else 2)
    except Interrupted as stop:
        fail(f"interrupted; {stop}", INTERRUPTED)
    except (KeyboardInterrupt, SystemExit) as stop:
        if isinstance(stop, SystemExit) and stop.code != INTERRUPTED:
            raise
        fail("interrupted before the command began.", INTERRUPTED)
    except OSError as error:
        if error.filename is None and error.errno in NO_ROOM:
            fail(str(unwritten("standard output", error)), OUTPUT_CHANGED)
        where = f" ({error.filename})" if error.filename else ""
        fail(f"{error.strerror or error}{where}.", 1)


def _note(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """Print a warning of attentest in one line; those of other libraries are for their developers."""
    if issubclass(category, AttentestWarning):
        say(f"attentest: note: {message}")


__all__ = ["app", "main"]
