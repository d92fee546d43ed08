from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attentest.errors import InputError
from attentest.statistics.columns import order_by_owner, repeated, run_ends
from attentest.statistics.truncation_set import Unions, union
from truncated import contains

pairs = st.lists(st.tuples(st.integers(-20, 20), st.integers(0, 9)), max_size=12)


@given(pairs, st.floats(-25, 35))
def test_union_is_sorted_disjoint_and_covers_the_same_points(parts: list[tuple[int, int]], z: float) -> None:
    given_intervals = np.array([(low, low + width) for low, width in parts], dtype=float).reshape(-1, 2)
    merged = union(given_intervals)
    assert (merged[:, 0] <= merged[:, 1]).all()
    assert (merged[1:, 0] > merged[:-1, 1]).all()
    assert contains(merged, z) == contains(given_intervals, z)


def test_touching_and_infinite_intervals() -> None:
    assert union([[0, 1]], [[1, 2]], [[3, np.inf]]).tolist() == [[0, 2], [3, np.inf]]
    assert union().shape == (0, 2)


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


def test_rows_are_repeated_and_divided_into_runs() -> None:
    row, place = repeated(np.array([2, 0, 3]))
    assert row.tolist() == [0, 0, 2, 2, 2]
    assert place.tolist() == [0, 1, 0, 1, 2]
    starts, ends = run_ends(4, np.array([False, True, False]))
    assert starts.tolist() == [True, False, True, False]
    assert ends.tolist() == [False, True, False, True]
    assert [len(mask) for mask in run_ends(0, np.empty(0, dtype=np.bool_))] == [0, 0]
