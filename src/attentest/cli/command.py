"""Commands that refuse options given twice, whose errors name options and whose help begins with examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from attentest.cli.help_page import print_help
from attentest.cli.interruption import on_interrupt, usually_kept
from attentest.cli.option_names import option_names, options_of
from attentest.errors import NOISE_GUIDE, InputError

ADVICE = {
    "noise": "It is what would differ if the same image were taken again: a standard deviation, or a file of attentest "
    f"noise fit. How to choose it: {NOISE_GUIDE}."
}
"""What to say to those who leave out a required option, by the name of its parameter."""


class Command(TyperCommand):
    """A command of attentest."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        print_help(self, ctx)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line."""
        try:
            rest = super().parse_args(ctx, list(args))
        except typer.BadParameter as error:
            if error.param is not None and error.param.name in ADVICE:
                error.message = ADVICE[error.param.name]  # follows "Missing option"
            raise
        values, _, parameters = self.make_parser(ctx).parse_args(list(args))
        check_repeated(parameters)
        check_empty_paths(parameters, values, ctx.params)
        return rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with option_names(options_of(self.params)), on_interrupt(usually_kept(self.params)):
            return super().invoke(ctx)


class Group(TyperGroup):
    """A group of commands of attentest."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        print_help(self, ctx)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line."""
        rest = super().parse_args(ctx, list(args))
        values, _, parameters = self.make_parser(ctx).parse_args(list(args))
        check_repeated(parameters)
        check_empty_paths(parameters, values, ctx.params)
        return rest

    def invoke(self, ctx: Any) -> Any:
        """Run the group, or the command of the group that was chosen."""
        with option_names(options_of(self.params)), on_interrupt(usually_kept(self.params)):
            return super().invoke(ctx)


def check_repeated(parameters: Iterable[Any]) -> None:
    """Refuse an option that is twice among parameters, as they come on the command line, where only the last counts."""
    counts = Counter(each for each in parameters if each.param_type_name == "option" and not each.multiple)
    for option, count in counts.items():
        if count > 1:
            raise InputError(
                f"{max(option.opts, key=len)} was given {count} times, and only one can count: give it once."
            )


def check_empty_paths(parameters: Iterable[Any], given: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Refuse an empty text in place of a path, which would stand for the current directory.

    Parameters
    ----------
    parameters
        The parameters that are given.
    given, values
        What is given for them, as text, and what is made of it, by their names.
    """
    for parameter in parameters:
        texts, paths = (
            some if isinstance(some, (list, tuple)) else [some]
            for some in (given[parameter.name], values.get(parameter.name))
        )
        if "" in texts and any(isinstance(path, Path) for path in paths):
            raise InputError(f"{max(parameter.opts, key=len)} must be a path, got an empty text.")
