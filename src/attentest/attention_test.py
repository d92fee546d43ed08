"""The test itself: a model, a noise model and a search in; images in; results out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attentest.attention import (
    MOST_TOGETHER,
    AggregationLike,
    NumpyFunction,
    RoughScoreFunction,
    ScoreFunction,
    TorchFunction,
    ViTScores,
    function_scores,
    load_model,
    readable,
)
from attentest.baselines import PermutationResult, permutation_test
from attentest.checks import real_number, whole_number
from attentest.contrast import Channels, background_contrast
from attentest.device import LEAST_MEMORY, default_memory
from attentest.errors import AttentestError, InputError, ModelError
from attentest.frame import Frame, Frames, preprocessing_and_size
from attentest.image import ImageLike, Sample, as_sample
from attentest.line import Lines, lines_through
from attentest.noise import NoiseLike, as_noise
from attentest.region import ThresholdMargins, as_threshold, attention_map, region_of, unusable_scores
from attentest.result import AttentionTestResult, results_of
from attentest.search import Report, Search, SearchProblem, as_search
from attentest.truncated_normal import Alternative, check_alternative
from attentest.view import View

Progress: TypeAlias = Callable[[float, "int | None"], None]
"""Called with (images done, images in all or None if unknown); done has a fraction while a search is under way."""

ARRAYS_AN_IMAGE = 12
"""Arrays of the size of an image that its test holds at a time."""


class AttentionTest:
    """A statistical test of the region a Vision Transformer attends to.

    Parameters
    ----------
    model
        A vision transformer of Hugging Face transformers, timm or torchvision (the documentation lists which), a
        ``ScoreFunction``, or, with ``image_shape``, a plain NumPy or torch function from images (m, C, H, W) to smooth
        scores (m, gh, gw). A model is copied to float64 and never modified.
    noise
        Standard deviation of the pixel noise, or a model from ``attentest.noise``, in the units of the image.
    threshold
        tau: the region is where the attention map exceeds it.
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
    search
        "spectral" (attentest's own), "adaptive", "fixed" or "combination" (the paper's), or a configured search, such
        as ``SpectralSearch(tol=1e-4)`` from ``attentest.search``.
    alternative
        "two-sided" (the paper's), "greater" (the region is brighter) or "less".
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
        noise: NoiseLike,
        threshold: float = 0.6,
        attention: AggregationLike = "rollout",
        preprocessing: Any = None,
        image_size: int | tuple[int, int] | None = None,
        intensity_range: tuple[float, float] | None = None,
        channels: Channels = "mean",
        search: str | Search = "spectral",
        alternative: Alternative = "two-sided",
        device: torch.device | str | None = None,
        batch_size: int | None = None,
        memory_budget: int | None = None,
        image_shape: tuple[int, int, int] | None = None,
    ) -> None:
        check_alternative(alternative)
        self._noise = as_noise(noise)
        self._search = as_search(search)
        self._threshold = as_threshold(threshold)
        self._alternative: Alternative = alternative
        memory_budget = _memory_budget(memory_budget)
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
            self._scores = _function_scores(model, device, batch_size, memory_budget, image_shape)
        self._memory = default_memory(self._scores.device) if memory_budget is None else memory_budget
        self._frames = Frames(
            self._scores.image_shape,
            self._preprocessing,
            intensity_range,
            self._noise,
            channels,
            self._scores.device,
        )
        self._settings = {
            "threshold": self._threshold,
            "alternative": alternative,
            "search": dict(self._search.describe()),
            "noise": dict(self._noise.describe()),
            "model": _described(self._scores),
            "preprocessing": None if self._preprocessing is None else asdict(self._preprocessing),
            "channels": self._frames.channels,
        }

    @classmethod
    def from_pretrained(
        cls,
        source: str | Path,
        *,
        noise: NoiseLike,
        threshold: float = 0.6,
        attention: AggregationLike = "rollout",
        preprocessing: Any = "saved",
        image_size: int | tuple[int, int] | None = None,
        intensity_range: tuple[float, float] | None = None,
        channels: Channels = "mean",
        search: str | Search = "spectral",
        alternative: Alternative = "two-sided",
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
        noise, threshold, attention, image_size, intensity_range, channels, search, alternative, device, batch_size, \
        memory_budget
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
            memory_budget=_memory_budget(memory_budget),
            owned=True,
        )
        return cls(
            scores,
            noise=noise,
            threshold=threshold,
            preprocessing=preprocessing,
            intensity_range=intensity_range,
            channels=channels,
            search=search,
            alternative=alternative,
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

    def with_search(self, search: str | Search) -> AttentionTest:
        """Return the same test with another search; the model is shared."""
        other = copy.copy(self)
        other._search = as_search(search)
        other._settings = {**self._settings, "search": dict(other._search.describe())}
        return other

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in self._settings.items())
        return f"AttentionTest(image_shape={self.image_shape}, {settings})"

    def __call__(self, image: ImageLike, *, alpha: float | None = None) -> AttentionTestResult:
        """Test one image.

        Parameters
        ----------
        image
            PIL image, NumPy array (H, W) or (H, W, C), or torch tensor (C, H, W); pixel values in the units of
            the noise, finite; of any size if there is preprocessing that resizes, otherwise of the size the model
            takes. A grey image for a colour model stays one channel in the statistics.
        alpha
            Decide at this level: the spectral search stops as soon as its error bar excludes it (the grid searches run
            to their end), and the result's ``reject`` says on which side p lies.
        """
        return self._test([self._sampled(None, image)], None, _level(alpha))[0]

    def check(self, image: ImageLike) -> None:
        """Refuse an image that the test cannot take; nothing is computed."""
        self._sampled(None, image)

    def map(
        self, images: Iterable[ImageLike], progress: Progress | None = None, *, alpha: float | None = None
    ) -> list[AttentionTestResult]:
        """Test many images and return their results in order; the numbers are those of one by one to within rounding.

        Parameters
        ----------
        images
            Any iterable of images; only one batch of them is held at a time.
        progress
            Called with (images done, images in all or None).
        alpha
            As in calling the test.
        """
        return list(self.stream(images, progress, alpha=alpha))

    def stream(
        self, images: Iterable[ImageLike], progress: Progress | None = None, *, alpha: float | None = None
    ) -> Iterator[AttentionTestResult]:
        """Yield the results of :meth:`map` batch by batch, so that an interruption loses no finished batch."""
        if not isinstance(images, Iterable):
            raise InputError(
                f"images must be an iterable of images, got {type(images).__name__}: for one, call the test."
            )
        if progress is not None and not callable(progress):
            raise InputError(f"progress must be a function of (done, total), got {progress!r}.")
        level = _level(alpha)
        total = len(images) if isinstance(images, (Sequence, np.ndarray, Tensor)) else None
        if total is not None:  # find a bad image before hours of computation, not after
            for index, image in enumerate(images):
                self._sampled(index, image)
        done = 0
        for batch in self._batches(images):

            def report(share: float, start: int = done, count: int = len(batch)) -> None:
                if progress is not None:
                    progress(start + share * count, total)

            yield from self._test(batch, done, level, report)
            done += len(batch)
            report(0.0, start=done)
        if done == 0:
            raise InputError("there are no images to test: the iterable is empty.")

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
        sample = self._sampled(None, image)
        frame = self._frames.of(sample)

        def statistics(batch: NDArray[np.float64]) -> NDArray[np.float64]:
            return self._observe(torch.from_numpy(batch), frame, first=None).lines.z_obs

        try:
            generator = np.random.default_rng(rng)
        except (TypeError, ValueError) as error:
            raise InputError(f"rng must be a numpy.random.Generator or a seed ({error}), got {rng!r}.") from None
        batch_size = self._scores.batch_size
        return permutation_test(
            sample.pixels.numpy(), statistics, permutations, batch_size, generator, self._alternative
        )

    def _sampled(self, index: int | None, image: ImageLike) -> Sample:
        """Return an image that the test can take; an error says which one it is about."""
        try:
            sample = as_sample(image)
            self._frames.of(sample)
            return sample
        except InputError as error:
            raise error if index is None else InputError(f"image {index}: {error}") from None

    def _batches(self, images: Iterable[ImageLike]) -> Iterator[list[Sample]]:
        """Yield images of one shape together, as many as are useful and as memory holds."""
        together = self._search.images_together(self._scores.batch_size)
        batch: list[Sample] = []
        for index, image in enumerate(images):
            sample = self._sampled(index, image)
            if batch and self._frames.of(sample) is not self._frames.of(batch[0]):
                yield batch
                batch = []
            batch.append(sample)
            one_more = ARRAYS_AN_IMAGE * 8 * sample.pixels.numel() * (len(batch) + 1)
            if len(batch) == together or one_more > self._memory // 2:
                yield batch
                batch = []
        if batch:
            yield batch

    def _test(
        self, images: list[Sample], first: int | None, alpha: float | None, report: Report | None = None
    ) -> list[AttentionTestResult]:
        frame = self._frames.of(images[0])
        observed = self._observe(torch.stack([sample.pixels for sample in images]), frame, first)
        outcomes = self._search.find(self._problem(observed, frame, first or 0, alpha), report)
        view = observed.view
        return results_of(
            observed.lines.z_obs,
            view.on_image(observed.regions).cpu().numpy(),
            view.on_image(observed.attention).cpu().numpy(),
            view.seen.numpy(),
            outcomes,
            self._alternative,
            alpha,
            self._settings,
        )

    @torch.no_grad()
    def _observe(self, images: Tensor, frame: Frame, first: int | None) -> _Observed:
        """Compute maps, regions and lines of images (k, C, H, W)."""
        inputs = frame.inputs(images.to(self._scores.device))
        scores = self._observed_scores(inputs)
        if scores.ndim != 3 or len(scores) != len(images) or scores.dtype != torch.float64 or scores.numel() == 0:
            raise ModelError(
                f"the score function must return float64 scores of shape ({len(images)}, gh, gw) for {len(images)} "
                f"images, but it returned {scores.dtype} of shape {tuple(scores.shape)}."
            )
        if unusable := unusable_scores(scores):
            index, reason = unusable
            raise InputError(reason if first is None else f"image {first + index}: {reason}")
        view = self._view(frame, (scores.shape[1], scores.shape[2]))
        attention = attention_map(scores, view)
        regions = region_of(attention, self._threshold)
        empty = (~regions.flatten(1).any(dim=1)).nonzero().flatten().tolist()
        if empty:
            which = "" if first is None else f"image {first + empty[0]}: "
            height, width = view.size
            raise InputError(
                f"{which}the attention map is constant on the {height} x {width} pixels the model sees, so there is no "
                "region to test: use a larger image, or a crop that leaves more of it."
            )
        eta = background_contrast(view.on_image(regions).cpu().numpy(), frame.weights, view.seen.numpy())
        return _Observed(
            inputs=inputs,
            scores=scores,
            view=view,
            attention=attention,
            regions=regions,
            lines=lines_through(images.flatten(1).numpy(), eta, self._noise),
        )

    def _observed_scores(self, inputs: Tensor) -> Tensor:
        if isinstance(self._scores, ViTScores):
            return self._scores(inputs)
        try:
            return self._scores(inputs.clone())  # the line starts there, and a foreign function may write into it
        except AttentestError:
            raise
        except Exception as error:
            raise ModelError(
                f"the score function failed on the observed image, given as float64 of shape {tuple(inputs.shape)}: "
                f"{type(error).__name__}: {error}"
            ) from error

    def _view(self, frame: Frame, grid: tuple[int, int]) -> View:
        """Return how a grid of patches lies over the images of a frame."""
        covered = self._scores.covered if isinstance(self._scores, ViTScores) else self.image_shape[1:]
        _, height, width = frame.shape
        return View((height, width), grid, covered, frame.inputs.placement, self._scores.device)

    def _problem(self, observed: _Observed, frame: Frame, first: int, alpha: float | None) -> SearchProblem:
        device = self._scores.device
        lines = observed.lines
        # The way from image to input is affine, so the line through an image is a line through its input.
        direction = frame.inputs.linear(torch.from_numpy(lines.b).to(device).unflatten(1, frame.shape))
        base, origin = observed.inputs, torch.from_numpy(lines.z_obs).to(device)
        rough = self._scores.rough if isinstance(self._scores, RoughScoreFunction) else None

        def along(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
            def scores(which: Tensor, z: Tensor) -> Tensor:
                # a + b z, written around the observed image so that z_obs gives that image exactly.
                return function(base[which] + direction[which] * (z - origin[which])[:, None, None, None])

            return scores

        return SearchProblem(
            z_obs=lines.z_obs,
            scores=along(self._scores),
            margins=ThresholdMargins(observed.regions, self._threshold, observed.view),
            device=device,
            batch_size=self._scores.batch_size,
            first_image=first,
            alternative=self._alternative,
            alpha=alpha,
            observed=observed.scores,
            rough_scores=None if rough is None else along(rough),
            rough_is_faster=isinstance(self._scores, RoughScoreFunction) and self._scores.rough_is_faster,
            exact=isinstance(self._scores, ViTScores),
            memory=self._memory // 2,
            count=observed.regions[0].numel(),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Observed:
    """Images as observed: inputs (k, C, h, w), scores (k, gh, gw), maps and regions of what is seen, and lines."""

    inputs: Tensor
    scores: Tensor
    view: View
    attention: Tensor
    regions: Tensor
    lines: Lines


def _memory_budget(value: int | None) -> int | None:
    return None if value is None else whole_number(value, "memory_budget", LEAST_MEMORY, 2**62)


def _described(scores: ScoreFunction) -> dict[str, Any]:
    return scores.describe() if isinstance(scores, ViTScores) else {"type": type(scores).__name__}


def _level(alpha: float | None) -> float | None:
    if alpha is None:
        return None
    level = real_number(alpha, "alpha")
    if not 0 < level < 1:
        raise InputError(f"alpha must lie strictly between 0 and 1, got {level}.")
    return level


def _check_score_function(scores: ScoreFunction) -> None:
    whole_number(scores.batch_size, "the score function's batch_size", 1, MOST_TOGETHER)
    shape: Any = scores.image_shape
    if not (isinstance(shape, tuple) and len(shape) == 3 and all(isinstance(side, int) and side > 0 for side in shape)):
        raise InputError(f"the score function's image_shape must be a tuple (channels, height, width), got {shape!r}.")
    if not isinstance(scores.device, torch.device):
        raise InputError(f"the score function's device must be a torch.device, got {scores.device!r}.")


def _function_scores(
    model: Any,
    device: torch.device | str | None,
    batch_size: int | None,
    memory_budget: int | None,
    image_shape: tuple[int, int, int] | None,
) -> ScoreFunction:
    if isinstance(model, torch.nn.Module) and readable(model):
        raise InputError("image_shape belongs to functions: a ViT says itself what it takes, or use image_size.")
    if isinstance(model, ScoreFunction) and not isinstance(model, type):
        if device is not None or batch_size is not None or image_shape is not None:
            raise InputError("device, batch_size and image_shape belong to the score function: set them there.")
        _check_score_function(model)
        return model
    if image_shape is not None and callable(model) and not isinstance(model, type):
        return function_scores(model, image_shape, device, batch_size, memory_budget)
    raise InputError(
        f"model must be a vision transformer, a ScoreFunction or, with image_shape, a NumPy or torch function, "
        f"got {type(model).__name__}: to load a saved model use AttentionTest.from_pretrained."
    )
