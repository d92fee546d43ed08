"""p-values from a dense grid of points on the line, and small networks for which they are compared with a search's."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtr

from attentest import AttentionTest, AttentionTestResult
from attentest.pipeline.hypotheses import parts_of
from attentest.pipeline.observation import Observation
from attentest.search import Combination, GridSearch, SearchProblem

DENSE = GridSearch(step=Combination(fine=5e-5, coarse=1e-3, near=0.1))
GRID_ERROR = 1e-9
"""How far p of the dense grid may be off where it overlooks nothing: its boundaries are brackets of 1e-12."""
BETWEEN = 64
"""Points at which the model is asked directly in each stretch where the grid and a search differ."""

REACH, STEP, BISECTIONS = 9.0, 0.003, 45


def problem_of(test: AttentionTest, image: NDArray[np.float64], **given: Any) -> tuple[Observation, SearchProblem]:
    """Return what a test observes of an image, and what it asks a search to find."""
    pipeline = test.pipeline
    observation = pipeline.observe([pipeline.inputs.one(image, **given)])
    problem, _ = pipeline.problem(observation, parts_of(observation.regions_on_images(), None), None)
    return observation, problem


def dense_pvalue(
    test: AttentionTest,
    image: NDArray[np.float64],
    select: Callable[[NDArray[np.float64]], NDArray[Any]],
    **given: Any,
) -> float:
    """Return the two-sided p of an image from what is selected on a grid of z, with bisection where it changes.

    ``select`` maps upsampled scores (m, *units), not scaled, to what the test conditions on, (m, n).
    """
    observation, problem = problem_of(test, image, **given)

    def selected(z: NDArray[np.float64]) -> NDArray[Any]:
        scores = problem.scores_at(np.zeros(len(z), dtype=np.int64), z)
        return select(observation.patch_grid.unit_scores(scores).detach().numpy())

    observed = selected(problem.z_obs)
    grid = np.sort(np.append(np.arange(-REACH, REACH, STEP), problem.z_obs))
    known = (selected(grid) == observed).all(axis=1)
    changes = np.flatnonzero(known[1:] != known[:-1])
    low, high = grid[changes], grid[changes + 1]
    for _ in range(BISECTIONS if len(changes) else 0):
        middle = (low + high) / 2
        same = (selected(middle) == observed).all(axis=1) == known[changes]
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    ends = np.concatenate([[-np.inf] if known[0] else [], low, [np.inf] if known[-1] else []]).reshape(-1, 2)
    edge = abs(float(problem.z_obs[0]))
    left, right = (np.clip(ends, *side).T for side in ((-np.inf, -edge), (edge, np.inf)))
    # Upper tails by symmetry, which keeps their digits.
    masses = [ndtr(left[1]) - ndtr(left[0]), ndtr(-right[0]) - ndtr(-right[1])]
    inner = np.clip(ends, -edge, edge).T
    between = ndtr(inner[1]) - ndtr(inner[0])
    return float(np.sum(masses) / (np.sum(masses) + np.sum(between)))


def assert_in_bar(
    found: AttentionTestResult, dense: float, intervals: NDArray[np.float64], test: AttentionTest, about: object
) -> None:
    """Assert that the bar of a p that a test found contains that of the dense grid, or else that the grid is wrong.

    The grid overlooks what is narrower than its step, so the model decides where the two differ.
    """
    low, high = found.pvalue_bounds
    if low - GRID_ERROR <= dense <= high + GRID_ERROR:
        return
    _, problem = problem_of(test, found.image)
    sets = [found.truncation_set.certain, found.truncation_set.possible, intervals]
    edges = np.unique(np.concatenate([each.ravel() for each in sets]))
    differing = 0
    for start, end in itertools.pairwise(edges[np.isfinite(edges)]):
        certain, possible, on_grid = (bool(np.any((e[:, 0] < end) & (e[:, 1] > start))) for e in sets)
        if certain or not possible:
            z = start + (end - start) * (np.arange(BETWEEN) + 0.5) / BETWEEN
            inside = problem.inside_at(np.zeros(BETWEEN, dtype=np.intp), z)
            assert np.all(inside == certain) or end - start < GRID_ERROR, (about, found, dense, start, end)
            differing += certain != on_grid
    assert differing, (about, found, dense)


def small_cnn() -> torch.nn.Module:
    """A network linear in pieces with random weights, for images (1, 8, 8) and two classes; layer "2" for Grad-CAM."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return torch.nn.Sequential(
            torch.nn.Conv2d(1, 3, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.Conv2d(3, 2, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(1),
            torch.nn.Flatten(),
            torch.nn.Linear(2, 2),
        ).eval()


def small_autoencoder() -> torch.nn.Module:
    """A network that returns images, with random weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        layers = [torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(4, 1, 3, padding=1)]
        return torch.nn.Sequential(*layers).eval()
