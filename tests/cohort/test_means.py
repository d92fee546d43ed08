"""Cluster-robust means and regression, random effects, and sample sizes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import linalg, stats
from statsmodels.stats.meta_analysis import combine_effects
from statsmodels.stats.power import TTestIndPower, TTestPower

from attentest.cohort.means import patients_needed, random_effects, regression
from attentest.errors import InputError

RNG = np.random.default_rng(5)


def literal_cr2(x: np.ndarray, y: np.ndarray, cluster: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Standard errors and Satterthwaite's degrees of freedom, with n x n matrices."""
    bread = np.linalg.inv(x.T @ x)
    rest = np.eye(len(y)) - x @ bread @ x.T
    residuals = rest @ y
    groups = [np.flatnonzero(cluster == c) for c in np.unique(cluster)]
    errors, degrees = [], []
    for weights in np.eye(x.shape[1]):
        variance, vectors = 0.0, []
        for rows in groups:
            adjust = linalg.fractional_matrix_power(rest[np.ix_(rows, rows)], -0.5).real
            b = adjust @ x[rows] @ bread @ weights
            variance += (b @ residuals[rows]) ** 2
            vectors.append(rest[:, rows] @ b)
        values = np.linalg.eigvalsh(np.array(vectors) @ np.array(vectors).T)
        errors.append(np.sqrt(variance))
        degrees.append(values.sum() ** 2 / np.sum(values**2))
    return np.array(errors), np.array(degrees)


def test_variances_and_degrees_are_those_of_the_literal_formulas() -> None:
    cluster = np.repeat(np.arange(8), [1, 2, 3, 1, 5, 4, 2, 3])
    x = np.column_stack([np.ones(21), cluster % 2, RNG.normal(size=21)])
    y = x @ [1.0, 0.5, -0.3] + RNG.normal(size=8)[cluster] + RNG.normal(size=21)
    order = RNG.permutation(21)
    found = regression(x[order], y[order], cluster[order], 0.9)
    errors, degrees = literal_cr2(x, y, cluster)
    np.testing.assert_allclose([e.value for e in found], np.linalg.lstsq(x, y, rcond=None)[0])
    np.testing.assert_allclose([e.standard_error for e in found], errors)
    np.testing.assert_allclose([e.degrees for e in found], degrees)
    assert found[1].high == pytest.approx(found[1].value + stats.t.isf(0.05, degrees[1]) * errors[1])


def test_without_clusters_it_is_the_t_test() -> None:
    y = RNG.normal(0.4, 1, 12)
    (found,) = regression(np.ones((12, 1)), y, np.arange(12), 0.95)
    expected = stats.ttest_1samp(y, 0)
    assert found.pvalue == pytest.approx(expected.pvalue)
    assert (found.low, found.high) == pytest.approx(tuple(expected.confidence_interval(0.95)))


def test_units_and_origins_of_covariates_do_not_matter() -> None:
    cluster, covariate = np.repeat(np.arange(8), 3), RNG.normal(size=24)
    y = covariate + RNG.normal(size=24)
    near = regression(np.column_stack([np.ones(24), covariate]), y, cluster, 0.95)[1]
    far = regression(np.column_stack([np.ones(24), 1e12 * (covariate + 1e4)]), y, cluster, 0.95)[1]
    assert (far.value * 1e12, far.degrees, far.pvalue) == pytest.approx(
        (near.value, near.degrees, near.pvalue), rel=1e-9
    )


def test_a_coefficient_that_one_cluster_determines_is_refused() -> None:
    cluster = np.repeat(np.arange(4), 3)
    with pytest.raises(InputError, match="one of the clusters alone determines"):
        regression(np.column_stack([np.ones(12), cluster == 2]), RNG.normal(size=12), cluster, 0.95)


def test_an_estimated_noise_that_images_share_widens_the_interval() -> None:
    y = RNG.normal(0.4, 1, 12)
    parts = np.ones((12, 1)), y, np.arange(12), 0.95, np.full(12, -0.6)
    (known,), (found,) = regression(*parts), regression(*parts, 20)
    assert found.standard_error**2 == pytest.approx(known.standard_error**2 + 0.36 * 2 / 16 * (20 / 18) ** 2)
    assert 11 < found.degrees < 31


def test_random_effects_are_those_of_statsmodels() -> None:
    y, v = RNG.normal(1, 1, 15), RNG.uniform(0.1, 0.8, 15)
    found = random_effects(y, y, v, 0.95)
    expected = combine_effects(y, v, method_re="pm", use_t=True)
    assert found.deviation**2 == pytest.approx(expected.tau2, rel=1e-6)
    assert found.q == pytest.approx(expected.q)
    assert found.heterogeneity == pytest.approx(expected.i2)
    mean = expected.mean_effect_re, expected.sd_eff_w_re_hksj
    assert (found.mean.value, found.mean.standard_error) == pytest.approx(mean, rel=1e-6)
    assert found.deviation_low < found.deviation < found.deviation_high


def test_equal_estimates_have_no_heterogeneity() -> None:
    found = random_effects(np.ones(4), np.ones(4), np.ones(4), 0.95)
    assert (found.deviation, found.heterogeneity, found.q) == (0.0, 0.0, 0.0)
    assert found.mean.value == 1.0


@pytest.mark.parametrize(("groups", "power"), [(1, 0.8), (2, 0.9)])
def test_sample_sizes_are_those_of_statsmodels(groups: int, power: float) -> None:
    needed = patients_needed(0.5, 1.0, groups=groups, power=power)
    solver = TTestPower() if groups == 1 else TTestIndPower()
    assert needed == int(np.ceil(solver.solve_power(effect_size=0.5, alpha=0.05, power=power)))


def test_images_of_one_patient_count_less_the_more_they_share() -> None:
    alone = patients_needed(0.3, 0.8, heterogeneity=0.5)
    shares = {"heterogeneity": 0.5, "images_per_patient": 4}
    several = [patients_needed(0.3, 0.8, intraclass_correlation=share, **shares) for share in (0.0, 1.0)]
    assert several[0] < several[1] < alone
    assert patients_needed(100.0, 1.0) == 2


@pytest.mark.parametrize("values", [{"effect": 0.0}, {"power": 1.0}, {"groups": 3}, {"intraclass_correlation": 2.0}])
def test_a_plan_that_makes_no_sense_is_refused(values: dict[str, float]) -> None:
    with pytest.raises(InputError):
        patients_needed(**{"effect": 1.0, "deviation": 1.0} | values)


def test_an_effect_that_no_study_finds_is_refused() -> None:
    with pytest.raises(InputError, match="more than 10,000,000 patients"):
        patients_needed(1e-6, 1.0)
