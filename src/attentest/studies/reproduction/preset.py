"""How many images each experiment gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from attentest.checks import whole_number
from attentest.errors import InputError
from attentest.studies.reproduction.paper_model import MODELS
from attentest.training.bundled import BUNDLED

MOST_IMAGES = 10**6
"""More than this a series is a slip of the keyboard."""


@dataclass(frozen=True, kw_only=True)
class Preset:
    """Counts of images, a series each.

    Parameters
    ----------
    models
        Classifiers to use; experiments on one image size use the 16x16 base model whatever these are.
    null
        Null images for the type I error of all tests.
    permuted
        How many of them the permutation test gets, with ``permutations`` permutations each.
    additional
        Null images for the selective test alone (appendix E).
    power
        Images of each signal strength.
    timed
        Images for each search. In the paper all get 200; the cost of a grid hardly differs from image to image, so
        that a few tell it.
    timed_models
        Classifiers on which the searches are timed.
    estimated, nearly_gaussian
        Null images for the two checks of robustness (appendix D).
    curves
        Images whose f_i are drawn.
    precision
        Images that are tested in float32 and float64.
    """

    models: tuple[str, ...]
    null: int
    permuted: int
    permutations: int
    additional: int
    power: int
    timed: Mapping[str, int]
    timed_models: tuple[str, ...]
    estimated: int
    nearly_gaussian: int
    curves: int
    precision: int

    @classmethod
    def from_counts(cls, counts: Mapping[str, Any]) -> Preset:
        """Return the preset that a run recorded."""
        return cls(**{**counts, **{name: tuple(counts[name]) for name in ("models", "timed_models")}})

    def limited(self, images: int | None, permutations: int | None) -> Preset:
        """Return the preset with no more images a series, and no more permutations, than given."""
        preset = self
        if images is not None:
            most = whole_number(images, "images", 1, MOST_IMAGES)
            counts = ("null", "permuted", "additional", "power", "estimated", "nearly_gaussian", "curves", "precision")
            preset = replace(
                preset,
                timed={search: min(count, most) for search, count in preset.timed.items()},
                **{name: min(getattr(preset, name), most) for name in counts},
            )
        if permutations is not None:
            chosen = whole_number(permutations, "permutations", 1, MOST_IMAGES)
            preset = replace(preset, permutations=min(preset.permutations, chosen))
        return preset

    def with_models(self, models: tuple[str, ...] | None) -> Preset:
        """Return the preset with other classifiers."""
        if models is None:
            return self
        for model in models:
            if model not in MODELS:
                raise InputError(f"a model must be one of {', '.join(MODELS)}, got {model!r}.")
        ordered = tuple(model for model in MODELS if model in models)
        return replace(self, models=ordered, timed_models=ordered)


BUNDLED_MODELS = tuple(model for model in MODELS if model in {f"{name}{side}" for name, side in BUNDLED})

PAPER = Preset(
    models=MODELS,
    null=1000,
    permuted=1000,
    permutations=1000,
    additional=1000,
    power=1000,
    timed={"spectral": 200, "adaptive": 100, "combination": 20, "fixed": 10},
    timed_models=MODELS,
    estimated=1000,
    nearly_gaussian=1000,
    curves=3,
    precision=200,
)

PRESETS: Mapping[str, Preset] = {
    "quick": Preset(
        models=BUNDLED_MODELS,
        null=40,
        permuted=20,
        permutations=100,
        additional=40,
        power=20,
        timed={"spectral": 4, "adaptive": 2, "combination": 1, "fixed": 1},
        timed_models=("base8",),
        estimated=40,
        nearly_gaussian=10,
        curves=3,
        precision=2,
    ),
    "paper": PAPER,
    "full": replace(
        PAPER,
        additional=10_000,
        timed=dict.fromkeys(PAPER.timed, 200),
        estimated=10_000,
        nearly_gaussian=10_000,
        precision=1000,
    ),
}
"""Minutes on two cores; the counts of the paper's main text; those of its appendices."""
