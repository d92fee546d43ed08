from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from attentest import AttentionTest, InputError
from attentest.results.figure_file import check_figure_path, save_figure
from attentest.results.plots import (
    EXTREME_COLOUR,
    Panel,
    draw_conditional_density,
    draw_truncation_set,
    results_figure,
)
from attentest.results.result import AttentionTestResult
from attentest.search import Fixed, GridSearch
from attentest.statistics.alternative import Alternative
from attentest.statistics.randomised_normal import RandomisedNormal
from toys import SoftmaxScores

IMAGE = np.array([[2.0, 0.3], [-0.4, 0.9]])


def dark_range(alternative: str) -> tuple[float, float]:
    """Where on the z axis the figure is dark."""
    search = GridSearch(step=Fixed(step=0.05))
    test = AttentionTest(SoftmaxScores(), noise=1.0, search=search, alternative=alternative)  # type: ignore[arg-type]
    axes = Figure().add_subplot()
    draw_truncation_set(axes, test(IMAGE))
    dark = [c for c in axes.collections if to_hex(c.get_facecolor()[0]) == EXTREME_COLOUR]
    points = np.concatenate([path.vertices[:, 0] for c in dark for path in c.get_paths()])
    return points.min(), points.max()


def test_dark_is_what_the_alternative_calls_extreme() -> None:
    z = AttentionTest(SoftmaxScores(), noise=1.0, search=GridSearch(step=Fixed(step=0.05)))(IMAGE).statistic
    assert dark_range("two-sided")[0] == pytest.approx(z)
    assert dark_range("greater")[0] == pytest.approx(z)
    assert dark_range("less")[1] == pytest.approx(z)


def randomised_result(t: float, z: float, gamma: float, intervals: list[list[float]]) -> AttentionTestResult:
    known = np.array(intervals)
    return replace(
        AttentionTest(SoftmaxScores(), noise=1.0, search=GridSearch(step=Fixed(step=0.05)))(IMAGE),
        law=RandomisedNormal(statistic=np.array([t]), observed_z=np.array([z]), gamma=np.array([gamma])),
        intervals=known,
        certain_intervals=known,
        possible_intervals=known,
    )


@pytest.mark.parametrize(
    ("t", "z", "gamma", "intervals", "alternative"),
    [
        (1.2, 0.9, 0.5, [[-0.5, 1.4]], "two-sided"),
        (16.3, 21.0, 0.5, [[20.0, 40.0]], "greater"),
        (27.8, 26.0, 0.5, [[20.0, 40.0]], "less"),
        (-300.0, -301.0, 0.01, [[-302.0, -150.0], [-2.0, -1.0]], "two-sided"),
    ],
)
def test_the_density_of_a_randomised_statistic_has_area_one_and_its_dark_part_is_p(
    t: float, z: float, gamma: float, intervals: list[list[float]], alternative: Alternative
) -> None:
    result = randomised_result(t, z, gamma, intervals).with_alternative(alternative)
    axes = Figure().add_subplot()
    draw_conditional_density(axes, result)
    areas = [np.sum(step.values * np.diff(step.edges)) for step in (patch.get_data() for patch in axes.patches)]
    assert areas == pytest.approx([1, result.pvalue], abs=2e-4)
    assert axes.get_xlim()[0] < t < axes.get_xlim()[1]
    assert [text.get_text() for text in axes.texts] == [f"T = {t:.2f}"]


def test_far_from_zero_the_density_is_where_the_set_begins() -> None:
    # T given z = 20 is N(16, 0.2), and nearly all of the mass of z beyond 20 is just there.
    axes = Figure().add_subplot()
    draw_conditional_density(axes, randomised_result(27.8, 26.0, 0.5, [[20.0, 40.0]]))
    at, density = axes.lines[0].get_data()
    assert at[np.argmax(density)] == pytest.approx(16, abs=0.2)
    assert density.max() == pytest.approx(1 / np.sqrt(2 * np.pi * 0.2), rel=0.02)


def test_the_title_shows_an_estimate_as_the_table_does() -> None:
    result = AttentionTest(SoftmaxScores(), noise=1.0)(IMAGE)
    low, high = result.estimate_bounds
    for status, text in (("converged", f"{result.estimate:.3g}"), ("decided", f"{low:.3g} to {high:.3g}")):
        axes = Figure().add_subplot()
        draw_truncation_set(axes, replace(result, status=status))
        assert f",  estimate {text},  " in axes.get_title()


def test_any_title_is_taken_literally_and_every_format_is_written(tmp_path: Path) -> None:
    result = AttentionTest(SoftmaxScores(), noise=1.0, search=GridSearch(step=Fixed(step=0.05)))(IMAGE)
    figure = results_figure([Panel(title=r"a$\frac$b", image=IMAGE, result=result)])
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
    with pytest.raises(InputError, match="nothing to draw"):
        results_figure([])
