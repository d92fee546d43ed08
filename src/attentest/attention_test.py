"""The test itself: a model, a noise model and a search in; images in; results out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attentest.attention import (
    MOST_TOGETHER,
    NumpyFunction,
    NumpyScores,
    RoughScoreFunction,
    ScoreFunction,
    ViTScores,
    load_vit,
)
from attentest.baselines import PermutationResult, permutation_test
from attentest.checks import real_number, whole_number
from attentest.contrast import background_contrast
from attentest.device import LEAST_MEMORY, default_memory
from attentest.errors import InputError, ModelError
from attentest.image import ImageLike, image_tensor
from attentest.line import Lines, lines_through
from attentest.noise import NoiseLike, as_noise
from attentest.region import ThresholdMargins, as_threshold, attention_map, region_of, unusable_scores
from attentest.result import AttentionTestResult, results_of
from attentest.search import Report, Search, SearchProblem, as_search
from attentest.truncated_normal import Alternative, check_alternative

Progress: TypeAlias = Callable[[float, "int | None"], None]
"""Called with (images done, images in all or None if unknown); done has a fraction while a search is under way."""


class AttentionTest:
    """A statistical test of the region a Vision Transformer attends to.

    Parameters
    ----------
    model
        A Hugging Face ``ViTForImageClassification`` or ``ViTModel``, a ``ScoreFunction``, or, with ``image_shape``, a
        plain NumPy function from images (m, C, H, W) to scores (m, gh, gw). A model is copied to float64 and never
        modified.
    noise
        Standard deviation of the pixel noise, or a model from ``attentest.noise``, in the units of the image.
    threshold
        tau: the region is where the attention map exceeds it.
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
        The (C, H, W) of the images a NumPy function takes.

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
        model: torch.nn.Module | ScoreFunction | NumpyFunction,
        *,
        noise: NoiseLike,
        threshold: float = 0.6,
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
        if memory_budget is not None:
            memory_budget = whole_number(memory_budget, "memory_budget", LEAST_MEMORY, 2**62)
        self._scores = _score_function(model, device, batch_size, memory_budget, image_shape)
        self._memory = default_memory(self._scores.device) if memory_budget is None else memory_budget
        pixels = int(np.prod(self.image_shape))
        if self._noise.size not in (None, pixels):
            raise InputError(f"the noise model is for {self._noise.size} pixels, but the model's images have {pixels}.")
        self._settings = {
            "threshold": self._threshold,
            "alternative": alternative,
            "search": dict(self._search.describe()),
            "noise": dict(self._noise.describe()),
        }

    @classmethod
    def from_pretrained(
        cls,
        model_dir: str | Path,
        *,
        noise: NoiseLike,
        threshold: float = 0.6,
        search: str | Search = "spectral",
        alternative: Alternative = "two-sided",
        device: torch.device | str | None = None,
        batch_size: int | None = None,
        memory_budget: int | None = None,
    ) -> AttentionTest:
        """Make a test of a model saved in a local Hugging Face directory; parameters as in the class."""
        return cls(
            load_vit(model_dir),
            noise=noise,
            threshold=threshold,
            search=search,
            alternative=alternative,
            device=device,
            batch_size=batch_size,
            memory_budget=memory_budget,
        )

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """The (C, H, W) of the images it takes."""
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
            the noise, finite, of the size the model takes.
        alpha
            Decide at this level: the spectral search stops as soon as its error bar excludes it (the grid searches run
            to their end), and the result's ``reject`` says on which side p lies.
        """
        return self._test([image_tensor(image, self.image_shape)], None, _level(alpha))[0]

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
                _pixels(index, image, self.image_shape)
        source = iter(images)
        done = 0
        together = self._search.images_together(self._scores.batch_size)
        while batch := list(islice(source, together)):
            pixels = [_pixels(done + offset, image, self.image_shape) for offset, image in enumerate(batch)]

            def report(share: float, start: int = done, count: int = len(batch)) -> None:
                if progress is not None:
                    progress(start + share * count, total)

            yield from self._test(pixels, done, level, report)
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
        pixels = image_tensor(image, self.image_shape).numpy()

        def statistics(batch: NDArray[np.float64]) -> NDArray[np.float64]:
            return self._observe(torch.from_numpy(batch), first=None).lines.z_obs

        try:
            generator = np.random.default_rng(rng)
        except (TypeError, ValueError) as error:
            raise InputError(f"rng must be a numpy.random.Generator or a seed ({error}), got {rng!r}.") from None
        batch_size = self._scores.batch_size
        return permutation_test(pixels, statistics, permutations, batch_size, generator, self._alternative)

    def _test(
        self, images: list[Tensor], first: int | None, alpha: float | None, report: Report | None = None
    ) -> list[AttentionTestResult]:
        observed = self._observe(torch.stack(images), first)
        outcomes = self._search.find(self._problem(observed, first or 0, alpha), report)
        return results_of(
            observed.lines.z_obs,
            observed.regions,
            observed.attention,
            outcomes,
            self._alternative,
            alpha,
            self._settings,
        )

    @torch.no_grad()
    def _observe(self, images: Tensor, first: int | None) -> _Observed:
        """Compute maps, regions and lines of images (k, C, H, W)."""
        channels, height, width = self.image_shape
        scores = self._scores(images.to(self._scores.device))
        if scores.ndim != 3 or len(scores) != len(images) or scores.dtype != torch.float64:
            raise ModelError(
                f"the score function must return float64 scores of shape ({len(images)}, gh, gw) for {len(images)} "
                f"images, but it returned {scores.dtype} of shape {tuple(scores.shape)}."
            )
        if unusable := unusable_scores(scores):
            index, reason = unusable
            raise InputError(reason if first is None else f"image {first + index}: {reason}")
        attention = attention_map(scores, (height, width))
        regions = region_of(attention, self._threshold).cpu().numpy()
        eta = background_contrast(regions, channels)
        return _Observed(
            scores=scores,
            attention=attention.cpu().numpy(),
            regions=regions,
            lines=lines_through(images.flatten(1).numpy(), eta, self._noise),
        )

    def _problem(self, observed: _Observed, first: int, alpha: float | None) -> SearchProblem:
        device = self._scores.device
        shape = self.image_shape
        lines = observed.lines
        base, direction, origin = (torch.from_numpy(v).to(device) for v in (lines.images, lines.b, lines.z_obs))
        regions = torch.from_numpy(observed.regions).to(device)
        rough = self._scores.rough if isinstance(self._scores, RoughScoreFunction) else None

        def along(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
            def scores(which: Tensor, z: Tensor) -> Tensor:
                # a + b z, written around the observed image so that z_obs gives that image exactly.
                images = base[which] + direction[which] * (z - origin[which]).unsqueeze(1)
                return function(images.unflatten(1, shape))

            return scores

        return SearchProblem(
            z_obs=lines.z_obs,
            scores=along(self._scores),
            margins=ThresholdMargins(regions, self._threshold),
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
        )


@dataclass(frozen=True, kw_only=True)
class _Observed:
    """Images as observed: scores (k, gh, gw), attention maps (k, H, W), regions (k, H, W) and lines."""

    scores: Tensor
    attention: NDArray[np.float64]
    regions: NDArray[np.bool_]
    lines: Lines


def _pixels(index: int, image: ImageLike, shape: tuple[int, int, int]) -> Tensor:
    """Return one of many images as a tensor; an error says which one it is about."""
    try:
        return image_tensor(image, shape)
    except InputError as error:
        raise InputError(f"image {index}: {error}") from None


def _level(alpha: float | None) -> float | None:
    if alpha is None:
        return None
    level = real_number(alpha, "alpha")
    if not 0 < level < 1:
        raise InputError(f"alpha must lie strictly between 0 and 1, got {level}.")
    return level


def _score_function(
    model: torch.nn.Module | ScoreFunction | NumpyFunction,
    device: torch.device | str | None,
    batch_size: int | None,
    memory_budget: int | None,
    image_shape: tuple[int, int, int] | None,
) -> ScoreFunction:
    if isinstance(model, torch.nn.Module):
        if image_shape is not None:
            raise InputError("image_shape belongs to a NumPy function: a ViT says itself what it takes.")
        return ViTScores(model, device=device, batch_size=batch_size, memory_budget=memory_budget)
    if isinstance(model, ScoreFunction) and not isinstance(model, type):
        if device is not None or batch_size is not None or image_shape is not None:
            raise InputError("device, batch_size and image_shape belong to the score function: set them there.")
        whole_number(model.batch_size, "the score function's batch_size", 1, MOST_TOGETHER)
        return model
    if image_shape is not None and callable(model) and not isinstance(model, type):
        if device is not None:
            raise InputError("device is for models: a NumPy function computes where it computes.")
        return NumpyScores(model, image_shape, batch_size, memory_budget)
    raise InputError(
        f"model must be a Hugging Face ViT, a ScoreFunction or, with image_shape, a NumPy function, "
        f"got {type(model).__name__}: to load a directory use AttentionTest.from_pretrained."
    )
