from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from attentest import AttentionTest, InputError
from attentest.results.plots import (
    EXTREME_COLOUR,
    Panel,
    check_figure_path,
    draw_truncation_set,
    results_figure,
    save_figure,
)
from attentest.search import Fixed, GridSearch
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
