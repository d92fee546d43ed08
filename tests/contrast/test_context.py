"""How large a difference is within its image: against a loop over all places, and where there is none."""

from __future__ import annotations

import pickle
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from attentest import AttentionTest
from attentest.contrast import Background, Filtered, Neighbourhood, Reference, RegionMean, gaussian
from attentest.contrast import context as module
from attentest.contrast.context import ComparedRegion, Context
from attentest.contrast.contrast import as_contrast
from attentest.errors import InputError
from attentest.presentation.rows import row_of
from toys import image_of_components, tiny_vit

RNG = np.random.default_rng(3)
IMAGE = RNG.normal(size=(1, 9, 11))
EVERYWHERE = np.ones((9, 11), dtype=bool)
CORNER = np.zeros((9, 11), dtype=bool)
CORNER[0:2, 0:3] = CORNER[2, 0] = True  # at the border, and unlike its reflections
SCATTERED = np.zeros((9, 11), dtype=bool)
SCATTERED[0, 1:4] = SCATTERED[4, 0:2] = SCATTERED[8, 8:11] = True


def compared(part: NDArray[np.bool_] = CORNER, contrast: Any = "background", **changes: Any) -> ComparedRegion:
    values: dict[str, Any] = {
        "contrast": as_contrast(contrast),
        "image": IMAGE,
        "reference": None,
        "channel_weights": np.ones(1),
        "part": part,
        "region": part,
        "seen": EVERYWHERE,
        "difference": 0.4,
    } | changes
    rows, columns = np.nonzero(values["seen"])
    lengths = rows.max() - rows.min() + 1, columns.max() - columns.min() + 1
    return ComparedRegion(**{"corners": tuple(np.arange(length) for length in lengths), **values})


def looped(one: ComparedRegion, around: bool = False) -> NDArray[np.float64]:
    """The differences of all different copies elsewhere, each by the weights of the contrast, sorted."""
    rows, columns = (np.flatnonzero(one.seen.any(axis=axis)) for axis in (1, 0))
    size = np.array([len(rows), len(columns)])
    found = {}

    def placed(mask: NDArray[np.bool_], flip: Any, shift: tuple[int, int]) -> NDArray[np.bool_]:
        copy, pixels = np.zeros_like(mask), np.argwhere(mask[np.ix_(rows, columns)][flip]) + shift
        pixels = pixels % size if around else pixels[((pixels >= 0) & (pixels < size)).all(axis=1)]
        copy[rows[pixels[:, 0]], columns[pixels[:, 1]]] = True
        return copy

    for flip in (np.s_[::1, ::1], np.s_[::-1, ::1], np.s_[::1, ::-1], np.s_[::-1, ::-1]):
        for shift in product(*(range(-length, length) for length in size)):
            part = placed(one.part, flip, shift)
            if part.sum() == one.part.sum() and (part & one.part).sum() <= one.part.sum() / 2:
                first = np.argwhere(part[np.ix_(rows, columns)]).min(axis=0)
                if around or all(start in corners for start, corners in zip(first, one.corners, strict=True)):
                    found[part.tobytes()] = one._value(part, placed(one.region, flip, shift))
    return np.sort(list(found.values()))


@pytest.fixture
def every_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_PLACES", 10**6)
    monkeypatch.setattr(module, "MOST_CALLS", 10**6)


SEEN = EVERYWHERE.copy()
SEEN[:, 9:] = SEEN[8:] = False
COLOUR = {"image": RNG.normal(size=(3, 9, 11)), "channel_weights": np.array([0.5, 0.7, -0.2])}


@pytest.mark.parametrize(
    "one",
    [
        compared(),
        compared(contrast=Neighbourhood(2.3)),
        compared(contrast=RegionMean()),
        compared(contrast=Filtered("laplacian", border="constant")),
        compared(contrast=Filtered(gaussian(0.8), of=Neighbourhood(2))),
        compared(contrast=Reference(np.zeros((9, 11))), reference=RNG.normal(size=(1, 9, 11))),
        compared(contrast=Filtered("sobel-x", of=Reference()), reference=RNG.normal(size=(1, 9, 11))),
        compared(contrast=lambda mask: mask / mask.sum() - (np.arange(11) == 5) / 9),
        compared(part=CORNER, region=CORNER | SCATTERED),
        compared(part=CORNER, region=CORNER | SCATTERED, contrast=Neighbourhood(4)),
        compared(seen=SEEN),
        compared(seen=SEEN, contrast=Neighbourhood(3)),
        compared(**COLOUR),
        compared(**COLOUR, contrast=lambda mask: np.stack([mask * 1.0, mask - 0.5, mask * 0.0])),
        compared(
            part=np.kron(np.eye(3, 3, -1), np.ones((3, 3)))[:, :9] > 0, seen=EVERYWHERE[:, :9], image=IMAGE[..., :9]
        ),
    ],
    ids=lambda one: repr(one.contrast)[:40],
)
@pytest.mark.usefixtures("every_place")
def test_differences_of_copies_are_those_of_a_loop(one: ComparedRegion) -> None:
    np.testing.assert_allclose(np.sort(one.differences()), looped(one), atol=1e-12)


@pytest.mark.usefixtures("every_place")
def test_copies_of_whole_patches_begin_at_corners_of_patches() -> None:
    part = np.zeros((12, 12), dtype=bool)
    part[2:4, 4:8] = part[4:6, 6:8] = True
    image, seen = RNG.normal(size=(1, 12, 12)), np.ones((12, 12), dtype=bool)
    one = compared(part, image=image, seen=seen, corners=(np.arange(0, 12, 2), np.arange(0, 12, 2)))
    differences = one.differences()
    np.testing.assert_allclose(np.sort(differences), looped(one), atol=1e-12)
    assert len(differences) < len(compared(part, image=image, seen=seen).differences()) / 3


@pytest.mark.parametrize("contrast", ["background", "region-mean", lambda mask: mask - 0.2])
@pytest.mark.usefixtures("every_place")
def test_a_scattered_region_goes_around_the_border(contrast: Any) -> None:
    one = compared(SCATTERED, contrast)
    differences = one.differences()
    assert len(looped(one)) < module.FEWEST_PLACES < len(differences)
    np.testing.assert_allclose(np.sort(differences), looped(one, around=True), atol=1e-12)


def test_the_share_counts_absolute_differences_or_signed_ones() -> None:
    one = compared()
    differences, contexts = one.differences(), one.contexts
    counted = {"two-sided": abs(differences) < 0.4, "greater": differences < 0.4, "less": differences > 0.4}
    for alternative, smaller in counted.items():
        assert contexts[alternative].share == smaller.mean()
    assert contexts["equal-tailed"] == contexts["two-sided"]
    assert contexts["less"].standard_deviations == pytest.approx(0.4 / IMAGE.std())
    assert contexts["less"].percent_of_range == pytest.approx(40 / np.ptp(IMAGE))


def test_the_share_does_not_depend_on_units_or_on_how_the_image_lies() -> None:
    one, brighter = compared(), compared(image=7 + 3 * IMAGE, difference=1.2)
    for alternative, context in one.contexts.items():
        other = brighter.contexts[alternative]
        assert (other.smaller, other.placements) == (context.smaller, context.placements)
        assert other.standard_deviations == pytest.approx(context.standard_deviations)
        assert other.percent_of_range == pytest.approx(context.percent_of_range)
    mirrored = compared(CORNER[::-1, ::-1], image=IMAGE[:, ::-1, ::-1])
    assert mirrored.contexts == one.contexts


def test_of_many_places_some_are_drawn_and_the_same_again() -> None:
    image, part = RNG.normal(size=(1, 64, 64)), np.zeros((64, 64), dtype=bool)
    part[10:16, 20:30] = True
    one = compared(part, image=image, seen=np.ones_like(part))
    drawn = one.differences()
    np.testing.assert_array_equal(one.differences(), drawn)
    every = looped_means(image[0], part)
    assert 0.9 * module.MOST_PLACES < len(drawn) <= module.MOST_PLACES
    assert np.isin(drawn.round(9), every.round(9)).all()
    middle = np.median(every)  # the share of a draw of 500 has a standard error of 0.02
    assert abs((drawn < middle).mean() - 0.5) < 0.08


def looped_means(image: NDArray[np.float64], part: NDArray[np.bool_]) -> NDArray[np.float64]:
    values = []
    for down in range(-10, 49):
        for right in range(-20, 35):
            moved = np.roll(part, (down, right), (0, 1))
            values.append(image[moved].mean() - image[~moved].mean())
    return np.array(values)


def test_a_region_larger_than_two_thirds_has_no_other_place() -> None:
    part = EVERYWHERE.copy()
    part[0, :5] = False
    context = compared(part).contexts["two-sided"]
    assert (context.placements, context.smaller, context.share) == (0, 0, None)
    assert context.standard_deviations == pytest.approx(0.4 / IMAGE.std())


def test_more_than_half_of_the_image_has_places_around_the_border() -> None:
    part = EVERYWHERE.copy()
    part[:4, :9] = False
    one = compared(part)
    assert part.mean() > 0.6
    assert one.contexts["greater"].placements >= module.FEWEST_PLACES


def test_a_constant_image_has_no_effect_size_and_nothing_smaller() -> None:
    context = compared(image=np.full((1, 9, 11), 0.1), difference=1e-17).contexts["two-sided"]
    assert (context.smaller, context.standard_deviations, context.percent_of_range) == (0, None, None)
    assert context.placements > 0


def test_a_function_that_does_not_take_every_region_leaves_places_out() -> None:
    def strict(mask: NDArray[np.bool_]) -> NDArray[np.float64]:
        if mask[0].any():
            raise ValueError("not there")
        return mask * 1.0

    assert 0 < len(compared(CORNER[::-1], strict).differences()) < len(compared(CORNER[::-1]).differences())


@pytest.mark.parametrize("unit", ["pixels", "patches"])
def test_a_result_has_it_for_each_alternative_and_after_pickling(unit: str) -> None:
    test = AttentionTest(tiny_vit(), noise=1.0, region_unit=unit, contrast=lambda mask: mask / mask.sum() - 0.01)
    result = test(np.random.default_rng(2).normal(size=(8, 8)))
    context = result.context
    assert context is not None
    again = pickle.loads(pickle.dumps(result))  # noqa: S301  # our own
    assert again.context == context == result.record().context
    less, greater = (again.with_alternative(alternative).context for alternative in ("less", "greater"))
    assert less == result.with_alternative("less").context
    assert less.smaller + greater.smaller <= context.placements
    row = row_of("scan", result.record())
    assert row["context_share"] == context.share
    assert row["context_placements"] == context.placements


def test_each_component_has_its_own() -> None:
    test = AttentionTest(tiny_vit(), noise=1.0, threshold=0.5, randomise=0.5, contrast=Background())
    results = test.components(image_of_components(test, 3))
    contexts = [result.context for result in results]
    assert len({context.standard_deviations for context in contexts if context}) == len(results)
    for result, context in zip(results, contexts, strict=True):
        assert context is not None
        assert context.standard_deviations == pytest.approx(result.difference / result.image.std())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"smaller": 9}, "smaller must be"),
        ({"placements": -1}, "placements must be at least 0"),
        ({"standard_deviations": "much"}, "standard_deviations must be a number"),
        ({"share": 0.9}, "share is 0.9, and by the other values it is 0.25"),
    ],
)
def test_damaged_values_are_found(changes: dict[str, Any], message: str) -> None:
    context = Context(placements=8, smaller=2, standard_deviations=0.5, percent_of_range=None)
    assert Context.from_dict(context.to_dict()) == context
    with pytest.raises(InputError, match=message):
        Context.from_dict({**context.to_dict(), **changes})


def test_an_image_whose_variance_underflows_has_no_effect_size() -> None:
    tiny = compared(image=1e-200 * np.random.default_rng(0).normal(size=compared().image.shape))
    assert tiny.contexts["two-sided"].standard_deviations is None
