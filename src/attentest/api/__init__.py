"""The test, its runs over many files, and the engines that do them.

The test is imported when it is first used: it takes seconds, and a worker process imports only what its work needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attentest.api.attention_test import AttentionTest

__all__ = ["AttentionTest"]


def __getattr__(name: str) -> Any:
    """Return the test, importing the module that defines it."""
    if name != "AttentionTest":
        raise AttributeError(f"module 'attentest.api' has no attribute {name!r}")
    from attentest.api.attention_test import AttentionTest

    return AttentionTest
