"""Figures drawn in half the time, for tests of the pages that they are on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from matplotlib.figure import Figure


@contextmanager
def figures_without_layout() -> Iterator[None]:
    """Draw figures once: the layout of their parts, which is not used meanwhile, takes another drawing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "get_layout_engine", lambda self: None)
        yield
