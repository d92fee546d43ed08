"""The errors that attentest raises, each with a message of one sentence for the user."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Self

__all__ = ["AttentestError", "AttentestWarning", "InputError", "ModelError", "SearchError"]

LONGEST_VALUE = 80  # most characters of a received value that a message repeats

LONGEST_INTEGER = 256
"""Most bits of a whole number that a message repeats; Python itself refuses to print one of 4,300 digits."""

NOISE_GUIDE = 'the page "Choosing a noise model" of the documentation (docs/choosing-noise.md)'
"""Where it is said how to choose the noise, for messages that ask for it."""


class AttentestError(Exception):
    """Base class of the errors that attentest raises.

    Parameters
    ----------
    message
        One sentence: what was received, what is allowed and what to do.
    *parameters
        Names of the parameters that the message mentions, for those who know them by other names.
    """

    def __init__(self, message: str = "", *parameters: str) -> None:
        super().__init__(message)
        self.parameters = parameters

    def naming(self, names: Mapping[str, str]) -> Self:
        """Return the same error with other names of its parameters, such as those of options, where there are any.

        Each is named once, in the order in which the message mentions them: one may be a part of another.
        """
        said, rest = "", str(self)
        for parameter in self.parameters:
            before, mentioned, after = rest.partition(parameter)
            if mentioned:
                said, rest = f"{said}{before}{names.get(parameter, parameter)}", after
        return type(self)(said + rest, *(parameter for parameter in self.parameters if parameter not in names))


class InputError(AttentestError, ValueError):
    """An image, a parameter or a noise model that cannot be used."""


class ModelError(AttentestError, ValueError):
    """A model that cannot be loaded or that gives no usable attention."""


class SearchError(AttentestError, RuntimeError):
    """A search for the truncation set that cannot go on."""


class OutputError(AttentestError, RuntimeError):
    """A file that others removed, replaced or changed while a run wrote to it."""


class NoRoomError(OutputError, InputError):
    """A file for which there is no room; another place may have some, so it is an :class:`InputError`, too."""


class AttentestWarning(UserWarning):
    """Something to know about a result that is correct nevertheless."""


def shortened(value: object) -> str:
    """Return a received value as a message shows it: as Python writes it, or its beginning if that is long."""
    if isinstance(value, int) and value.bit_length() > LONGEST_INTEGER:
        return f"a number of {int(value.bit_length() * math.log10(2)) + 1} digits or so"
    text = repr(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}... ({len(text)} characters)"


def counted(count: int, noun: str) -> str:
    """Return a number with what it counts: "1 image", "2,000 images", "3 classes"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}{'es' if noun.endswith('s') else 's'}"


def listed(words: Iterable[str], conjunction: str = "or") -> str:
    """Return words as a sentence lists them: "a, b or c"."""
    *most, last = words
    return f"{', '.join(most)} {conjunction} {last}" if most else last


MOST_NAMES = 3  # most names that a message lists


def some(names: Sequence[object]) -> str:
    """Return a few names for a message, with the number of the others."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{', '.join(map(shortened, names[:MOST_NAMES]))}{more}"


NOUNS = {
    1: {"image": "signal", "pixel": "sample", "photograph": "recording", "brightness": "mean value"},
    3: {"image": "volume", "pixel": "voxel", "photograph": "scan", "brightness": "brightness"},
}
"""What an image and its parts are called, by the number of axes, where it is not two."""


def worded(text: str, dimension: int) -> str:
    """Return a text about images in the words for signals (1) or volumes (3); one about images (2) stays as it is."""
    nouns = NOUNS.get(dimension)
    if nouns is None:
        return text

    def replaced(match: re.Match[str]) -> str:
        article, noun, plural = match.groups()
        name = nouns[noun.lower()]
        shown = name.capitalize() if noun[0].isupper() else name
        return f"{article[:1]}{' ' if article else ''}{shown}{plural}"

    # Parts of the names of files and of options are no words.
    return re.sub(
        r"(?<![\w/.-])(an |An |)(image|Image|pixel|Pixel|photograph|brightness)(s?)(?![\w/-]|\.\w)", replaced, text
    )


@contextmanager
def speaking_of(dimension: int) -> Iterator[None]:
    """Let errors about images be about signals (1) or volumes (3)."""
    try:
        yield
    except AttentestError as error:
        if dimension not in NOUNS:
            raise
        parameters = (worded(name, dimension) for name in error.parameters)
        raise type(error)(worded(str(error), dimension), *parameters) from None


def required(module: str, needs: str, extra: str = "plots") -> Any:
    """Import a module of an extra; where it is missing, the error says what needs it, and how to install it."""
    try:
        return import_module(module)
    except ImportError:
        raise InputError(f"{needs}: pip install 'attentest[{extra}]'.") from None
