"""Names of options in place of names of parameters in the messages of the library."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from attentest.errors import AttentestError

OTHER_NAMES = {
    "deltas": "--delta",
    "head_fusion": "--heads",
    "image_shape": "--size",
    "layer": "--attention layer:K",
    "n": "--images",
    "power": "--power",
    "radius": "--contrast neighbourhood:RADIUS",
    "sigma": "--noise",
    "the noise model": "--noise",
}
"""Options that set a parameter of the library of another name than the command's own parameter, or a part of it."""

PREFIX = r"(?:image \d+: |\S+: )?"
"""The image that a message is about, before the message itself."""

AFTER_A_NAME = r"(?= must| cannot| gives| is | = | \(| ')"
"""Text that follows the name of a parameter at the beginning of a message; before other text it is just a word."""


_OPTIONS: ContextVar[Mapping[str, str]] = ContextVar("options", default=MappingProxyType({}))


def with_option_names(message: str, options: Mapping[str, str]) -> str:
    """Return a message of the library with options in place of the parameters that they set.

    A parameter is recognised at the beginning of the message, as a keyword argument (``name=``) and, if its name has an
    underscore, anywhere. A tuple that follows ``name=`` is spelled as on the command line.

    Parameters
    ----------
    message
        The message.
    options
        The options by the name of the parameter, such as ``{"intensity_range": "--range"}``.
    """
    if not options:
        return message
    name = f"({'|'.join(sorted(options, key=len, reverse=True))})"
    word = rf"(?<![\w./\\'\"-]){name}(?![\w/\\'\"]|\.\w)"

    def option(match: re.Match[str]) -> str:
        return options[match[1]]

    def keyword(match: re.Match[str]) -> str:
        separator = "x" if match[1].endswith(("size", "shape")) else ","
        value = separator.join(part.strip().upper() for part in match[2].split(","))
        return f"{options[match[1]]} {value}"

    for parameter, own in options.items():  # messages that name both
        message = message.replace(f"{parameter} ({own})", own).replace(f"{parameter}= or {own}", own)
    message = re.sub(rf"{word}=\(([^()]*)\)", keyword, message)
    message = re.sub(rf"{word}=True\b", option, message)
    message = re.sub(rf"{word}=(?=[\w'\"(])", lambda match: f"{option(match)} ", message)
    message = re.sub(rf"{word}=", option, message)
    message = re.sub(rf"^({PREFIX}){name}{AFTER_A_NAME}", lambda match: match[1] + options[match[2]], message)
    return re.sub(word, lambda match: option(match) if "_" in match[1] else match[0], message)


@contextmanager
def option_names(options: Mapping[str, str]) -> Iterator[None]:
    """Let the errors of the library name the options that set its parameters.

    Parameters
    ----------
    options
        The options by the name of the parameter.
    """
    before = _OPTIONS.set({**_OPTIONS.get(), **options})
    try:
        yield
    except AttentestError as error:
        raise type(error)(with_option_names(str(error), options)) from error
    finally:
        _OPTIONS.reset(before)


def own_options() -> Mapping[str, str]:
    """Return the options of the command that is running."""
    return _OPTIONS.get()


def options_of(parameters: Iterable[Any]) -> dict[str, str]:
    """Return the options of a command by the names of the library's parameters that they set."""
    own = {
        parameter.name: max(parameter.opts, key=len)
        for parameter in parameters
        if parameter.param_type_name == "option"
    }
    others = {name: option for name, option in OTHER_NAMES.items() if option.split()[0] in own.values()}
    return {**others, **own}
