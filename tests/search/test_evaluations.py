"""Scores at the evaluated points against a dictionary of them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from attentest.search import SearchProblem
from attentest.search.spectral.evaluations import Evaluations
from toys import CurveMargins
from truncated import normal

IMAGES = 5


def recording_problem(calls: list[tuple[int, float]]) -> SearchProblem:
    """A problem with scores that tell image and point, and that lists the points at which they are evaluated."""

    def scores(image: Tensor, z: Tensor) -> Tensor:
        calls.extend(zip(image.tolist(), z.tolist(), strict=True))
        return torch.stack([image.double(), z], dim=1).unsqueeze(1)

    return SearchProblem(
        law=normal(*np.zeros(IMAGES)),
        scores=scores,
        margins=CurveMargins(),
        device=torch.device("cpu"),
        batch_size=7,
    )


def test_no_point_is_evaluated_twice_and_each_has_its_own_scores() -> None:
    rng = np.random.default_rng(0)
    calls: list[tuple[int, float]] = []
    evaluations = Evaluations(recording_problem(calls), rough=False)
    for size in (200, 3, 50, 1, 1, 400, 2):  # runs of points are merged, and are not
        image, z = rng.integers(IMAGES, size=size), rng.integers(-40, 40, size=size) / 8
        found = evaluations.at(image, z)
        assert torch.equal(found[:, 0], torch.from_numpy(np.column_stack([image, z])))
    assert len(set(calls)) == len(calls) == evaluations.known
    assert (evaluations.counts == np.bincount([image for image, _ in calls], minlength=IMAGES)).all()


def test_what_is_known_within_an_interval() -> None:
    rng = np.random.default_rng(1)
    calls: list[tuple[int, float]] = []
    evaluations = Evaluations(recording_problem(calls), rough=False)
    evaluations.add(np.arange(IMAGES)[::-1], np.zeros(IMAGES), torch.zeros(IMAGES, 1, 2, dtype=torch.float64))
    for size in (100, 10, 30):
        evaluations.at(rng.integers(IMAGES, size=size), rng.integers(-40, 40, size=size) / 8)
    ages = dict.fromkeys([*((image, 0.0) for image in range(IMAGES)[::-1]), *calls])
    image, left = rng.integers(IMAGES, size=20), rng.integers(-40, 0, size=20) / 8
    right, before = left + rng.integers(0, 40, size=20) / 8, rng.integers(0, 200, size=20)
    which, z, _ = evaluations.within(image, left, right, before)
    for row in range(20):
        expected = [
            point
            for age, (own, point) in enumerate(ages)
            if own == image[row] and left[row] < point < right[row] and age < before[row]
        ]
        assert sorted(z[which == row]) == sorted(expected)
    assert len(z) > 50


def test_requests_share_evaluations_and_know_what_was_known_before() -> None:
    calls: list[tuple[int, float]] = []
    evaluations = Evaluations(recording_problem(calls), rough=False)
    evaluations.at(np.array([0]), np.array([1.0]))
    nodes = np.array([0, 1]), np.array([[0.0, 1.0, 2.0], [2.0, 3.0, 4.0]])
    check = np.array([1]), np.array([[4.0]])
    at_nodes, at_check = evaluations.at_each([nodes, check])
    assert at_nodes[..., 0, 1].tolist() == [[0.0, 1.0, 2.0], [2.0, 3.0, 4.0]]
    assert at_check[0, 0, 0].tolist() == [1.0, 4.0]
    assert (evaluations.known, len(calls)) == (6, 6)
