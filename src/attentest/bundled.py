"""The model that ships with attentest."""

from __future__ import annotations

from pathlib import Path


def bundled_model() -> Path:
    """Return the directory of the paper's 16x16 base classifier, trained by ``attentest train``.

    Its ``training.json`` records the command, the seed and the accuracy.
    """
    return Path(__file__).parent / "models" / "base16"
