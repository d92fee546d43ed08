"""How a test is made, in words: its representation as text and as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attentest.images.preprocessing import Preprocessing
from attentest.pipeline.run import Pipeline

USUAL = {
    "region": "pixels",
    "contrast": None,
    "randomise": 0.0,
    "alternative": "two-sided",
    "two_sided": "absolute",
    "channels": "mean",
    "search": "spectral",
}
"""What the short representation leaves out."""


def short_repr(pipeline: Pipeline) -> str:
    """Return a test as one line: what it is made from, and what is not usual about it."""
    settings = pipeline.settings
    rule = "threshold" if "threshold" in settings else "top_fraction"
    made_from = {
        "image_shape": pipeline.scores.image_shape,
        rule: settings[rule],
        "region": settings["region_unit"],
        "contrast": None if settings["contrast"]["name"] == "background" else pipeline.contrast,
        "randomise": (settings["randomisation"] or {"gamma": 0.0})["gamma"],
        "alternative": settings["alternative"],
        "two_sided": settings.get("two_sided", USUAL["two_sided"]),
        "channels": settings["channels"],
        "search": settings["search"]["name"],
        "noise": pipeline.noise,
    }
    unusual = (f"{name}={value!r}" for name, value in made_from.items() if name not in USUAL or value != USUAL[name])
    return f"AttentionTest(<{_type(settings['model'])}>, {', '.join(unusual)})"


def definitions(pipeline: Pipeline, preprocessing: Preprocessing | None) -> dict[str, object]:
    """Return the parts and settings of a test in words, by name."""
    settings = pipeline.settings
    model, randomisation, level = settings["model"], settings["randomisation"], settings["confidence_level"]
    unit, channels = settings["region_unit"], settings["channels"]
    return {
        "model": f"{_type(model)} on {pipeline.scores.device}",
        **({"attention": _parameters(model["attention"])} if "attention" in model else {}),
        "model input": f"{' x '.join(map(str, pipeline.scores.image_shape))} (channels x height x width)",
        **({} if preprocessing is None else {"preprocessing": preprocessing}),
        "region": (
            f"{unit} with attention above {settings['threshold']:g}"
            if "threshold" in settings
            else f"{settings['top_fraction']:.3g} of the {unit}, those of greatest attention"
        ),
        "selection": "not randomised" if randomisation is None else f"randomised, gamma = {randomisation['gamma']:g}",
        "contrast": pipeline.contrast,
        **({} if channels == USUAL["channels"] else {"channels": channels}),
        "alternative": pipeline.alternative if pipeline.alternative != "equal-tailed" else "two-sided, equal tails",
        "noise": pipeline.noise,
        "search": pipeline.search,
        "confidence level": "p alone, no interval" if level is None else f"{level:g}",
    }


def _type(model: Mapping[str, Any]) -> str:
    """Return the type of a model; a score function of the user's describes itself as it likes."""
    return str(model.get("type", "score function"))


def _parameters(described: Any) -> str:
    """Return a name and parameters as one line; parameters that are None are left out."""
    if not isinstance(described, Mapping):
        return str(described)
    given = {name: value for name, value in described.items() if value is not None}
    name = given.pop("name", None)
    listed = ", ".join(f"{key} {value}" for key, value in given.items())
    return ": ".join(part for part in (name, listed) if part)
