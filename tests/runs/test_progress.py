"""Progress: a bar with ``progress=True``, a function's own calls, and nothing otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from tqdm.std import tqdm

from attentest import AttentionTest, Certification, InputError, calibrate, plan
from attentest.progress import progress_reports
from toys import SoftmaxScores

IMAGES = [np.array([[3.0, 0.1], [0.2, shade]]) for shade in (0.3, 0.4, 0.5)]


@pytest.fixture
def test() -> AttentionTest:
    return AttentionTest(SoftmaxScores(), noise=1.0, confidence_level=None)


def open_bars() -> int:
    return len(tqdm._instances)  # type: ignore[attr-defined]  # the bars that are not closed


CALLS: dict[str, tuple[Callable[[AttentionTest, Any], object], str]] = {
    "map": (lambda test, progress: test.map(IMAGES, progress), "3.0/3 images"),
    "stream": (lambda test, progress: list(test.stream(IMAGES, progress)), "3.0/3 images"),
    "map_components": (lambda test, progress: test.map(IMAGES, progress, components=1), "3.0/3 images"),
    "stream_components": (lambda test, progress: list(test.stream(IMAGES, progress, components=1)), "3.0/3 images"),
    "call": (
        lambda test, progress: test(IMAGES[0], certification=Certification(draws=9), progress=progress),
        "1.0/1 image ",
    ),
    "components": (lambda test, progress: test.components(IMAGES[0], progress=progress), "1.0/1 image "),
    "calibrate": (lambda test, progress: calibrate(test, 2, progress=progress), "2.0/2 images"),
    "plan": (
        lambda test, progress: plan(
            test, 2, randomise=0.5, region_unit="pixels", deltas=1, side=1, confidence_level=None, progress=progress
        ),
        "2.0/2 tests",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_true_shows_a_bar_on_standard_error(name: str, test: AttentionTest, capsys: pytest.CaptureFixture[str]) -> None:
    call, end = CALLS[name]
    call(test, True)
    out, err = capsys.readouterr()
    assert f"100%|██████████| {end}" in err.split("\r")[-1]
    assert out == ""
    assert not open_bars()


@pytest.mark.parametrize("name", CALLS)
def test_a_function_is_called_with_done_and_total(
    name: str, test: AttentionTest, capsys: pytest.CaptureFixture[str]
) -> None:
    call, end = CALLS[name]
    seen: list[tuple[float, int | None]] = []
    call(test, lambda done, total: seen.append((done, total)))
    total = int(end.split("/")[1].split()[0])
    assert seen[-1] == (total, total)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert capsys.readouterr().err == ""


def test_otherwise_nothing_is_shown(test: AttentionTest, capsys: pytest.CaptureFixture[str]) -> None:
    test.map(IMAGES, False)
    test(IMAGES[0], progress=False)
    test.map(IMAGES)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("name", CALLS)
def test_anything_else_is_refused_before_anything_is_computed(name: str, test: AttentionTest) -> None:
    with pytest.raises(InputError, match=r"progress must be True for a bar, False for none, or a function .* got 3\."):
        CALLS[name][0](test, 3)


def test_an_unknown_number_of_images_has_no_percentage(test: AttentionTest, capsys: pytest.CaptureFixture[str]) -> None:
    test.map(iter(IMAGES), True)
    last = capsys.readouterr().err.split("\r")[-1]
    assert last.startswith("testing: 3.0 images [")
    assert "%" not in last


def test_fractions_and_steps_back_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_reports(True, 4) as report:
        assert report is not None
        report(2.5, 4)
        report(1.25, 4)  # a batch that did not fit in memory begins again
    assert "1.2/4 images" in capsys.readouterr().err.split("\r")[-1]


@pytest.mark.parametrize("error", [InputError, KeyboardInterrupt])
def test_a_bar_is_closed_when_a_run_ends_early(
    error: type[BaseException], test: AttentionTest, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> Iterator[Any]:
        yield IMAGES[0]
        raise error

    with pytest.raises(error):
        test.map(interrupted(), True)
    assert not open_bars()
    assert capsys.readouterr().err.endswith("\n")


def test_a_bar_is_closed_when_a_stream_is_left(test: AttentionTest) -> None:
    results = test.stream(IMAGES, True)
    next(results)
    assert open_bars() == 1
    results.close()  # type: ignore[attr-defined]  # a generator
    assert not open_bars()
