"""Pictures of example slices, and the room of a result."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes

from attentest.presentation.figure import png_of
from attentest.statistics.selection_laws import RandomisedNormal
from attentest.studies.brain.condition import PAPER
from attentest.studies.brain.page import gallery_figure
from attentest.studies.brain.study import room_of
from attentest.studies.brain.summary import Gallery, example_galleries
from brain_gallery import FakeTests, gallery, result, slices_of, split
from truncated import known_set, normal

full_figure = partial(gallery_figure, maps_only=False)
maps_figure = partial(gallery_figure, maps_only=True)


def shown(monkeypatch: pytest.MonkeyPatch, draw: Any, pictures: Gallery) -> tuple[list[Any], list[Any]]:
    """The images and the outlined areas of a figure."""
    images: list[Any] = []
    areas: list[Any] = []
    plain = Axes.imshow
    monkeypatch.setattr(Axes, "imshow", lambda axes, x, **kw: (images.append(np.asarray(x)), plain(axes, x, **kw))[1])
    monkeypatch.setattr("attentest.studies.brain.page.draw_outline", lambda axes, area, *rest: areas.append(area))
    draw(pictures)
    return images, areas


def test_maps_show_neither_slice_nor_tumour(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = gallery(8)
    images, areas = shown(monkeypatch, maps_figure, pictures)
    # The arrays of the results themselves are drawn, and nothing else.
    assert [id(image) for image in images] == [id(one.attention) for one in pictures.results if one]
    assert [id(area) for area in areas] == [id(one.region) for one in pictures.results if one]


def test_maps_are_the_same_whatever_the_slices() -> None:
    pictures = gallery(2)
    nothing = pictures.slices.mask & False
    black = Gallery(slices_of(pictures.slices.flair * 0, nothing), pictures.results)
    assert png_of(maps_figure(pictures), 50) == png_of(maps_figure(black), 50)
    assert png_of(full_figure(pictures), 50) != png_of(full_figure(black), 50)


def test_galleries_show_slice_map_region_and_tumour(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = gallery(7)
    images, areas = shown(monkeypatch, full_figure, pictures)
    assert len(images) == 3 * 7
    for index, (flair, mask) in enumerate(zip(pictures.slices.flair, pictures.slices.mask, strict=True)):
        assert sum(np.array_equal(image, flair) for image in images) == 2
        assert areas[2 * index] is not mask
        np.testing.assert_array_equal(areas[2 * index], mask)


def test_titles_have_both_p_values() -> None:
    title = full_figure(Gallery(gallery(1).slices, (result(p=1e-8),)))
    assert title.subfigs[0].axes[0].get_title() == "naive p < 1e-307\nselective p < 1e-06"


def test_galleries_take_the_first_slices_in_the_studys_order() -> None:
    tests, everyone = FakeTests(), split()
    found = example_galleries(tests, everyone, count=3)
    assert set(tests.asked) == {PAPER}
    for name, tumour in (("tumour", True), ("free", False)):
        numbers = everyone.test_order()[tumour][:3]
        assert found[name].slices.flair[:, 0, 0].tolist() == numbers
        heights = [int(one.region.any(axis=1).sum()) for one in found[name].results if one]
        assert heights == [20 - number for number in numbers]


def test_a_slice_that_fails_does_not_affect_the_others() -> None:
    everyone = split()
    bad = everyone.test_order()[True][1]
    found = example_galleries(FakeTests(bad), everyone, count=3)["tumour"]
    assert [one is None for one in found.results] == [False, True, False]
    assert maps_figure(found).subfigs[0].axes[1].get_title() == "could not\nbe tested"
    full_figure(found)


def test_room_is_the_length_of_the_interval_around_the_statistic_in_grey_levels() -> None:
    intervals = np.array([[-3.0, -1.0], [38.0, 45.0], [50.0, 60.0]])
    one = replace(result(), truncation_set=known_set(intervals))
    assert room_of(one) == 7.0 * 0.8  # standard error 0.8
    assert room_of(replace(one, law=normal(-2.0))) == 2.0 * 0.8
    assert room_of(replace(one, law=normal(50.0))) == 10.0 * 0.8
    assert room_of(replace(one, truncation_set=known_set(np.array([[38.0, np.inf]])))) is None
    # With randomised selection the region is that of the image that the model saw.
    law = RandomisedNormal(statistic=np.array([20.0]), observed_z=np.array([-2.5]), gamma=np.array([1.0]))
    assert room_of(replace(one, law=law)) == 2.0 * 0.8
