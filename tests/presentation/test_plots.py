from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from attentest import AttentionTest, InputError, Results, plot_margins
from attentest.presentation.figure import check_figure_path, drawable, save_figure, shortened_name
from attentest.presentation.many_results_figure import contact_sheet
from attentest.presentation.picture import displayed
from attentest.presentation.result_figure import MM, draw_density, results_figure
from attentest.record import ResultRecord
from attentest.results.result import AttentionTestResult
from attentest.search import Fixed, GridSearch
from attentest.statistics.alternative import Alternative
from attentest.statistics.confidence_interval import ConfidenceInterval
from attentest.statistics.law import Law
from attentest.statistics.randomised_law import RandomisedNormal
from attentest.statistics.truncated_law import TruncatedNormal
from toys import SoftmaxScores
from truncated import known_set

IMAGE = np.array([[2.0, 0.3], [-0.4, 0.9]])
GRID = GridSearch(step=Fixed(step=0.05))


@pytest.fixture(scope="module", autouse=True)
def no_windows() -> Iterator[None]:
    before = mpl.get_backend()
    plt.switch_backend("agg")
    yield
    plt.switch_backend(before)


@pytest.fixture(autouse=True)
def closed_figures() -> Iterator[None]:
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def tested() -> AttentionTestResult:
    return AttentionTest(SoftmaxScores(), noise=1.0)(IMAGE)


def result_of(known: AttentionTestResult, law: Law, intervals: list[list[float]], alternative: str) -> Any:
    changed = replace(known, law=law, truncation_set=known_set(np.array(intervals)))
    return changed.with_alternative(alternative)  # type: ignore[arg-type]


def filled_areas(axes: Any) -> list[float]:
    """The areas of all of the curve and of its dark part."""
    filled = [patch.get_data() for patch in axes.patches if patch.get_fill()]
    return [float(np.sum(step.values * np.diff(step.edges))) for step in filled]


HARD = [
    (1.2, [[-3.0, -2.5], [0.7, 1.5], [2.0, 2.2]], "two-sided"),
    (-1.2, [[-1.6, 0.4]], "greater"),
    (2.868, [[2.832, 3.0]], "two-sided"),
    (1.0, [[-50.0, 50.0]], "less"),
    (31.0, [[30.9, 31.02], [40.0, 41.0]], "two-sided"),
    (1.4, [[0.7, 1.5]], "equal-tailed"),
    (-1.4, [[-4.0, -1.3]], "equal-tailed"),
]
SOFT = [
    (1.2, 0.9, 0.5, [[-0.5, 1.4]], "two-sided"),
    (16.3, 21.0, 0.5, [[20.0, 40.0]], "greater"),
    (27.8, 26.0, 0.5, [[20.0, 40.0]], "less"),
    (-300.0, -301.0, 0.01, [[-302.0, -150.0], [-2.0, -1.0]], "two-sided"),
    (0.1, 0.9, 0.5, [[0.5, 1.4]], "equal-tailed"),
]


def laws() -> list[tuple[Law, list[list[float]], Alternative]]:
    hard = [(TruncatedNormal(statistic=np.array([t])), sets, side) for t, sets, side in HARD]
    soft = [
        (RandomisedNormal(statistic=np.array([t]), observed_z=np.array([z]), gamma=np.array([gamma])), sets, side)
        for t, z, gamma, sets, side in SOFT
    ]
    return [*hard, *soft]  # type: ignore[list-item]


@pytest.mark.parametrize(("law", "intervals", "alternative"), laws())
def test_the_dark_share_of_the_area_is_p(
    tested: AttentionTestResult, law: Law, intervals: list[list[float]], alternative: Alternative
) -> None:
    result = result_of(tested, law, intervals, alternative)
    axes = Figure().add_subplot()
    draw_density(axes, result.record())
    curve = axes.child_axes[0]
    dark = result.pvalue / 2 if alternative == "equal-tailed" else result.pvalue
    assert filled_areas(curve) == pytest.approx([1, dark], abs=2e-4)
    assert curve.get_xlabel().endswith("dark: half of p" if alternative == "equal-tailed" else "dark: p")
    assert curve.get_xlim()[0] < result.statistic < curve.get_xlim()[1]
    assert [text.get_text() for text in curve.texts] == [f"observed z = {result.statistic:.4g}"]
    assert curve.get_yscale() == "linear"


@pytest.mark.parametrize(("t", "sets"), [(10.7, [[5.0, 12.0]]), (-45.0, [[-46.0, -40.0], [39.9, 39.95]])])
def test_a_tail_too_small_to_see_is_shown_again(tested: AttentionTestResult, t: float, sets: list[list[float]]) -> None:
    result = result_of(tested, TruncatedNormal(statistic=np.array([t])), sets, "two-sided")
    axes = Figure().add_subplot()
    draw_density(axes, result.record())
    (tail,) = axes.child_axes[0].child_axes
    whole, dark = filled_areas(tail)
    assert result.pvalue < 0.005
    assert dark > 0.3 * whole > 0  # it fills a good part of the enlargement
    assert tail.get_xlim()[0] < t < tail.get_xlim()[1]


def test_what_is_extreme_is_what_the_alternative_says(tested: AttentionTestResult) -> None:
    law = TruncatedNormal(statistic=np.array([1.2]))
    for alternative, expected in (("greater", (1.2, 1.5)), ("less", (0.7, 1.2))):
        axes = Figure().add_subplot()
        draw_density(axes, result_of(tested, law, [[0.7, 1.5]], alternative).record())
        dark = [patch.get_data() for patch in axes.child_axes[0].patches if patch.get_fill()][1]
        some = dark.values > 0
        assert (dark.edges[:-1][some].min(), dark.edges[1:][some].max()) == pytest.approx(expected, abs=1e-6)


def test_far_from_zero_the_density_is_where_the_set_begins(tested: AttentionTestResult) -> None:
    # T given z = 20 is N(16, 0.2), and nearly all of the mass of z beyond 20 is just there.
    law = RandomisedNormal(statistic=np.array([27.8]), observed_z=np.array([26.0]), gamma=np.array([0.5]))
    axes = Figure().add_subplot()
    draw_density(axes, result_of(tested, law, [[20.0, 40.0]], "two-sided").record())
    step = next(patch.get_data() for patch in axes.child_axes[0].patches if patch.get_fill())
    assert step.edges[np.argmax(step.values)] == pytest.approx(16, abs=0.2)
    assert step.values.max() == pytest.approx(1 / np.sqrt(2 * np.pi * 0.2), rel=0.02)


def test_the_interval_is_drawn_in_the_units_of_the_difference(tested: AttentionTestResult) -> None:
    low, high = tuple(tested.confidence_interval())[:2]
    axes = Figure().add_subplot()
    draw_density(axes, tested.record())
    strip = axes.child_axes[1]
    assert strip.get_title() == f"95% interval: {low:.3g} to {high:.3g}"
    bar = next(line for line in strip.lines if len(line.get_xdata()) == 2 and line.get_linewidth() > 2)
    start, end = bar.get_xdata()  # type: ignore[misc]
    assert start >= low - 1e-12
    assert end <= high + 1e-12
    assert strip.get_xlim()[0] < min(0.0, tested.difference)
    assert strip.get_xlim()[1] > max(0.0, tested.difference)
    no_interval = AttentionTest(SoftmaxScores(), noise=1.0, confidence_level=None)(IMAGE)
    axes = Figure().add_subplot()
    draw_density(axes, no_interval.record())
    assert len(axes.child_axes) == 1


def test_two_lines_from_a_result_to_a_picture(tested: AttentionTestResult, tmp_path: Path) -> None:
    axes = tested.plot(title="one")
    axes[0].figure.savefig(tmp_path / "one.png")
    words = [text.get_text() for text in axes[0].figure.texts]  # type: ignore[union-attr]
    assert words[0] == "one"
    assert " ".join(words[1].split()).startswith(tested.verdict())
    assert f"selective p = {tested.pvalue:.3g}" in axes[2].get_title()
    alone = tested.overlay(title="a$_1$")
    assert alone.get_title() == "a$_1$"
    assert np.array_equal(alone.images[0].get_array(), displayed(IMAGE))  # type: ignore[arg-type]
    given = plt.figure().subplots(1, 3)
    assert tested.plot(given) == list(given)
    assert tested.overlay(given[0]) is given[0]
    assert tested.density_plot(given[2]) is given[2]


def test_what_is_not_axes_is_refused(tested: AttentionTestResult) -> None:
    with pytest.raises(InputError, match="axes must be a list of 3 Matplotlib Axes"):
        tested.plot([plt.figure().add_subplot()])
    with pytest.raises(InputError, match="axes must be Matplotlib Axes or None for a new figure, got 1 of type str"):
        tested.overlay("ax")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="width must be"):
        tested.plot(width=-3)
    with pytest.raises(InputError, match="nothing to draw"):
        Results([]).plot()
    with pytest.raises(InputError, match="nothing to draw"):
        results_figure([])


@pytest.mark.parametrize("width", [80.0, 180.0])
@pytest.mark.parametrize("style", ["default", "dark_background"])
def test_nothing_lies_outside_the_figure_or_on_something_else(
    tested: AttentionTestResult, width: float, style: str
) -> None:
    far = result_of(tested, TruncatedNormal(statistic=np.array([312.5])), [[300.0, 320.0]], "two-sided")
    with plt.style.context(style):
        figure = results_figure([far.picture("name " * 40)], width=width)
        figure.draw_without_rendering()
    assert figure.get_size_inches()[0] == pytest.approx(width * MM)
    rows = figure.subfigs[0]
    image, attention, density = rows.axes[:3]
    boxes = [axes.get_window_extent() for axes in (image, attention, density)]
    assert boxes[0].width == pytest.approx(boxes[1].width)
    assert boxes[0].y1 == pytest.approx(boxes[1].y1)
    if width == 180:
        assert boxes[2].y1 == pytest.approx(boxes[0].y1)
        assert boxes[2].width == pytest.approx(boxes[0].width)
    everything = figure.get_tightbbox()  # in inches
    assert everything.x0 >= 0
    assert everything.y0 >= 0
    assert everything.x1 <= width * MM
    assert everything.y1 <= figure.get_size_inches()[1]
    name, verdict = (text.get_window_extent() for text in rows.texts)
    assert name.y0 > max(axes.title.get_window_extent().y1 for axes in (image, attention))
    assert verdict.y1 < min(box.y0 for box in boxes)
    luminance = sum(to_rgb(figure.get_facecolor())) / 3
    assert (luminance < 0.5) == (style == "dark_background")


def test_many_results_are_a_sheet_sorted_by_p(tested: AttentionTestResult) -> None:
    pvalues = [0.3, 0.001, 0.04]
    many = [
        replace(tested, log_pvalue=float(np.log(p)), log_pvalue_bounds=(float(np.log(p)), float(np.log(p))))
        for p in pvalues
    ]
    results = Results(many, ["a", "b", "c"])
    axes = results.plot()
    assert [one.get_title() for one in axes] == ["b", "c", "a"]
    assert [one.get_xlabel() for one in axes] == ["p = 0.001", "p = 0.04", "p = 0.3"]
    assert [one.get_title() for one in results.plot(most=1)] == ["b"]
    assert "1 image with the smallest p of 3" in contact_sheet([many[1].picture()], total=3).get_suptitle()
    line = results.pvalue_plot(alpha=0.1)
    assert "3 images: 2 with p at most 0.1, 2 after adjustment" in line.get_title()
    assert {text.get_text() for text in line.get_legend().get_texts()} >= {"selective", "naive (not valid)"}  # type: ignore[union-attr]


def test_margins_are_positive_exactly_where_the_region_is_another(tested: AttentionTestResult) -> None:
    test = AttentionTest(SoftmaxScores(), noise=1.0)
    axes = plot_margins(test, IMAGE, points=2001)
    curves = np.array([line.get_ydata() for line in axes.lines if len(line.get_xdata()) == 2001])
    z = np.asarray(axes.lines[0].get_xdata())
    same = (curves <= 0).all(axis=0)
    inside = ((z[:, None] >= tested.intervals[:, 0]) & (z[:, None] <= tested.intervals[:, 1])).any(axis=1)
    steps = np.diff(z)[0]
    near_an_end = np.abs(z[:, None] - tested.intervals.ravel()).min(axis=1) < 2 * steps
    assert len(curves) == IMAGE.size
    compared = ~near_an_end & (np.abs(z) < 4)  # farther out nothing matters, and the search did not look
    assert np.array_equal(same[compared], inside[compared])


def test_a_record_draws_the_picture_of_its_result(tested: AttentionTestResult) -> None:
    live = tested.picture("one")
    read = replace(live, record=ResultRecord.from_json(live.record.to_json()))
    titles = []
    for picture in (live, read):
        figure = results_figure([picture])
        densities = figure.subfigs[0].axes[2].child_axes[0]
        titles.append((figure.subfigs[0].axes[2].get_title(), filled_areas(densities)))
    assert titles[0] == titles[1]


def test_names_are_shown_as_they_are_shortened_and_in_letters_that_can_be_drawn() -> None:
    assert shortened_name("scan.png", 20) == "scan.png"
    assert shortened_name("a" * 30 + "b" * 30, 21) == "a" * 9 + "…" + "b" * 9
    assert drawable("a\x1b[0m\udc80")[0] == "a\\x1b[0m\\udc80"
    text, families = drawable("脳.png")
    assert text in ("脳.png", "\\u8133.png")
    assert (len(families) > 1) == (text == "脳.png")


def test_any_title_is_taken_literally_and_every_format_is_written(tested: AttentionTestResult, tmp_path: Path) -> None:
    figure = results_figure([tested.picture(r"a$\frac$b 脳 <b>")])
    for suffix in (".png", ".svg", ".pdf"):
        path = tmp_path / "sub" / f"figure{suffix}"
        check_figure_path(path)
        save_figure(figure, path)
        assert path.stat().st_size > 1000


def test_paths_that_cannot_become_figures_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must end in \.png, \.svg, \.pdf"):
        check_figure_path(tmp_path / "figure.gif")
    with pytest.raises(InputError, match="would overwrite"):
        check_figure_path(tmp_path / "a.png", [tmp_path / "sub" / ".." / "a.png"])
    (tmp_path / "d.png").mkdir()
    with pytest.raises(InputError, match="is a directory"):
        check_figure_path(tmp_path / "d.png")


@pytest.mark.parametrize(
    ("p", "low", "said"), [(0.01, -1.0, True), (0.01, 0.5, False), (0.9, 0.5, True), (0.9, -1.0, False)]
)
def test_the_figure_says_where_p_and_the_interval_disagree(
    tested: AttentionTestResult, p: float, low: float, said: bool
) -> None:
    picture = tested.picture()
    interval = ConfidenceInterval(low=low, high=1.0, confidence_level=0.95)
    record = replace(
        picture.record, log_pvalue=np.log(p), log_pvalue_bounds=(np.log(p), np.log(p)), confidence_interval=interval
    )
    figure = results_figure([replace(picture, record=record)])
    assert ("p and the interval disagree" in " ".join(figure.subfigs[0].texts[1].get_text().split())) == said
