"""The brain study with a small model, coarse searches and few pictures; as a program, the command line with it."""

from __future__ import annotations

import pytest

from attentest.__main__ import main
from attentest.search import SpectralSearch
from attentest.studies.brain.condition import PAPER, Condition
from attentest.training.bundled import ARCHITECTURES, Architecture

CONDITIONS = (PAPER, Condition(contrast="reference", region="patches", randomise=1.0))
"""Some of the study's conditions."""


def make_quick(patch: pytest.MonkeyPatch) -> None:
    """Make the study quick for as long as the patch lasts."""
    patch.setattr("attentest.studies.brain.classifier.ARCHITECTURE", "small")
    patch.setitem(ARCHITECTURES, "small", Architecture(layers=1, hidden=8, heads=2))  # type: ignore[arg-type]
    for name in ("SEARCH", "SENSITIVITY_SEARCH"):
        patch.setattr(f"attentest.studies.brain.study.{name}", SpectralSearch(tol=0.05))
    patch.setattr("attentest.studies.brain.study.CONFIDENCE_LEVEL", None)
    patch.setattr("attentest.studies.brain.summary.COUNT", 1)
    patch.setattr("attentest.noise.stationary.FORMS", 20)  # draws for the degrees of freedom of an estimate


if __name__ == "__main__":
    patch = pytest.MonkeyPatch()
    make_quick(patch)
    patch.setattr("attentest.studies.brain.study.available", lambda: CONDITIONS)
    main()
