"""How a result depends on the noise: the same as separate tests with that noise."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import kstest

from attentest import AttentionTest, AttentionTestResult
from attentest.attention import ViTScores
from attentest.contrast import Reference
from attentest.errors import InputError
from attentest.noise import AR1, Averaged, Dense, Isotropic, Stationary
from attentest.noise.model import complete
from attentest.presentation.sensitivity import Sensitivity, factor_sensitivity, recorded_sensitivity
from attentest.statistics.inference import ConfidenceInterval, Estimates, Inference
from attentest.statistics.noise_factor import FACTORS, SHOWN_FACTORS, SameVerdict, SensitivityCurve
from attentest.statistics.pvalue import LogPvalues
from attentest.statistics.selection_laws import TruncatedNormal
from attentest.statistics.truncation_set import TruncationSet
from toys import tiny_vit

IMAGE = np.random.default_rng(3).normal(size=(8, 8))


MIXING = torch.from_numpy(np.random.default_rng(0).normal(size=(16, 64)) / 4)


@dataclass
class CountedScores:
    """A small network without a model behind it, which counts the images that it is called with."""

    images: int = 0

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        self.images += len(images)
        return torch.tanh(images.flatten(1) @ MIXING.T).unflatten(1, (4, 4))


@pytest.fixture(scope="module")
def scores() -> CountedScores:
    return CountedScores()


def a_test(scores: CountedScores, **options: Any) -> AttentionTest:
    return AttentionTest(scores, image_shape=(1, 8, 8), **options)


def agrees(found: SensitivityCurve, place: int, full: AttentionTestResult) -> None:
    """Check that p, estimate and interval of a curve are those of a full test, within the error bars of both."""
    _, low, high = (float(logs[place]) for logs in found.log_pvalues)
    assert low <= full.log_pvalue_bounds[1]
    assert high >= full.log_pvalue_bounds[0]
    assert np.exp(high) - np.exp(low) < 1e-3  # otherwise the two lines above could hardly fail
    assert found.estimates.low[place] <= full.estimate_bounds[1] + 1e-9
    assert found.estimates.high[place] >= full.estimate_bounds[0] - 1e-9
    interval, expected = found.intervals[place], full.confidence_interval()
    allowed = interval.error + expected.error + 1e-9 * full.standard_error
    for one, other in zip(interval, expected, strict=True):
        assert one == other or abs(one - other) <= allowed


@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_factors_give_what_tests_with_that_noise_give_and_ask_nothing_of_the_model(
    scores: CountedScores, gamma: float
) -> None:
    """With randomised selection the test has the same added noise: gamma is relative to the noise, and smaller."""
    result = a_test(scores, noise=1.0, randomise=gamma)(IMAGE)
    before = scores.images
    assert before > 20
    found = result.sensitivity(factors=(0.5, 0.8, 1.0, 1.4))
    assert scores.images == before
    for place, factor in enumerate((0.5, 0.8, 1.0, 1.4)):
        full = a_test(scores, noise=factor, randomise=gamma / factor)(IMAGE)
        assert np.array_equal(full.region, result.region)
        agrees(found.factors, place, full)
    assert scores.images > before


def blurred(rho: float = 0.4) -> Stationary:
    falling = rho ** np.abs(np.arange(-20, 21))
    return Stationary(np.outer(falling, falling), (8, 8))


@pytest.mark.parametrize("noise", [1.0, AR1(0.4), blurred()], ids=["independent", "AR1", "by lag"])
def test_correlation_lengths_give_what_tests_with_that_noise_give(scores: CountedScores, noise: Any) -> None:
    test = a_test(scores, noise=noise)
    result = test(IMAGE)
    before = scores.images
    found = test.sensitivity(IMAGE, result=result)
    assert found.lengths is not None
    # Beside what the searches report, each test looks at its image once.
    assert scores.images - before == found.evaluations + 4
    own = complete(test.noise).correlation_length()
    assert own == found.assumed_length
    for place, length in enumerate(found.lengths.values):
        full = result
        if length != own:
            other = complete(test.noise).with_correlation_length(float(length), (1, 8, 8))
            full = a_test(scores, noise=other)(IMAGE)
        agrees(found.lengths, place, full)


def test_randomised_selection_stays_what_it_was(scores: CountedScores) -> None:
    test = a_test(scores, noise=AR1(0.4), randomise=1.0)
    result = test(IMAGE)
    found = test.sensitivity(IMAGE, lengths=[0.0, 3.0])
    assert found.lengths is not None
    assert found.assumed_length == found.lengths.values[1]
    agrees(found.lengths, 1, result)
    assert len(set(found.lengths.pvalues)) == 3
    named = test.sensitivity(IMAGE, result=test(IMAGE, name="other"), lengths=[0.0])  # the noise of that result
    agrees(named.lengths, 1, test(IMAGE, name="other"))


def test_without_lengths_the_result_is_all_that_is_needed(scores: CountedScores) -> None:
    test = a_test(scores, noise=1.0)
    result = test(IMAGE)
    before = scores.images
    found = test.sensitivity(IMAGE, result=result, lengths=())
    assert scores.images == before
    assert found.lengths is None
    assert found.to_dict() == result.sensitivity().to_dict()


def test_noise_without_a_correlation_length_leaves_them_out_and_says_so(scores: CountedScores) -> None:
    test = a_test(scores, noise=Dense(np.eye(64)), confidence_level=None)
    result = test(IMAGE)
    found = test.sensitivity(IMAGE, result=result)
    assert found.lengths is None
    assert "Correlation lengths are left out: the noise model Dense has no" in found.summary()
    with pytest.raises(InputError, match="Dense has no correlation length"):
        test.sensitivity(IMAGE, result=result, lengths=[1.0])


def test_added_noise_that_is_too_smooth_leaves_them_out_and_says_so(scores: CountedScores) -> None:
    lags = np.arange(-40, 41)
    smooth = Stationary(np.exp(-(lags[:, None] ** 2 + lags**2) / 40), (8, 8))
    test = a_test(scores, noise=smooth, randomise=0.5, confidence_level=None)
    found = test.sensitivity(IMAGE)
    assert found.lengths is None
    assert found.note is not None
    assert "too smooth" in found.note
    with pytest.raises(InputError, match="too smooth"):
        test.sensitivity(IMAGE, lengths=[1.0])


def test_the_noise_of_a_reference_has_the_same_correlation_length(scores: CountedScores) -> None:
    reference = np.random.default_rng(4).normal(size=(8, 8))
    test = a_test(scores, noise=1.0, contrast=Reference(reference, noise=Averaged(Isotropic(1.0), 4)))
    found = test.sensitivity(IMAGE, lengths=[2.0])
    both = Isotropic(1.0).with_correlation_length(2.0, (1, 8, 8))
    full = a_test(scores, noise=both, contrast=Reference(reference, noise=Averaged(both, 4)))(IMAGE)
    assert found.lengths is not None
    agrees(found.lengths, 1, full)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lengths": [-1.0]}, "0 or more"),
        ({"lengths": ["far"]}, "lengths must be an array of real numbers"),
        ({"factors": [0.0, 1.0]}, "factors must be a list of positive finite numbers"),
        ({"factors": []}, "factors must be"),
        ({"alpha": 1.0}, "alpha must lie strictly between"),
    ],
)
def test_what_cannot_be_is_refused(scores: CountedScores, options: dict[str, Any], message: str) -> None:
    test = a_test(scores, noise=1.0, confidence_level=None)
    with pytest.raises(InputError, match=message):
        test.sensitivity(IMAGE, **options)
    with pytest.raises(InputError, match="of another image"):
        test.sensitivity(IMAGE + 1.0, result=test(IMAGE))


def made(decisions: Sequence[float] = (0.01, 0.02, 0.3)) -> Sensitivity:
    """A sensitivity with p-values by correlation length."""
    law = TruncatedNormal(statistic=np.array([2.5]))
    intervals = np.array([[-np.inf, 1.0], [2.4, np.inf]])
    known = TruncationSet(intervals=intervals, certain=intervals, possible=np.array([[-np.inf, np.inf]]))
    inference = Inference(law=law, truncation_set=known, alternative="two-sided", standard_error=0.5)
    found = factor_sensitivity(inference, alpha=0.05, confidence_level=0.9, factors=(0.5, 1.0, 2.0))
    logs, values = np.log(decisions), np.arange(1.0, len(decisions) + 1)
    curve = SensitivityCurve(
        values=values,
        standard_errors=np.ones_like(values),
        log_pvalues=LogPvalues(logs, logs, logs),
        estimates=Estimates(values, values, values),
        intervals=[ConfidenceInterval(low=-np.inf, high=value, confidence_level=0.9) for value in values],
    )
    return replace(found, lengths=curve, assumed_length=1.0, evaluations=123)


def test_it_is_written_as_json_and_read_again() -> None:
    found = made()
    text = json.dumps(found.to_dict(), allow_nan=False)
    again = Sensitivity.from_dict(json.loads(text))
    assert again.to_dict() == found.to_dict()
    assert again.summary() == found.summary()


def test_it_says_where_the_verdict_changes() -> None:
    found = made()
    assert found.flips == ()
    assert found.same_verdict.above == "unknown"
    flipped = replace(found, same_verdict=replace(found.same_verdict, above="other"))
    assert flipped.flips == (found.same_verdict.high,)
    assert found.summary().split("\n")[1:] == [
        'With the same variances and another correlation length, the verdict is "significant" at 1 to 2 pixels, '
        '"not significant" at 3 pixels (assumed: 1).',
        "For factors of 0.5 to 2 intervals may be shorter than shown: the search did not look far enough to know them.",
        "The factors took no evaluation of the model, the correlation lengths 123 of them.",
    ]
    assert 'the verdict is "significant" at 1 to 2 pixels (assumed: 1)' in made((0.01, 0.02)).summary()
    assert [row[0] for row in found.table()][-1] == "correlation length 3 px"


def test_report_and_terminal_say_the_same_of_the_factors_and_the_note() -> None:
    law = TruncatedNormal(statistic=np.array([2.5]))
    certain = np.array([[1.5, 5.0]])
    known = TruncationSet(intervals=certain, certain=certain, possible=np.array([[1.5, np.inf]]))
    inference = Inference(law=law, truncation_set=known, alternative="two-sided", standard_error=0.5)
    printed = replace(factor_sensitivity(inference, alpha=0.05, confidence_level=0.95, factors=FACTORS), note="Why.")
    unsure = printed.factors.values[printed.factors.unsure]
    assert 0 < len(unsure) < len(FACTORS)
    assert not np.isclose(unsure[0], SHOWN_FACTORS).any() or not np.isclose(unsure[-1], SHOWN_FACTORS).any()
    reported = recorded_sensitivity(inference, printed.to_dict(), alpha=0.05, confidence_level=0.95)
    assert reported.summary() == printed.summary()
    assert reported.table() == printed.table()
    assert "Why." in reported.summary()


def test_one_factor_is_spoken_of_in_the_singular() -> None:
    found = made()
    widths = [0.0, 0.0, np.inf]
    intervals = [ConfidenceInterval(low=0.0, high=1.0, confidence_level=0.9, error=error) for error in widths]
    one = replace(found, factors=replace(found.factors, intervals=intervals))
    assert "For a factor of 2 the interval may be shorter than shown" in one.summary()


def test_tables_have_a_row_for_each_noise() -> None:
    frame = made().to_pandas()
    assert frame["factor"].tolist() == [0.5, 1.0, 2.0, 1.0, 1.0, 1.0]
    assert frame["correlation_length"].tolist() == [1.0, 1.0, 1.0, 1.0, 2.0, 3.0]
    assert frame["pvalue"].tolist()[3:] == pytest.approx([0.01, 0.02, 0.3])
    assert frame["confidence_low"].tolist()[3:] == [-np.inf] * 3
    page = made()._repr_html_()
    assert "standard deviation x 0.5" in page
    assert "2 or less" in page


def test_the_picture_shows_both_curves_and_where_the_verdict_changes() -> None:
    found = replace(made(), same_verdict=SameVerdict(reject=True, low=0.5, high=1.25, below="same", above="other"))
    axes = found.plot(title="scan $1.npy")
    assert [panel.get_title() for panel in axes] == [
        "selective p",
        "90% interval of the difference",
        "selective p, same variances",
    ]
    assert "flips at 1.25" in [text.get_text() for text in axes[0].texts]
    assert "scan $1.npy" in [text.get_text() for text in axes[0].figure.texts]
    drawn = [line for line in axes[2].lines if len(line.get_xdata()) == 3]
    np.testing.assert_allclose(drawn[0].get_ydata(), np.log10([0.01, 0.02, 0.3]))
    assert len(replace(found, lengths=None).plot(width=80.0)) == 2
    with pytest.raises(InputError, match="a list of 3 Matplotlib Axes"):
        found.plot(axes[:2])


def test_the_picture_shows_p_values_that_are_too_small_for_a_float() -> None:
    found = made()
    logs = LogPvalues(*(np.array([-8000.0, -2000.0, -500.0]) for _ in range(3)))
    tiny = replace(found, factors=replace(found.factors, log_pvalues=logs), lengths=None)
    panel = tiny.plot()[0]
    (drawn,) = [line for line in panel.lines if len(line.get_xdata()) == 3]
    heights = np.asarray(drawn.get_ydata())
    assert heights[1:] == pytest.approx(np.array([-2000.0, -500.0]) / np.log(10))
    low, high = panel.get_ylim()
    assert all(low < height < high for height in (*heights[1:], np.log10(tiny.alpha)))
    panel.figure.canvas.draw()
    assert any("10^{-" in label.get_text() for label in panel.get_yticklabels())


@pytest.mark.slow
def test_p_is_uniform_at_the_true_correlation_length_with_noise_added_for_another() -> None:
    """Independent noise, assumed to be correlated: at length 0 the test is that of the truth, with the same W.

    The Kolmogorov-Smirnov distance of 200 uniform p-values is below 0.122 with probability 0.995.
    """
    test = AttentionTest(ViTScores(tiny_vit()), noise=AR1(0.6), randomise=1.0, confidence_level=None)
    images = np.random.default_rng(0).normal(size=(200, 8, 8))
    curves = [test.sensitivity(image, lengths=[0.0], factors=[1.0]).lengths for image in images]
    pvalues = np.array([curve.pvalues[0] for curve in curves if curve is not None])
    assert len(pvalues) == 200
    assert kstest(pvalues, "uniform").statistic < 0.122
