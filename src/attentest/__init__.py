"""attentest: is the region a Vision Transformer attends to statistically real?

>>> from attentest import AttentionTest, bundled_model
>>> test = AttentionTest.from_pretrained(bundled_model(), noise=1.0)
"""

import re
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

_DEFINED_IN = {
    name: module
    for module, name in re.findall(
        r"^from (\S+) import (\w+) as", Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"), re.M
    )
}
"""The public names, each with the module that defines it; a module is imported when one of its names is first used.

Importing torch and transformers takes seconds, and neither ``import attentest`` nor ``attentest --help`` needs them.
"""

__all__ = list(_DEFINED_IN)


def __getattr__(name: str) -> Any:
    """Return a public name, importing the module that defines it."""
    if name not in _DEFINED_IN:
        raise AttributeError(f"module 'attentest' has no attribute {name!r}")
    from importlib import import_module

    module = import_module(f"attentest.{name}" if _DEFINED_IN[name] == "attentest" else _DEFINED_IN[name])
    return module if _DEFINED_IN[name] == "attentest" else getattr(module, name)


def __dir__() -> list[str]:
    """Return the public names, for tab completion."""
    return [*_DEFINED_IN, "__version__"]
