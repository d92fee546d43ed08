"""The directive ``command-help``: a section for each command of attentest, with what its ``--help`` prints."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import redirect_stdout
from typing import Any
from unittest.mock import patch

import typer
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from attentest.cli import app as attentest_command

COLUMNS = "80"
"""Width of the help in characters: that of a terminal, which the text column of a page holds."""


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words after ``attentest`` of a command and, if it is a group, of all commands in it."""
    yield path
    for name, inner in sorted(getattr(command, "commands", {}).items()):
        yield from commands(inner, (*path, name))


def help_text(command: Any, path: tuple[str, ...]) -> str:
    """Return what ``attentest ... --help`` prints, without colours and trailing spaces."""
    printed = io.StringIO()
    with patch.dict(os.environ, {"COLUMNS": COLUMNS, "NO_COLOR": "1"}), redirect_stdout(printed):
        code = command.main([*path, "--help"], prog_name="attentest", standalone_mode=False)
    if code:
        raise RuntimeError(f"attentest {' '.join(path)} --help ended with {code}: {printed.getvalue()}")
    return "\n".join(line.rstrip() for line in printed.getvalue().strip("\n").splitlines())


class CommandHelp(SphinxDirective):
    """A section for each command; the text is made when the page is, so it is that of the code."""

    def run(self) -> list[nodes.Node]:
        """Return the sections."""
        sections: list[nodes.Node] = []
        command = typer.main.get_command(attentest_command)  # made once, which takes as long as two help texts
        for path in commands(command):
            name = " ".join(("attentest", *path))
            section = nodes.section("", nodes.title(name, name), ids=["-".join(("command", *path))], names=[name])
            self.state.document.note_explicit_target(section)
            text = help_text(command, path)
            section += nodes.literal_block(text, text, language="text", classes=["command-help"])
            sections.append(section)
        return sections


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directive."""
    app.add_directive("command-help", CommandHelp)
    return {"parallel_read_safe": True}
