"""What a search is given: margins of k images, each as a function of one real variable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attentest.errors import AttentestError, SearchError
from attentest.statistics.truncated_normal import Alternative

Which: TypeAlias = NDArray[np.intp]
Points: TypeAlias = NDArray[np.float64]
Scores: TypeAlias = Callable[[Tensor, Tensor], Tensor]

ARRAYS_OF_MARGINS = 6
"""Arrays of the size of all margins that are held while they are computed."""


class Margins(Protocol):
    """What makes a region of raw scores, exactly: this is where the kinks are.

    A point belongs to Z where every margin is negative. That can be said with few numbers: the pixels u are
    averages of the scores, e_k is the greatest of signs_k u_i over a group k of pixels, and all margins are
    negative where, and only where, weights @ e is. The e_k are convex functions of the scores, which bounds what
    they do between two points.
    """

    signs: Tensor
    """(E,), 1 or -1."""

    weights: Tensor
    """(J, E)."""

    def __call__(self, which: Tensor, scores: Tensor) -> Tensor:
        """Return the margins (m, n) of images ``which`` (m,) with scores (m, gh, gw)."""

    def pixels(self, which: Tensor, scores: Tensor) -> Tensor:
        """Return pixels (m, n) of images ``which``: averages of scores (m, gh, gw), so no farther off than these."""

    def extremes(self, which: Tensor, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Return e (m, E) and the pixels (m, E) that attain it."""


@dataclass(frozen=True, kw_only=True)
class SearchProblem:
    """The truncation sets to find: Z_i = {z : every margin of image i at z is negative}.

    Parameters
    ----------
    z_obs : (k,)
        A point known to lie in each set.
    scores
        Maps image indices (m,) int64 and points (m,) float64 to raw scores (m, gh, gw), which are smooth in z.
        Differentiable in forward mode where a search asks for slopes.
    margins
        Maps image indices (m,) and scores (m, gh, gw) to margins (m, n).
    device
        Where both compute.
    batch_size
        How many points are best evaluated together.
    image_numbers : (k,)
        What the caller calls the images, for errors; by default from 0.
    alternative
        Which values of z are more extreme than ``z_obs``.
    alpha
        If given, a search may stop as soon as it knows on which side of this level p lies.
    confidence_level
        If given, a search goes as far as a confidence interval at this level, for the mean of the statistic, needs.
    observed : (k, gh, gw)
        Scores at ``z_obs``, where the caller has them already.
    rough_scores
        As ``scores``, less accurate, where there is such a thing.
    rough_is_faster
        Whether they are worth using.
    exact
        Whether the scores are computed in float64 throughout, so that their rounding error is known; if not, it is
        measured.
    memory
        Bytes a search may use beyond what the scores themselves need.
    count
        How many margins a point has.
    """

    z_obs: Points
    scores: Scores
    margins: Margins
    device: torch.device
    batch_size: int
    image_numbers: NDArray[np.int64] | None = None
    alternative: Alternative = "two-sided"
    alpha: float | None = None
    confidence_level: float | None = None
    observed: Tensor | None = None
    rough_scores: Scores | None = None
    rough_is_faster: bool = False
    exact: bool = False
    memory: int = 2**28
    count: int = 1

    def number(self, image: int) -> int:
        """Return what the caller calls an image."""
        return int(image if self.image_numbers is None else self.image_numbers[image])

    @torch.no_grad()
    def scores_at(self, which: Which, z: Points, rough: bool = False) -> Tensor:
        """Return the scores (m, gh, gw) of images ``which`` (m,) at points ``z`` (m,); any m, in batches."""
        function = self.rough_scores if rough and self.rough_scores is not None else self.scores
        parts = []
        for start in range(0, len(z), self.batch_size):
            part = slice(start, start + self.batch_size)
            parts.append(self._checked(self._evaluated(function, which[part], z[part]), which[part], z[part]))
        return torch.cat(parts)

    @torch.no_grad()
    def margins_at(self, which: Which, z: Points) -> Tensor:
        """Return the margins (m, n) of images ``which`` (m,) at points ``z`` (m,)."""
        scores = self._evaluated(self.scores, which, z)
        return self._checked(self.margins(self._tensors(which, z)[0], scores), which, z)

    def inside_at(self, which: Which, z: Points) -> NDArray[np.bool_]:
        """Return whether points ``z`` (m,) lie in the sets of images ``which`` (m,); any m, in batches."""
        inside = np.empty(len(z), dtype=np.bool_)
        together = min(self.batch_size, max(1, self.memory // (8 * ARRAYS_OF_MARGINS * self.count)))
        for start in range(0, len(z), together):
            part = slice(start, start + together)
            inside[part] = (self.margins_at(which[part], z[part]).amax(dim=1) < 0).cpu().numpy()
        return inside

    @torch.no_grad()
    def margins_and_slopes_at(self, which: Which, z: Points) -> tuple[Tensor, Tensor]:
        """Return the margins (m, n) and their derivatives in z (m, n), by forward mode."""
        images, points = self._tensors(which, z)
        values, slopes = torch.func.jvp(  # type: ignore[misc]  # a third value comes only with has_aux=True
            lambda at: self.margins(images, self.scores(images, at)), (points,), (torch.ones_like(points),)
        )
        return self._checked(values, which, z), self._checked(slopes, which, z)

    def _evaluated(self, function: Scores, which: Which, z: Points) -> Tensor:
        """Call a score function; if it fails, find the point where and say so."""
        try:
            scores = function(*self._tensors(which, z))
        except AttentestError:
            raise
        except Exception as error:  # whatever a caller's own function raises
            for image, point in zip(which, z, strict=True):
                try:
                    function(*self._tensors(np.array([image]), np.array([point])))
                except Exception as again:  # noqa: BLE001
                    raise SearchError(
                        f"the score function failed for image {self.number(image)} at z = {point:.17g}: "
                        f"{type(again).__name__}: {again}"
                    ) from error
            raise  # it fails on several points together only, as when memory runs out
        grid = scores.shape[1:] if self.observed is None else self.observed.shape[1:]
        if scores.shape != (len(z), *grid) or scores.ndim != 3:
            raise SearchError(
                f"the score function returned shape {tuple(scores.shape)} for {len(z)} images, expected "
                f"({len(z)}, {', '.join(map(str, grid))}): it must treat each image of a batch by itself."
            )
        return scores

    def _tensors(self, which: Which, z: Points) -> tuple[Tensor, Tensor]:
        return torch.from_numpy(which).to(self.device), torch.from_numpy(z).to(self.device)

    def _checked(self, values: Tensor, which: Which, z: Points) -> Tensor:
        finite = torch.isfinite(values.flatten(1)).all(dim=1)
        if not bool(finite.all()):
            first = int((~finite).nonzero()[0, 0])
            raise SearchError(
                f"the attention of image {self.number(which[first])} is NaN or infinite at z = {z[first]:.17g}: "
                "the model overflows there, so the truncation set cannot be searched."
            )
        return values
