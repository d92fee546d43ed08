"""Ranges of the numbers that options take, refused in the same words as the library's checks of its parameters."""

from __future__ import annotations

from collections.abc import Callable

import typer

from attentest.errors import InputError, shortened

Check = Callable[[typer.CallbackParam, int | None], int | None]


def within(least: int, most: int | None = None) -> Check:
    """Return the callback of an option that takes a whole number in a range; one that is left out may be None.

    Typer's own bounds (``min=``) would end in a message of another form than those of the library.
    """
    bounds = f"at least {least}" if most is None else f"at least {least} and at most {most}"

    def check(option: typer.CallbackParam, value: int | None) -> int | None:
        if value is not None and (value < least or (most is not None and value > most)):
            raise InputError(f"{max(option.opts, key=len)} must be {bounds}, got {shortened(value)}.")
        return value

    return check
