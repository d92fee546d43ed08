"""Scores at the evaluated points, so that none is evaluated twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attentest.search.problem import Indices, Points, SearchProblem, on_device
from attentest.statistics.columns import Integers, Mask, repeated, run_ends

Keys: TypeAlias = NDArray[np.complex128]
"""Points as image + i z, which sorts them by image, then by z."""

LONGER = 4  # factor by which a run of points is longer than the one that follows it, or else both become one


class _Run(NamedTuple):
    """Points with sorted keys (n,), and the rows (n,) of their scores."""

    keys: Keys
    rows: Indices

    def merged(self, other: _Run) -> _Run:
        """Return the points of both."""
        keys, rows = np.concatenate([self.keys, other.keys]), np.concatenate([self.rows, other.rows])
        order = np.argsort(keys, kind="stable")
        return _Run(keys[order], rows[order])

    def find(self, wanted: Keys, rows: Indices) -> None:
        """Write the rows of those keys (m,) that are here into rows (m,)."""
        place = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        known = self.keys[place] == wanted
        rows[known] = self.rows[place[known]]

    def between(self, left: Keys, right: Keys) -> tuple[Indices, Keys, Indices]:
        """Return the points between keys (p,): for each point its interval, key and row."""
        first = np.searchsorted(self.keys, left, side="right")
        count = np.maximum(np.searchsorted(self.keys, right) - first, 0)
        which, place = repeated(count)
        place = first[which] + place
        return which, self.keys[place], self.rows[place]


class Evaluations:
    """Scores of k images at the points a search has asked for, either rough or exact."""

    def __init__(self, problem: SearchProblem, rough: bool) -> None:
        self._problem = problem
        self._rough = rough
        self._runs: list[_Run] = []  # each much longer than the next, so that a point is seldom sorted again
        self._scores: Tensor | None = None  # with room for more, so that those known are seldom copied
        self.known = 0
        """Number of points with scores."""
        self.counts: Integers = np.zeros(len(problem.z_obs), dtype=np.int64)
        self.lost: Mask = np.zeros(len(problem.z_obs), dtype=np.bool_)
        """For which images rough scores were NaN or infinite somewhere."""

    def add(self, image: Indices, z: Points, scores: Tensor) -> None:
        """Add scores (m, *grid) that were computed elsewhere, at new points."""
        keys = image + 1j * z
        order = np.argsort(keys, kind="stable")
        self._append(keys[order], order, scores)

    def _append(self, keys: Keys, order: Indices, scores: Tensor) -> None:
        """Append scores (m, *grid) at points with sorted keys (m,), which are in this order among the scores."""
        start, self.known = self.known, self.known + len(scores)
        if self._scores is None or self.known > len(self._scores):
            larger = scores.new_empty(max(self.known, 2 * start), *scores.shape[1:])
            if self._scores is not None:
                larger[:start] = self._scores[:start]
            self._scores = larger
        self._scores[start : self.known] = scores
        run = _Run(keys, start + order)
        while self._runs and len(self._runs[-1].keys) < LONGER * len(run.keys):
            run = run.merged(self._runs.pop())
        self._runs.append(run)

    def at(self, image: Indices, z: Points) -> Tensor:
        """Return the scores (m, *grid) of images (m,) at points z (m,)."""
        keys = image + 1j * z
        order = np.argsort(keys, kind="stable")  # fast because it merges runs, such as the nodes of a piece
        ordered = keys[order]
        differs, _ = run_ends(len(keys), ordered[1:] != ordered[:-1])
        wanted = ordered[differs]
        rows = np.full(len(wanted), -1)
        for run in self._runs:
            run.find(wanted, rows)
        new = np.flatnonzero(rows < 0)
        if len(new):
            images, points = wanted[new].real.astype(np.intp), wanted[new].imag.copy()
            rows[new] = self.known + np.arange(len(new))
            self._append(wanted[new], np.arange(len(new)), self._scores_at(images, points))
        row_of_key = np.empty(len(keys), dtype=np.int64)
        row_of_key[order] = rows[np.cumsum(differs) - 1]
        return self._rows(row_of_key)

    def at_each(self, requests: Sequence[tuple[Indices, Points]]) -> list[Tensor]:
        """Return the scores (p, m, *grid) of images (p,) at points (p, m) for each request; they share model calls."""
        if not requests:
            return []
        images = np.concatenate([np.repeat(image, points.shape[1]) for image, points in requests])
        scores = self.at(images, np.concatenate([points.ravel() for _, points in requests]))
        parts = scores.split([points.size for _, points in requests])
        return [part.unflatten(0, points.shape) for part, (_, points) in zip(parts, requests, strict=True)]

    def within(self, image: Indices, left: Points, right: Points, before: Indices) -> tuple[Indices, Points, Tensor]:
        """Return what is known inside intervals (p,) of images (p,): for each point its interval, place and scores.

        Evaluations are numbered as they come, and only those with numbers below ``before`` (p,) count.
        """
        runs = [run.between(image + 1j * left, image + 1j * right) for run in self._runs]
        which, keys, rows = (np.concatenate(columns) for columns in zip(*runs, strict=True))
        counts = rows < before[which]
        return which[counts], keys[counts].imag, self._rows(rows[counts])

    def _rows(self, rows: Indices) -> Tensor:
        assert self._scores is not None  # there are scores at z_obs from the start
        return self._scores[on_device(rows, self._scores.device)]

    def _scores_at(self, images: Indices, points: Points) -> Tensor:
        """Evaluate the model; where float32 overflows or loses everything, take the exact scores."""
        self.counts += np.bincount(images, minlength=len(self.counts))
        scores = self._problem.scores_at(images, points, self._rough)
        if self._rough:
            rows = np.flatnonzero(~torch.isfinite(scores.flatten(1)).all(dim=1).cpu().numpy())
            if len(rows):
                self.lost[images[rows]] = True
                self.counts += np.bincount(images[rows], minlength=len(self.counts))
                scores = scores.clone()
                scores[on_device(rows, scores.device)] = self._problem.scores_at(images[rows], points[rows])
        return scores
