"""Images that could not be tested: the others go on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from attentest.errors import AttentestError, InputError

OnError: TypeAlias = Literal["raise", "row"]
"""What to do with an image that cannot be tested: stop, or go on and report it in its place."""


@dataclass(frozen=True, kw_only=True)
class FailedImage:
    """An image that could not be tested.

    Parameters
    ----------
    number
        Number of the image among those given, from 0.
    reason
        Why, in one sentence.
    """

    number: int
    reason: str


def check_on_error(on_error: str) -> None:
    """Refuse anything but "raise" and "row"."""
    if on_error not in get_args(OnError):
        raise InputError(f"on_error must be 'raise' or 'row', got {on_error!r}.")


def reason_of(error: Exception) -> str:
    """Return the reason for a failure: the message of an error of attentest, and the kind of any other error too."""
    text = " ".join(str(error).split())
    return text if isinstance(error, AttentestError) else f"{type(error).__name__}: {text}"
