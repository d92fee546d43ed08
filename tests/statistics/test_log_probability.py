from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from attentest.statistics.interval_mass import log_sums


def test_log_sums_by_group_are_those_of_scipy() -> None:
    rng = np.random.default_rng(0)
    group, values = rng.integers(0, 40, 500), rng.normal(0, 400, 500)
    values[rng.random(500) < 0.4] = -np.inf
    values[group == 7] = -np.inf  # a group of nothing, and one that is not there
    group[group == 9] = 8
    expected = [logsumexp(values[group == one]) if np.any(group == one) else -np.inf for one in range(40)]
    np.testing.assert_allclose(log_sums(group, values, 40), expected, rtol=1e-15)
    assert log_sums(group[:0], values[:0], 2).tolist() == [-np.inf, -np.inf]
