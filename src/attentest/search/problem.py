"""What a search is given: margins of k images, each as a function of one real variable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attentest.errors import SearchError

Which: TypeAlias = NDArray[np.intp]
Points: TypeAlias = NDArray[np.float64]


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
        Maps image indices (m,) and scores (m, gh, gw) to margins (m, n), exactly: this is where the kinks are.
    device
        Where both compute.
    batch_size
        How many points are best evaluated together.
    first_image
        What the caller calls image 0, for errors.
    """

    z_obs: Points
    scores: Callable[[Tensor, Tensor], Tensor]
    margins: Callable[[Tensor, Tensor], Tensor]
    device: torch.device
    batch_size: int
    first_image: int = 0

    @torch.no_grad()
    def margins_at(self, which: Which, z: Points) -> Tensor:
        """Return the margins (m, n) of images ``which`` (m,) at points ``z`` (m,)."""
        images, points = self._tensors(which, z)
        return self._checked(self.margins(images, self.scores(images, points)), which, z)

    def inside_at(self, which: Which, z: Points) -> NDArray[np.bool_]:
        """Return whether points ``z`` (m,) lie in the sets of images ``which`` (m,); any m, in batches."""
        inside = np.empty(len(z), dtype=np.bool_)
        for start in range(0, len(z), self.batch_size):
            part = slice(start, start + self.batch_size)
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

    def _tensors(self, which: Which, z: Points) -> tuple[Tensor, Tensor]:
        return torch.from_numpy(which).to(self.device), torch.from_numpy(z).to(self.device)

    def _checked(self, values: Tensor, which: Which, z: Points) -> Tensor:
        finite = torch.isfinite(values).all(dim=1)
        if not bool(finite.all()):
            first = int((~finite).nonzero()[0, 0])
            raise SearchError(
                f"the attention of image {self.first_image + which[first]} is NaN or infinite at z = {z[first]:.17g}: "
                "the model overflows there, so the truncation set cannot be searched."
            )
        return values
