"""The test itself: made from a model, a noise model and a search; maps images to results."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from attentest.attention import (
    AggregationLike,
    NumpyFunction,
    ScoreFunction,
    TorchFunction,
    ViTScores,
    as_score_function,
    load_model,
    score_properties,
)
from attentest.attention.device import as_memory_budget, default_memory
from attentest.checks import confidence
from attentest.contrast import Background, Channels, Contrast, ContrastLike, as_contrast
from attentest.errors import InputError
from attentest.images.preprocessing import Preprocessing
from attentest.markup import definition_table
from attentest.noise import ImageNoise, NoiseLike, NoiseModel
from attentest.noise.derived import as_test_noise
from attentest.noise.model import described
from attentest.pipeline.geometry import Geometries, preprocessing_and_size
from attentest.pipeline.inputs import Inputs, as_randomisation
from attentest.pipeline.many_images import ManyImages
from attentest.pipeline.one_image import OneImage
from attentest.pipeline.run import Pipeline
from attentest.region import as_region_rule
from attentest.search import Search, as_search
from attentest.statistics.alternative import Alternative, as_alternative

USUAL = {
    "region": "pixels",
    "contrast": None,
    "randomise": 0.0,
    "alternative": "two-sided",
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


BACKGROUND = Background()
"""The default contrast."""


class AttentionTest(OneImage, ManyImages):
    """A statistical test of the region a Vision Transformer attends to.

    Parameters
    ----------
    model
        A vision transformer of Hugging Face transformers, timm or torchvision (the documentation lists which), a
        ``ScoreFunction``, or, with ``image_shape``, a plain NumPy or torch function from images (m, C, H, W) to smooth
        scores (m, gh, gw). A model is copied to float64 and never modified.
    noise
        Standard deviation of the pixel noise, in the units of the image; or a model or a fitted estimator from
        ``attentest.noise``; or, approximately, ``FromImage()``.
    threshold
        tau: the region is where the attention map exceeds it; by default 0.6, as in the paper.
    top_fraction
        q, instead of a threshold: the region is this fraction of the pixels, those of greatest attention.
    region
        What the region consists of: "pixels", with attention interpolated between patch centres, as in the paper; or
        whole "patches". Threshold and top fraction then refer to the scores of the patches, and a pixel belongs to the
        patch that its centre lies in.
    attention
        How attention becomes a map: "rollout" (the paper's), "last-layer", or ``Rollout(...)`` or
        ``LayerAttention(...)`` from ``attentest.attention``.
    preprocessing
        What happens to an image before the model sees it: ``Preprocessing(...)``, or the model's own image processor
        or its configuration. It becomes part of the map: noise, region and contrast live on the image as given.
        None: images must have the size the model takes.
    image_size
        Side, or (height, width), of the model's input, for a model run at another size than it was trained at.
    intensity_range
        The pixel values of black and white, for preprocessing that rescales; by default those of the dtype: 0 and 255
        for 8 bits, 0 and 65535 for 16, 0 and 1 for booleans, none for floats.
    channels
        What is compared in colour images: the "mean" over channels, one channel by number, or a weight for each.
    contrast
        What the region is compared with: its background, as in the paper, or ``Neighbourhood(radius=5)``,
        ``Reference(image)``, ``Filtered("laplacian")`` and others from ``attentest.contrast``; a name, such as
        "neighbourhood:5"; or a function from a region (H, W) to weights (H, W).
    randomise
        gamma: let the model choose the region on the image plus noise with gamma times the standard deviation of its
        own, and test the image itself. 0 is the paper's test; with 0.3 to 1 the test finds far more, and intervals are
        bounded. Choose it before looking at the data.
    randomise_seed
        By default the added noise is a function of the image. A seed gives other noise, and is recorded.
    search
        "spectral" (attentest's own), "adaptive", "fixed" or "combination" (the paper's), or a configured search, such
        as ``SpectralSearch(tol=1e-4)`` from ``attentest.search``.
    alternative
        "two-sided", P(abs(T) >= abs(t)) as in the paper; "equal-tailed", two-sided as well, twice the smaller of
        P(T >= t) and P(T <= t): then the 95% confidence interval excludes 0 exactly when p is less than 0.05;
        "greater" (the region is brighter) or "less".
    confidence_level
        The spectral search goes as far as a confidence interval at this level needs; None for p alone, which is faster.
        The grid searches have a fixed range, and what lies beyond it makes the interval wider.
    device
        Where to compute, for example "cuda"; by default where the model is.
    batch_size
        Images per model call; by default as many as memory allows.
    memory_budget
        Bytes that a model call and the search may use together; by default a quarter of the free memory, and no more
        than 2 GiB on the CPU.
    image_shape
        The (C, H, W) of the images a NumPy or torch function takes.

    Examples
    --------
    >>> import numpy as np
    >>> from attentest import AttentionTest, bundled_model
    >>> test = AttentionTest.from_pretrained(bundled_model(), noise=1.0)
    >>> image = np.random.default_rng(0).normal(size=(16, 16))
    >>> result = test(image)
    >>> result.naive_pvalue < 0.05 < result.pvalue
    True
    """

    def __init__(
        self,
        model: torch.nn.Module | ScoreFunction | NumpyFunction | TorchFunction,
        *,
        noise: NoiseLike | ImageNoise,
        threshold: float | None = None,
        top_fraction: float | None = None,
        region: str = "pixels",
        attention: AggregationLike = "rollout",
        preprocessing: Any = None,
        image_size: int | tuple[int, int] | None = None,
        intensity_range: tuple[float, float] | None = None,
        channels: Channels = "mean",
        contrast: ContrastLike = BACKGROUND,
        randomise: float = 0.0,
        randomise_seed: int | None = None,
        search: str | Search = "spectral",
        alternative: Alternative = "two-sided",
        confidence_level: float | None = 0.95,
        device: torch.device | str | None = None,
        batch_size: int | None = None,
        memory_budget: int | None = None,
        image_shape: tuple[int, int, int] | None = None,
    ) -> None:
        tails = as_alternative(alternative)
        noise_model = as_test_noise(noise)
        chosen_search = as_search(search)
        rule = as_region_rule(threshold, top_fraction)
        randomisation = as_randomisation(randomise, randomise_seed)
        chosen_contrast = as_contrast(contrast)
        searched_level = None if confidence_level is None else confidence(confidence_level)
        memory_budget = as_memory_budget(memory_budget)
        self._preprocessing, image_size = preprocessing_and_size(preprocessing, image_size)
        scores: ScoreFunction
        if isinstance(model, torch.nn.Module) and image_shape is None:
            scores = ViTScores(
                model,
                attention=attention,
                image_size=image_size,
                device=device,
                batch_size=batch_size,
                memory_budget=memory_budget,
            )
        else:
            if attention != "rollout":
                raise InputError("attention is for models: a score function computes its own scores.")
            if image_size is not None and preprocessing is None:
                raise InputError("image_size is for models and preprocessing: a score function has a size of its own.")
            scores = as_score_function(model, device, batch_size, memory_budget, image_shape)
        properties = score_properties(scores)
        geometries = Geometries(
            input_shape=scores.image_shape,
            preprocessing=self._preprocessing,
            intensity_range=intensity_range,
            noise=noise_model,
            contrast=chosen_contrast,
            channels=channels,
            device=scores.device,
            region=region,
        )
        self._inputs = Inputs(geometries=geometries, contrast=chosen_contrast, noise=noise_model)
        self._pipeline = Pipeline(
            scores=scores,
            properties=properties,
            rule=rule,
            contrast=chosen_contrast,
            noise=noise_model,
            randomisation=randomisation,
            search=chosen_search,
            alternative=tails,
            confidence_level=searched_level,
            memory=default_memory(scores.device) if memory_budget is None else memory_budget,
            settings={
                **rule.describe(),
                "region_unit": geometries.region,
                "contrast": dict(chosen_contrast.describe()),
                "randomisation": None if randomisation is None else randomisation.describe(),
                "alternative": tails,
                "confidence_level": searched_level,
                "search": dict(chosen_search.describe()),
                "noise": dict(noise_model.describe()),
                "model": properties.description,
                "preprocessing": None if self._preprocessing is None else self._preprocessing.describe(),
                "channels": geometries.channels,
            },
        )

    @classmethod
    def from_pretrained(
        cls,
        source: str | Path,
        *,
        noise: NoiseLike | ImageNoise,
        threshold: float | None = None,
        top_fraction: float | None = None,
        region: str = "pixels",
        attention: AggregationLike = "rollout",
        preprocessing: Any = "saved",
        image_size: int | tuple[int, int] | None = None,
        intensity_range: tuple[float, float] | None = None,
        channels: Channels = "mean",
        contrast: ContrastLike = BACKGROUND,
        randomise: float = 0.0,
        randomise_seed: int | None = None,
        search: str | Search = "spectral",
        alternative: Alternative = "two-sided",
        confidence_level: float | None = 0.95,
        device: torch.device | str | None = None,
        batch_size: int | None = None,
        memory_budget: int | None = None,
        allow_pickle: bool = False,
        local_files_only: bool = False,
        revision: str | None = None,
    ) -> AttentionTest:
        """Make a test of a saved Hugging Face model.

        Parameters
        ----------
        source
            Local directory, or the id of a model on the hub, such as "google/vit-base-patch16-224", which is looked up
            over the network unless ``local_files_only``. Nothing a model brings is ever run.
        preprocessing
            "saved": that of the image processor saved with the model, if there is one. Otherwise as in the class.
        allow_pickle
            Whether to read pickled weights where there are no safetensors.
        local_files_only
            Whether to use only what was downloaded before.
        revision
            Branch, tag or commit on the hub.
        noise, threshold, top_fraction, region, attention, image_size, intensity_range, channels, contrast, randomise, \
        randomise_seed, search, alternative, confidence_level, device, batch_size, memory_budget
            As in the class.
        """
        saved = load_model(source, allow_pickle=allow_pickle, local_files_only=local_files_only, revision=revision)
        if isinstance(preprocessing, str) and preprocessing == "saved":
            preprocessing = saved.processor
        preprocessing, image_size = preprocessing_and_size(preprocessing, image_size)
        scores = ViTScores(
            saved.encoder,
            attention=attention,
            image_size=image_size,
            device=device,
            batch_size=batch_size,
            memory_budget=as_memory_budget(memory_budget),
            owned=True,
        )
        return cls(
            scores,
            noise=noise,
            threshold=threshold,
            top_fraction=top_fraction,
            region=region,
            preprocessing=preprocessing,
            intensity_range=intensity_range,
            channels=channels,
            contrast=contrast,
            randomise=randomise,
            randomise_seed=randomise_seed,
            search=search,
            alternative=alternative,
            confidence_level=confidence_level,
            memory_budget=memory_budget,
        )

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """The (C, H, W) of the model's input; without preprocessing, that of the images."""
        return self._pipeline.scores.image_shape

    @property
    def device(self) -> torch.device:
        """The device the model computes on."""
        return self._pipeline.scores.device

    @property
    def noise(self) -> NoiseModel | ImageNoise:
        """The noise model, or the estimator that makes one from each image."""
        return self._pipeline.noise

    @property
    def contrast(self) -> Contrast:
        """What regions are compared with."""
        return self._pipeline.contrast

    @property
    def preprocessing(self) -> Preprocessing | None:
        """What happens to an image before the model sees it."""
        return self._preprocessing

    @property
    def settings(self) -> dict[str, Any]:
        """A record of how the test is made, JSON-ready."""
        return copy.deepcopy(self._pipeline.settings)

    @property
    def identity(self) -> dict[str, Any]:
        """What tells the test from others, beside its settings and the model's weights, JSON-ready."""
        reference = self.contrast.reference
        return {
            "noise": described(self.noise),
            "reference_noise": None if reference is None or reference.noise is None else described(reference.noise),
            "intensity_range": self._inputs.geometries.intensity_range,
        }

    @property
    def model_sha256(self) -> str | None:
        """SHA-256 of the weights of the model; None for functions other than vision transformers."""
        scores = self._pipeline.scores
        return scores.sha256() if isinstance(scores, ViTScores) else None

    def with_confidence_level(self, confidence_level: float | None) -> AttentionTest:
        """Return the same test, searching as far as another confidence level needs; the model is shared."""
        chosen = None if confidence_level is None else confidence(confidence_level)
        return self._with(confidence_level=chosen, settings={**self._pipeline.settings, "confidence_level": chosen})

    def with_noise(self, noise: NoiseLike | ImageNoise) -> AttentionTest:
        """Return the same test with another noise model; the model is shared."""
        chosen = as_test_noise(noise)
        other = self._with(noise=chosen, settings={**self._pipeline.settings, "noise": dict(chosen.describe())})
        other._inputs = replace(self._inputs, noise=chosen)
        return other

    def with_search(self, search: str | Search) -> AttentionTest:
        """Return the same test with another search; the model is shared."""
        chosen = as_search(search)
        return self._with(search=chosen, settings={**self._pipeline.settings, "search": dict(chosen.describe())})

    def with_randomise(self, randomise: float, randomise_seed: int | None = None) -> AttentionTest:
        """Return the same test with another randomised selection, or with 0 without one; the model is shared.

        Without a ``randomise_seed`` it keeps that of this test, if it has one.
        """
        own = self._pipeline.randomisation
        if randomise_seed is None and own is not None and randomise != 0:
            randomise_seed = own.seed
        chosen = as_randomisation(randomise, randomise_seed)
        described = None if chosen is None else chosen.describe()
        return self._with(randomisation=chosen, settings={**self._pipeline.settings, "randomisation": described})

    def with_region(self, region: str) -> AttentionTest:
        """Return the same test with regions of "pixels" or of whole "patches"; the model is shared."""
        geometries = self._inputs.geometries.with_region(region)
        other = self._with(settings={**self._pipeline.settings, "region_unit": geometries.region})
        other._inputs = replace(self._inputs, geometries=geometries)
        return other

    def _with(self, **changes: Any) -> AttentionTest:
        other = copy.copy(self)
        other._pipeline = replace(self._pipeline, **changes)
        return other

    def __repr__(self) -> str:
        return short_repr(self._pipeline)

    def _repr_html_(self) -> str:
        return definition_table("AttentionTest", definitions(self._pipeline, self._preprocessing))
