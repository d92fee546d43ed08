"""Figures drawn in half the time, or not at all, for tests of the pages that they are on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest
from matplotlib.figure import Figure
from PIL import Image


@contextmanager
def figures_without_layout() -> Iterator[None]:
    """Draw figures once, and coarsely: the layout of their parts, which is not used meanwhile, is another drawing."""
    save = Figure.savefig
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "get_layout_engine", lambda self: None)
        patch.setattr(Figure, "savefig", lambda self, target, **options: save(self, target, **{**options, "dpi": 40}))
        yield


@contextmanager
def figures_not_drawn() -> Iterator[None]:
    """Make figures but do not draw them: each is saved as one pixel; other tests draw the same figures."""

    def save(self: Figure, target: str | Path | BinaryIO, **_: object) -> None:
        Image.new("L", (1, 1)).save(target, "PNG")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", save)
        yield
