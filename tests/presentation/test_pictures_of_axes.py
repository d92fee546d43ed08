"""Results of signals and volumes: words, records, pictures and reports."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.text import Text
from scipy.ndimage import binary_dilation

import attentest
from attentest import AttentionTest
from attentest.errors import InputError, speaking_of, worded
from attentest.noise import Diagonal, PooledVariance
from attentest.presentation.plane import Plane
from attentest.presentation.small_picture import LARGEST_FILE, MOST_PLANES, SmallPicture, content_digest
from attentest.record import ResultRecord
from attentest.results.batch import Results, small_picture
from attentest.search import SpectralSearch

Shape = tuple[int, ...]
WORDS = {(1, 64): ("signal", "64 samples"), (3, 64): ("signal", "64 samples"), (1, 4, 8, 8): ("volume", "256 voxels")}


def scores(images: Any) -> Any:
    """Return the means of patches: 8 of a signal, 2 x 4 x 4 of a volume."""
    if images.ndim == 3:
        return images.mean(axis=1).reshape(len(images), 8, -1).mean(axis=2) ** 2
    count, _, depth, height, width = images.shape
    blocks = images.mean(axis=1).reshape(count, 2, depth // 2, 4, height // 4, 4, width // 4)
    return blocks.mean(axis=(2, 4, 6)) ** 2


def arrays(shape: Shape) -> np.ndarray[Any, Any]:
    image = np.random.default_rng(2).standard_normal(shape)
    image[..., 8:12] += 1.0 if image.ndim == 2 else 0.0
    return image[0] if shape[0] == 1 else image


@pytest.mark.parametrize(("shape", "gamma"), [((1, 64), 0.0), ((3, 64), 0.5), ((1, 4, 8, 8), 0.0), ((1, 4, 8, 8), 0.5)])
def test_a_result_is_told_shown_and_recorded(shape: Shape, gamma: float, tmp_path: Path) -> None:
    noun, size = WORDS[shape]
    test = AttentionTest(scores, image_shape=shape, noise=1.0, randomise=gamma, search=SpectralSearch(tol=1e-2))
    result = test(arrays(shape))
    assert size in repr(result)
    assert f"the rest of the {noun}" in result.verdict()
    assert ResultRecord.from_dict(json.loads(json.dumps(result.to_dict()))).dimension == len(shape) - 1
    many = test.map([arrays(shape), arrays(shape) + 0.1])
    assert many.summary().startswith(f"2 {noun}s")
    for html in (result._repr_html_(), many._repr_html_()):
        assert noun in html
        assert "pixels" not in html.replace("image-rendering", "")
    for width in (180.0, 80.0):
        panels = result.plot(width=width)
        assert len(panels) == (4 if gamma else 3)
        assert noun in panels[0].get_title()
        figure: Any = panels[0].figure
        figure.canvas.draw()
        box = figure.bbox
        for text in (panel.xaxis.label for panel in panels):
            assert text.get_window_extent().x1 <= box.x1 + 1
    result.overlay()
    many.plot()
    many.report(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert f"{noun.capitalize()} and region" in page
    small = small_picture([result])
    assert isinstance(small, SmallPicture)
    assert small.overlay().shape[2] == 3


def test_slices_cross_in_the_region() -> None:
    region = np.zeros((6, 9, 7), dtype=np.bool_)
    region[2:5, 3, 4] = True
    plane = Plane.through(region, region)
    assert plane.caption.startswith("slice 3, column 4, row 3;")
    shown = plane.values(np.arange(region.size).reshape(region.shape).astype(float))
    assert set(np.flatnonzero(region)) <= set(shown[np.isfinite(shown)].astype(int))
    assert plane.values(region).any()
    assert not plane.values(region)[plane.places < 0].any()


def test_between_slices_reports_are_blank_and_name_the_slices(tmp_path: Path) -> None:
    shape = (1, 4, 8, 8)
    result = AttentionTest(scores, image_shape=shape, noise=1.0, search=SpectralSearch(tol=1e-2))(arrays(shape))
    plane = Plane.through(result.part, result.image)
    small = small_picture([result])
    assert small.nothing is not None
    np.testing.assert_array_equal(small.nothing, plane.places < 0)
    path = tmp_path / "small.npz"
    path.write_bytes(small.to_bytes())
    again = SmallPicture.read(path, content_digest(path.read_bytes()))
    assert again is not None
    assert again.caption == small.caption == plane.caption.replace("\n", " ")
    for picture in (again.overlay(), again.map()):
        far = ~np.asarray(binary_dilation(again.parts > 0, iterations=3))
        assert picture.shape[:2] == far.shape
        assert (picture[again.nothing & far] == 255).all()
    Results([result]).report(tmp_path / "report.html")
    assert f"Volume and region; {again.caption}<" in (tmp_path / "report.html").read_text()


def test_the_card_of_a_component_shows_the_slices_through_it(tmp_path: Path) -> None:
    image = 0.1 * np.random.default_rng(2).standard_normal((4, 8, 8))
    image[:2, :2, :2] += 3.0
    image[2:, 6:, 6:] -= 3.0
    test = AttentionTest(scores, image_shape=(1, *image.shape), noise=0.1, search=SpectralSearch(tol=1e-2))
    found = test.replace(threshold=0.5).components(image)
    assert len(found) == 2
    small = small_picture(list(found))
    path = tmp_path / "small.npz"
    path.write_bytes(small.to_bytes())
    again = SmallPicture.read(path, content_digest(path.read_bytes()))
    assert again is not None
    found.report(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    for number, component in enumerate(found, start=1):
        plane = Plane.through(component.part, image)
        shown = again.through[number]
        np.testing.assert_array_equal(shown.parts == number, plane.values(component.part))
        assert shown.caption == small.through[number].caption == plane.caption.replace("\n", " ")
        assert page.count(f"Volume and region; {shown.caption}<") == 1
    assert again.through[1].caption != again.through[2].caption
    many = [np.arange(image.size).reshape(image.shape) == voxel for voxel in range(40)]
    most = SmallPicture.of(image, np.clip(image, 0.0, 1.0), many)
    assert len(most.through) == MOST_PLANES
    assert len(most.to_bytes()) < LARGEST_FILE


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_trace_is_one_line_whether_it_rises_or_falls(sign: float) -> None:
    signal = sign * np.where(np.arange(512) < 256, 0.0, 1.0)
    picture = Plane.through(np.ones(signal.shape, dtype=np.bool_), signal).image(signal)
    line = picture == 0.0
    assert line.any(axis=0).all()
    rows = np.arange(len(line))[:, None]
    first, last = np.where(line, rows, len(line)).min(axis=0), np.where(line, rows, -1).max(axis=0)
    assert (line.sum(axis=0) == last - first + 1).all()
    # Columns beside each other have a row in common, or rows beside each other.
    assert (np.maximum(first[1:], first[:-1]) - np.minimum(last[1:], last[:-1]) <= 1).all()


def test_words_of_other_axes() -> None:
    assert worded("An image of 2 pixels; image_shape", 1) == "A signal of 2 samples; image_shape"
    assert worded("an image, 1 pixel", 3) == "a volume, 1 voxel"
    assert worded("an image", 2) == "an image"
    named = "--gain per-image: scans/image.npy, scans/image-2.npy, /image/a.npy"
    assert worded(named, 1) == named
    with pytest.raises(InputError, match=r"^signal 2: give a signal\.$") as raised, speaking_of(1):
        raise InputError("image 2: give an image.", "image 2")
    assert raised.value.parameters == ("signal 2",)


@pytest.mark.parametrize(("shape", "noun", "part"), [((1, 64), "signal", "sample"), ((1, 4, 8, 8), "volume", "voxel")])
def test_simulations_and_errors_speak_of_what_is_tested(shape: Shape, noun: str, part: str) -> None:
    test = AttentionTest(scores, image_shape=shape, noise=1.0, search=SpectralSearch(tol=1e-2))
    calibration = attentest.calibrate(test, n=3)
    planned = attentest.plan(test, n=2, randomise=[0.5], region_unit="pixels", deltas=[0, 2])
    for shown in (calibration, planned):
        texts = [text.get_text() for panel in shown.plot() for text in panel.findobj(Text)]
        said = "\n".join([shown.summary(), repr(shown), shown._repr_html_(), *texts])
        assert f"{noun}s" in said
        assert not re.search(r"\bimages?\b", said)
    assert f"in units of the {part}s" in "\n".join(texts)
    size = int(np.prod(shape))
    with pytest.raises(InputError, match=f"is for 5 {part}s, but the model's {noun}s have {size}"):
        test.replace(noise=Diagonal(np.ones(5)))
    with pytest.raises(InputError, match=f"^{noun} 1: a {noun} has a {part} of 1e.30"):
        test.map([arrays(shape), arrays(shape) + 1e30])
    same = [np.ones(shape[1:]), arrays(shape)]
    with pytest.raises(InputError, match=f"^reference {noun} 1 has the value 1 in every {part}"):
        PooledVariance().fit(same, dimension=len(shape) - 1)
