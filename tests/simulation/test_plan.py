"""``attentest.plan`` and the power of a test given its truncation set."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from attentest import AttentionTest, Preprocessing, plan
from attentest.contrast import Reference
from attentest.errors import InputError
from attentest.noise import AR1, Dense, Diagonal, FromImage, Isotropic, PerChannel
from attentest.presentation.figure import new_figure
from attentest.search import SpectralSearch
from attentest.simulation.images import noise_deviation
from attentest.simulation.plan import Design, Plan, SimulatedTests
from attentest.simulation.simulate import Simulation
from attentest.statistics.conditional_mean import detectable_means
from attentest.statistics.multiple_testing import rate_of
from attentest.statistics.selection_laws import RandomisedNormal, RandomisedStudent
from toys import tiny_vit
from truncated import normal

EVERYTHING = np.array([[-np.inf, np.inf]])


class LeftHalf:
    """A model that attends to the left half of a 4 x 4 image, whatever the image: nothing is selected."""

    image_shape = (1, 4, 4)
    device = torch.device("cpu")
    batch_size = 512

    def __call__(self, images: Tensor) -> Tensor:
        # Hardly moved by the image, because a map that never moves at all has no scale to be interpolated on.
        base = torch.tensor([[1.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
        return base + 1e-3 * torch.tanh(images.mean(dim=(1, 2, 3)))[:, None, None] * base


def left_half(**options: Any) -> AttentionTest:
    return AttentionTest(LeftHalf(), **{"noise": 1.0, "threshold": 0.5, "search": SpectralSearch(tol=1e-3), **options})


class Brightness:
    """A model that attends to the bright patches of a 6 x 6 image with 3 x 3 patches."""

    image_shape = (1, 6, 6)
    device = torch.device("cpu")
    batch_size = 512

    def __call__(self, images: Tensor) -> Tensor:
        return torch.nn.functional.avg_pool2d(images[:, 0], 2).exp()


def bright(**options: Any) -> AttentionTest:
    return AttentionTest(Brightness(), **{"noise": 1.0, "search": SpectralSearch(tol=1e-3), **options})


P_ALONE = bright(confidence_level=None)


def ztest_power(mean: float, alpha: float = 0.05) -> float:
    cut = stats.norm.isf(alpha / 2)
    return float(stats.norm.sf(cut - mean) + stats.norm.cdf(-cut - mean))


def test_without_selection_it_is_the_ztest() -> None:
    """The difference of the halves has a standard error of 0.5; the square is in one half in two places of three."""
    planned = plan(
        left_half(confidence_level=None), 300, 1, randomise=[0], region_unit=["patches"], deltas=[0, 2], side=2
    )
    null, signal = planned.tests
    expected = (2 * ztest_power(2.0) + ztest_power(0.0)) / 3
    assert abs(signal.rejected.value - expected) < 3 * np.sqrt(expected * (1 - expected) / 300)  # 0.084
    assert abs(null.rejected.value - 0.05) < 3 * np.sqrt(0.05 * 0.95 / 300)  # 0.038
    assert (null.overlaps, null.coverage, null.lengths, null.differences) == (None, None, None, None)
    assert signal.mean_overlap == pytest.approx(np.mean([4 / 8, 2 / 10, 0]), abs=3 * 0.21 / np.sqrt(300))


@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_without_selection_the_intervals_are_the_naive_ones(gamma: float) -> None:
    options: dict[str, Any] = {"region_unit": ["pixels"], "deltas": [1], "side": 2}
    (tests,) = plan(left_half(), 3, randomise=[gamma], **options).tests
    assert tests.lengths == pytest.approx(np.ones(3), abs=1e-4)
    assert tests.differences == pytest.approx(np.full(3, 0.5 * 2.8015818), rel=2e-3)  # as far as Z is searched
    assert tests.coverage is not None
    assert tests.coverage.total == 3


@pytest.mark.parametrize("count", [8, pytest.param(200, marks=pytest.mark.slow)])
def test_intervals_hold_the_true_value_and_stay_below_their_bound(count: int) -> None:
    """The true value is not zero. A valid test covers it more rarely with a probability of at most 0.1%."""
    planned = plan(bright(noise=AR1(0.5)), count, 3, randomise=[0.5], region_unit=["patches"], deltas=[2])
    (tests,) = planned.tests
    assert tests.coverage is not None
    assert tests.lengths is not None
    assert tests.coverage.count >= stats.binom.ppf(0.001, count, 0.95)
    assert tests.lengths.max() < np.sqrt(1 + 1 / 0.5**2) * (1 + 1e-3)


def test_randomisation_and_signals_help() -> None:
    planned = plan(P_ALONE, 40, randomise=[0, 1], region_unit=["pixels"], deltas=[0, 4])
    by_cell = {(tests.design.randomise, tests.delta): tests.rejected.value for tests in planned.tests}
    assert by_cell[1, 4] > by_cell[0, 4] > by_cell[0, 0]
    assert by_cell[1, 4] > by_cell[1, 0]
    found, least = planned.detectable(Design(1.0, "pixels")), planned.detectable(Design(0.0, "pixels"))
    assert found is not None
    assert least is not None
    assert found.value <= least.value
    assert found.low <= found.value <= found.high


def test_images_are_the_same_for_all_designs_and_heights() -> None:
    simulation = simulated(bright(noise=2.0), deltas=(0, 1), side=3)
    images = simulation.images
    with_square, square = images.image(4, 5.0), images.square(4)
    assert square.sum() == 9
    np.testing.assert_allclose(with_square.pixels - images.image(4, 0.0).pixels, 5.0 * square[None], atol=1e-12)
    assert not np.array_equal(images.image(4, 0.0).pixels, images.image(3, 0.0).pixels)
    again, other = simulated(bright(noise=2.0), side=3).images, simulated(bright(noise=2.0), rng=1, side=3).images
    assert np.array_equal(again.image(4, 5.0).pixels, with_square.pixels)
    assert not np.array_equal(other.image(4, 5.0).pixels, with_square.pixels)
    places = {np.argwhere(images.square(i))[0].tobytes() for i in range(150)}
    assert len(places) == 16
    values = np.stack([images.image(i, 0.0).pixels for i in range(200)])
    assert values.std() == pytest.approx(2.0, rel=0.03)


def simulated(test: AttentionTest, n: int = 2, rng: int = 0, **options: Any) -> Simulation:
    defaults: dict[str, Any] = {
        "randomise": [0],
        "region_unit": ["pixels"],
        "deltas": None,
        "side": None,
        "backgrounds": None,
        "image_shape": None,
        "true_noise": None,
        "alpha": 0.05,
        "power": 0.8,
    }
    return Simulation(test, n, rng, **{**defaults, **options})


def test_backgrounds_are_the_true_means() -> None:
    slope = np.linspace(0, 9, 36).reshape(6, 6)
    images = simulated(bright(), backgrounds=[slope, -slope]).images
    assert np.array_equal(images.mean(2, 0.0)[0], slope)
    assert np.array_equal(images.mean(3, 0.0)[0], -slope)
    planned = plan(bright(), 2, randomise=[0.5], region_unit=["patches"], backgrounds=[slope])
    assert planned.deltas == (0.0,)
    assert planned.detectable(planned.designs[0]) is None
    assert "rejected at 0.05" in planned.summary()
    assert "a difference of" in planned.summary()


def test_a_reference_has_the_background_without_the_square() -> None:
    """So the backgrounds cancel: without a square the hypothesis is true, and the true value is zero."""
    slope = np.linspace(0, 9, 36).reshape(6, 6)
    test = bright(contrast=Reference(noise=0.5), confidence_level=0.9)
    simulation = simulated(test, 10, backgrounds=[slope], randomise=[1], deltas=[0])
    reference = simulation.images.reference(0)
    assert np.abs(reference.pixels - slope).max() < 3
    assert not np.array_equal(reference.pixels, simulation.images.reference(1).pixels)
    (tests,) = simulation.tests()
    assert tests.rejected.count <= 3  # exceeded with a probability of 0.1%
    assert tests.coverage is not None
    assert tests.coverage.count >= 6  # of 10 at a level of 0.9: fewer with a probability of 0.2%


def test_the_square_is_dark_if_the_alternative_is_less() -> None:
    options: dict[str, Any] = {"randomise": [1], "region_unit": ["pixels"], "deltas": [5]}
    less, greater = (
        plan(left_half(alternative=alternative, confidence_level=None), 30, side=2, **options).tests[0]
        for alternative in ("less", "greater")
    )
    assert 0.15 < less.rejected.value < 0.55  # the square is on the left in a third of the images
    assert 0.15 < greater.rejected.value < 0.55
    one_sided = plan(left_half(alternative="less"), 3, randomise=[0], region_unit=["pixels"], deltas=[1]).tests[0]
    assert one_sided.lengths is None
    assert one_sided.differences == pytest.approx(np.full(3, 0.5 * 2.4864749), rel=2e-3)


def test_colour_images_and_preprocessing() -> None:
    colour = AttentionTest(
        tiny_vit(channels=3),
        noise=PerChannel([1.0, 2.0, 3.0]),
        preprocessing=Preprocessing(resize=(6, 6)),
        search=SpectralSearch(tol=1e-2),
        confidence_level=None,
    )
    planned = plan(colour, 2, randomise=[0.5], deltas=[1], region_unit=["patches"], image_shape=(3, 9, 10))
    assert planned.noise_deviation == pytest.approx(np.sqrt(14 / 3), rel=0.02)
    assert planned.tests[0].rejected.total == 2
    with pytest.raises(InputError, match="say which to draw with image_shape"):
        plan(colour, 2)


def test_the_deviation_of_the_noise_is_that_of_a_pixel() -> None:
    assert noise_deviation(Isotropic(3.0), 256) == pytest.approx(3.0)
    assert noise_deviation(AR1(0.5, 2.0), 1000) == pytest.approx(2.0)
    variances = np.arange(1.0, 10.0)
    assert noise_deviation(Diagonal(variances.reshape(3, 3)), 9) == pytest.approx(np.sqrt(5.0))
    matrix = np.diag(variances) + 0.1
    assert noise_deviation(Dense(matrix), 9) == pytest.approx(np.sqrt(5.1))


def test_noise_from_the_image_needs_noise_to_draw_from() -> None:
    with pytest.raises(InputError, match="say with true_noise="):
        plan(bright(noise=FromImage()), 2)
    assert simulated(bright(noise=FromImage()), true_noise=2.0).noise_deviation == pytest.approx(2.0)


def row(gamma: float, delta: float, count: int, total: int = 100, **values: Any) -> SimulatedTests:
    nothing: dict[str, Any] = {"coverage": None, "lengths": None, "differences": None, "overlaps": None}
    rejected = rate_of(np.arange(total) < count)
    chosen = {**nothing, "undecided": 0, "evaluations": 50.0, **values}
    return SimulatedTests(design=Design(gamma, "pixels"), delta=delta, rejected=rejected, **chosen)


def planned(*tests: SimulatedTests, **values: Any) -> Plan:
    defaults: dict[str, Any] = {
        "alpha": 0.05,
        "power": 0.8,
        "confidence_level": None,
        "noise_deviation": 2.0,
        "side": None,
    }
    return Plan(tests=tests, **{**defaults, **values})


def test_the_detectable_signal_is_interpolated() -> None:
    design = Design(0.0, "pixels")
    found = planned(row(0, 0, 5), row(0, 1, 60), row(0, 2, 90)).detectable(design)
    assert found is not None
    assert found.value == pytest.approx(2.0 * (1 + 20 / 30))
    at_1, at_2 = rate_of(np.arange(100) < 60), rate_of(np.arange(100) < 90)
    assert found.low == pytest.approx(2.0 * (1 + (0.8 - at_1.high) / (at_2.high - at_1.high)))
    assert found.high == pytest.approx(2.0 * (1 + (0.8 - at_1.low) / (at_2.low - at_1.low)))
    never = planned(row(0, 0, 5), row(0, 3, 20))
    assert never.detectable(design) == (np.inf, np.inf, np.inf)
    assert never.detectable_text(design) == (
        "power 0.8 is not reached at any height up to 6: rejected there 0.2 [0.1334, 0.2888] (20 of 100)"
    )
    at_once = planned(row(0, 1, 90), row(0, 2, 100))
    assert at_once.detectable_text(design).startswith(
        "power 0.8 is reached at the least height, 2, already: rejected there 0.9 ["
    )
    assert at_once.detectable(design)[1] == 0  # type: ignore[index]
    without = planned(row(0, 0, 90), row(0, 1, 95)).detectable_text(design)
    assert without.startswith("power 0.8 is reached without a signal: rejected there 0.9 [")
    unsure = planned(row(0, 0, 1, 10), row(0, 2, 9, 10))
    assert unsure.detectable_text(design) == "a signal of 3.5 [2.74, above 4] is found with a probability of 0.8"
    assert json.loads(json.dumps(never.to_dict(), allow_nan=False))["detectable"][0]["signal"] == "inf"
    with pytest.raises(InputError, match=r"no tests of patches, gamma 0\.5: it has pixels, not randomised"):
        never.of(Design(0.5, "patches"))
    with pytest.raises(InputError, match="at least one simulated test"):
        planned()


def test_the_interval_of_the_median_covers_it() -> None:
    """In 95% of the samples or a little more; of 500 samples, standard error 1 point."""
    samples = np.random.default_rng(0).exponential(size=(500, 41))
    ends = [row(0, 0, 1, differences=sample).detectable_difference for sample in samples]
    covered = np.mean([end.low <= np.log(2) <= end.high for end in ends if end is not None])
    exact = 1 - 2 * stats.binom.cdf(stats.binom.ppf(0.025, 41, 0.5) - 1, 41, 0.5)
    assert exact >= 0.95
    assert abs(covered - exact) < 3 * 0.01
    few = row(0, 0, 1, differences=np.array([1.0, 3.0])).detectable_difference
    assert few == (2.0, 0.0, np.inf)


def test_intervals_have_the_confidence_level_of_the_test() -> None:
    options: dict[str, Any] = {"randomise": 0.5, "region_unit": "patches", "deltas": 2}
    wide, usual = (plan(bright(confidence_level=level), 3, **options) for level in (0.99, 0.95))
    assert (wide.confidence_level, usual.confidence_level) == (0.99, 0.95)
    assert wide.to_dict()["confidence_level"] == 0.99
    naive = stats.norm.ppf(0.995) / stats.norm.ppf(0.975)  # lengths are over those of the naive intervals
    (of_wide,), (of_usual,) = wide.tests, usual.tests
    assert of_wide.lengths is not None
    assert of_usual.lengths is not None
    assert (of_wide.lengths * naive > of_usual.lengths).all()


def test_undecided_images_are_counted() -> None:
    assert "counted as not rejected: 7" in planned(row(0, 0, 5, undecided=7)).summary()


@pytest.mark.parametrize("alternative", ["two-sided", "equal-tailed", "greater", "less"])
def test_detectable_means_have_the_power_by_brute_force(alternative: Any) -> None:
    """Level and power are those of a density on a fine grid; the set is that of a statistic of either sign."""
    holes = np.array([[-2.5, -0.4], [0.3, 1.1], [1.9, 4.0]])
    grid = np.linspace(-8, 60, 2_000_001)
    inside = ((grid[:, None] > holes[:, 0]) & (grid[:, None] < holes[:, 1])).any(axis=1)
    (mean,) = detectable_means(normal(1.0), [holes], alternative, 0.05, 0.8)
    direction = -1 if alternative == "less" else 1
    orders = {"two-sided": np.abs(grid), "greater": grid, "less": -grid}

    def density(at: float) -> NDArray[np.float64]:
        values = np.where(inside, np.exp(-0.5 * (grid - at) ** 2), 0.0)
        return np.asarray(values / values.sum())

    null = density(0.0)
    extreme = np.zeros(len(grid), dtype=bool)
    sides = ("greater", "less") if alternative == "equal-tailed" else (alternative,)
    for side in sides:
        ranked = np.argsort(-orders[side])
        extreme[ranked[np.cumsum(null[ranked]) <= 0.05 / len(sides)]] = True
    assert density(direction * mean)[extreme].sum() == pytest.approx(0.8, abs=1e-4)


def test_detectable_means_of_the_ztest_and_of_thin_sets() -> None:
    law = normal(0.3, -7.0, 40.0)
    assert detectable_means(law, [EVERYTHING] * 3, "two-sided", 0.05, 0.8) == pytest.approx([2.8015818] * 3, abs=1e-6)
    thin = [np.array([[0.2, 0.4]]), np.array([[-7.1, -6.9]]), np.array([[39.99, 40.01]])]
    hard = detectable_means(law, thin, "two-sided", 0.05, 0.8)
    assert hard.min() > 10
    for gamma in (0.3, 1.0, 5.0):
        soft = RandomisedNormal(statistic=law.statistic, observed_z=law.statistic, gamma=np.full(3, gamma))
        found = detectable_means(soft, thin, "greater", 0.05, 0.8)
        # No more than by conditioning on all of the randomised image: the z-test of data thinning.
        assert found.max() <= (stats.norm.isf(0.05) + stats.norm.isf(0.2)) * np.sqrt(1 + 1 / gamma**2) * (1 + 1e-9)


def test_a_power_that_is_never_reached_is_an_infinite_mean_and_takes_no_time() -> None:
    """With an estimated standard error of one degree of freedom the power has a limit below 1 on a thin set."""
    t = np.array([1.2, 3.0])
    law = RandomisedStudent(statistic=t, observed_z=t, gamma=np.full(2, 0.3), degrees=np.array([1.0, 10.0]))
    start = time.perf_counter()
    means = detectable_means(law, [np.array([[at - 0.1, at + 0.1]]) for at in t], "two-sided", 0.05, 0.8)
    assert means == pytest.approx([np.inf, 9.390956828], rel=1e-8)
    assert time.perf_counter() - start < 30  # 0.2 s


@pytest.mark.parametrize("deltas", [(0.0, 1.0, 2.0), (1.0,), (0.0,)])
@pytest.mark.parametrize("level", [0.95, None])
def test_the_figure_has_a_panel_for_what_is_there(deltas: tuple[float, ...], level: float | None) -> None:
    rng = np.random.default_rng(0)
    tests = [
        row(
            gamma,
            delta,
            int(20 * delta + 10 * gamma),
            lengths=None if level is None else np.r_[rng.exponential(50 - 40 * gamma, 9), np.inf],
            overlaps=rng.random(10) if delta else None,
        )
        for delta in deltas
        for gamma in (0.0, 0.5, 1.0)
    ]
    figure = planned(*tests, confidence_level=level).figure()
    assert len(figure.axes) == 1 + (deltas[-1] > 0) + (level is not None)
    figure.canvas.draw()
    axes = list(new_figure(9.0, 3.0).subplots(1, len(figure.axes), squeeze=False)[0])
    drawn = planned(*tests, confidence_level=level).plot(axes)
    assert [panel.get_title() for panel in drawn] == [panel.get_title() for panel in figure.axes]
    with pytest.raises(InputError, match="Matplotlib Axes"):
        planned(*tests, confidence_level=level).plot([*axes, axes[0]])


def test_table_and_figure_show_one_median_length() -> None:
    lengths = [[1.0, 2.0, 4.0, 9.0], [1.0, 2.0, np.inf, np.inf], [1.0, 3.0]]
    tests = [row(gamma, 0, 3, lengths=np.array(some)) for gamma, some in zip((0.0, 0.5, 1.0), lengths, strict=True)]
    assert [each.length_quartiles for each in tests] == [(1, 3, 4), (1, np.inf, np.inf), (1, 2, 3)]
    found = planned(*tests, confidence_level=0.95)
    assert found.table()["median_length"] == [3, np.inf, 2]
    (line,) = found.figure().axes[-1].lines
    assert np.array_equal(line.get_ydata(), [3, np.nan, 2], equal_nan=True)


def test_the_figure_of_an_interrupted_simulation_and_of_one_sided_intervals() -> None:
    other = replace(row(0, 0, 3), design=Design(0.0, "patches"))
    figure = planned(row(0, 0, 3), other, row(0, 1, 90, overlaps=np.ones(3)), confidence_level=0.95).figure()
    assert [axes.get_title() for axes in figure.axes] == [
        "power, regions of pixels",
        "power, regions of patches",
        "quality of the region, signal of 2",
    ]
    figure.canvas.draw()
    endless = planned(row(0, 0, 3, lengths=np.full(5, np.inf)), confidence_level=0.95)
    assert len(endless.figure().axes) == 2
    assert endless.to_dict()["tests"][0]["mean_length"] == "inf"


def test_one_value_is_a_list_of_one() -> None:
    single = plan(P_ALONE, 1, randomise=0.5, region_unit="patches", deltas=2)
    assert single.table() == plan(P_ALONE, 1, randomise=[0.5], region_unit=["patches"], deltas=[2]).table()


def test_a_plan_keeps_the_seed_of_the_test() -> None:
    options: dict[str, Any] = {"randomise": [0.5, 1], "region_unit": ["pixels"], "deltas": [2]}
    tests = [bright(randomise=0.5, randomise_seed=seed, confidence_level=None) for seed in (0, 3, 3)]
    without, first, again = (plan(test, 8, 0, **options).table() for test in tests)
    assert first == again != without


def test_progress_is_reported_in_tests() -> None:
    seen: list[tuple[float, int | None]] = []
    plan(P_ALONE, 2, randomise=[0, 1], region_unit=["pixels"], deltas=[0, 1],
         progress=lambda done, total: seen.append((done, total)))  # fmt: skip
    assert seen[-1] == (8, 8)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test": None}, "test must be an AttentionTest, got NoneType"),
        ({"n": 0}, "the number of images. must be at least 1"),
        ({"n": 500_000}, "n = 500000 would take 16000000 tests, and at most 1000000"),
        ({"rng": "seed"}, "rng must be a numpy.random.Generator or a seed"),
        ({"randomise": None}, "randomise must be a value or a list of them, got None"),
        ({"randomise": "much"}, "randomise must be a number"),
        ({"randomise": []}, "randomise must hold at least one value"),
        ({"randomise": [0, 11]}, "randomise must be 0, for the paper's test, or a number"),
        ({"region_unit": "circles"}, "region_unit must be pixels or patches, got 'circles'"),
        ({"region_unit": ["circles"]}, "region_unit must be pixels or patches, got 'circles'"),
        (
            {"deltas": [-1]},
            "deltas .the heights of the raised part. must be from 0 to 1e.06 standard deviations, got -1",
        ),
        ({"deltas": ["x"]}, "deltas .the heights of the raised part. must be a number"),
        ({"side": 7}, "side .of the raised part, in pixels. must be at least 1 and at most 6"),
        ({"side": 6}, "side = 6 raises all of the image, so that there is nothing to compare it with"),
        ({"n": 1, "backgrounds": [np.zeros((6, 6))] * 2}, "n = 1 would leave out .* give at least 2, or fewer"),
        ({"backgrounds": [np.zeros((6, 6)), np.zeros((4, 4))]}, "image 1: the model takes images of"),
        ({"backgrounds": 3}, "image"),
        ({"backgrounds": []}, "backgrounds must hold at least one value"),
        ({"backgrounds": [np.zeros((6, 6))], "image_shape": (6, 6)}, "leave one of them out"),
        ({"image_shape": (9, 9)}, "the model takes images of"),
        ({"true_noise": Diagonal(np.ones(5))}, "the noise that images are drawn from: the noise model is for 5 pixels"),
        ({"alpha": 1.0}, "alpha must lie strictly between 0 and 1"),
        ({"power": 0.0}, "power must lie strictly between 0 and 1"),
        ({"progress": 3}, "progress must be True"),
    ],
)
def test_bad_input_ends_in_one_sentence(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan(**{"test": bright(), "n": 3, **options})


def test_the_same_test_with_another_randomisation_or_region() -> None:
    p_alone: dict[str, Any] = {"confidence_level": None}
    test, image = bright(**p_alone), np.random.default_rng(0).normal(size=(6, 6))
    for changed, made in (
        (test.replace(randomise=0.5, randomise_seed=3), bright(randomise=0.5, randomise_seed=3, **p_alone)),
        (bright(randomise=0.5, randomise_seed=3, **p_alone).replace(randomise=0), test),
        (
            bright(randomise=0.5, randomise_seed=3, **p_alone).replace(randomise=1.0),
            bright(randomise=1.0, randomise_seed=3, **p_alone),
        ),
        (test.replace(region_unit="patches"), bright(region_unit="patches", **p_alone)),
        (bright(region_unit="patches", **p_alone).replace(region_unit="pixels"), test),
    ):
        assert changed.settings == made.settings
        ours, expected = changed(image), made(image)
        assert ours.log_pvalue == expected.log_pvalue
        assert np.array_equal(ours.region, expected.region)
    with pytest.raises(InputError, match="region_unit must be pixels or patches"):
        test.replace(region_unit="circles")
