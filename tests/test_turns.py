"""Searches that take turns: the same results as one search of all images, in the same order, with the same messages."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from attentest import AttentionTest
from attentest.errors import SearchError
from attentest.search import SearchProblem, SpectralSearch
from attentest.search.spectral import search as spectral
from attentest.search.spectral.run import Rounds
from attentest.search.spectral.turns import in_turns
from toys import curve_problem, tiny_vit

IMAGES = np.random.default_rng(4).normal(size=(7, 8, 8))


@pytest.fixture
def divided(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function from whose call on searches are divided in three, as if on a GPU with many images."""

    def parts(problem: SearchProblem) -> list[SearchProblem]:
        return [problem.part(first, end) for first, end in ((0, 2), (2, 3), (3, len(problem.law)))]

    return lambda: monkeypatch.setattr(spectral, "_parts", parts)


def test_runs_take_turns_until_each_is_done() -> None:
    order: list[str] = []

    def run(name: str, rounds: int) -> Rounds:
        for number in range(rounds):
            order.append(name)
            yield number / rounds
        return [name]  # type: ignore[list-item]  # any outcome will do

    reports: list[float] = []
    outcomes = in_turns([run("a", 3), run("b", 1), run("c", 2)], torch.device("cpu"), reports.append)
    assert "".join(order) == "abcaca"
    assert outcomes == ["a", "b", "c"]
    assert reports == sorted(reports)
    assert reports[-1] == 1.0


@pytest.mark.parametrize(("precision", "level"), [("float64", 0.9), ("mixed", None)])
def test_divided_images_have_the_same_results(divided: Callable[[], None], precision: str, level: float | None) -> None:
    search = SpectralSearch(precision=precision, tol=1e-4)
    test = AttentionTest(tiny_vit(), noise=1.0, search=search, confidence_level=level)
    together = test.map(IMAGES)
    divided()
    for ours, theirs in zip(test.map(IMAGES), together, strict=True):
        # In float32 what an image is evaluated with changes the last digits, and so the number of evaluations a little.
        assert ours.pvalue == pytest.approx(theirs.pvalue, abs=1e-12 if precision == "float64" else 1e-4)
        assert ours.evaluations == pytest.approx(theirs.evaluations, abs=0 if precision == "float64" else 10)
        assert ours.statistic == theirs.statistic
        if level is not None:
            assert tuple(ours.confidence_interval(level)) == pytest.approx(tuple(theirs.confidence_interval(level)))


def test_an_error_names_the_image_and_not_its_place_in_a_part(divided: Callable[[], None]) -> None:
    def scores(image: Tensor, z: Tensor) -> Tensor:
        return torch.where((image == 4) & (z > 2.0), torch.nan, z - 1.5)[:, None, None]

    problem = replace(curve_problem([1.0] * 7, torch.sin), scores=scores, image_numbers=np.arange(100, 107))
    with pytest.raises(SearchError, match="image 104 is NaN or infinite at z"):
        SpectralSearch().find(problem)
    divided()
    with pytest.raises(SearchError, match="image 104 is NaN or infinite at z"):
        SpectralSearch().find(problem)


def test_images_in_parts_keep_their_own_levels_and_seeds(divided: Callable[[], None]) -> None:
    options = dict(confidence_level=np.linspace(0.5, 0.99, 7), seeds=np.arange(7, dtype=np.uint64))
    problem = curve_problem([0.3, -1.0, 1.2, 0.1, -0.4, 0.9, 1.4], lambda z: torch.cos(2 * z) * z - 1.5, **options)
    together = SpectralSearch().find(problem)
    assert len({outcome.evaluations for outcome in together}) > 3
    divided()
    for ours, theirs in zip(SpectralSearch().find(problem), together, strict=True):
        np.testing.assert_allclose(ours.intervals, theirs.intervals, atol=1e-12)
        assert (ours.evaluations, ours.audit) == (theirs.evaluations, theirs.audit)
