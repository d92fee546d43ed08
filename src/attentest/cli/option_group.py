"""Options that belong together, declared once for several commands."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, get_type_hints

Command = Callable[..., None]


def with_options_of(group: type) -> Callable[[Command], Command]:
    """Let a command take the fields of a dataclass as options of its own, in place of its parameter of that type.

    Parameters
    ----------
    group
        A dataclass whose fields are annotated as the parameters of a command are.
    """
    hints = get_type_hints(group, include_extras=True)
    options = [
        _parameter(
            field.name, hints[field.name], inspect.Parameter.empty if field.default is MISSING else field.default
        )
        for field in fields(group)
    ]

    def decorate(command: Command) -> Command:
        taken_by = ""
        parameters: list[inspect.Parameter] = []
        for own in inspect.signature(command, eval_str=True).parameters.values():
            if own.annotation is group:
                taken_by = own.name
                parameters += options
            else:
                parameters.append(_parameter(own.name, own.annotation, own.default))

        @functools.wraps(command)
        def run(**values: Any) -> None:
            chosen = group(**{option.name: values.pop(option.name) for option in options})
            command(**{taken_by: chosen}, **values)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {}  # those of the command name the group, which is no type of an option
        return run

    return decorate


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    # By keyword, so that one without a default may follow one with.
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
