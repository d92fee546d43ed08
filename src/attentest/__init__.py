"""attentest: is the region a Vision Transformer attends to statistically real?

>>> from attentest import AttentionTest, bundled_model
>>> test = AttentionTest.from_pretrained(bundled_model(), noise=1.0)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attentest.errors import AttentestError, AttentestWarning, InputError, ModelError, SearchError
from attentest.training.bundled import bundled_model

if TYPE_CHECKING:
    from attentest import attention, contrast, noise, search
    from attentest.api import AttentionTest
    from attentest.images.preprocessing import Preprocessing
    from attentest.images.read import read_image
    from attentest.results.batch import ComponentResults, Results
    from attentest.results.calibration import Calibration
    from attentest.results.result import AttentionTestResult
    from attentest.simulation.calibrate import calibrate
    from attentest.statistics.confidence_interval import ConfidenceInterval

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
    "AttentionTest": ("attentest.api", "AttentionTest"),
    "AttentionTestResult": ("attentest.results.result", "AttentionTestResult"),
    "Calibration": ("attentest.results.calibration", "Calibration"),
    "ComponentResults": ("attentest.results.batch", "ComponentResults"),
    "ConfidenceInterval": ("attentest.statistics.confidence_interval", "ConfidenceInterval"),
    "Preprocessing": ("attentest.images.preprocessing", "Preprocessing"),
    "Results": ("attentest.results.batch", "Results"),
    "attention": ("attentest.attention", None),
    "calibrate": ("attentest.simulation.calibrate", "calibrate"),
    "contrast": ("attentest.contrast", None),
    "noise": ("attentest.noise", None),
    "read_image": ("attentest.images.read", "read_image"),
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
