from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attentest import InputError
from attentest.statistics.truncation_set import Unions, clip, contains, order_by_owner, union

pairs = st.lists(st.tuples(st.integers(-20, 20), st.integers(0, 9)), max_size=12)


@given(pairs, st.floats(-25, 35))
def test_union_is_sorted_disjoint_and_covers_the_same_points(parts: list[tuple[int, int]], z: float) -> None:
    given_intervals = np.array([(low, low + width) for low, width in parts], dtype=float).reshape(-1, 2)
    merged = union(given_intervals)
    assert (merged[:, 0] <= merged[:, 1]).all()
    assert (merged[1:, 0] > merged[:-1, 1]).all()
    assert contains(merged, z) == contains(given_intervals, z)


@given(pairs, st.floats(-25, 25), st.floats(0, 10))
def test_clip_keeps_what_lies_between(parts: list[tuple[int, int]], low: float, width: float) -> None:
    merged = union(np.array([(start, start + size) for start, size in parts], dtype=float).reshape(-1, 2))
    kept = clip(merged, low, low + width)
    assert (kept[:, 0] < kept[:, 1]).all()
    assert (kept >= low).all()
    assert (kept <= low + width).all()
    length = np.clip(merged, low, low + width)
    assert np.diff(kept).sum() == pytest.approx(np.diff(length).sum())


def test_touching_and_infinite_intervals() -> None:
    assert union([[0, 1]], [[1, 2]], [[3, np.inf]]).tolist() == [[0, 2], [3, np.inf]]
    assert union().shape == (0, 2)
    assert clip(union([[-np.inf, np.inf]]), -1, 1).tolist() == [[-1, 1]]


@pytest.mark.parametrize("bad", [[[1, 0]], [[np.nan, 1]]])
def test_what_is_no_interval_is_refused(bad: list[list[float]]) -> None:
    with pytest.raises(InputError, match="lower <= upper"):
        union(bad)


@given(st.lists(st.tuples(pairs, st.integers(-25, 35)), max_size=5))
def test_many_unions_contain_the_points_that_each_contains(rows: list[tuple[list[tuple[int, int]], int]]) -> None:
    sets = [union([(low, low + width) for low, width in parts]) for parts, _ in rows]
    points = np.array([point for _, point in rows], dtype=float)
    unions = Unions.of(sets)
    expected = [contains(one, point) for one, point in zip(sets, points, strict=True)]
    assert unions.contain(points).tolist() == expected
    for one, again in zip(sets, unions.arrays(), strict=True):
        np.testing.assert_array_equal(again, one)


@pytest.mark.parametrize("owners", [5, 1 << 20])
def test_intervals_are_ordered_by_owner_and_by_value(owners: int) -> None:
    rng = np.random.default_rng(0)
    owner, value = rng.integers(0, owners, 400), rng.integers(-9, 9, 400).astype(float)
    value[:20] = -np.inf
    np.testing.assert_array_equal(order_by_owner(owner, value), np.lexsort((value, owner)))
    assert order_by_owner(owner[:0], value[:0]).shape == (0,)
