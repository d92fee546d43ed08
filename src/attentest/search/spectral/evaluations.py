"""Scores at the evaluated points, so that none is evaluated twice."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attentest.search.problem import Indices, Points, SearchProblem


class Evaluations:
    """Scores of k images at the points a search has asked for, either rough or exact."""

    def __init__(self, problem: SearchProblem, rough: bool) -> None:
        self._problem = problem
        self._rough = rough
        self._keys = np.empty(0, dtype=np.complex128)  # image + i z: sorted by image, then by z
        self._rows = np.empty(0, dtype=np.int64)
        self._scores: Tensor | None = None  # with room for more, so that those known are seldom copied
        self._known = 0
        self.counts: NDArray[np.int64] = np.zeros(len(problem.z_obs), dtype=np.int64)
        self.lost: NDArray[np.bool_] = np.zeros(len(problem.z_obs), dtype=np.bool_)
        """For which images rough scores were NaN or infinite somewhere."""

    def add(self, image: Indices, z: Points, scores: Tensor) -> None:
        """Add scores (m, gh, gw) that were computed elsewhere, at new points."""
        start, self._known = self._known, self._known + len(scores)
        if self._scores is None or self._known > len(self._scores):
            larger = scores.new_empty(max(self._known, 2 * start), *scores.shape[1:])
            if self._scores is not None:
                larger[:start] = self._scores[:start]
            self._scores = larger
        self._scores[start : self._known] = scores
        keys = image + 1j * z
        order = np.argsort(keys)
        place = np.searchsorted(self._keys, keys[order])
        self._keys = np.insert(self._keys, place, keys[order])
        self._rows = np.insert(self._rows, place, start + order)

    def at(self, image: Indices, z: Points) -> Tensor:
        """Return the scores (m, gh, gw) of images (m,) at points z (m,)."""
        keys = image + 1j * z
        wanted = np.unique(keys)
        place = np.searchsorted(self._keys, wanted)
        known = place < len(self._keys)
        known[known] = self._keys[place[known]] == wanted[known]
        new = wanted[~known]
        if len(new):
            images, points = new.real.astype(np.intp), new.imag.copy()
            self.add(images, points, self._scores_at(images, points))
        assert self._scores is not None  # the points asked for have been added
        rows = self._rows[np.searchsorted(self._keys, keys)]
        return self._scores[torch.from_numpy(rows).to(self._scores.device)]

    def within(self, image: Indices, left: Points, right: Points) -> tuple[Indices, Points, Tensor]:
        """Return what is known inside intervals (p,) of images (p,): for each point its interval, place and scores."""
        first = np.searchsorted(self._keys, image + 1j * left, side="right")
        count = np.maximum(np.searchsorted(self._keys, image + 1j * right) - first, 0)
        which = np.repeat(np.arange(len(image)), count)
        place = first[which] + np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count)
        assert self._scores is not None  # there are scores at z_obs from the start
        return which, self._keys[place].imag, self._scores[torch.from_numpy(self._rows[place]).to(self._scores.device)]

    def _scores_at(self, images: Indices, points: Points) -> Tensor:
        """Evaluate the model; where float32 overflows or loses everything, take the exact scores."""
        self.counts += np.bincount(images, minlength=len(self.counts))
        scores = self._problem.scores_at(images, points, self._rough)
        if self._rough:
            lost = ~torch.isfinite(scores.flatten(1)).all(dim=1)
            rows = np.flatnonzero(lost.cpu().numpy())
            if len(rows):
                self.lost[images[rows]] = True
                self.counts += np.bincount(images[rows], minlength=len(self.counts))
                scores = scores.clone()
                scores[lost] = self._problem.scores_at(images[rows], points[rows])
        return scores


class Requests:
    """Points to evaluate, collected so that they share model calls."""

    def __init__(self, evaluations: Evaluations) -> None:
        self._evaluations = evaluations
        self._images: list[Indices] = []
        self._points: list[Points] = []
        self._answers: list[Tensor] = []

    def add(self, image: Indices, points: Points) -> Callable[[], Tensor]:
        """Request scores of images (p,) at points (p, m); the returned function gives them, (p, m, gh, gw)."""
        slot = len(self._points)
        self._images.append(np.repeat(image, points.shape[1]))
        self._points.append(points.ravel())
        return lambda: self._answers[slot].unflatten(0, points.shape)

    def send(self) -> None:
        """Evaluate all requests."""
        points = np.concatenate([np.empty(0), *self._points])
        if len(points) and not self._answers:
            scores = self._evaluations.at(np.concatenate(self._images), points)
            self._answers = list(scores.split([len(part) for part in self._points]))
