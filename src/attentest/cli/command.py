"""Commands of attentest: what they check before they run, how their errors name options, and shared options."""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, fields
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from attentest.cli.options import OUTPUT_PATHS, REGISTRIES, named_by_options, names_of_options
from attentest.cli.output import on_interrupt
from attentest.definition import Option, option_of
from attentest.errors import NOISE_GUIDE, InputError

ADVICE = {
    "noise": "It is what would differ if the same image were taken again: a standard deviation, or a file of attentest "
    f"noise fit. How to choose it: {NOISE_GUIDE}."
}
"""What to say to those who leave out a required option, by the name of its parameter."""

FOLDERS_ARE_MADE = "Folders that outputs are written to are created if they do not exist."
"""What the help says below options that name one."""


class _Checks:
    """What commands and groups of commands have in common; a base class beside Typer's."""

    params: list[Any]
    epilog: str | None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line; raise an error for an option that is given twice, and for an empty path."""
        try:
            rest: list[str] = super().parse_args(ctx, list(args))  # type: ignore[misc]
        except typer.BadParameter as error:
            if error.param is not None and error.param.name in ADVICE:
                error.message = ADVICE[error.param.name]  # follows "Missing option"
            raise
        texts, _, given = self.make_parser(ctx).parse_args(list(args))  # type: ignore[attr-defined]
        for parameter, count in Counter(given).items():
            name = max(parameter.opts, key=len)
            if count > 1 and parameter.param_type_name == "option" and not parameter.multiple:
                raise InputError(f"{name} was given {count} times, and only one can count: give it once.")
            is_path = any(isinstance(value, Path) for value in _listed(ctx.params.get(parameter.name)))
            if is_path and "" in _listed(texts[parameter.name]):  # it would stand for the current directory
                raise InputError(f"{name} must be a path, got an empty text.")
        return rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        has_folder = any("--out" in option.opts and option.metavar == "FOLDER" for option in self.params)
        kept = f"what was printed{', and what is in an --out directory,' if has_folder else ''} is complete."
        with named_by_options(names_of_options(self.params)), on_interrupt(kept):
            return super().invoke(ctx)  # type: ignore[misc]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help; below the options it says what the names stand for that they take."""
        options = set(names_of_options(self.params).values())
        notes = [FOLDERS_ARE_MADE] if options & OUTPUT_PATHS else []
        notes += [f"{name}: {parts.help()}." for name, parts in REGISTRIES.items() if name in options]
        epilog = self.epilog
        self.epilog = "\n\n".join(filter(None, [epilog, *notes]))
        super().format_help(ctx, formatter)  # type: ignore[misc]
        self.epilog = epilog


class Command(_Checks, TyperCommand):
    """A command of attentest."""


class Group(_Checks, TyperGroup):
    """A group of commands of attentest."""


def _listed(value: Any) -> Collection[Any]:
    return value if isinstance(value, (list, tuple)) else [value]


def refuse_options_before(context: typer.Context, purpose: str) -> None:
    """Raise an error for options of a group before one of its commands, where they would have no effect.

    Parameters
    ----------
    context
        That of the group.
    purpose
        What the options of the group itself are for, such as "running experiments".
    """
    for name, option in names_of_options(context.command.params).items():
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise InputError(f"{option} is for {purpose}: options of {context.invoked_subcommand} come after it.")


class Generated(dict[str, tuple[inspect.Parameter, Option]]):
    """Options that are generated from fields, by name; an annotation of the field of a group that takes them all."""


def generated_options(definition: type) -> Generated:
    """Return the options of the command line for the fields of a definition that a text can give."""
    return Generated(
        {
            field.name: (_generated(field.name, field.default, option_of(field)), option_of(field))
            for field in fields(definition)
            if option_of(field).text is not None
        }
    )


def _generated(name: str, default: Any, known: Option) -> inspect.Parameter:
    kind: Any = known.text if known.text in (int, float) else str
    if known.choices is not None:
        named: Any = StrEnum
        kind = named(name, {choice.replace("-", "_"): choice for choice in known.choices()})
        default = kind(default)
    setting = typer.Option(
        *((known.flag,) if known.flag else ()),
        help=known.help,
        metavar=known.metavar,
        show_default=known.shown_default,
        rich_help_panel=known.panel,
    )
    return _parameter(name, Annotated[kind | None if default is None else kind, setting], default)


def with_options_of(
    group: type, leave_out: Collection[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command take the fields of a dataclass as options, in place of its parameter of that type.

    Parameters
    ----------
    group
        A dataclass whose fields are annotated like the parameters of a command; one that is annotated with generated
        options takes the values of all of them, by name.
    leave_out
        Options that this command does not have: they keep their defaults.
    """
    options: list[inspect.Parameter] = []
    collected: dict[str, Generated] = {}
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        generated = _generated_of(hints[field.name])
        if generated is not None:
            collected[field.name] = Generated({name: item for name, item in generated.items() if name not in leave_out})
            options += [parameter for parameter, _ in collected[field.name].values()]
        elif field.name not in leave_out:
            default = inspect.Parameter.empty if field.default is MISSING else field.default
            options.append(_parameter(field.name, hints[field.name], default))

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        group_parameter = ""
        parameters: list[inspect.Parameter] = []
        for declared in inspect.signature(command, eval_str=True).parameters.values():
            if declared.annotation is group:
                group_parameter = declared.name
                parameters += options
            else:
                parameters.append(_parameter(declared.name, declared.annotation, declared.default))

        @functools.wraps(command)
        def run(**values: Any) -> None:
            texts = {option.name: values.pop(option.name) for option in options}
            grouped = {field: _values(generated, texts) for field, generated in collected.items()}
            command(**{group_parameter: group(**grouped, **texts)}, **values)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {}  # Typer reads annotations first, and the group is not the type of an option
        return run

    return decorate


def _generated_of(hint: Any) -> Generated | None:
    if get_origin(hint) is not Annotated:
        return None
    return next((known for known in get_args(hint)[1:] if isinstance(known, Generated)), None)


def _values(generated: Mapping[str, tuple[inspect.Parameter, Option]], texts: dict[str, Any]) -> dict[str, Any]:
    """Take the values of generated options from those of all options; texts are converted as the options say."""
    values = {}
    for name, (_, known) in generated.items():
        text = texts.pop(name)
        values[name] = known.text(str(text)) if isinstance(text, str) and known.text is not None else text
    return values


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    # Keyword-only, so that a parameter without a default may follow one with a default.
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
