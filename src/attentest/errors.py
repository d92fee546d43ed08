"""The errors attentest raises: one sentence each, meant to be read by the person who caused them."""

from __future__ import annotations


class AttentestError(Exception):
    """Base of every error attentest raises on purpose."""


class InputError(AttentestError, ValueError):
    """An image, a parameter or a noise model that cannot be used."""


class ModelError(AttentestError, ValueError):
    """A model that cannot be loaded or that gives no usable attention."""


class SearchError(AttentestError, RuntimeError):
    """A search for the truncation set that cannot go on."""


class AttentestWarning(UserWarning):
    """Something worth knowing about a result that is right all the same."""
