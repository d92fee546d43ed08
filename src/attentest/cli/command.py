"""Commands that refuse options given twice, whose errors name options and whose help is as wide as the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from typer.core import TyperCommand, TyperGroup

from attentest.cli.option_names import option_names, options_of
from attentest.errors import InputError


class Command(TyperCommand):
    """A command of attentest."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.help = unwrapped(self.help or "")

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line."""
        rest = super().parse_args(ctx, list(args))
        check_repeated(self.make_parser(ctx).parse_args(list(args))[-1])
        return rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with option_names(options_of(self.params)):
            return super().invoke(ctx)


class Group(TyperGroup):
    """A group of commands of attentest that can be run itself."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.help = unwrapped(self.help or "")

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line."""
        rest = super().parse_args(ctx, list(args))
        check_repeated(self.make_parser(ctx).parse_args(list(args))[-1])
        return rest

    def invoke(self, ctx: Any) -> Any:
        """Run the group, or the command of the group that was chosen."""
        with option_names(options_of(self.params)):
            return super().invoke(ctx)


def check_repeated(parameters: Iterable[Any]) -> None:
    """Refuse an option that is twice among parameters, as they come on the command line, where only the last counts."""
    counts = Counter(each for each in parameters if each.param_type_name == "option" and not each.multiple)
    for option, count in counts.items():
        if count > 1:
            raise InputError(
                f"{max(option.opts, key=len)} was given {count} times, and only one can count: give it once."
            )


def unwrapped(text: str) -> str:
    """Return a help text with each paragraph on one line; an example stays on its own line.

    Typer keeps the line breaks of docstrings, which are ragged on a narrower terminal.
    """
    paragraphs = text.split("\n\n")
    return "\n\n".join(
        paragraph if paragraph.startswith("Example") else " ".join(paragraph.split()) for paragraph in paragraphs
    )
