"""The tokens of a vision transformer, as the model declares them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """The tokens of one image: first those that are not patches, then the patches, row by row.

    Parameters
    ----------
    grid
        Rows and columns of patches.
    prefix
        Number of tokens before the patches: class, distillation and register tokens.
    class_token
        Whether the first token is a class token.
    """

    grid: tuple[int, int]
    prefix: int
    class_token: bool

    @property
    def count(self) -> int:
        """Number of all tokens."""
        return self.prefix + self.grid[0] * self.grid[1]

    def describe(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {"grid": list(self.grid), "prefix_tokens": self.prefix, "class_token": self.class_token}
