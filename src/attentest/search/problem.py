"""The input and the output of a search: margins of k images as functions of one real variable z, and what was found."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.forward_ad import make_dual, unpack_dual

from attentest.errors import AttentestError, SearchError, counted
from attentest.search.breakpoints import followed
from attentest.statistics.alternative import Alternative
from attentest.statistics.columns import Floats, Mask
from attentest.statistics.law import Law
from attentest.statistics.truncation_set import TruncationSet

Indices: TypeAlias = NDArray[np.intp]
Points: TypeAlias = Floats

Scores: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""Maps image indices (m,) and points z (m,) to scores (m, *grid)."""

Function: TypeAlias = Callable[[Tensor, Tensor], tuple[Tensor, ...]]
"""Maps image indices (m,) and points z (m,) to tensors (m, ...)."""

ARRAYS_OF_MARGINS = 6  # arrays of the size of all margins that are held while margins are computed


class Margins(Protocol):
    """Maps scores to region membership; not smooth in z.

    A point z belongs to the truncation set where every margin is negative. A few numbers decide this: the pixels u are
    weighted averages of the scores, e_k is the greatest of signs_k u_i over a group k of pixels, and all margins are
    negative if and only if every entry of weights @ e is. The e_k are convex functions of the scores, which bounds them
    between two points.
    """

    signs: Tensor
    """(E,), 1 or -1."""

    weights: Tensor
    """(J, E)."""

    def __call__(self, image: Tensor, scores: Tensor, /) -> Tensor:
        """Return the margins (m, n) of images with indices (m,) and scores (m, *grid)."""

    def pixels(self, image: Tensor, scores: Tensor, /) -> Tensor:
        """Return the deciding pixels (m, n): averages of the scores (m, *grid), so their errors are no greater."""

    def extremes(self, image: Tensor, pixels: Tensor, /) -> tuple[Tensor, Tensor]:
        """Return e (m, E) and the indices (m, E) of the pixels that attain it."""

    def inside(self, image: Tensor, scores: Tensor, /) -> Tensor:
        """Return whether all margins of images (m,) with scores (m, *grid) are negative, (m,) bool."""


@dataclass(frozen=True, kw_only=True)
class SearchProblem:
    """The truncation sets to find: Z_i = {z : every margin of image i at z is negative}."""

    law: Law
    """The law of the k statistics. ``law.z_obs`` is a point known to lie in each set."""
    scores: Scores
    """Maps image indices (m,) int64 and points z (m,) float64 to raw scores (m, *grid), which are smooth in z.
    Differentiable in forward mode where a search asks for slopes."""
    margins: Margins
    """Maps image indices (m,) and scores (m, *grid) to margins (m, n)."""
    device: torch.device
    """Where both compute."""
    batch_size: int
    """Number of points that are evaluated together best."""
    image_numbers: NDArray[np.int64] | None = None
    """(k,). The caller's numbers of the images, for error messages; None if there is but one, or they have none."""
    alternative: Alternative = "two-sided"
    """Which values of the statistic are at least as extreme as the observed one."""
    alpha: float | None = None
    """If given, a search may stop as soon as it knows on which side of this level p lies."""
    confidence_level: float | NDArray[np.float64] | None = None
    """If given, a search goes as far as a confidence interval at this level, for the mean of the statistic, needs: one
    level for all images, or one for each (k,)."""
    observed: Tensor | None = None
    """(k, *grid). Scores at ``law.z_obs``, where the caller has them already."""
    rough_scores: Scores | None = None
    """A less accurate version of ``scores``, if there is one."""
    rough_is_faster: bool = False
    """Whether the rough scores are worth using."""
    exact: bool = False
    """Whether the scores are computed in float64 throughout, so that their rounding error is known; if not, it is
    measured."""
    memory: int = 2**28
    """Bytes that a search may use beyond what the scores themselves need."""
    count: int = 1
    """Number of margins per point."""
    seeds: NDArray[np.uint64] | None = None
    """(k,) uint64. Seeds of the random numbers drawn for each image; by default the bits of ``law.z_obs``."""
    accelerate: Callable[[Function], Function] | None = None
    """Returns a function of image indices and points that computes the same in less time where there are few points;
    None if the scores cannot be part of such a function."""

    @property
    def image_seeds(self) -> NDArray[np.uint64]:
        """Seeds (k,) of the images."""
        return self.z_obs.view(np.uint64) if self.seeds is None else self.seeds

    def generator(self, image: int, *stream: int) -> np.random.Generator:
        """Return the random generator of an image for one purpose, which a tuple of whole numbers names."""
        return np.random.default_rng([int(self.image_seeds[image]), *stream])

    @property
    def z_obs(self) -> Points:
        """Observed points (k,), one in each set."""
        return self.law.z_obs

    def name(self, image: int) -> str:
        """Return what error messages call an image."""
        return "the image" if self.image_numbers is None else f"image {self.image_numbers[image]}"

    @torch.no_grad()
    def scores_at(self, image: Indices, z: Points, rough: bool = False) -> Tensor:
        """Return the scores (m, *grid) of images (m,) at points z (m,), computed in batches.

        Rough scores may be NaN or infinite.
        """
        function = self.rough_scores if rough and self.rough_scores is not None else self.scores
        parts = _parts(len(z), self.batch_size)
        scores = torch.cat([self._evaluated(function, image[part], z[part]) for part in parts])
        return scores if rough else self._checked(scores, image, z)

    @torch.no_grad()
    def margins_at(self, image: Indices, z: Points) -> Tensor:
        """Return the margins (m, n) of images (m,) at points z (m,)."""
        if self._margins is None:
            values = self.margins(on_device(image, self.device), self._evaluated(self.scores, image, z))
        else:
            (values,) = self._margins(*self._tensors(image, z))
        return self._checked(values, image, z)

    def inside_at(self, image: Indices, z: Points) -> Mask:
        """Return whether points z (m,) lie in the sets of images (m,), computed in batches."""
        inside = np.empty(len(z), dtype=np.bool_)
        for part in _parts(len(z), self.batch_size):
            inside[part] = self.inside(image[part], self.scores_at(image[part], z[part]))
        return inside

    @torch.no_grad()
    def inside(self, image: Indices, scores: Tensor) -> Mask:
        """Return whether points with scores (m, *grid) lie in the sets of images (m,)."""
        inside = np.empty(len(image), dtype=np.bool_)
        for part in _parts(len(image), max(1, self.memory // (8 * ARRAYS_OF_MARGINS * self.count))):
            inside[part] = self.margins.inside(on_device(image[part], self.device), scores[part]).cpu().numpy()
        return inside

    @torch.no_grad()
    def margins_and_slopes_at(self, image: Indices, z: Points) -> tuple[Tensor, Tensor]:
        """Return the margins (m, n) and their derivatives in z (m, n), by forward mode."""
        values, slopes = self._margins_and_slopes(*self._tensors(image, z))
        return self._checked(values, image, z), self._checked(slopes, image, z)

    def pieces_at(self, image: Indices, z: Points) -> tuple[Tensor, Tensor, Points, Points, bool]:
        """Return scores and slopes (m, *grid) of images (m,) at points z (m,), and the ends (m,) of the pieces there.

        The last of what is returned says whether the scores are curved between the ends; if not, they are linear.
        """
        columns, curved = [], False
        for part in _parts(len(z), self.batch_size):
            with followed(len(z[part]), self.device) as breakpoints:
                images, points = self._tensors(image[part], z[part])
                values = unpack_dual(self.scores(images, make_dual(points, torch.ones_like(points))))
            if breakpoints.unknown:
                raise SearchError(
                    "the scores have kinks whose places the piecewise search cannot find (of "
                    f"{', '.join(sorted(breakpoints.unknown))}): use spectral.",
                    "search",
                )
            curved |= breakpoints.curved
            slopes = torch.zeros_like(values.primal) if values.tangent is None else values.tangent
            columns.append((values.primal.detach(), slopes.detach(), breakpoints.before, breakpoints.after))
        scores, slopes, before, after = (torch.cat(parts) for parts in zip(*columns, strict=True))
        left, right = z + before.cpu().numpy(), z + after.cpu().numpy()
        return self._checked(scores, image, z), self._checked(slopes, image, z), left, right, curved

    @cached_property
    def _margins(self) -> Function | None:
        """The function that computes margins in less time, if there is one."""
        if self.accelerate is None:
            return None
        return self.accelerate(lambda images, points: (self.margins(images, self.scores(images, points)),))

    @cached_property
    def _margins_and_slopes(self) -> Function:
        """The function that computes the margins and their derivatives."""

        def both(images: Tensor, points: Tensor) -> tuple[Tensor, ...]:
            values_and_slopes: tuple[Tensor, ...] = torch.func.jvp(
                lambda at: self.margins(images, self.scores(images, at)), (points,), (torch.ones_like(points),)
            )
            return values_and_slopes

        return both if self.accelerate is None else self.accelerate(both)

    def _evaluated(self, function: Scores, image: Indices, z: Points) -> Tensor:
        """Call a score function; if it fails, find the point at which it does and name it."""
        try:
            scores = function(*self._tensors(image, z))
        except AttentestError:
            raise
        except Exception as error:  # a caller's own function can raise anything
            for index, point in zip(image, z, strict=True):
                try:
                    function(*self._tensors(np.array([index]), np.array([point])))
                except Exception as again:  # noqa: BLE001
                    raise SearchError(
                        f"the score function failed for {self.name(index)} at z = {point:.17g}: "
                        f"{type(again).__name__}: {again}"
                    ) from error
            raise  # it fails only on several points together, as when memory runs out
        grid = scores.shape[1:] if self.observed is None else self.observed.shape[1:]
        if scores.shape != (len(z), *grid) or scores.ndim < 2:
            raise SearchError(
                f"the score function returned shape {tuple(scores.shape)} for {counted(len(z), 'image')}, expected "
                f"({len(z)}, {', '.join(map(str, grid))}): it must treat each image of a batch by itself."
            )
        return scores

    def _tensors(self, image: Indices, z: Points) -> tuple[Tensor, Tensor]:
        return on_device(image, self.device), on_device(z, self.device)

    def _checked(self, values: Tensor, image: Indices, z: Points) -> Tensor:
        """Return scores or margins (m, ...) of images (m,) at points z (m,); raise an error if one is no number."""
        if math.isfinite(float(values.sum())):  # this takes less time and memory than a look at each value
            return values
        finite = torch.isfinite(values.flatten(1)).all(dim=1)
        if not bool(finite.all()):
            first = int((~finite).nonzero()[0, 0])
            raise SearchError(
                f"the attention of {self.name(image[first])} is NaN or infinite at z = {z[first]:.17g}: "
                "the test needs the model on images other than the observed one, and there it returns no number."
            )
        return values


def _parts(count: int, together: int) -> list[slice]:
    """Return the parts of so many points, of as many as are computed together."""
    return [slice(start, start + together) for start in range(0, count, together)]


def on_device(values: NDArray[Any], device: torch.device) -> Tensor:
    """Return an array as a tensor on a device.

    CUDA has read the array when the call returns, so that nothing needs to wait for the device.
    """
    return torch.from_numpy(np.ascontiguousarray(values)).to(device, non_blocking=device.type == "cuda")


CONVERGED = "converged"
"""The error bar of p, and of the interval if there is one, is as narrow as was asked for."""

DECIDED = "decided"
"""The search stopped once it knew on which side of alpha p lies."""

OUT_OF_EVALUATIONS = "max_evaluations"  # it stopped early because the evaluations were used up
OUT_OF_PRECISION = "precision"  # it stopped early because rounding or noise of the scores hides the rest

TOO_SHARP = "sharp"
"""It stopped early because the scores change so abruptly somewhere that looking for all such places would take more
than ``max_evaluations``."""

ROUGH = "rough"
"""The error bar of p is as narrow as was asked for, but it rests on a measured roughness: there are too many kinks to
visit each."""

STATUSES = (CONVERGED, DECIDED, ROUGH, OUT_OF_EVALUATIONS, OUT_OF_PRECISION, TOO_SHARP)  # how a search can end

Report: TypeAlias = Callable[[float], None]
"""Called with the fraction of a search that is done, from 0 to 1."""


@dataclass(frozen=True, kw_only=True)
class Audit:
    """A check of what a search concluded, at random places."""

    points: int
    """Number of points at which a conclusion was compared with the model."""
    contradictions: int
    """Number of them at which it was wrong. What was concluded there has been searched again."""


@dataclass(frozen=True, kw_only=True)
class SearchOutcome:
    """A truncation set and how it was found."""

    truncation_set: TruncationSet
    """The set."""
    evaluations: int
    """Number of points at which the model was evaluated for this image, with or without a derivative."""
    status: str
    """How the search ended, one of ``STATUSES``: ``CONVERGED``, ``DECIDED``, or the reason for which it stopped early:
    ``OUT_OF_EVALUATIONS``, ``OUT_OF_PRECISION`` or ``TOO_SHARP``."""
    audit: Audit | None = None
    """The check of its conclusions; None for a search that has none."""


@runtime_checkable
class Search(Protocol):
    """A way to find truncation sets."""

    def find(self, problem: SearchProblem, report: Report | None = None) -> list[SearchOutcome]:
        """Return the truncation set of each image of a problem, in order."""

    def images_together(self, batch_size: int) -> int:
        """Return how many images are best searched together when the model evaluates ``batch_size`` at a time."""

    def describe(self) -> Mapping[str, Any]:
        """Return the search's name and parameters as JSON-ready values."""
