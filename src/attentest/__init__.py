"""attentest: is the region a Vision Transformer attends to statistically real?

>>> from attentest import AttentionTest, bundled_model
>>> test = AttentionTest.from_pretrained(bundled_model(), noise=1.0)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers and editors; tests/package/test_package.py compares it with the table
    from attentest import attention as attention
    from attentest import contrast as contrast
    from attentest import noise as noise
    from attentest import search as search
    from attentest.cohort.cohort import Cohort as Cohort
    from attentest.errors import AttentestError as AttentestError
    from attentest.errors import AttentestWarning as AttentestWarning
    from attentest.errors import InputError as InputError
    from attentest.errors import ModelError as ModelError
    from attentest.errors import SearchError as SearchError
    from attentest.images.image_file import read_image as read_image
    from attentest.images.preprocessing import Preprocessing as Preprocessing
    from attentest.pipeline.attention_test import AttentionTest as AttentionTest
    from attentest.pipeline.comparison import Comparison as Comparison
    from attentest.pipeline.comparison import compare as compare
    from attentest.pipeline.margins_figure import plot_margins as plot_margins
    from attentest.presentation.sensitivity import Sensitivity as Sensitivity
    from attentest.results.batch import Results as Results
    from attentest.results.certificate import Certificate as Certificate
    from attentest.results.components import ComponentResults as ComponentResults
    from attentest.results.result import AttentionTestResult as AttentionTestResult
    from attentest.runs.process_engine import ProcessEngine as ProcessEngine
    from attentest.runs.ray_engine import RayEngine as RayEngine
    from attentest.search.certification import Certification as Certification
    from attentest.simulation.calibration.calibrate import calibrate as calibrate
    from attentest.simulation.calibration.calibration import Calibration as Calibration
    from attentest.simulation.noise_check.noise_check import NoiseCheck as NoiseCheck
    from attentest.simulation.noise_check.noise_check import noise_check as noise_check
    from attentest.simulation.power.plan import Plan as Plan
    from attentest.simulation.power.simulate import plan as plan
    from attentest.simulation.sanity import Sanity as Sanity
    from attentest.simulation.sanity import sanity as sanity
    from attentest.statistics.inference import ConfidenceInterval as ConfidenceInterval
    from attentest.training.bundled import bundled_model as bundled_model

__version__ = "0.1.0"

_DEFINED_IN = {
    "AttentestError": "attentest.errors",
    "AttentestWarning": "attentest.errors",
    "AttentionTest": "attentest.pipeline.attention_test",
    "AttentionTestResult": "attentest.results.result",
    "Calibration": "attentest.simulation.calibration.calibration",
    "Certificate": "attentest.results.certificate",
    "Certification": "attentest.search.certification",
    "Cohort": "attentest.cohort.cohort",
    "Comparison": "attentest.pipeline.comparison",
    "ComponentResults": "attentest.results.components",
    "ConfidenceInterval": "attentest.statistics.inference",
    "InputError": "attentest.errors",
    "ModelError": "attentest.errors",
    "NoiseCheck": "attentest.simulation.noise_check.noise_check",
    "Plan": "attentest.simulation.power.plan",
    "Preprocessing": "attentest.images.preprocessing",
    "ProcessEngine": "attentest.runs.process_engine",
    "RayEngine": "attentest.runs.ray_engine",
    "Results": "attentest.results.batch",
    "Sanity": "attentest.simulation.sanity",
    "SearchError": "attentest.errors",
    "Sensitivity": "attentest.presentation.sensitivity",
    "attention": "attentest.attention",
    "bundled_model": "attentest.training.bundled",
    "calibrate": "attentest.simulation.calibration.calibrate",
    "compare": "attentest.pipeline.comparison",
    "contrast": "attentest.contrast",
    "noise": "attentest.noise",
    "noise_check": "attentest.simulation.noise_check.noise_check",
    "plan": "attentest.simulation.power.simulate",
    "plot_margins": "attentest.pipeline.margins_figure",
    "read_image": "attentest.images.image_file",
    "sanity": "attentest.simulation.sanity",
    "search": "attentest.search",
}
"""The public names, each with the module that defines it; a module is imported when one of its names is first used.

Importing torch and transformers takes seconds, and neither ``import attentest`` nor ``attentest --help`` needs them.
"""

if not TYPE_CHECKING:  # a type checker takes the names from the imports above and cannot evaluate this
    __all__ = list(_DEFINED_IN)


def __getattr__(name: str) -> Any:
    """Return a public name, importing the module that defines it."""
    if name not in _DEFINED_IN:
        raise AttributeError(f"module 'attentest' has no attribute {name!r}")
    from importlib import import_module

    module = import_module(_DEFINED_IN[name])
    return module if module.__name__ == f"attentest.{name}" else getattr(module, name)


def __dir__() -> list[str]:
    """Return the public names, for tab completion."""
    return [*_DEFINED_IN, "__version__"]
