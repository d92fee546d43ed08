"""Groups of options that several commands share, declared once as a dataclass."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection
from dataclasses import MISSING, fields
from typing import Any, get_type_hints

Command = Callable[..., None]


def with_options_of(group: type, leave_out: Collection[str] = ()) -> Callable[[Command], Command]:
    """Let a command take the fields of a dataclass as options, in place of its parameter of that type.

    Parameters
    ----------
    group
        A dataclass whose fields are annotated like the parameters of a command.
    leave_out
        Fields that are no options of this command: they keep their defaults.
    """
    hints = get_type_hints(group, include_extras=True)
    options = [
        _parameter(
            field.name, hints[field.name], inspect.Parameter.empty if field.default is MISSING else field.default
        )
        for field in fields(group)
        if field.name not in leave_out
    ]

    def decorate(command: Command) -> Command:
        group_parameter = ""
        parameters: list[inspect.Parameter] = []
        for own in inspect.signature(command, eval_str=True).parameters.values():
            if own.annotation is group:
                group_parameter = own.name
                parameters += options
            else:
                parameters.append(_parameter(own.name, own.annotation, own.default))

        @functools.wraps(command)
        def run(**values: Any) -> None:
            chosen = group(**{option.name: values.pop(option.name) for option in options})
            command(**{group_parameter: chosen}, **values)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {}  # Typer reads annotations first, and the group is not the type of an option
        return run

    return decorate


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    # Keyword-only, so that a parameter without a default may follow one with a default.
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
