"""Pictures of slices, and the room of their statistics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes

from attentest.errors import InputError
from attentest.studies.brain.condition import PAPER
from attentest.studies.brain.gallery import Gallery, gallery_figure, gallery_results, maps_figure
from attentest.studies.brain.room import room_of
from brain_gallery import Bench, cohort, gallery, result


def shown(monkeypatch: pytest.MonkeyPatch, draw: Any, pictures: Gallery) -> tuple[list[Any], list[Any]]:
    """The images and the outlined areas that a figure is made of."""
    images: list[Any] = []
    areas: list[Any] = []
    plain = Axes.imshow
    monkeypatch.setattr(Axes, "imshow", lambda axes, x, **kw: (images.append(np.asarray(x)), plain(axes, x, **kw))[1])
    monkeypatch.setattr("attentest.studies.brain.gallery.draw_outline", lambda axes, area, *rest: areas.append(area))
    draw(pictures)
    return images, areas


def test_maps_show_neither_slice_nor_tumour(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = gallery(8)
    images, areas = shown(monkeypatch, maps_figure, pictures)
    # What is drawn are the results' arrays themselves, and nothing else.
    assert [id(image) for image in images] == [id(one.attention) for one in pictures.results if one]
    assert [id(area) for area in areas] == [id(one.region) for one in pictures.results if one]


def test_maps_are_the_same_whatever_the_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    from attentest.studies.document import png

    pictures = gallery(2)
    black = Gallery(flair=pictures.flair * 0, mask=pictures.mask & False, results=pictures.results)
    assert png(maps_figure(pictures)) == png(maps_figure(black))
    assert png(gallery_figure(pictures)) != png(gallery_figure(black))


def test_galleries_show_slice_map_region_and_tumour(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = gallery(7)
    images, areas = shown(monkeypatch, gallery_figure, pictures)
    assert len(images) == 3 * 7
    np.testing.assert_array_equal(images[0], pictures.flair[0])
    assert len(areas) == 2 * 7
    np.testing.assert_array_equal(areas[0], pictures.mask[0])


def test_galleries_are_of_slices_and_results() -> None:
    pictures = gallery(2)
    with pytest.raises(InputError, match="got 2, 2 and 1"):
        Gallery(flair=pictures.flair, mask=pictures.mask, results=pictures.results[:1])
    title = gallery_figure(Gallery(flair=pictures.flair[:1], mask=pictures.mask[:1], results=(result(p=1e-8),)))
    assert title.subfigs[0].axes[0].get_title() == "naive p < 1e-307\nselective p < 1e-06"


def test_galleries_take_the_first_slices_in_the_studys_order() -> None:
    bench, everyone = Bench(), cohort()
    found = gallery_results(bench, everyone, count=3)
    assert set(bench.asked) == {PAPER}
    for name, tumour in (("tumour", True), ("free", False)):
        numbers = everyone.test_order()[tumour][:3]
        assert found[name].flair[:, 0, 0].tolist() == numbers
        heights = [int(one.region.any(axis=1).sum()) for one in found[name].results if one]
        assert heights == [20 - number for number in numbers]


def test_a_slice_that_fails_does_not_take_others_with_it() -> None:
    everyone = cohort()
    bad = everyone.test_order()[True][1]
    found = gallery_results(Bench(bad), everyone, count=3)["tumour"]
    assert [one is None for one in found.results] == [False, True, False]
    assert maps_figure(found).axes[1].get_title() == "could not\nbe tested"
    gallery_figure(found)


def test_room_is_the_interval_around_the_statistic() -> None:
    intervals = np.array([[-3.0, -1.0], [38.0, 45.0], [50.0, 60.0]])
    one = replace(result(), intervals=intervals)
    assert room_of(one) == 7.0
    assert room_of(replace(one, statistic=-2.0)) == 2.0
    assert room_of(replace(one, statistic=50.0)) == 10.0
