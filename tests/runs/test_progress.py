"""Progress: a bar with ``progress=True``, a function's own calls, and nothing otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from tqdm.std import tqdm

from attentest import AttentionTest, calibrate, plan
from attentest.cli.output import progress_bar
from attentest.errors import InputError
from attentest.pipeline.many_images import stream_batches
from attentest.progress import Forecast, progress_reports, remaining_text
from attentest.search import Certification
from attentest.search.spectral.search import Run
from toys import SoftmaxScores, tiny_vit

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
            test.replace(confidence_level=None),
            2,
            randomise=0.5,
            region_unit="pixels",
            deltas=1,
            side=1,
            progress=progress,
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


def test_a_bar_is_closed_when_a_stream_is_left(test: AttentionTest, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []  # so that the end of the stream closes it, not the memory that is freed

    def batches(*arguments: Any, **options: Any) -> Any:
        kept.append(stream_batches(*arguments, **options))
        return kept[0]

    monkeypatch.setattr("attentest.pipeline.attention_test.stream_batches", batches)
    before = open_bars()
    results = test.stream(IMAGES, True)
    next(results)
    assert open_bars() == before + 1
    results.close()  # type: ignore[attr-defined]  # a generator
    assert open_bars() == before


def seconds_left(reports: Sequence[tuple[float, float | None, float]]) -> list[float | None]:
    """Return the forecasts after reports of (done, total, time)."""
    forecast = Forecast()
    return [forecast.seconds_left(*report) for report in reports]


def test_a_forecast_is_made_from_what_is_done_and_not_from_too_little() -> None:
    assert seconds_left([(0.1 * i, 3, 15.0 * i) for i in range(4)])[1:] == [None, None, pytest.approx(405)]
    assert seconds_left([(i, 1_000_000, 2.0 * i) for i in range(4)])[-1] == pytest.approx(2e6, rel=1e-3)
    for done, total, elapsed in ((0.001, 3, 60.0), (1.0, 3, 1.0), (0.1, None, 60.0)):
        assert seconds_left([(done * i, total, elapsed * i) for i in range(4)]) == [None] * 4
    assert seconds_left([(i, 3, 60.0 * i) for i in range(4)])[-1] == 0.0
    assert (remaining_text(405.0), remaining_text(15.0), remaining_text(None)) == (
        "about 7 min left",
        "about 15 s left",
        "",
    )


def test_what_went_before_and_a_slow_beginning_are_no_part_of_a_forecast() -> None:
    reading = [(i, 12, 0.1 * i) for i in range(13)]
    checking = [(i, 159, 15.0 + 0.5 * i) for i in range(20)]  # after 13 seconds of a fit
    left = seconds_left([*reading, *checking])
    assert left[-1] == pytest.approx(0.5 * (159 - 19))
    assert left[: len(reading) + 9] == [None] * 22
    slow = [(0, 20, 0.6), (0.5, 20, 5.4), (4.8, 20, 8.3), (10.9, 20, 11.2), (15.3, 20, 12.4)]
    assert all(seconds is None or seconds < 10 for seconds in seconds_left(slow))  # a batch, and its first step


def test_what_takes_more_than_ten_seconds_says_so_in_one_line_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for step, said in ((2.0, ""), (50.0, "drawing: about 5 min in all\n")):
        times = iter([0.0, *(step * i for i in range(7))])
        monkeypatch.setattr("attentest.cli.output.monotonic", times.__next__)
        with progress_bar("testing 3 images") as move:
            for done in range(7) if said else (0, 0.5, 5, 6):
                move(0.5 * done, 3, "drawing")
        assert capsys.readouterr().err == said


@pytest.mark.parametrize(("level", "least", "most"), [(None, 0.1, 0.6), (0.95, 0.3, 0.7)])
def test_what_is_done_of_a_search_is_about_its_share_of_the_evaluations(
    level: float | None, least: float, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By how far error bars have shrunk alone, it was 0.04 of p after 0.6, and 0.95 with an interval after half."""
    reports: list[tuple[float, float]] = []
    outcomes = Run.outcomes

    def watched(run: Run, report: Any) -> Any:
        return outcomes(run, lambda share: reports.append((share, float(run._interpolation.evaluations.sum()))))

    monkeypatch.setattr(Run, "outcomes", watched)
    test = AttentionTest(tiny_vit(), noise=1.0, confidence_level=level)
    test.map(np.random.default_rng(0).normal(size=(12, 8, 8)))
    shares, evaluations = np.array(reports).T
    halfway = np.interp(0.55, evaluations / evaluations[-1], shares)
    assert least < halfway < most
