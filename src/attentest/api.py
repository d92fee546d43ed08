"""The test itself: a model, a noise model and a search in; images in; results out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from attentest.attention import (
    AggregationLike,
    NumpyFunction,
    RoughScoreFunction,
    ScoreFunction,
    TorchFunction,
    ViTScores,
    as_score_function,
    load_model,
    model_settings,
)
from attentest.attention.device import as_memory_budget, default_memory
from attentest.checks import as_generator, confidence, optional_level
from attentest.contrast import Background, Channels, Contrast, ContrastLike, as_connectivity, as_contrast
from attentest.errors import InputError
from attentest.images.preprocessing import Preprocessing
from attentest.images.sample import ImageLike
from attentest.noise import ImageNoise, NoiseLike, NoiseModel, as_noise_or_maker
from attentest.pipeline.hypotheses import Comparisons, comparisons, parts_of
from attentest.pipeline.image_geometry import Frame, Frames, preprocessing_and_size
from attentest.pipeline.inputs import Case, Cases
from attentest.pipeline.observation import Observation, Observer
from attentest.region import as_region_rule
from attentest.results.batch import ComponentResults, Results
from attentest.results.result import AttentionTestResult, results_of
from attentest.search import Report, Search, SearchProblem, as_search
from attentest.statistics.baselines import PermutationResult, permutation_test
from attentest.statistics.truncated_normal import Alternative, check_alternative

Progress: TypeAlias = Callable[[float, "int | None"], None]
"""Called with (images done, images in all or None if unknown); done has a fraction while a search is under way."""

HELD = (Sequence, np.ndarray, torch.Tensor)
"""Images that can be looked at twice; others may be gone once they were seen, though their number is known."""

BACKGROUND = Background()
"""What the region is compared with by default."""


class AttentionTest:
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
        q, instead of a threshold: the region is this share of the pixels, those of greatest attention.
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
        What the images call black and white, for preprocessing that rescales; by default what their dtype says: 0 and
        255 for 8 bits, 0 and 65535 for 16, 0 and 1 for booleans, nothing for floats.
    channels
        What is compared in colour images: "mean" over channels, the number of one, or a weight for each.
    contrast
        What the region is compared with: its background, as in the paper, or ``Neighbourhood(radius=5)``,
        ``Reference(image)``, ``Filtered("laplacian")`` and others from ``attentest.contrast``, or a function from a
        region (H, W) to weights (H, W).
    search
        "spectral" (attentest's own), "adaptive", "fixed" or "combination" (the paper's), or a configured search, such
        as ``SpectralSearch(tol=1e-4)`` from ``attentest.search``.
    alternative
        "two-sided" (the paper's), "greater" (the region is brighter) or "less".
    confidence_level
        The spectral search goes as far as a confidence interval at this level needs; None for p alone, which is faster.
        The grid searches go as far as they go, and what lies beyond makes the interval wider.
    device
        Where to compute, for example "cuda"; by default where the model is.
    batch_size
        Images a model call; by default chosen by memory.
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
        attention: AggregationLike = "rollout",
        preprocessing: Any = None,
        image_size: int | tuple[int, int] | None = None,
        intensity_range: tuple[float, float] | None = None,
        channels: Channels = "mean",
        contrast: ContrastLike = BACKGROUND,
        search: str | Search = "spectral",
        alternative: Alternative = "two-sided",
        confidence_level: float | None = 0.95,
        device: torch.device | str | None = None,
        batch_size: int | None = None,
        memory_budget: int | None = None,
        image_shape: tuple[int, int, int] | None = None,
    ) -> None:
        check_alternative(alternative)
        self._noise = as_noise_or_maker(noise)
        self._search = as_search(search)
        self._rule = as_region_rule(threshold, top_fraction)
        self._contrast = as_contrast(contrast)
        self._confidence_level = None if confidence_level is None else confidence(confidence_level)
        self._alternative: Alternative = alternative
        memory_budget = as_memory_budget(memory_budget)
        self._preprocessing, image_size = preprocessing_and_size(preprocessing, image_size)
        if isinstance(model, torch.nn.Module) and image_shape is None:
            self._scores: ScoreFunction = ViTScores(
                model,
                attention=attention,
                image_size=image_size,
                device=device,
                batch_size=batch_size,
                memory_budget=memory_budget,
            )
        else:
            if attention != "rollout":
                raise InputError("attention belongs to models: a score function gives its own scores.")
            if image_size is not None and preprocessing is None:
                raise InputError("image_size belongs to models and preprocessing: a score function has its own size.")
            self._scores = as_score_function(model, device, batch_size, memory_budget, image_shape)
        self._memory = default_memory(self._scores.device) if memory_budget is None else memory_budget
        frames = Frames(
            self._scores.image_shape,
            self._preprocessing,
            intensity_range,
            self._noise,
            self._contrast,
            channels,
            self._scores.device,
        )
        self._cases = Cases(frames, self._contrast, self._noise)
        self._observe = Observer(self._scores, self._rule)
        self._settings = {
            **self._rule.describe(),
            "contrast": dict(self._contrast.describe()),
            "alternative": alternative,
            "confidence_level": self._confidence_level,
            "search": dict(self._search.describe()),
            "noise": dict(self._noise.describe()),
            "model": model_settings(self._scores),
            "preprocessing": None if self._preprocessing is None else self._preprocessing.describe(),
            "channels": frames.channels,
        }

    @classmethod
    def from_pretrained(
        cls,
        source: str | Path,
        *,
        noise: NoiseLike | ImageNoise,
        threshold: float | None = None,
        top_fraction: float | None = None,
        attention: AggregationLike = "rollout",
        preprocessing: Any = "saved",
        image_size: int | tuple[int, int] | None = None,
        intensity_range: tuple[float, float] | None = None,
        channels: Channels = "mean",
        contrast: ContrastLike = BACKGROUND,
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
        noise, threshold, top_fraction, attention, image_size, intensity_range, channels, contrast, search, \
        alternative, confidence_level, device, batch_size, memory_budget
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
            preprocessing=preprocessing,
            intensity_range=intensity_range,
            channels=channels,
            contrast=contrast,
            search=search,
            alternative=alternative,
            confidence_level=confidence_level,
            memory_budget=memory_budget,
        )

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """The (C, H, W) of the model's input; without preprocessing, that of the images."""
        return self._scores.image_shape

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self._scores.device

    @property
    def noise(self) -> NoiseModel | ImageNoise:
        """The noise model, or what makes one out of each image."""
        return self._noise

    @property
    def contrast(self) -> Contrast:
        """What regions are compared with."""
        return self._contrast

    @property
    def preprocessing(self) -> Preprocessing | None:
        """What happens to an image before the model sees it."""
        return self._preprocessing

    @property
    def settings(self) -> dict[str, Any]:
        """How the test is made, JSON-ready."""
        return copy.deepcopy(self._settings)

    def with_confidence_level(self, confidence_level: float | None) -> AttentionTest:
        """Return the same test, searching as far as another confidence level needs; the model is shared."""
        other = copy.copy(self)
        other._confidence_level = None if confidence_level is None else confidence(confidence_level)
        other._settings = {**self._settings, "confidence_level": other._confidence_level}
        return other

    def with_search(self, search: str | Search) -> AttentionTest:
        """Return the same test with another search; the model is shared."""
        other = copy.copy(self)
        other._search = as_search(search)
        other._settings = {**self._settings, "search": dict(other._search.describe())}
        return other

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in self._settings.items())
        return f"AttentionTest(image_shape={self.image_shape}, {settings})"

    def __call__(
        self, image: ImageLike, *, reference: ImageLike | None = None, alpha: float | None = None
    ) -> AttentionTestResult:
        """Test one image.

        Parameters
        ----------
        image
            PIL image, NumPy array (H, W) or (H, W, C), or torch tensor (C, H, W); pixel values in the units of
            the noise, finite; of any size if there is preprocessing that resizes, otherwise of the size the model
            takes. A grey image for a colour model stays one channel in the statistics.
        reference
            The image's own reference, for the contrast ``Reference()``; it takes the place of one for all images.
        alpha
            Decide at this level: the spectral search stops as soon as its error bar excludes it (the grid searches run
            to their end), and the result's ``reject`` says on which side p lies. Confidence intervals are then as wide
            as what was searched allows.
        """
        return self._test([self._cases.one(image, reference)], None, optional_level(alpha))[0][0]

    def components(
        self,
        image: ImageLike,
        *,
        reference: ImageLike | None = None,
        connectivity: int = 1,
        alpha: float | None = None,
    ) -> ComponentResults:
        """Test each connected component of the region by itself, with the rest of the region left out.

        The results' ``adjusted_pvalues()`` are Holm's, valid across the components: these are a function of the region,
        which is what the test is conditioned on.

        Parameters
        ----------
        image, reference, alpha
            As in calling the test.
        connectivity
            1: pixels that share an edge are connected; 2: those that share a corner too.
        """
        case = self._cases.one(image, reference)
        return ComponentResults(self._test([case], None, optional_level(alpha), as_connectivity(connectivity))[0])

    def attention_maps(self, images: Iterable[ImageLike]) -> NDArray[np.float64]:
        """Return the attention maps (k, H, W), from 0 to 1, of images of one size; nothing is tested.

        Parameters
        ----------
        images
            As in :meth:`map`.
        """
        maps = []
        for batch in self._cases.batches(self._cases.each(images, None), self._scores.batch_size, self._memory // 2):
            observed = self._observe(torch.stack([case.image.pixels for case in batch]), self._cases.frame(batch[0]), 0)
            maps.append(observed.patch_grid.on_image(observed.attention).cpu().numpy())
        if not maps:
            raise InputError("there are no images to look at: the iterable is empty.")
        return np.concatenate(maps)

    def check(self, image: ImageLike, *, reference: ImageLike | None = None) -> None:
        """Refuse an image that the test cannot take; nothing is computed."""
        self._cases.one(image, reference)

    def map(
        self,
        images: Iterable[ImageLike],
        progress: Progress | None = None,
        *,
        references: Iterable[ImageLike] | None = None,
        alpha: float | None = None,
    ) -> Results:
        """Test many images and return their results in order; the numbers are those of one by one to within rounding.

        Parameters
        ----------
        images
            Any iterable of images; only one batch of them is held at a time.
        progress
            Called with (images done, images in all or None).
        references
            Each image's own reference, for the contrast ``Reference()``.
        alpha
            As in calling the test.
        """
        return Results(self.stream(images, progress, references=references, alpha=alpha))

    def map_components(
        self,
        images: Iterable[ImageLike],
        progress: Progress | None = None,
        *,
        references: Iterable[ImageLike] | None = None,
        connectivity: int = 1,
        alpha: float | None = None,
    ) -> list[ComponentResults]:
        """Test each connected component of the regions of many images: :meth:`components`, as :meth:`map` does."""
        return list(
            self.stream_components(images, progress, references=references, connectivity=connectivity, alpha=alpha)
        )

    def stream(
        self,
        images: Iterable[ImageLike],
        progress: Progress | None = None,
        *,
        references: Iterable[ImageLike] | None = None,
        alpha: float | None = None,
    ) -> Iterator[AttentionTestResult]:
        """Yield the results of :meth:`map` batch by batch, so that an interruption loses no finished batch."""
        for results in self._stream(images, progress, references, alpha, None):
            yield results[0]

    def stream_components(
        self,
        images: Iterable[ImageLike],
        progress: Progress | None = None,
        *,
        references: Iterable[ImageLike] | None = None,
        connectivity: int = 1,
        alpha: float | None = None,
    ) -> Iterator[ComponentResults]:
        """Yield the results of :meth:`map_components` batch by batch."""
        for results in self._stream(images, progress, references, alpha, as_connectivity(connectivity)):
            yield ComponentResults(results)

    def permutation_test(
        self, image: ImageLike, permutations: int = 1000, rng: np.random.Generator | int = 0
    ) -> PermutationResult:
        """Run the paper's permutation test, which is not valid for correlated noise, for comparison.

        Parameters
        ----------
        image
            As in calling the test.
        permutations
            Number B of permutations.
        rng
            A generator, or a seed for one.
        """
        if self._contrast.reference is not None:
            raise InputError("pixels of an image with a reference cannot be permuted: use another contrast.")
        case = self._cases.one(image)
        frame = self._cases.frame(case)

        def statistics(batch: NDArray[np.float64]) -> NDArray[np.float64]:
            observed = self._observe(torch.from_numpy(batch), frame, None)
            parts = parts_of(observed.patch_grid.on_image(observed.regions).cpu().numpy(), None)
            seen = observed.patch_grid.seen.numpy()
            return comparisons(batch, parts, seen, frame.weights, self._contrast, self._noise).lines.z_obs

        generator = as_generator(rng)
        batch_size = self._scores.batch_size
        pixels = case.image.pixels.numpy()
        return permutation_test(pixels, statistics, permutations, batch_size, generator, self._alternative)

    def _stream(
        self,
        images: Iterable[ImageLike],
        progress: Progress | None,
        references: Iterable[ImageLike] | None,
        alpha: float | None,
        connectivity: int | None,
    ) -> Iterator[list[AttentionTestResult]]:
        """Yield the results of each image."""
        for given, name in ((images, "images"), (references, "references")):
            if not isinstance(given, Iterable) and not (given is None and name == "references"):
                raise InputError(
                    f"{name} must be an iterable of images, got {type(given).__name__}: for one, call the test."
                )
        if progress is not None and not callable(progress):
            raise InputError(f"progress must be a function of (done, total), got {progress!r}.")
        chosen_level = optional_level(alpha)
        total = len(images) if isinstance(images, HELD) else None
        if total is not None and (references is None or isinstance(references, HELD)):
            for _ in self._cases.each(images, references):  # find a bad image before hours of computation, not after
                pass
        together = self._search.images_together(self._scores.batch_size)
        done = 0
        for batch in self._cases.batches(self._cases.each(images, references), together, self._memory // 2):

            def report(share: float, start: int = done, count: int = len(batch)) -> None:
                if progress is not None:
                    progress(start + share * count, total)

            yield from self._test(batch, done, chosen_level, connectivity, report)
            done += len(batch)
            report(0.0, start=done)
        if done == 0:
            raise InputError("there are no images to test: the iterable is empty.")

    def _test(
        self,
        cases: list[Case],
        first: int | None,
        alpha: float | None,
        connectivity: int | None = None,
        report: Report | None = None,
    ) -> list[list[AttentionTestResult]]:
        """Return the results of images of one frame: one of each, or one of each component."""
        frame = self._cases.frame(cases[0])
        images = torch.stack([case.image.pixels for case in cases])
        references = [case.reference.pixels for case in cases if case.reference is not None]
        reference_images = torch.stack(references).numpy() if references else None
        observed = self._observe(images, frame, first)
        patch_grid = observed.patch_grid
        seen = patch_grid.seen.numpy()
        parts = parts_of(patch_grid.on_image(observed.regions).cpu().numpy(), connectivity)
        # Copies, so that a result that is kept does not keep the arrays of all.
        regions = [region.copy() for region in parts.regions]
        maps = [attention.copy() for attention in patch_grid.on_image(observed.attention).cpu().numpy()]
        # As many images at a time as have been found to fit in memory; of components there may be many more.
        chunks = list(parts.chunks(len(cases)))
        by_image: list[list[AttentionTestResult]] = [[] for _ in cases]
        for number, chunk in enumerate(chunks):
            compared = comparisons(
                images.numpy(), chunk, seen, frame.weights, self._contrast, self._noise, reference_images
            )
            several = observed
            if connectivity is not None:
                several = observed.chosen(torch.from_numpy(compared.owner).to(self._scores.device))

            def progress(share: float, done: int = number) -> None:
                if report is not None:
                    report((done + share) / len(chunks))

            outcomes = self._search.find(self._problem(several, compared, frame, first or 0, alpha), progress)
            own_regions = [regions[owner] for owner in compared.owner]
            results = results_of(
                compared.lines.z_obs,
                compared.lines.standard_error,
                own_regions,
                own_regions if connectivity is None else [mask.copy() for mask in compared.masks],
                [maps[owner] for owner in compared.owner],
                seen,
                outcomes,
                self._alternative,
                alpha,
                [self._settings_of(noise, connectivity) for noise in compared.noise],
            )
            for owner, result in zip(compared.owner, results, strict=True):
                by_image[owner].append(result)
        return by_image

    def _settings_of(self, noise: NoiseModel, connectivity: int | None) -> dict[str, Any]:
        return {**self._settings, "components": connectivity, "noise": dict(noise.describe())}

    def _problem(
        self, observed: Observation, compared: Comparisons, frame: Frame, first: int, alpha: float | None
    ) -> SearchProblem:
        device = self._scores.device
        lines = compared.lines
        # The way from image to input is affine, so the line through an image is a line through its input.
        direction = frame.inputs.linear(torch.from_numpy(lines.b).to(device).unflatten(1, frame.shape))
        origin = torch.from_numpy(lines.z_obs).to(device)
        rough = self._scores.rough if isinstance(self._scores, RoughScoreFunction) else None
        return SearchProblem(
            z_obs=lines.z_obs,
            scores=observed.along(self._scores, direction, origin),
            margins=self._rule.margins(observed.regions, observed.patch_grid),
            device=device,
            batch_size=self._scores.batch_size,
            image_numbers=first + compared.owner,
            alternative=self._alternative,
            alpha=alpha,
            confidence_level=self._confidence_level,
            observed=observed.scores,
            rough_scores=None if rough is None else observed.along(rough, direction, origin),
            rough_is_faster=isinstance(self._scores, RoughScoreFunction) and self._scores.rough_is_faster,
            exact=isinstance(self._scores, ViTScores),
            memory=self._memory // 2,
            count=observed.regions[0].numel(),
        )
