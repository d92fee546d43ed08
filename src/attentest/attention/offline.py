"""Keeping the libraries off the network while a model on disk is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from huggingface_hub import constants


@contextmanager
def no_network() -> Iterator[None]:
    """Let every request to the hub fail, then restore the settings.

    To load local files only does not suffice: for the name that it would give itself in a request, the library
    looks up a list on the hub, and it asks there for other formats of pickled weights.
    """
    before = constants.HF_HUB_OFFLINE, constants.HF_HUB_DISABLE_TELEMETRY
    constants.HF_HUB_OFFLINE = constants.HF_HUB_DISABLE_TELEMETRY = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, constants.HF_HUB_DISABLE_TELEMETRY = before
