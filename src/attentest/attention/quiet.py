"""Suppressing the progress bars and messages of transformers."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Suppress the output of the library while it loads or saves a model, then restore its settings."""
    from huggingface_hub.utils import logging as hub_logging
    from transformers.utils import logging as transformers_logging  # here because transformers is slow to import

    verbosity, hub_verbosity = transformers_logging.get_verbosity(), hub_logging.get_verbosity()
    bar = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    hub_logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        hub_logging.set_verbosity(hub_verbosity)
        if bar:
            transformers_logging.enable_progress_bar()
