"""What the page asks for, each with its label and its help text, and the test that the answers define."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from attentest.app.offered import TEXT, OfferedModel, UploadedImage, page_words, read_upload
from attentest.attention import ViTScores
from attentest.attention.relevance import PREDICTED
from attentest.contrast import Contrast, Filtered
from attentest.definition import (
    REGION_RULES,
    USUAL_THRESHOLD,
    Definition,
    MapDefinition,
    Option,
    as_choice,
    option,
    option_of,
)
from attentest.errors import InputError, shortened
from attentest.images.image_source import ImageSource
from attentest.images.mask import as_mask
from attentest.images.preprocessing import Preprocessing
from attentest.images.sample import LEVELS
from attentest.noise import AR1, FromImage, ImageNoise, Isotropic, NoiseEstimator, NoiseModel, Poisson, as_noise
from attentest.pipeline.attention_test import AttentionTest
from attentest.registry import ATTENTION_MAPS, CONTRASTS, FILTERS, IMAGE_NOISE, NOISE_ESTIMATORS

NUMBER, CONTROLS, IMAGE, COUNTS = "number", "controls", "image", "poisson"
"""Where the noise is known from: a number, images of controls, or the tested image itself; or pixels are counts."""

THRESHOLD, TOP_FRACTION, LEVEL = REGION_RULES
"""The options that say how an attention map becomes a region; a test has one of them."""

MAP_FIELDS = "map_name", "target", "text"  # the options that define the map
NO_FILTER = "none"  # the image is compared as it is
MOST_CONTROLS = 500  # most images from which the noise is estimated

PROPOSED: dict[str, Any] = {THRESHOLD: USUAL_THRESHOLD, TOP_FRACTION: 0.1, LEVEL: 0.0, "target": PREDICTED}
"""What the page proposes for options that a test may do without."""


def offered_options() -> dict[str, tuple[Option, Any]]:
    """Return the options of a map and a test that the page asks for, which have a label, and what it proposes."""
    return {
        defined.name: (option_of(defined), PROPOSED.get(defined.name, defined.default))
        for definition in (MapDefinition, getattr(AttentionTest, "definition_class", Definition))
        for defined in fields(definition)
        if option_of(defined).label
    }


def takes_class(map_name: str) -> bool:
    """Return whether a map is one for a class."""
    part = ATTENTION_MAPS.get(map_name)
    return part is not None and "target" in part.takes


def proposed_options() -> dict[str, Any]:
    """Return what the page proposes for the options of a test that it asks for."""
    return {name: value for name, (_, value) in offered_options().items()}


@dataclass(frozen=True, kw_only=True)
class Form:
    """The answers on the page; an empty one is None."""

    other_class: str | None = option(
        "Number or label of one that is not listed; it counts in place of the class above.",
        label="Another class",
        shown_default="none",
    )
    noise: str = option(
        "What would differ if the same image were taken again. How to choose it: docs/choosing-noise.md.",
        default=IMAGE,
        label="Noise of the pixels",
        choices=(IMAGE, CONTROLS, NUMBER, COUNTS),
    )
    # Without a proposal: a number that nobody measured would be noise that the image does not have.
    sigma: str | None = option("In pixel values", label="Standard deviation", shown_default="as measured")
    rho: float | None = option("Of neighbours in a row", default=0.0, label="Correlation")
    controls: Sequence[str] | None = option("", label="Images of the same size that differ by noise alone")
    estimator: str = option("", default="auto", label="Estimator", choices=NOISE_ESTIMATORS)
    method: str = option("", default="wavelet", label="Method", choices=IMAGE_NOISE)
    rule: str = option("", default=THRESHOLD, label="Chosen by", choices=REGION_RULES)
    contrast: str = option(
        "",
        default="background",
        label="The region is compared with",
        choices=[name for name in CONTRASTS if name != "reference"],  # which needs a second image
    )
    radius: float | None = option("", default=5.0, label="Width of the ring in pixels")
    filtered: str = option("", default=NO_FILTER, label="in its mean", choices=(NO_FILTER, *FILTERS))
    blur: float | None = option("", default=1.0, label="Standard deviation of the blur in pixels")
    alpha: float | None = option("", default=0.05, label="Significance level α")
    black: str | None = option("", label="Black", shown_default="by file type")
    white: str | None = option("", label="White", shown_default="by file type")
    resize: bool = option("", default=True, label="Resize an image of another size for a model that does not say how")
    options: Mapping[str, Any] = field(default_factory=proposed_options)

    @classmethod
    def of(cls, **answers: Any) -> Form:
        """Return the form with answers by name, among them those for options of the test."""
        options = {name: answers.pop(name) for name in proposed_options().keys() & answers.keys()}
        return cls(**answers, options=proposed_options() | options)

    def attention_test(
        self, model: OfferedModel, image: UploadedImage, noise: NoiseModel | ImageNoise
    ) -> AttentionTest:
        """Return the test of an image that the answers define; one of other axes than the model's raises an error."""
        image.check(model)
        black, white = optional_number(self.black, "black"), optional_number(self.white, "white")
        if (black is None) != (white is None):
            raise InputError("only one of black and white is given: give both pixel values, or neither.")
        rule = self._choice("rule")
        options: dict[str, Any] = {
            name: number_in(self.options[name], name) if isinstance(proposed, float) else self.options[name]
            for name, (_, proposed) in offered_options().items()
            if name == rule or name not in (*REGION_RULES, *MAP_FIELDS)
        }
        options |= self._mask(options.pop("mask"))
        return AttentionTest(
            self.scores(model),
            noise=noise,
            preprocessing=self.preprocessing(model, image),
            intensity_range=None if black is None or white is None else (black, white),
            contrast=self._contrast(),
            **options,
        )

    def _mask(self, path: str | None) -> dict[str, Any]:
        """Return the mask of an uploaded file; without one, nothing that is asked about it counts."""
        if path is None:
            return {"mask_use": "both"}
        source, name = ImageSource(path=Path(path)), Path(path).name
        with page_words({path: name, shortened(source): name}):
            return {"mask": as_mask(source)}

    def scores(self, model: OfferedModel) -> ViTScores:
        """Return the scores of a model that the map which the answers define is made of."""
        name, target, text = (self.options[field] for field in MAP_FIELDS)
        if name not in model.maps:
            raise InputError(f"the map must be one of {', '.join(model.maps)} for this model, got {shortened(name)}.")
        if name == TEXT:
            chosen = MapDefinition(text=text or "")
        else:
            asked = (self.other_class or "").strip() or target or PREDICTED
            chosen = MapDefinition(map_name=name, target=asked if takes_class(name) and asked != PREDICTED else None)
        attention = chosen.attention()
        return model.scores if attention == model.attention else model.new_scores(attention)

    def preprocessing(self, model: OfferedModel, image: UploadedImage) -> Preprocessing | None:
        """Return what happens to an image before the model sees it."""
        saved: Preprocessing | None = model.preprocessing
        shape = model.scores.image_shape
        if saved is not None or not self.resize:
            return saved
        if model.dimension != 2:
            return None if image.size == shape[1:] else Preprocessing().chosen("stretch", "none", shape[1:])
        if not model.usual_processor:
            return saved
        usual, has_levels = Preprocessing.usual(model.usual_processor, shape), image.pixels.dtype.str[1:] in LEVELS
        if has_levels or self.black or image.size == shape[1:]:
            return usual
        return usual.chosen("stretch", "none", shape[1:])

    def noise_model(self, dimension: int = 2) -> NoiseModel | ImageNoise:
        """Return the noise that the answers describe; control images, of so many axes, are read here."""
        source = self._choice("noise")
        if source == IMAGE:
            return FromImage(self.method)
        if source == COUNTS:
            return Poisson()
        if source == CONTROLS:
            return self._fitted(dimension)
        sigma = optional_number(self.sigma, "the standard deviation of the noise")
        if sigma is None:
            raise InputError(
                "the standard deviation of the noise is not given: give it in pixel values, or have it estimated from "
                "control images or from this image."
            )
        return AR1(self.rho, sigma) if self.rho else Isotropic(sigma)

    def _fitted(self, dimension: int) -> NoiseModel:
        if not self.controls:
            raise InputError("there are no control images: upload at least two, or give the noise as a number.")
        if len(self.controls) > MOST_CONTROLS:
            raise InputError(f"there are {len(self.controls)} control images: give at most {MOST_CONTROLS}.")
        estimator: NoiseEstimator = NOISE_ESTIMATORS.load(self.estimator)()
        controls = (read_upload(ImageSource(path=Path(path)), dimension) for path in self.controls)
        with page_words({"reference images": "control images", "reference image": "control image"}):
            fitted = estimator.fit([control.pixels if dimension == 2 else control.sample for control in controls])
        return as_noise(fitted)

    def _contrast(self) -> Contrast:
        name = self._choice("contrast")
        if CONTRASTS[name].argument:
            name += f":{number_in(self.radius, 'the width of the ring')}"
        compared: Contrast = CONTRASTS.create(name)
        if self.filtered == NO_FILTER:
            return compared
        if self.filtered in FILTERS and FILTERS[self.filtered].argument:
            blur = number_in(self.blur, "the standard deviation of the blur")
            return Filtered(f"{self.filtered}:{blur}", of=compared)
        return Filtered(self.filtered, of=compared)

    def _choice(self, name: str) -> str:
        """Return the answer to a question with choices; raise an error if it is none of them."""
        return as_choice(getattr(self, name), name, questions()[name][0].choices)


def questions() -> dict[str, tuple[Option, Any]]:
    """Return what the page asks for, by name, and what it proposes: its own fields and the options of a test."""
    of_page = {asked.name: (option_of(asked), asked.default) for asked in fields(Form) if asked.metadata}
    return of_page | offered_options()


def optional_number(text: str | None, called: str) -> float | None:
    """Return the number that a text says, or None if it is empty; raise an error for another text."""
    try:
        return float(text) if text and text.strip() else None
    except ValueError:
        raise InputError(f"{called} must be a number, or empty, got {shortened(text)}.") from None


def number_in(value: Any, called: str) -> float:
    """Return the number in a field; raise an error if there is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        got = "an empty field" if value is None else shortened(value)
        raise InputError(f"{called} must be a number, got {got}.", called)
    return float(value)
