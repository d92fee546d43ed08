"""The errors that attentest raises, each with a message of one sentence for the user."""

from __future__ import annotations


class AttentestError(Exception):
    """Base class of the errors that attentest raises."""


class InputError(AttentestError, ValueError):
    """An image, a parameter or a noise model that cannot be used."""


class ModelError(AttentestError, ValueError):
    """A model that cannot be loaded or that gives no usable attention."""


class SearchError(AttentestError, RuntimeError):
    """A search for the truncation set that cannot go on."""


class AttentestWarning(UserWarning):
    """Something to know about a result that is correct nevertheless."""
