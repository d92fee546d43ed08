"""Parts of the axes of images: which lie in others."""

import numpy as np

from attentest.search.spectral.segments import AxisParts


def _parts(*rows: tuple[int, float, float]) -> AxisParts:
    image, left, right = zip(*rows, strict=True)
    return AxisParts(image=np.array(image), left=np.array(left), right=np.array(right))


def test_a_part_that_lies_in_another_of_its_image_is_not_outermost() -> None:
    parts = _parts((1, 0.0, 1.0), (0, 0.0, 4.0), (0, 1.0, 4.0), (0, 5.0, 6.0), (1, 0.0, 1.0), (0, 4.0, 4.5))
    assert parts.outermost().tolist() == [1, 5, 3, 0]


def test_outermost_parts_and_containment_agree_with_a_slow_search() -> None:
    rng = np.random.default_rng(5)
    # Nested halvings, as pieces are: [j, j + 1] / 2^level.
    level = rng.integers(0, 5, 60)
    left = rng.integers(0, 2**level) / 2.0**level
    parts = AxisParts(image=rng.integers(0, 3, 60), left=left, right=left + 0.5**level)
    rows = parts.outermost()

    def within(image: int, start: float, end: float, among: AxisParts) -> bool:
        return any(
            image == i and start >= a and end <= b for i, a, b in zip(among.image, among.left, among.right, strict=True)
        )

    kept = parts.take(rows)
    assert len(set(zip(kept.image, kept.left, kept.right, strict=True))) == len(rows)
    for row in range(60):
        own = parts.take(np.array([row]))
        strictly = parts.take((parts.right - parts.left) > own.right - own.left)
        is_outermost = not within(int(own.image[0]), own.left[0], own.right[0], strictly)
        found = any((kept.image == own.image) & (kept.left == own.left) & (kept.right == own.right))
        assert found == is_outermost
    start = rng.uniform(0, 1, 300)
    image, end = rng.integers(0, 4, 300), start + rng.uniform(0, 0.5, 300)
    some = parts.take(rows[::2])
    expected = [within(*each, some) for each in zip(image, start, end, strict=True)]
    assert some.contain(AxisParts(image=image, left=start, right=end)).tolist() == expected
    assert 10 < sum(expected) < 290


def test_no_parts_contain_nothing() -> None:
    parts = _parts((0, 0.0, 1.0))
    none = parts.take(slice(0))
    assert len(none.outermost()) == 0
    assert not none.contain(parts).any()
