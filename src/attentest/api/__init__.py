"""The test, and its runs over many files."""

from attentest.api.attention_test import AttentionTest

__all__ = ["AttentionTest"]
