"""Commands whose errors name their options and whose help is wrapped to the width of the terminal."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup

from attentest.cli.option_names import option_names, options_of


class Command(TyperCommand):
    """A command of attentest."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.help = unwrapped(self.help or "")

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with option_names(options_of(self.params)):
            return super().invoke(ctx)


class Group(TyperGroup):
    """A group of commands of attentest that can be run itself."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.help = unwrapped(self.help or "")

    def invoke(self, ctx: Any) -> Any:
        """Run the group, or the command of the group that was chosen."""
        with option_names(options_of(self.params)):
            return super().invoke(ctx)


def unwrapped(text: str) -> str:
    """Return a help text with each paragraph on one line; an example stays on its own line.

    Typer keeps the line breaks of docstrings, which are ragged on a narrower terminal.
    """
    paragraphs = text.split("\n\n")
    return "\n\n".join(
        paragraph if paragraph.startswith("Example") else " ".join(paragraph.split()) for paragraph in paragraphs
    )
