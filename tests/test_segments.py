from __future__ import annotations

import numpy as np
import pytest

from attentest.search.spectral.segments import INSIDE, UNDECIDED, Segments, SegmentTable, unexplored
from attentest.statistics.alternative import Tails
from attentest.statistics.intervals import union
from truncated import bounds_on_log_p, normal

Z_OBS = np.array([1.5, -0.4])


def segments(rows: list[tuple[int, float, float, int]]) -> Segments:
    image, left, right, kind = (np.array(column) for column in zip(*rows, strict=True))
    return Segments(
        image=image,
        left=left.astype(float),
        right=right.astype(float),
        best_left=left.astype(float),
        best_right=np.where(kind == INSIDE, right, (left + right) / 2),
        kind=kind,
        piece=np.zeros(len(rows), dtype=np.int64),
        zone=np.arange(len(rows)),
        stalls=np.zeros(len(rows), dtype=np.int64),
    )


ROWS = [
    (0, 1.0, 1.8, INSIDE),
    (0, 1.8, 1.9, UNDECIDED),
    (0, -2.5, -1.0, UNDECIDED),
    (1, -0.5, 0.1, INSIDE),
    (1, 0.1, 0.3, INSIDE),
    (1, 2.0, 2.5, UNDECIDED),
]


def filled_table(alternative: Tails) -> SegmentTable:
    table = SegmentTable(normal(*Z_OBS), alternative)
    table.add(segments(ROWS))
    table.add(unexplored(np.array([0, 0, 1]), np.array([-np.inf, 3.0, 3.0]), np.array([-4.0, np.inf, np.inf])))
    return table


@pytest.mark.parametrize("alternative", ["two-sided", "equal-tailed", "greater", "less"])
def test_bounds_are_those_of_the_sets(alternative: Tails) -> None:
    table = filled_table(alternative)
    lows, highs = table.log_bounds()
    for image, known in enumerate(table.sets()):
        found, certain, possible = known.intervals, known.certain, known.possible
        low, high = bounds_on_log_p(Z_OBS[image], certain, possible, alternative)
        assert (lows[image], highs[image]) == pytest.approx((low, high), rel=1e-12)
        assert np.array_equal(union(certain, found), found)
        assert np.array_equal(union(found, possible), possible)


@pytest.mark.parametrize("alternative", ["two-sided", "equal-tailed", "greater", "less"])
def test_no_zone_moves_p_by_more_than_its_cost(alternative: Tails) -> None:
    """Whatever the others turn out to be."""
    table = filled_table(alternative)
    zones = table.zones(np.zeros(2))
    rng = np.random.default_rng(0)
    for image in (0, 1):
        certain = table.sets()[image].certain
        own = np.flatnonzero(zones.image == image)
        spans = {row: np.array([[zones.left[row], zones.right[row]]]) for row in own}
        for _ in range(50):
            others = [spans[row] for row in own if rng.uniform() < 0.5]
            for row in own:
                without = union(certain, *(s for s in others if s is not spans[row]))
                with_it = union(without, spans[row])
                p = [np.exp(bounds_on_log_p(Z_OBS[image], s, s, alternative)[0]) for s in (without, with_it)]
                assert abs(p[1] - p[0]) <= np.exp(zones.log_cost[row]) * (1 + 1e-9)
        assert (np.diff(zones.log_cost[own]) >= 0).all()


def test_touching_parts_become_one() -> None:
    known = filled_table("two-sided").sets()[1]
    np.testing.assert_array_equal(known.certain, [[-0.5, 0.3]])
    np.testing.assert_array_equal(known.possible, [[-0.5, 0.3], [2.0, 2.5], [3.0, np.inf]])


def test_nothing_known_is_everything_possible() -> None:
    table = SegmentTable(normal(*Z_OBS), "two-sided")
    table.add(unexplored(np.array([0, 1]), np.array([-np.inf, -np.inf]), np.array([np.inf, np.inf])))
    low, high = table.log_bounds()
    assert np.array_equal(low, [-np.inf, -np.inf])
    assert np.array_equal(high, [0.0, 0.0])
    assert (table.zones(np.zeros(2)).log_cost == 0).all()
