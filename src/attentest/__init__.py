"""attentest: is the region a Vision Transformer attends to statistically real?

>>> from attentest import AttentionTest, bundled_model
>>> test = AttentionTest.from_pretrained(bundled_model(), noise=1.0)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attentest.bundled import bundled_model
from attentest.errors import AttentestError, AttentestWarning, InputError, ModelError, SearchError

if TYPE_CHECKING:
    from attentest import attention, contrast, noise, search
    from attentest.attention_test import AttentionTest
    from attentest.calibration import Calibration, calibrate
    from attentest.confidence_interval import ConfidenceInterval
    from attentest.image_file import read_image
    from attentest.preprocessing import Preprocessing
    from attentest.result import AttentionTestResult
    from attentest.results import ComponentResults, Results

__version__ = "0.1.0"

__all__ = [
    "AttentestError",
    "AttentestWarning",
    "AttentionTest",
    "AttentionTestResult",
    "Calibration",
    "ComponentResults",
    "ConfidenceInterval",
    "InputError",
    "ModelError",
    "Preprocessing",
    "Results",
    "SearchError",
    "attention",
    "bundled_model",
    "calibrate",
    "contrast",
    "noise",
    "read_image",
    "search",
]

_LAZY = {
    "AttentionTest": ("attentest.attention_test", "AttentionTest"),
    "AttentionTestResult": ("attentest.result", "AttentionTestResult"),
    "Calibration": ("attentest.calibration", "Calibration"),
    "ComponentResults": ("attentest.results", "ComponentResults"),
    "ConfidenceInterval": ("attentest.confidence_interval", "ConfidenceInterval"),
    "Preprocessing": ("attentest.preprocessing", "Preprocessing"),
    "Results": ("attentest.results", "Results"),
    "attention": ("attentest.attention", None),
    "calibrate": ("attentest.calibration", "calibrate"),
    "contrast": ("attentest.contrast", None),
    "noise": ("attentest.noise", None),
    "read_image": ("attentest.image_file", "read_image"),
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
