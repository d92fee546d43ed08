from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats

from attentest import AttentionTest, AttentionTestResult
from attentest.errors import InputError, ModelError, SearchError
from attentest.noise import AR1, Dense, Diagonal, Isotropic
from attentest.search import Adaptive, Fixed, GridSearch, Report, SearchOutcome, SearchProblem, SpectralSearch
from toys import COARSE, ConstantScores, OverflowingScores, SoftmaxScores, softmax_boundary, tiny_vit
from truncated import contains

TOY_IMAGE = np.array([[2.0, 0.3], [-0.4, 0.9]])
QUICK = GridSearch(step=Fixed(step=0.25), boundary_tolerance=1e-6)
"""A coarse search, for tests of what surrounds it."""

SAME_NUMBER = 1e-9
"""How closely p must agree where only the order of float64 operations differs."""


@pytest.mark.parametrize("search", ["spectral", "adaptive", "fixed", "combination"])
def test_one_attention_layer_has_its_closed_form(search: str) -> None:
    chosen = SpectralSearch(tol=1e-11) if search == "spectral" else search
    result = AttentionTest(SoftmaxScores(), noise=1.0, search=chosen)(TOY_IMAGE)
    z_obs, left = softmax_boundary(TOY_IMAGE, 0.6)
    assert result.region.tolist() == [[True, False], [False, False]]
    assert result.statistic == pytest.approx(z_obs, rel=1e-14)
    assert result.intervals.shape == (1, 2)
    assert result.intervals[0, 0] == pytest.approx(left, abs=1e-11)
    assert result.intervals[0, 1] > z_obs + 4
    # 0 < left < z_obs, so the two-sided p is the tail beyond z_obs over the tail beyond left
    assert 0 < left < z_obs
    assert result.pvalue == pytest.approx(stats.norm.sf(z_obs) / stats.norm.sf(left), rel=1e-9)
    lower, upper = result.pvalue_bounds
    assert lower <= result.pvalue <= upper
    assert upper - lower < 1e-10


def test_alternatives_follow_the_sign() -> None:
    def p(alternative: str, image: np.ndarray) -> float:
        search = SpectralSearch(tol=0.0, rtol=1e-9)
        return AttentionTest(SoftmaxScores(), noise=1.0, search=search, alternative=alternative)(image).pvalue  # type: ignore[arg-type]

    z_obs, left = softmax_boundary(TOY_IMAGE, 0.6)
    tail = stats.norm.sf(z_obs) / stats.norm.sf(left)
    assert p("greater", TOY_IMAGE) == pytest.approx(tail, rel=1e-9)
    assert p("less", TOY_IMAGE) == pytest.approx(1 - tail, rel=1e-9)


@pytest.mark.parametrize(
    "noise",
    [Isotropic(1.0), Diagonal(np.ones(64)), Diagonal(np.ones((8, 8))), Dense(np.eye(64)), AR1(0.0)],
    ids=lambda model: type(model).__name__,
)
def test_all_ways_to_say_identity_agree(
    noise: object, tiny_model: torch.nn.Module, tiny_test: AttentionTest, tiny_images: np.ndarray
) -> None:
    result = AttentionTest(tiny_model, noise=noise, search=COARSE)(tiny_images[0])  # type: ignore[arg-type]
    expected = tiny_test(tiny_images[0])
    assert result.statistic == pytest.approx(expected.statistic, rel=1e-13)
    assert result.pvalue == pytest.approx(expected.pvalue, abs=SAME_NUMBER)


def test_correlated_noise_as_operator_and_as_matrix_agree(tiny_model: torch.nn.Module, tiny_images: np.ndarray) -> None:
    covariance = 0.5 ** np.abs(np.subtract.outer(np.arange(64), np.arange(64)))
    operator = AttentionTest(tiny_model, noise=AR1(0.5), search=COARSE)(tiny_images[1])
    matrix = AttentionTest(tiny_model, noise=Dense(covariance), search=COARSE)(tiny_images[1])
    assert operator.statistic == pytest.approx(matrix.statistic, rel=1e-12)
    assert operator.pvalue == pytest.approx(matrix.pvalue, abs=SAME_NUMBER)


class ScaledScores(SoftmaxScores):
    """The same model for images in other units."""

    def __init__(self, unit: float) -> None:
        self.unit = unit

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        return super().__call__(images / self.unit)


@pytest.mark.parametrize("unit", [1e-6, 255.0])
def test_units_do_not_matter(unit: float) -> None:
    plain = AttentionTest(SoftmaxScores(), noise=1.0)(TOY_IMAGE)
    scaled = AttentionTest(ScaledScores(unit), noise=unit)(TOY_IMAGE * unit)
    assert scaled.statistic == pytest.approx(plain.statistic, rel=1e-13)
    assert scaled.pvalue == pytest.approx(plain.pvalue, abs=SAME_NUMBER)


def test_map_gives_the_numbers_of_one_by_one_in_any_order(tiny_model: torch.nn.Module, tiny_images: np.ndarray) -> None:
    chosen = tiny_images[:5]
    order = np.array([3, 0, 4, 2, 1])
    quick = AttentionTest(tiny_model, noise=1.0, search=QUICK)
    together = quick.map(chosen)
    shuffled = AttentionTest(tiny_model, noise=1.0, search=QUICK, batch_size=2).map(list(chosen[order]))
    for index, image in enumerate(chosen):
        alone = quick(image)
        assert isinstance(alone, AttentionTestResult)
        for other in (together[index], shuffled[int(np.flatnonzero(order == index)[0])]):
            assert np.array_equal(other.region, alone.region)
            assert other.statistic == pytest.approx(alone.statistic, rel=1e-12)
            assert other.pvalue == pytest.approx(alone.pvalue, abs=SAME_NUMBER)


def test_adaptive_map_gives_the_numbers_of_one_by_one() -> None:
    search = GridSearch(step=Adaptive(eps_min=0.15), boundary_tolerance=1e-6)
    test = AttentionTest(SoftmaxScores(), noise=1.0, search=search)
    images = np.random.default_rng(8).normal(size=(2, 2, 2))
    for image, result in zip(images, test.map(images), strict=True):
        alone = test(image)
        assert result.evaluations == alone.evaluations
        np.testing.assert_allclose(result.intervals, alone.intervals, atol=SAME_NUMBER)
        assert result.pvalue == pytest.approx(alone.pvalue, abs=SAME_NUMBER)


def test_cuda_gives_the_numbers_of_the_cpu(tiny_model: torch.nn.Module, tiny_images: np.ndarray) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    for search in ("adaptive", SpectralSearch(precision="float64")):
        cpu, cuda = (AttentionTest(tiny_model, noise=1.0, search=search, device=name) for name in ("cpu", "cuda"))
        for one, other in zip(cpu.map(tiny_images), cuda.map(tiny_images), strict=True):
            assert np.array_equal(one.region, other.region)
            assert other.pvalue == pytest.approx(one.pvalue, abs=1e-7)


def test_a_result_is_consistent(tiny_test: AttentionTest, tiny_images: np.ndarray) -> None:
    image = tiny_images[2].copy()
    result = tiny_test(image)
    assert np.array_equal(image, tiny_images[2])
    assert result.attention.shape == result.region.shape == (8, 8)
    assert result.attention.dtype == np.float64
    assert (result.attention.min(), result.attention.max()) == (0, 1)
    assert np.array_equal(result.region, result.attention > 0.6)
    difference = image[result.region].mean() - image[~result.region].mean()
    inside = result.region.sum()
    assert result.statistic == pytest.approx(difference / np.sqrt(1 / inside + 1 / (64 - inside)), rel=1e-12)
    assert contains(result.intervals, result.statistic)
    assert (np.diff(result.intervals.ravel()) > 0).all()
    assert result.naive_pvalue == pytest.approx(2 * stats.norm.sf(abs(result.statistic)), rel=1e-13)
    assert result.bonferroni_pvalue == min(1.0, 2.0**64 * result.naive_pvalue)
    assert result.pvalue_bounds[0] <= result.pvalue <= result.pvalue_bounds[1]
    assert result.status == "converged"
    assert result.evaluations > 50
    assert f"pvalue={result.pvalue:.6g}" in repr(result)
    with pytest.raises(ValueError, match="read-only"):
        result.attention[0, 0] = 2.0


def test_a_result_goes_to_json_and_back(tiny_test: AttentionTest, tiny_images: np.ndarray) -> None:
    result = tiny_test(tiny_images[0])
    plain = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert plain["pvalue"] == result.pvalue
    assert plain["truncation_set"]["intervals"] == result.intervals.tolist()
    assert plain["settings"]["search"]["name"] == "combination"
    assert plain["settings"]["noise"] == Isotropic(1.0).describe()
    assert plain["settings"]["region_unit"] == "pixels"
    assert "arrays" not in plain
    full = json.loads(json.dumps(result.to_dict(arrays=True), allow_nan=False))
    assert np.array_equal(full["region"], result.region)
    assert np.array_equal(full["attention"], result.attention)


def test_every_kind_of_image_is_the_same_image(tiny_test: AttentionTest) -> None:
    pixels = np.random.default_rng(4).integers(0, 255, (8, 8)).astype(np.uint8)
    forms = [
        pixels,
        pixels[..., None],
        pixels.astype(np.uint16),
        pixels.astype(np.float32),
        torch.from_numpy(pixels),
        torch.from_numpy(pixels)[None].double(),
        Image.fromarray(pixels),
        Image.fromarray(pixels.astype(np.float32)),
    ]
    statistics = {tiny_test.permutation_test(form, permutations=1).statistic for form in forms}
    assert len(statistics) == 1


def test_colour_images_average_their_channels() -> None:
    test = AttentionTest(tiny_vit(channels=3), noise=1.0, search=COARSE)
    image = np.random.default_rng(0).normal(size=(8, 8, 3))
    result = test(image)
    grey = image.mean(axis=2)
    inside = int(result.region.sum())
    scale = np.sqrt((1 / inside + 1 / (64 - inside)) / 3)
    expected = (grey[result.region].mean() - grey[~result.region].mean()) / scale
    assert result.statistic == pytest.approx(expected, rel=1e-12)
    channels_first = torch.from_numpy(np.moveaxis(image, -1, 0).copy())
    assert test(channels_first).pvalue == pytest.approx(result.pvalue, abs=SAME_NUMBER)


def test_a_generator_is_consumed_batch_by_batch(tiny_model: torch.nn.Module, tiny_images: np.ndarray) -> None:
    test = AttentionTest(tiny_model, noise=1.0, search=QUICK, batch_size=2)
    taken: list[int] = []

    def source() -> object:
        for index in range(5):
            taken.append(index)
            yield tiny_images[index]

    results = test.stream(source())  # type: ignore[arg-type]
    first = next(results)
    assert taken == [0, 1]
    assert first.pvalue == pytest.approx(test(tiny_images[0]).pvalue, abs=SAME_NUMBER)
    assert len(list(results)) == 4


def test_an_interrupted_stream_keeps_what_was_finished(tiny_model: torch.nn.Module, tiny_images: np.ndarray) -> None:
    test = AttentionTest(tiny_model, noise=1.0, search=QUICK, batch_size=1)

    def source() -> object:
        yield tiny_images[0]
        raise KeyboardInterrupt

    kept: list[AttentionTestResult] = []
    with pytest.raises(KeyboardInterrupt):
        kept.extend(test.stream(source()))  # type: ignore[arg-type]
    assert len(kept) == 1


def test_progress_counts_images(tiny_model: torch.nn.Module, tiny_images: np.ndarray) -> None:
    calls: list[tuple[float, int | None]] = []
    test = AttentionTest(tiny_model, noise=1.0, batch_size=2, search=GridSearch(step=Fixed(step=1.0)))
    test.map(tiny_images[:5], progress=lambda done, total: calls.append((done, total)))
    done = [call[0] for call in calls]
    assert done == sorted(done)
    assert done[-1] == 5
    assert {call[1] for call in calls} == {5}
    calls.clear()
    test.map(iter(tiny_images[:2]), progress=lambda done, total: calls.append((done, total)))
    assert {call[1] for call in calls} == {None}


def test_a_configured_search_is_used(tiny_model: torch.nn.Module, tiny_images: np.ndarray) -> None:
    coarse = AttentionTest(tiny_model, noise=1.0, search=GridSearch(step=Fixed(step=0.5), extent=2.0))
    result = coarse(tiny_images[0])
    assert result.evaluations < 200
    assert result.settings["search"]["step"] == 0.5
    assert np.abs(result.intervals).max() <= abs(result.statistic) + 2


def bad(**changes: object) -> AttentionTest:
    return AttentionTest(**{"model": SoftmaxScores(), "noise": 1.0, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: bad(threshold=0.0), "threshold .* strictly between 0 and 1, got 0.0"),
        (lambda: bad(threshold=1.0), "got 1.0"),
        (lambda: bad(noise=0.0), "sigma .* must be positive and finite.* got 0.0"),
        (lambda: bad(noise=-2), "got -2"),
        (lambda: bad(noise=Dense(np.eye(3))), "for 3 pixels, but the model's images have 4"),
        (lambda: bad(noise=np.eye(4)), "a fitted estimator from attentest.noise, got ndarray: see .*choosing-noise.md"),
        (lambda: bad(alternative="both"), "alternative must be"),
        (
            lambda: bad(search="quick"),
            "search must be spectral, piecewise, adaptive, fixed or combination, got 'quick'",
        ),
        (lambda: bad(model="vit"), "got str: to load a saved model use AttentionTest.from_pretrained"),
        (lambda: bad(device="cpu"), "belong to the score function"),
        (lambda: bad(threshold="0.6"), "threshold .tau. must be a number, got .0.6."),
        (lambda: bad(threshold="0.5"), "must be a number, got '0.5'"),
        (lambda: bad(noise=Isotropic), "got type"),
        (lambda: bad(noise=10**400), "fits a float64"),
        (lambda: bad(noise=1e200), "from 1e-150 to 1e.150 so that its square is too"),
        (lambda: bad(search=GridSearch), "search object such as"),
        (lambda: bad(model=SoftmaxScores), "a NumPy or torch function, got type"),
        (lambda: bad(model=type("Zero", (SoftmaxScores,), {"batch_size": 0})()), "batch_size must be at least 1"),
        (lambda: bad().map([TOY_IMAGE], progress=3), "progress must be True"),
        (lambda: bad().map(5), "iterable of images, got int"),
        (lambda: bad().permutation_test(TOY_IMAGE, permutations=2.5), "permutations must be a whole number"),
        (lambda: bad().permutation_test(TOY_IMAGE, rng=-1), "rng must be"),
        (lambda: bad()(np.ma.masked_array(TOY_IMAGE, mask=TOY_IMAGE > 1)), "masks some"),
        (lambda: bad()([[1.0, 2.0], [3.0]]), "array of numbers"),
        (lambda: bad()(np.ones((2, 2), dtype="m8[s]")), "of numbers, got ndarray of timedelta64"),
        (lambda: bad()(torch.ones(1, 2, 2).to_sparse()), "must be dense"),
        (lambda: bad()(TOY_IMAGE * np.array([[1e300, 1], [1, 1]]) * np.inf), "NaN or infinite"),
        (lambda: bad()(np.full((2, 2), np.nan)), "4 of 4 are NaN or infinite"),
        (lambda: bad()(np.array([[1, np.inf], [0, 0]])), "1 of 4 are NaN or infinite"),
        (lambda: bad()(np.ones((3, 2))), "height 2, width 2 and 1 channel.* has height 3, width 2 and 1 channel"),
        (lambda: bad()(np.ones((2, 2, 3))), "has height 2, width 2 and 3 channel"),
        (lambda: bad()(torch.ones(3, 2, 2)), "but this one has height 2, width 2 and 3 channel"),
        (lambda: bad()(np.ones(4)), r"has shape \(4,\)"),
        (lambda: bad()(np.ones((2, 2), dtype=complex)), "real pixel values"),
        (lambda: bad()(torch.ones(1, 2, 2, dtype=torch.complex128)), "real pixel values"),
        (lambda: bad()([["a", "b"], ["c", "d"]]), "of numbers, got list"),
        (lambda: bad()(None), "got NoneType"),
        (lambda: bad()(Image.new("CMYK", (2, 2))), "'CMYK'.*convert it first"),
        (lambda: bad().map([]), "no images to test"),
        (lambda: bad().map(iter(())), "no images to test"),
        (lambda: bad().map(Image.new("L", (2, 2))), "iterable of images, got Image"),
        (lambda: bad().map([TOY_IMAGE, TOY_IMAGE * np.nan]), "image 1: .* 4 of 4 are NaN"),
        (lambda: bad().map(TOY_IMAGE), r"image 0: .* has shape \(2,\)"),
        (lambda: bad(model=ConstantScores())(TOY_IMAGE), "attention map is constant"),
        (lambda: bad(model=ConstantScores()).map([TOY_IMAGE]), "image 0: the attention map is constant"),
    ],
)
def test_bad_input_ends_in_one_sentence(make: object, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        make()  # type: ignore[operator]
    assert "\n" not in str(caught.value)


def test_a_score_function_of_another_shape_is_refused() -> None:
    flat = type("Flat", (SoftmaxScores,), {"__call__": lambda self, images: images.flatten(1)})()
    with pytest.raises(ModelError, match=r"scores of shape \(1, gh, gw\).* returned torch.float64 of shape \(1, 4\)"):
        AttentionTest(flat, noise=1.0)(TOY_IMAGE)


@pytest.mark.parametrize("search", ["adaptive", "fixed", "combination"])
def test_noise_in_other_units_than_the_pixels_is_refused_at_once(search: str) -> None:
    with pytest.raises(SearchError, match=r"more than max_evaluations = 2000000: is the noise in the units"):
        AttentionTest(SoftmaxScores(), noise=1e-9, search=search)(TOY_IMAGE)


def test_spectral_copes_with_noise_in_other_units() -> None:
    """A statistic of 1e9 is answered: either p is negligible, or the budget runs out and the bar says so."""
    result = AttentionTest(SoftmaxScores(), noise=1e-9, search=SpectralSearch(max_evaluations=2000))(TOY_IMAGE)
    assert result.status in ("converged", "max_evaluations")
    assert result.pvalue_bounds[0] <= result.pvalue <= result.pvalue_bounds[1]
    assert result.evaluations <= 2000


def test_a_budget_that_runs_out_on_the_way_is_an_error() -> None:
    search = GridSearch(step=Adaptive(), max_evaluations=150)
    with pytest.raises(SearchError, match="max_evaluations = 150"):
        AttentionTest(SoftmaxScores(), noise=1.0, search=search)(TOY_IMAGE)


class LosingSearch(GridSearch):
    """A search that misplaces what it found."""

    def find(self, problem: SearchProblem, report: Report | None = None) -> list[SearchOutcome]:
        outcomes = super().find(problem, report)
        sets = [outcome.truncation_set for outcome in outcomes]
        moved = [replace(known, intervals=known.intervals + 100.0) for known in sets]
        return [replace(outcome, truncation_set=known) for outcome, known in zip(outcomes, moved, strict=True)]


def test_a_search_that_loses_the_observed_statistic_is_at_fault() -> None:
    with pytest.raises(SearchError, match="without the observed statistic"):
        AttentionTest(SoftmaxScores(), noise=1.0, search=LosingSearch(step=Fixed(step=0.25)))(TOY_IMAGE)


def test_settings_of_a_result_cannot_be_changed_through_its_dictionary() -> None:
    test = AttentionTest(SoftmaxScores(), noise=np.float32(1), search=GridSearch(step=Fixed(step=np.float32(0.25))))
    first = test(TOY_IMAGE)
    json.dumps(first.to_dict())
    first.to_dict()["settings"]["noise"]["sigma"] = 99
    assert test(TOY_IMAGE).to_dict()["settings"]["noise"]["sigma"] == 1.0


def test_a_bad_image_in_a_list_is_found_before_anything_is_computed(tiny_test: AttentionTest) -> None:
    stream = tiny_test.stream([np.zeros((8, 8))] * 200 + [np.zeros((8, 9))])
    with pytest.raises(InputError, match="image 200"):
        next(stream)


def test_a_model_that_overflows_on_the_line_names_image_and_point() -> None:
    test = AttentionTest(OverflowingScores(), noise=1.0)
    with pytest.raises(SearchError, match=r"image 0 is NaN or infinite at z = -?\d"):
        test.map([TOY_IMAGE] * 2)


def test_a_decision_says_so(tiny_model: torch.nn.Module, tiny_test: AttentionTest, tiny_images: np.ndarray) -> None:
    test = AttentionTest(tiny_model, noise=1.0, confidence_level=None)
    full = test.map(tiny_images[:5])
    for alpha in (0.05, 0.5):
        quick = test.map(tiny_images[:5], decide_at=alpha)
        for one, other in zip(full, quick, strict=True):
            assert one.reject is None
            assert other.alpha == alpha
            assert other.reject == (one.pvalue <= alpha)
            assert other.status in ("decided", "converged")
            assert other.pvalue_bounds[0] - 1e-6 <= one.pvalue <= other.pvalue_bounds[1] + 1e-6
        assert sum(r.evaluations for r in quick) < sum(r.evaluations for r in full)
        assert test(tiny_images[0], decide_at=alpha).to_dict()["reject"] == quick[0].reject
        assert tiny_test(tiny_images[0], decide_at=alpha).reject == quick[0].reject


def test_a_small_memory_budget_gives_the_same_numbers(tiny_model: torch.nn.Module, tiny_images: np.ndarray) -> None:
    options = {"noise": 1.0, "search": SpectralSearch(precision="float64"), "confidence_level": None}
    plenty = AttentionTest(tiny_model, **options)  # type: ignore[arg-type]
    little = AttentionTest(tiny_model, **options, memory_budget=2**24, batch_size=3)  # type: ignore[arg-type]
    for one, other in zip(plenty.map(tiny_images[:3]), little.map(tiny_images[:3]), strict=True):
        assert other.pvalue == pytest.approx(one.pvalue, abs=SAME_NUMBER)
    assert little.replace(search=COARSE)(tiny_images[0]).settings["search"]["name"] == "combination"
