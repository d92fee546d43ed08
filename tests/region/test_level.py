"""Regions where a map that is not scaled exceeds a level, against their definition written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from test_signs import GRIDS, check, grid_of

from attentest.errors import InputError
from attentest.region.attention_map import attention_map
from attentest.region.patch_grid import PatchGrid
from attentest.region.rule import Level, as_region_rule

IMAGES, MOVED = 12, 60
SIGNS = ("signed", "positive", "absolute")


def selected(values: NDArray[np.float64], sign: str, level: float) -> tuple[bytes, bytes]:
    """The region of a map (*units), and of absolute maps the signs in it: written as a reader would."""
    if sign == "absolute":
        region = abs(values) > level
        return region.tobytes(), np.sign(values[region]).tobytes()
    return (values > level).tobytes(), b""


def observed_and_moved(patch_grid: PatchGrid, rng: np.random.Generator) -> tuple[Any, Any, Any]:
    """Scores of images, the images of scores near and far from them, and these scores."""
    scores = rng.normal(size=(IMAGES, *patch_grid.grid))
    image = np.repeat(np.arange(IMAGES), MOVED)
    size = 10.0 ** rng.uniform(-2.5, 0, size=(len(image), *[1] * len(patch_grid.grid)))
    return scores, image, scores[image] + size * rng.normal(size=(len(image), *patch_grid.grid))


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("name", GRIDS)
def test_margins_are_negative_where_the_region_is_the_observed_one(name: str, sign: Any) -> None:
    patch_grid = grid_of(name)
    scores, image, moved = observed_and_moved(patch_grid, np.random.default_rng(2))
    for level in (0.1, 0.6) if sign != "signed" else (-0.4, 0.0, 0.6):
        rule, tensor = Level(level), torch.from_numpy(scores)
        regions = rule.regions(attention_map(tensor, patch_grid, sign), patch_grid, sign, tensor)
        values, at_moved = (patch_grid.unit_scores(torch.from_numpy(which)).numpy() for which in (scores, moved))
        truth = [selected(map_, sign, level) for map_ in values]
        assert [region.numpy().tobytes() for region in regions] == [region for region, _ in truth]
        usable = np.array([region.any() and not region.all() for region in regions.numpy()])
        assert usable.mean() > 0.3
        rows = usable[image]
        expected = [selected(at_moved[i], sign, level) == truth[image[i]] for i in np.flatnonzero(rows)]
        margins = rule.margins(regions[torch.from_numpy(usable)], patch_grid, tensor[torch.from_numpy(usable)], sign)
        check(margins, (np.cumsum(usable) - 1)[image[rows]], moved[rows], expected)
        assert 0.02 < np.mean(expected) < 0.98


@pytest.mark.parametrize("sign", SIGNS)
def test_each_selection_is_a_class_of_an_equivalence(sign: Any) -> None:
    """A p is valid if the condition of every point of a set is that same set, whichever of them was observed."""
    patch_grid, rule, rng = grid_of("image of pixels"), Level(0.3), np.random.default_rng(5)
    base, way = rng.normal(size=(2, 1, 4, 3))
    scores = torch.from_numpy(base + np.linspace(-1, 1, 150).reshape(-1, 1, 1) * way)
    regions = rule.regions(attention_map(scores, patch_grid, sign), patch_grid, sign, scores)
    margins = rule.margins(regions, patch_grid, scores, sign)
    same = torch.stack([margins.inside(torch.arange(150), point.expand(150, -1, -1)) for point in scores])
    assert torch.equal(same, same.T)
    assert torch.equal(same, (same.double() @ same.double()) > 0)
    assert 1 < len(torch.unique(same, dim=0)) < 150


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("factor", [1e-8, 1.0, 1e9])
def test_units_of_the_map_do_not_matter(sign: Any, factor: float) -> None:
    """A map in other units, with the level in the same, gives the same regions and sides of margins."""
    patch_grid = grid_of("image of pixels")
    scores, image, moved = observed_and_moved(patch_grid, np.random.default_rng(4))
    inside = []
    for unit in (1.0, factor):
        tensor, rule = torch.from_numpy(unit * scores), Level(unit * 0.4)
        regions = rule.regions(attention_map(tensor, patch_grid, sign), patch_grid, sign, tensor)
        margins = rule.margins(regions, patch_grid, tensor, sign)
        inside.append(margins.inside(torch.from_numpy(image), torch.from_numpy(unit * moved)))
    assert torch.equal(*inside)


@pytest.mark.parametrize("sign", SIGNS)
def test_pixels_at_the_level_are_outside_whatever_the_rounding(sign: Any) -> None:
    """A network of rectified units gives zeros: they do not exceed the level 0, and decide nothing."""
    patch_grid, rule = PatchGrid((8,), (8,)), Level(0.0)
    scores = torch.tensor([[0.0, 1.0, 0.0, 2.0, 1e-17, 0.0, 3.0, 0.0]], dtype=torch.float64)
    regions = rule.regions(attention_map(scores, patch_grid, sign), patch_grid, sign, scores)
    assert regions[0].tolist() == [False, True, False, True, False, False, True, False]
    assert rule.margins(regions, patch_grid, scores, sign).inside(torch.zeros(1).long(), scores).tolist() == [True]


@pytest.mark.parametrize("level", [np.nan, np.inf, "high", True, None])
def test_a_level_is_a_finite_number(level: Any) -> None:
    with pytest.raises(InputError, match=r"level must be a (finite )?number"):
        Level(level)


def test_one_rule_at_a_time() -> None:
    assert as_region_rule(threshold=None, level=2) == Level(2.0)
    with pytest.raises(InputError, match="threshold and level are two ways to choose the region: give one of them, "):
        as_region_rule(threshold=0.5, top_fraction=None, level=2.0)
    with pytest.raises(InputError, match="threshold and top_fraction and level are three ways to choose the region"):
        as_region_rule(threshold=0.5, top_fraction=0.1, level=2.0)
