from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
import torch

from attentest.search.spectral.lattice import Lattice
from attentest.search.spectral.pieces import Pieces
from attentest.search.spectral.segments import INSIDE, UNDECIDED, Segments, SegmentTable, unexplored
from attentest.statistics.alternative import Alternative
from attentest.statistics.truncation_set import union
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


def filled_table(alternative: Alternative) -> SegmentTable:
    table = SegmentTable(normal(*Z_OBS), alternative)
    table.add(segments(ROWS))
    table.add(unexplored(np.array([0, 0, 1]), np.array([-np.inf, 3.0, 3.0]), np.array([-4.0, np.inf, np.inf])))
    return table


@pytest.mark.parametrize("alternative", ["two-sided", "equal-tailed", "greater", "less"])
def test_bounds_are_those_of_the_sets(alternative: Alternative) -> None:
    table = filled_table(alternative)
    lows, highs = table.log_bounds()
    sets = (unions.arrays() for unions in table.unions(np.ones(2, dtype=np.bool_)))
    for image, (found, certain, possible) in enumerate(zip(*sets, strict=True)):
        low, high = bounds_on_log_p(Z_OBS[image], certain, possible, alternative)
        assert (lows[0, image], highs[0, image]) == pytest.approx((low, high), rel=1e-12)
        assert np.array_equal(union(certain, found), found)
        assert np.array_equal(union(found, possible), possible)


@pytest.mark.parametrize("alternative", ["two-sided", "equal-tailed", "greater", "less"])
def test_no_zone_moves_p_by_more_than_its_cost(alternative: Alternative) -> None:
    """Whatever the others turn out to be."""
    table = filled_table(alternative)
    zones = table.zones(np.zeros((2, 2)), np.ones(2, dtype=np.bool_))
    rng = np.random.default_rng(0)
    for image in (0, 1):
        certain = table.unions(np.arange(2) == image)[1].arrays()[0]
        own = np.flatnonzero(zones.image == image)
        spans = {row: np.array([[zones.left[row], zones.right[row]]]) for row in own}
        for _ in range(15):
            others = [spans[row] for row in own if rng.uniform() < 0.5]
            for row in own:
                without = union(certain, *(s for s in others if s is not spans[row]))
                with_it = union(without, spans[row])
                p = [np.exp(bounds_on_log_p(Z_OBS[image], s, s, alternative)[0]) for s in (without, with_it)]
                assert abs(p[1] - p[0]) <= np.exp(zones.log_cost[0, row]) * (1 + 1e-9)


def test_touching_parts_become_one() -> None:
    _, certain, possible = filled_table("two-sided").unions(np.array([False, True]))
    np.testing.assert_array_equal(certain.arrays()[0], [[-0.5, 0.3]])
    np.testing.assert_array_equal(possible.arrays()[0], [[-0.5, 0.3], [2.0, 2.5], [3.0, np.inf]])


def test_what_is_likely_takes_the_best_estimate_of_zones_and_none_or_all_of_what_is_unexplored() -> None:
    explored, all_likely = filled_table("two-sided").likely_unions(np.array([False, True]))
    np.testing.assert_array_equal(explored.arrays()[0], [[-0.5, 0.3], [2.0, 2.25]])
    np.testing.assert_array_equal(all_likely.arrays()[0], [[-0.5, 0.3], [2.0, 2.25], [3.0, np.inf]])


def test_nothing_known_is_everything_possible() -> None:
    table = SegmentTable(normal(*Z_OBS), "two-sided")
    table.add(unexplored(np.array([0, 1]), np.array([-np.inf, -np.inf]), np.array([np.inf, np.inf])))
    low, high = table.log_bounds()
    assert np.array_equal(low[0], [-np.inf, -np.inf])
    assert np.array_equal(high[0], [0.0, 0.0])
    assert (table.zones(np.zeros((2, 2)), np.ones(2, dtype=np.bool_)).log_cost[0] == 0).all()


def test_two_pvalues_are_bounded_at_a_time_and_only_where_they_are_asked_for() -> None:
    table = filled_table("two-sided")
    only_second = np.array([False, True])
    table.ask(1, only_second, np.full(2, 0.7), "less")
    bounds, zones = table.log_bounds(), table.zones(np.zeros((2, 2)), np.ones(2, dtype=np.bool_))
    alone = SegmentTable(normal(*Z_OBS), "two-sided")
    alone.add(table.segments)
    alone.ask(0, only_second, np.full(2, 0.7), "less")
    expected, costs = alone.log_bounds(), alone.zones(np.zeros((2, 2)), np.ones(2, dtype=np.bool_))
    own = zones.image == 1
    for ours, theirs in zip(bounds, expected, strict=True):
        assert ours[1, 1] == pytest.approx(theirs[0, 1], rel=1e-12)
        assert ours[1, 0] == 0
    np.testing.assert_allclose(zones.log_cost[1, own], costs.log_cost[0, own], rtol=1e-12)
    assert (zones.log_cost[1, ~own] == -np.inf).all()
    table.drop(1, only_second)
    assert (table.log_bounds().high[1] == 0).all()


def test_tails_are_joined_and_parted_without_a_gap() -> None:
    """Parted again, the pieces are those from before; the other image keeps its own throughout."""
    law = normal(*Z_OBS)
    lattice, table = Lattice(law, np.full(2, 2.5)), SegmentTable(law, "two-sided")
    table.add(lattice.segments())
    before = [np.sort(table.segments.left[table.segments.image == image]) for image in (0, 1)]
    only_first = np.array([True, False])
    lattice.join_tails(table, only_first)
    joined = table.segments.take(table.segments.image == 0)
    assert len(joined) < len(before[0])
    assert np.isinf(joined.left).sum() == np.isinf(joined.right).sum() == 1
    np.testing.assert_array_equal(np.sort(joined.left)[1:], np.sort(joined.right)[:-1])
    lattice.part_tails(table, only_first)
    for image in (0, 1):
        own = table.segments.take(table.segments.image == image)
        np.testing.assert_allclose(np.sort(own.left), before[image], rtol=1e-12)
        np.testing.assert_allclose(np.sort(own.right)[:-1], before[image][1:], rtol=1e-12)


def test_tails_of_steep_scores_are_cut_into_narrower_pieces() -> None:
    law = normal(*Z_OBS)
    lattice, table = Lattice(law, np.full(2, 2.5)), SegmentTable(law, "two-sided")
    table.add(lattice.segments())
    ones = np.ones(2)
    explored = Pieces(
        **{field.name: ones for field in fields(Pieces)}
        | {
            "image": np.arange(2),
            "left": Z_OBS,
            "right": Z_OBS + 2.5,
            "rate": np.array([0.7, 0.6]),
            "fall": np.array([0.7, 0.6]),
            "coefficients": torch.zeros(2, 9, 1, 1),
        }
    )
    lattice.widen(table, explored)
    everyone = np.ones(2, dtype=np.bool_)
    lattice.join_tails(table, everyone)
    zones = table.zones(np.zeros((2, 2)), everyone)
    before = set(table.segments.left.tolist())
    lattice.extend(table, zones.take(np.isinf(zones.right)))
    tails = table.segments.take(np.isinf(table.segments.right))
    begins = {int(image): float(left) for image, left in zip(tails.image, tails.left, strict=True)}
    for image, factor in ((0, 3.0), (1, 6.0)):
        own = table.segments.take((table.segments.image == image) & (table.segments.right == begins[image]))
        assert own.left[0] in before
        assert begins[image] - own.left[0] == pytest.approx(factor * 2.5)
