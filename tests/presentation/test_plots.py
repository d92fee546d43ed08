from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text

from attentest import AttentionTest, Results, plot_margins
from attentest.errors import InputError
from attentest.noise import FromImage
from attentest.presentation.figure import MM, check_figure_path, drawable, save_figure, shown_name
from attentest.presentation.footnotes import caveats_text
from attentest.presentation.many_results_figure import contact_sheet
from attentest.presentation.picture import seen_name
from attentest.presentation.result_figure import draw_density, results_figure
from attentest.presentation.small_picture import displayed, eight_bits, overlay_pixels
from attentest.presentation.words import short_verdict
from attentest.record import ResultRecord
from attentest.results.result import AttentionTestResult
from attentest.search import Certification, Fixed, GridSearch
from attentest.statistics.alternative import Alternative
from attentest.statistics.inference import ConfidenceInterval
from attentest.statistics.law import Law
from attentest.statistics.selection_laws import RandomisedNormal, TruncatedNormal
from toys import SoftmaxScores, tiny_vit
from truncated import known_set

IMAGE = np.array([[2.0, 0.3], [-0.4, 0.9]])
GRID = GridSearch(step=Fixed(step=0.05))


@pytest.fixture(scope="module", autouse=True)
def no_windows() -> Iterator[None]:
    before = mpl.get_backend()
    plt.switch_backend("agg")
    yield
    plt.switch_backend(before)


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
    assert [text.get_text() for text in curve.texts] == [f"statistic T of the image = {result.statistic:.4g}"]
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


@pytest.mark.parametrize("width", [80.0, 180.0])
@pytest.mark.parametrize(("t", "z", "sets"), [(12.06, 12.5, [[11.0, 12.6]]), (-12.06, -12.5, [[-12.6, -11.0]])])
def test_the_enlarged_tail_covers_neither_the_density_nor_the_statistic(
    tested: AttentionTestResult, width: float, t: float, z: float, sets: list[list[float]]
) -> None:
    law = RandomisedNormal(statistic=np.array([t]), observed_z=np.array([z]), gamma=np.array([0.5]))
    figure = results_figure([result_of(tested, law, sets, "two-sided").picture()], width=width)
    figure.draw_without_rendering()
    curve = figure.subfigs[0].axes[2].child_axes[0]
    (tail,) = curve.child_axes
    covered = tail.get_tightbbox().transformed(curve.transData.inverted())
    assert covered.y0 > max(patch.get_data().values.max() for patch in curve.patches)
    assert not covered.x0 <= t <= covered.x1


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


@pytest.fixture(scope="module")
def randomised() -> AttentionTestResult:
    image = np.random.default_rng(0).normal(size=(8, 8)) + 4.0 * np.outer(np.arange(8) < 3, np.arange(8) < 3)
    return AttentionTest(tiny_vit(), noise=1.0, randomise=0.5)(image, certification=Certification(draws=19))


def drawn_image(axes: Any) -> Any:
    """The image that is below all else on axes."""
    return np.asarray(axes.images[0].get_array())


def test_the_image_is_shown_as_it_is_and_beside_it_by_name_what_the_model_saw(randomised: AttentionTestResult) -> None:
    assert randomised.randomised_image is not None
    image, seen = displayed(randomised.image), displayed(randomised.randomised_image)
    axes = randomised.plot()
    sheet = Results([randomised, randomised]).plot()
    alone = randomised.overlay()
    for shown in (axes[0], *sheet, alone):
        assert np.array_equal(drawn_image(shown), image)
    for figure in (sheet[0].figure, alone.figure):
        assert any("image plus noise" in other.get_xlabel() for other in figure.axes)  # type: ignore[union-attr]
    named = [other for other in [axes[1], *sheet[0].figure.axes, *alone.figure.axes] if other.images]  # type: ignore[union-attr]
    named = [other for other in named if np.array_equal(drawn_image(other), seen)]
    assert len(named) == 4  # one of the plot, two of the sheet, one beside the overlay
    for shown in named:
        assert " ".join(f"{shown.get_title()}{shown.get_xlabel()}".split()) == seen_name(False)
    assert len(axes) == 4
    with pytest.raises(InputError, match="axes must be a list of 4 Matplotlib Axes"):
        randomised.plot(plt.figure().subplots(1, 3))
    below = randomised.overlay(plt.figure().add_subplot())
    assert np.array_equal(drawn_image(below), image)
    assert below.get_xlabel() == "image; region of image plus noise"


def box(text: Any) -> Any:
    text.figure.canvas.draw()
    return text.get_window_extent()


@pytest.mark.parametrize("layout", [None, "constrained"])
def test_labels_fit_on_small_axes(randomised: AttentionTestResult, layout: Any) -> None:
    result = replace(randomised, certificate=None)
    label = box(result.overlay(plt.figure(figsize=(2, 2), layout=layout).add_subplot()).xaxis.label)
    assert label.x0 >= 0
    assert label.x1 <= 200  # at 100 dots per inch
    assert label.y0 >= 0
    figure = plt.figure(figsize=(7, 2), layout=layout)
    *_, density = result.plot(figure.subplots(1, 4))
    assert box(density.title).y1 <= 200
    curve, interval = density.child_axes[:2]
    assert box(interval.title).y1 < box(curve.xaxis.label).y0
    for text in (curve.xaxis.label, interval.xaxis.label, interval.title, *curve.texts):
        assert box(text).x1 <= 700


def test_ranks_are_whole_numbers(tested: AttentionTestResult) -> None:
    assert all(tick == round(tick) for tick in Results([tested, tested]).pvalue_plot().get_xticks())


def test_a_figure_has_one_observed_value_and_others_have_names(
    tested: AttentionTestResult, randomised: AttentionTestResult
) -> None:
    for result in (tested, randomised):
        figure = results_figure([result.picture()])
        texts = [text.get_text() for text in figure.findobj(Text)]  # type: ignore[attr-defined]
        assert [text for text in texts if "observed" in text] == ["\u25c6 observed difference, \u25cf estimate"]
        assert f"statistic T of the image = {result.statistic:.4g}" in texts
    test = AttentionTest(tiny_vit(), noise=1.0, randomise=0.5)
    z = float(randomised.law.z_obs[0])
    for asked, name in ((test, f"z of the randomised image = {z:.4g}"), (test.replace(randomise=0), "statistic T =")):
        labels = [text.get_text() for text in plot_margins(asked, randomised.image, points=3).get_legend().get_texts()]  # type: ignore[union-attr]
        assert name in labels[-1]
        assert not any("observed z" in label for label in labels)


def test_a_photograph_keeps_its_colours(randomised: AttentionTestResult) -> None:
    photograph = np.random.default_rng(0).uniform(0, 255, size=(8, 8, 3))
    coloured = replace(randomised, image=photograph, randomised_image=None)
    for axes in (coloured.overlay(), coloured.plot()[0], Results([coloured]).plot()[0]):
        assert len(axes.images) == 1  # no map over it
        assert np.array_equal(drawn_image(axes), displayed(photograph))
    pixels = overlay_pixels(
        eight_bits(displayed(photograph)), coloured.attention, np.zeros((8, 8), bool), np.zeros((8, 8), bool), 8
    )
    assert np.array_equal(pixels, eight_bits(displayed(photograph)))


def test_a_map_that_is_not_of_attention_is_a_saliency_map(
    tested: AttentionTestResult, randomised: AttentionTestResult
) -> None:
    for result, kind in ((tested, "saliency"), (randomised, "attention")):  # a score function, and a transformer
        assert result.plot()[-2].get_title() == f"{kind} map"
        assert f"the mean of this {kind} region" in result.verdict()
        assert ResultRecord.from_dict(result.to_dict()).map_kind == kind


def test_p_values_that_span_decades_have_a_logarithmic_axis(tested: AttentionTestResult) -> None:
    def line(pvalues: list[float]) -> Any:
        logs = [float(np.log(p)) for p in pvalues]
        return Results([replace(tested, log_pvalue=log, log_pvalue_bounds=(log, log)) for log in logs]).pvalue_plot()

    tiny = [1e-320, 1e-100, 1e-30, 1e-9, 1e-6, 0.2, 1.0]
    axes = line(tiny)
    assert axes.get_yscale() == "log"
    drawn = next(curve for curve in axes.lines if curve.get_label() == "selective").get_ydata()
    assert np.allclose(np.log(drawn), np.log(np.maximum(tiny, 1e-307)))
    assert axes.get_ylim()[0] <= drawn[0]
    assert "1" in [text.get_text() for text in axes.get_yticklabels()]
    assert line([0.02, 0.3, 0.5, 0.9]).get_yscale() == "linear"


def test_what_is_not_axes_is_refused(tested: AttentionTestResult) -> None:
    with pytest.raises(InputError, match="axes must be a list of 3 Matplotlib Axes"):
        tested.plot([plt.figure().add_subplot()])
    with pytest.raises(InputError, match="ax must be Matplotlib Axes or None for a new figure, got 1 of type str"):
        tested.overlay("ax")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="width must be"):
        tested.plot(width=-3)
    with pytest.raises(InputError, match="nothing to draw"):
        Results([]).plot()
    with pytest.raises(InputError, match="nothing to draw"):
        results_figure([])


@pytest.fixture(scope="module")
def doubtful() -> AttentionTestResult:
    """A result with noise estimated from the image itself, and in other units, compared with a ring."""
    test = AttentionTest(tiny_vit(image_size=16), noise=FromImage("sample"), contrast="neighbourhood:3")
    result = test(np.random.default_rng(0).normal(size=(16, 16)))
    strong = AttentionTest(tiny_vit(image_size=16), noise=100.0)(result.image)
    assert strong.noise_doubt is not None
    return replace(result, settings={**result.settings, "noise_doubt": strong.noise_doubt})


@pytest.mark.parametrize("width", [80.0, 180.0])
def test_the_figure_says_what_must_be_known_of_noise_and_ring(doubtful: AttentionTestResult, width: float) -> None:
    figure = results_figure([doubtful.picture()], width=width)
    words = " ".join(figure.subfigs[0].texts[-1].get_text().split())
    assert "The surroundings are a ring 3 pixels wide." in words
    assert "Approximate: the noise was estimated from the tested image itself" in words
    assert "The noise is doubtful: the finest details of the image are much smaller" in words
    title = figure.subfigs[0].axes[2].get_title()
    assert f"{short_verdict(doubtful.reject_at(0.05), 0.05)}, approximate" in " ".join(title.split())


def test_the_figure_says_no_more_where_there_is_nothing_to_know(tested: AttentionTestResult) -> None:
    assert caveats_text(tested.picture().record) == ""


@pytest.mark.parametrize("width", [80.0, 180.0])
@pytest.mark.parametrize("style", ["default", "dark_background"])
@pytest.mark.parametrize("kind", ["plain", "randomised and certified", "not converged", "doubtful"])
def test_nothing_lies_outside_the_figure_or_on_something_else(
    tested: AttentionTestResult,
    randomised: AttentionTestResult,
    doubtful: AttentionTestResult,
    width: float,
    style: str,
    kind: str,
) -> None:
    far = result_of(tested, TruncatedNormal(statistic=np.array([312.5])), [[300.0, 320.0]], "two-sided")
    wide = replace(tested, log_pvalue_bounds=(-700.0, -0.1), status="max_evaluations", seen=np.ones((1000, 1000), bool))
    long = replace(randomised, naive_log_pvalue=-75.0)
    shown = {"plain": far, "randomised and certified": long, "not converged": wide, "doubtful": doubtful}[kind]
    with plt.style.context(style):
        figure = results_figure([shown.picture("name " * 40)], width=width)
        figure.draw_without_rendering()
    assert figure.get_size_inches()[0] == pytest.approx(width * MM)
    rows = figure.subfigs[0]
    *pictures, density = rows.axes[: 4 if kind.startswith("randomised") else 3]
    image, attention = pictures[0], pictures[-1]
    boxes = [axes.get_window_extent() for axes in (*pictures, density)]
    assert boxes[0].width == pytest.approx(boxes[1].width)
    assert boxes[0].y1 == pytest.approx(boxes[1].y1)
    if width == 180:
        assert boxes[-1].y1 == pytest.approx(boxes[0].y1)
    titles = [axes.title.get_window_extent() for axes in (*pictures, density)]
    for first, other in combinations([*boxes, *titles], 2):
        assert not first.overlaps(other)
    everything = figure.get_tightbbox()  # in inches
    assert everything.x0 >= 0
    assert everything.y0 >= 0
    assert everything.x1 <= width * MM
    assert everything.y1 <= figure.get_size_inches()[1]
    # The frame of the density is no part of that box. A millimetre is left, as letters are wider at other resolutions.
    edge = MM * figure.dpi
    for text in [density.title, *(text for axes in density.child_axes for text in (axes.title, *axes.texts))]:
        box = text.get_window_extent()
        assert figure.bbox.x0 + edge <= box.x0, text
        assert box.x1 <= figure.bbox.x1 - edge, text
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
    assert "1 image with the smallest p of 3" in contact_sheet([many[1].picture()], total=3)[0].figure.get_suptitle()
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
    read = replace(live, record=ResultRecord.from_dict(live.record.to_dict()))
    titles = []
    for picture in (live, read):
        figure = results_figure([picture])
        densities = figure.subfigs[0].axes[2].child_axes[0]
        titles.append((figure.subfigs[0].axes[2].get_title(), filled_areas(densities)))
    assert titles[0] == titles[1]


def test_names_are_shown_as_they_are_shortened_and_in_letters_that_can_be_drawn() -> None:
    assert shown_name("scan.png", 20)["s"] == "scan.png"
    assert shown_name("a" * 30 + "b" * 30, 21)["s"] == "a" * 10 + "…" + "b" * 10
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
