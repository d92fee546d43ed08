"""The help of a command: what it does, examples, then its options, the rare ones last."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from attentest.cli.options import OUTPUT_PATHS, PANELS
from attentest.registry import (
    ATTENTION_MAPS,
    COMPARISONS,
    CONTRASTS,
    ENGINES,
    FILTERS,
    IMAGE_NOISE,
    NOISE_ESTIMATORS,
    REGION_UNITS,
    SEARCHES,
)

WIDEST = 100
"""Lines are not longer than this, however wide the terminal is."""

INDENT, HELP_AT = 2, 24
"""Columns at which the names of options and their help begin."""

UNBROKEN = "\N{NO-BREAK SPACE}"
"""Space at which no line is broken."""

NAMED_PARTS = {
    "--noise": IMAGE_NOISE,
    "--attention": ATTENTION_MAPS,
    "--region-unit": REGION_UNITS,
    "--contrast": CONTRASTS,
    "--filter": FILTERS,
    "--search": SEARCHES,
    "--estimator": NOISE_ESTIMATORS,
    "--engine": ENGINES,
    "--only": COMPARISONS,
}
"""Registries of the names that options take; what each stands for is said at the end of the page."""

FIRST_PANEL = "Options"

FOLDERS_ARE_MADE = "Folders that outputs are written to are created if they do not exist."
"""What the help says below options that name one."""


def print_help(command: Any, context: Any) -> None:
    """Print the help of a command or of a group of commands on standard output."""
    console = Console(highlight=False)
    width = min(console.width, WIDEST)
    for text in _page(command, context, width):
        console.print(text, soft_wrap=True)


def _page(command: Any, context: Any, width: int) -> Iterator[Text]:
    sentence, examples, rest = parts_of(command.help or "")
    parameters = [each for each in command.get_params(context) if not getattr(each, "hidden", False)]
    arguments = [each for each in parameters if each.param_type_name == "argument"]
    options = [each for each in parameters if each.param_type_name == "option"]
    commands = [context.command.get_command(context, name) for name in _subcommands(command, context)]
    usage = " ".join(["[OPTIONS]", *(_argument_name(each) for each in arguments), *(["COMMAND ..."] * bool(commands))])
    yield Text(f"Usage: {context.command_path} {usage}\n")
    yield _paragraph(sentence, width)
    if examples:
        yield _heading("Examples" if len(examples) > 1 else "Example")
        for example in examples:
            yield Text(_example(example, width))
    for paragraph in rest:
        yield Text()
        yield _paragraph(paragraph, width)
    if commands:
        yield _heading("Commands")
        yield from (_entry(each.name, parts_of(each.help or "")[0], width) for each in commands)
    if arguments:
        yield _heading("Arguments")
        yield from (_entry(_argument_name(each), _help_of(each), width) for each in arguments)
    for panel, some in _panels(options).items():
        yield _heading(panel)
        yield from (_entry(_option_name(each), _help_of(each), width) for each in some)
    names = {max(each.opts, key=len) for each in options}
    if names & OUTPUT_PATHS:
        yield Text()
        yield _paragraph(FOLDERS_ARE_MADE, width)
    if named := names & set(NAMED_PARTS):
        yield _heading("What the names stand for")
        yield from (_entry(name, f"{parts.help()}.", width) for name, parts in NAMED_PARTS.items() if name in named)
    if command.epilog:
        yield Text()
        yield _paragraph(command.epilog, width)


def parts_of(text: str) -> tuple[str, list[str], list[str]]:
    """Return the first paragraph of a docstring, its examples, and its other paragraphs, each on one line."""
    first, *others = [" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n")]
    start = next((i for i, paragraph in enumerate(others) if paragraph.startswith("Example")), len(others))
    examples = [one.removeprefix("Examples: ").removeprefix("Example: ") for one in others[start:]]
    return first, examples, others[:start]


def _subcommands(command: Any, context: Any) -> Sequence[str]:
    return command.list_commands(context) if hasattr(command, "list_commands") else ()


def _panels(options: Sequence[Any]) -> dict[str, list[Any]]:
    """Return options by their panels: those of no panel first, then those that are needed most often."""
    panels: dict[str, list[Any]] = {FIRST_PANEL: []}
    for option in options:
        panels.setdefault(option.rich_help_panel or FIRST_PANEL, []).append(option)
    order = (FIRST_PANEL, *PANELS)
    named = sorted(panels, key=lambda panel: order.index(panel) if panel in order else 1)
    return {panel: panels[panel] for panel in named if panels[panel]}


def _argument_name(argument: Any) -> str:
    name = f"{argument.name.upper()}{'...' if argument.nargs == -1 else ''}"
    return name if argument.required else f"[{name}]"


def _option_name(option: Any) -> str:
    name = max(option.opts, key=len)
    if option.secondary_opts:
        return f"--[no-]{name[2:]}"
    return name if option.is_flag else f"{name} {option.metavar or _value_name(option.default)}"


def _value_name(default: Any) -> str:
    """Return what stands for the value of an option, by its default."""
    return "N" if isinstance(default, int) else "X" if isinstance(default, float) else "VALUE"


def _help_of(parameter: Any) -> str:
    """Return the help of an option or argument, with its default."""
    shown, default = parameter.show_default, parameter.default
    remark = ""
    if isinstance(shown, str):
        remark = f"[default: {shown}]"
    elif parameter.required and parameter.param_type_name == "option":
        remark = "[required]"
    elif shown and default is not None and not getattr(parameter, "is_flag", False):
        remark = f"[default: {default}]"
    return f"{parameter.help or ''} {remark.replace(' ', UNBROKEN)}".rstrip()


def _heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _paragraph(text: str, width: int) -> Text:
    return Text(textwrap.fill(text, width, break_on_hyphens=False))


def _entry(name: str, text: str, width: int) -> Text:
    """Return a name and its help beside it, or below it if it is long."""
    lines = textwrap.wrap(text, max(width - HELP_AT, 20), break_on_hyphens=False)
    first = f"{' ' * INDENT}{name}"
    if len(first) > HELP_AT - 2:
        lines.insert(0, "")
    beside = [f"{' ' * HELP_AT}{line}" for line in lines[1:]]
    entry = Text(
        "\n".join([f"{first.ljust(HELP_AT)}{lines[0] if lines else ''}".rstrip(), *beside]).replace(UNBROKEN, " ")
    )
    entry.stylize("bold cyan", INDENT, INDENT + len(name.split(" ")[0]))
    return entry


def _example(example: str, width: int) -> str:
    """Return an example that can be copied: where it must be broken, it is broken before an option."""
    lines, line = [], " " * INDENT
    first, *options = example.split(" --")
    for part in (first, *(f"--{option}" for option in options)):
        if line.strip() and len(line) + len(part) + 2 > width:
            lines.append(f"{line} \\")
            line = " " * 2 * INDENT + part
        else:
            line = f"{line} {part}" if line.strip() else f"{line}{part}"
    return "\n".join([*lines, line])
