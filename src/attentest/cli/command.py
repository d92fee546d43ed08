"""Commands of attentest: what they check before they run, how their errors name options, and shared options."""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import Field, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from types import GenericAlias, NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from attentest.cli.options import OUTPUT_PATHS, REGISTRIES, named_by_options, names_of_options
from attentest.cli.output import on_interrupt, usually_kept
from attentest.definition import REQUIRED, option_of
from attentest.errors import NOISE_GUIDE, InputError, listed, shortened
from attentest.registry import IMAGE_NOISE

ADVICE = {
    "noise": "It is what would differ if the same image were taken again: a standard deviation, or a file of attentest "
    f"noise fit. How to choose it: {NOISE_GUIDE}."
}
"""What to say to those who leave out a required option, by the name of its parameter."""

FOLDERS_ARE_MADE = "Folders that outputs are written to are created if they do not exist."
"""What the help says below options that name one."""

UsageError: Any = typer.BadParameter.__base__
"""What Typer raises for a command line that it cannot read, under a name of its own or of Click by its version."""

HELP_ASKED = "NoArgsIsHelpError"  # that of it which stands for the help, where no argument is given

WORDS: dict[Any, str] = {int: "a whole number", float: "a number"}
"""What errors call the value of an option, by its type."""

METAVARS: dict[Any, str | None] = {bool: None, int: "N", float: "X", Path: "FILE", str: "NAME"}
"""What the help calls the value of an option, by its type."""


class _Checks:
    """What commands and groups of commands have in common; a base class beside Typer's."""

    params: list[Any]
    epilog: str | None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line; raise an error for an option that is given twice, and for an empty text."""
        with _in_a_sentence(ctx):
            try:
                rest: list[str] = super().parse_args(ctx, list(args))  # type: ignore[misc]
            except typer.BadParameter as error:
                self._explain(ctx, args, error)
                raise
        texts, _, given = self.make_parser(ctx).parse_args(list(args))  # type: ignore[attr-defined]
        for parameter, count in Counter(given).items():
            name = max(parameter.opts, key=len)
            if count > 1 and parameter.param_type_name == "option" and not parameter.multiple:
                raise InputError(f"{name} was given {count} times, and only one can count: give it once.")
            if "" in _listed(texts[parameter.name]):  # as a path it would stand for the current directory
                raise InputError(f"{name} must not be an empty text: give a value, or leave it out.")
        return rest

    def _explain(self, ctx: Any, args: list[str], error: Any) -> None:
        """Raise an error about a value that is not allowed, in our words: those of Typer depend on its version."""
        name: Any = getattr(getattr(error, "param", None), "name", None)
        declared = inspect.signature(self.callback, eval_str=True).parameters  # type: ignore[attr-defined]
        given = self.make_parser(ctx).parse_args(list(args))[0].get(name)  # type: ignore[attr-defined]
        if name not in declared or given is None:  # an option without a value, or one that is missing
            return
        kind, setting = get_args(declared[name].annotation)[:2]
        (kind,) = {*get_args(kind)} - {NoneType} or {kind}
        (kind,) = get_args(kind) or (kind,)
        least, most = setting.min, setting.max
        allowed = WORDS.get(kind, "")
        if issubclass(kind, StrEnum):
            allowed = listed(kind)
        bounds = (("from", least), ("to", most)) if least is not None else (("at most", most),)
        within = " ".join(f"{word} {bound}" for word, bound in bounds if bound is not None)
        unfit = next((text for text in _listed(given) if not _fits(text, kind, least, most)), None)
        if allowed and unfit is not None:
            raise InputError(
                f"{max(error.param.opts, key=len)} must be {' '.join(filter(None, [allowed, within]))}, got "
                f"{shortened(unfit)}."
            ) from None

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with named_by_options(names_of_options(self.params)), on_interrupt(usually_kept(self.params)):
            return super().invoke(ctx)  # type: ignore[misc]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help; below the options it says what the names stand for that they take."""
        options = set(names_of_options(self.params).values())
        notes = [FOLDERS_ARE_MADE] if options & OUTPUT_PATHS else []
        named = {name: parts for name, parts in REGISTRIES.items() if name in options}
        if not any(IMAGE_NOISE.choices() in str(getattr(parameter, "help", "")) for parameter in self.params):
            named.pop("--noise", None)  # a command that does not take noise from the tested image
        notes += [f"{name}: {parts.help()}." for name, parts in named.items()]
        epilog = self.epilog
        self.epilog = "\n\n".join(filter(None, [epilog, *notes]))
        super().format_help(ctx, formatter)  # type: ignore[misc]
        self.epilog = epilog


class Command(_Checks, TyperCommand):
    """A command of attentest."""


class Group(_Checks, TyperGroup):
    """A group of commands of attentest."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name of a command, the command and its arguments."""
        with _in_a_sentence(ctx):
            return super().resolve_command(ctx, args)


@contextmanager
def _in_a_sentence(ctx: Any) -> Iterator[None]:
    """Let an error of Typer be one of attentest: a sentence, not a box."""
    try:
        yield
    except UsageError as error:
        if type(error).__name__ == HELP_ASKED:
            raise
        parameter = getattr(error, "param", None)
        if parameter is not None and parameter.name in ADVICE:
            error.message = ADVICE[parameter.name]  # follows "Missing option"
        said = " ".join(error.format_message().split()).removesuffix(".")
        raise InputError(f"{said[:1].lower()}{said[1:]} (see {ctx.command_path} --help).") from None


def _fits(text: str, kind: Any, least: float | None, most: float | None) -> bool:
    """Return whether a text is a value of a type, between bounds that are None where there is none."""
    try:
        value = kind(text)
    except ValueError:
        return False
    return (least is None or value >= least) and (most is None or value <= most)


def _listed(value: Any) -> Collection[Any]:
    return value if isinstance(value, (list, tuple)) else [value]


def refuse_options_before(context: typer.Context, purpose: str) -> None:
    """Raise an error for options of a group before one of its commands, where they would have no effect.

    ``purpose`` is what the options of the group itself are for, such as "running experiments".
    """
    for name, option in names_of_options(context.command.params).items():
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise InputError(f"{option} is for {purpose}: options of {context.invoked_subcommand} come after it.")


class Without(tuple[str, ...]):
    """Names of options that a command does not take: beside the dataclass that has them, in ``Annotated``."""


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take the fields of dataclasses as options, in place of its parameters of these types.

    The fields are options, as those of a definition are; other parameters of the command may be, too. They are under
    the heading ``panel``, if the dataclass has one. A field that is annotated with a definition takes the values of its
    options that a text can give, all or those named beside it. Options that are left out keep their defaults.
    """
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[Any, list[tuple[str, Field[Any]]]]] = {}
    for declared in inspect.signature(command, eval_str=True).parameters.values():
        kind, *notes = get_args(declared.annotation) or (declared.annotation,)
        if is_dataclass(kind):
            options = list(_options_of(kind, *notes))
            groups[declared.name] = kind, [(holder, field) for holder, field, _ in options]
            parameters += [_parameter(field, kind_of, getattr(kind, "panel", None)) for _, field, kind_of in options]
        elif isinstance(declared.default, Field):
            declared.default.name = declared.name
            parameters.append(_parameter(declared.default, declared.annotation))
        else:  # keyword-only, so that a parameter without a default may follow one with a default
            parameters.append(declared.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def run(**values: Any) -> None:
        _check_needs([field for _, options in groups.values() for _, field in options], values)
        for name, (group, options) in groups.items():
            grouped: dict[str, Any] = {holder: {} for holder, _ in options if holder}
            for holder, field in options:
                value, convert = _plain(values.pop(field.name)), option_of(field).text
                if isinstance(value, str) and convert is not None:
                    value = convert(value)
                (grouped[holder] if holder else grouped)[field.name] = value
            values[name] = group(**grouped)
        command(**values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {}  # Typer reads annotations first, and the group is not the type of an option
    return run


def _options_of(group: Any, left_out: Collection[str] = ()) -> Iterator[tuple[str, Field[Any], Any]]:
    """Yield the options of a dataclass and their types; those of a definition follow the name of the field for them."""
    hints = get_type_hints(group, include_extras=True)
    for own in fields(group):
        definition, *chosen = get_args(hints[own.name])[1:] or (None,)
        held = [("", own, hints[own.name])]
        if is_dataclass(definition):
            texts = [known for known in fields(definition) if option_of(known).text]
            held = [(own.name, known, str) for known in texts if not chosen or known.name in chosen[0]]
        yield from (option for option in held if option[1].name not in left_out)


def _check_needs(options: Iterable[Field[Any]], values: Mapping[str, Any]) -> None:
    """Raise an error for options that are given without the one that they need."""
    given = {_flag(field) for field in options if not any(values[field.name] is nothing for nothing in (None, False))}
    for need in dict.fromkeys(option_of(field).needs for field in options):
        lonely = [flag for field in options if option_of(field).needs == need and (flag := _flag(field)) in given]
        if need and need not in given and lonely:
            are = "are" if len(lonely) > 1 else "is"
            raise InputError(f"{' and '.join(lonely)} {are} for {need}, which is not there: add it.")


def _plain(value: Any) -> Any:
    """Return the texts that were chosen among some as texts."""
    return [_plain(part) for part in value] if isinstance(value, list) else getattr(value, "value", value)


def _flag(defined: Field[Any]) -> str:
    return option_of(defined).flag or f"--{defined.name.replace('_', '-')}"


def _parameter(defined: Field[Any], kind: Any, panel: str | None = None) -> inspect.Parameter:
    """Return the option of the command line for a field, of a type and under a heading unless it has its own."""
    known, default, flag = option_of(defined), defined.default, _flag(defined)
    (kind,) = {*get_args(kind)} - {NoneType} or {kind}
    kind = known.text if known.text in METAVARS else kind
    several = get_origin(kind) is list
    metavar = known.metavar or METAVARS[get_args(kind)[0] if several else kind]
    if known.choices:
        named: Any = StrEnum
        choice = named(defined.name, {choice.replace("-", "_"): choice for choice in known.choices})
        kind, default = GenericAlias(list, choice) if several else choice, None if default is None else choice(default)
    least, greatest = known.limits if isinstance(known.limits, tuple) else (None, None)
    setting = typer.Option(
        flag if default is not True or "/" in flag else f"{flag}/--no-{flag.removeprefix('--')}",
        help=known.help,
        metavar=f"{metavar} [{known.limits}]" if known.limits and least is None else metavar,
        show_default=known.shown_default,
        rich_help_panel=known.panel or panel,
        min=least,
        max=greatest,
    )
    return inspect.Parameter(
        defined.name,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated[kind | None if default is None else kind, setting],
        default=inspect.Parameter.empty if default is REQUIRED else default,
    )
