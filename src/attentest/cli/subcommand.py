"""Groups that run something themselves when none of their commands is named."""

from __future__ import annotations

import typer

from attentest.errors import InputError


def refuse_options_before(context: typer.Context, purpose: str) -> None:
    """Refuse options of a group before one of its commands, where they would have no effect.

    Parameters
    ----------
    context
        That of the group.
    purpose
        What the options of the group itself are for, such as "running experiments".
    """
    for name in context.params:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            option = name.replace("_", "-").removeprefix("as-")
            raise InputError(f"--{option} is for {purpose}: options of {context.invoked_subcommand} come after it.")
