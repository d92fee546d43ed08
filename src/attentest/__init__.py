"""attentest: is the region a Vision Transformer attends to statistically real?

>>> from attentest import AttentionTest, bundled_model
>>> test = AttentionTest.from_pretrained(bundled_model(), noise=1.0)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attentest.bundled import bundled_model
from attentest.errors import AttentestError, InputError, ModelError, SearchError

if TYPE_CHECKING:
    from attentest import noise, search
    from attentest.attention_test import AttentionTest
    from attentest.result import AttentionTestResult

__version__ = "0.1.0"

__all__ = [
    "AttentestError",
    "AttentionTest",
    "AttentionTestResult",
    "InputError",
    "ModelError",
    "SearchError",
    "bundled_model",
    "noise",
    "search",
]

_LAZY = {
    "AttentionTest": ("attentest.attention_test", "AttentionTest"),
    "AttentionTestResult": ("attentest.result", "AttentionTestResult"),
    "noise": ("attentest.noise", None),
    "search": ("attentest.search", None),
}


def __getattr__(name: str) -> Any:
    """Import torch and transformers only when a name that needs them is used: they take seconds."""
    if name not in _LAZY:
        raise AttributeError(f"module 'attentest' has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _LAZY[name]
    loaded = import_module(module)
    return loaded if attribute is None else getattr(loaded, attribute)
