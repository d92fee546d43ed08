"""Images of counts: what is tested, that it is exact, how it is shown, and what is no count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom, binomtest

from attentest import AttentionTest, bundled_model
from attentest.contrast import Filtered, Neighbourhood, Reference
from attentest.errors import InputError
from attentest.noise import Poisson
from attentest.noise.tested_image import seen_share
from attentest.presentation.footnotes import contradiction_text, selection_notes
from attentest.presentation.rows import row_of
from attentest.record import ResultRecord
from attentest.search import Certification
from attentest.statistics.selection_laws import BinomialCounts
from command_line import run_main
from toys import tiny_vit

COUNTS = np.random.default_rng(1).poisson(6.0, size=(8, 8))


def law(inside: int, total: int, share: float) -> BinomialCounts:
    counts = np.array([float(inside)]), np.array([float(total)])
    return BinomialCounts.of(*counts, np.array([share]), *counts)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.5, 0.9])
@pytest.mark.parametrize(("inside", "total"), [(0, 1), (1, 1), (0, 40), (7, 40), (40, 40), (151, 333)])
def test_p_values_and_intervals_are_those_of_scipy(inside: int, total: int, share: float) -> None:
    one = law(inside, total, share)
    for alternative in ("less", "greater"):
        expected = binomtest(inside, total, share, alternative).pvalue
        assert np.exp(one.log_pvalues(alternative)) == pytest.approx(expected, rel=1e-9)
    smaller = min(binomtest(inside, total, share, alternative).pvalue for alternative in ("less", "greater"))
    assert np.exp(one.log_pvalues("equal-tailed")) == pytest.approx(min(1, 2 * smaller), rel=1e-9)
    counts = np.arange(total + 1)
    as_far = np.abs(counts - total * share) >= abs(inside - total * share) - 1e-9
    assert np.exp(one.log_pvalues("two-sided")) == pytest.approx(
        binom.pmf(counts, total, share)[as_far].sum(), rel=1e-9
    )
    low, high = one.ratio_ends(np.array([0.025]))
    interval = binomtest(inside, total, share).proportion_ci(0.95)
    odds = share / (1 - share)
    assert low == pytest.approx(interval.low / (1 - interval.low) / odds if inside else 0.0, rel=1e-9)
    assert high == pytest.approx(interval.high / (1 - interval.high) / odds if inside < total else np.inf, rel=1e-9)


def test_a_p_value_too_small_for_a_float_is_known_in_logs() -> None:
    # The first term of the tail, and the ratio of the second to it, bound the tail.
    n, k, share = 3000, 2500, 0.1
    first = float(binom.logpmf(k, n, share))
    ratio = (n - k) / (k + 1) * share / (1 - share)
    (tail,) = law(k, n, share).log_pvalues("greater")
    assert first < -4000
    assert first < tail < first - np.log1p(-ratio)
    (less,) = law(n - k, n, 1 - share).log_pvalues("less")
    assert less == pytest.approx(tail, rel=1e-12)


def test_the_counts_that_the_model_did_not_see_are_tested() -> None:
    test = AttentionTest(tiny_vit(), noise="poisson", threshold=0.5)
    result = test(COUNTS)
    assert result.randomised_image is not None
    seen = result.randomised_image / 2  # gamma 1 is half and half
    held = COUNTS - seen
    np.testing.assert_array_equal(seen, np.floor(seen))
    assert (seen >= 0).all()
    assert (held >= 0).all()
    inside, total, pixels = held[result.region].sum(), held.sum(), result.region.sum()
    assert result.pvalue == pytest.approx(np.exp(law(inside, total, pixels / 64).log_pvalues("two-sided")[0]))
    rates = 2 * inside / pixels, 2 * (total - inside) / (64 - pixels)
    assert result.estimate == pytest.approx(rates[0] / rates[1])
    assert result.difference == pytest.approx(rates[0] - rates[1])
    assert result.naive_pvalue == pytest.approx(
        np.exp(law(COUNTS[result.region].sum(), COUNTS.sum(), pixels / 64).log_pvalues("two-sided")[0])
    )
    assert result.estimate in result.confidence_interval(0.5)
    assert result.naive_confidence_interval().low > 0
    assert (result.evaluations, result.status, result.settings["search"]) == (1, "converged", {"name": "none"})
    np.testing.assert_array_equal(test.attention_region(COUNTS)[1], result.region)


def test_gamma_says_which_share_of_the_counts_the_model_sees() -> None:
    assert (seen_share(1.0), seen_share(0.5), seen_share(3.0)) == (0.5, 0.8, 0.1)
    image = np.full((8, 8), 10_000)
    result = AttentionTest(tiny_vit(), noise=Poisson(), randomise=3.0, randomise_seed=4)(image)
    assert result.randomised_image is not None
    thinned = result.randomised_image * 0.1
    assert thinned.mean() == pytest.approx(1000, abs=6 * np.sqrt(900 / 64))
    np.testing.assert_allclose(thinned, np.rint(thinned))
    assert AttentionTest(tiny_vit(), noise="poisson").definition.randomise == 1.0


def test_a_ring_and_components_and_channels() -> None:
    ring = AttentionTest(tiny_vit(), noise="poisson", contrast=Neighbourhood(2), threshold=0.5)(COUNTS)
    weights = Neighbourhood(2).weights(ring.region, ring.region, ring.seen)
    assert ring.randomised_image is not None
    assert ring.difference == pytest.approx(2 * (weights * (COUNTS - ring.randomised_image / 2)).sum())
    test = AttentionTest(tiny_vit(), noise="poisson", threshold=0.5)
    image = next(x for x in np.random.default_rng(0).poisson(3, (99, 8, 8)) if len(test.components(x)) > 1)
    for component in test.components(image):
        outside = ~component.region
        assert component.law.share[0] == pytest.approx(component.part.sum() / (component.part | outside).sum())
    colour = np.stack([COUNTS, COUNTS, COUNTS], axis=-1)
    three = AttentionTest(tiny_vit(channels=3), noise="poisson")
    assert three(colour).law.naive_total == 3 * COUNTS.sum()
    assert three.replace(channels=1)(colour).law.naive_total == COUNTS.sum()
    with pytest.raises(InputError, match="they must have equal weights"):
        three.replace(channels=[0.3, 0.6, 0.1])(colour)


def uneven(mean: float) -> NDArray[np.float64]:
    """Rates that differ within patches, and have the same mean in each."""
    return np.tile(mean * np.array([[0.1, 1.9], [1.4, 0.6]]), (4, 4))


@pytest.mark.parametrize("mean", [0.5, 20.0])
def test_the_level_holds_where_rates_differ_within_patches(mean: float) -> None:
    rng = np.random.default_rng(7)
    test = AttentionTest(tiny_vit(), noise="poisson", region_unit="patches", threshold=0.5)
    results = test.map(rng.poisson(uneven(mean), size=(400, 8, 8)))
    for alternative in ("two-sided", "equal-tailed", "greater", "less"):
        rejected = np.mean([result.with_alternative(alternative).pvalue <= 0.1 for result in results])
        assert rejected < 0.1 + 3 * np.sqrt(0.09 / 400)  # three standard errors
    covered = np.mean([1.0 in result.confidence_interval(0.9) for result in results])
    assert covered > 0.9 - 3 * np.sqrt(0.09 / 400)


@pytest.mark.parametrize("value", [-1.0, 2.5, 1e16])
def test_pixels_that_are_no_counts_are_refused(value: float) -> None:
    image = COUNTS.astype(np.float64)
    image[3, 4] = value
    with pytest.raises(InputError, match=r"for images of counts, whole numbers from 0 to 2\^53, but a pixel is"):
        AttentionTest(tiny_vit(), noise="poisson")(image)


def test_whole_numbers_that_are_too_smooth_for_counts_are_doubted() -> None:
    test = AttentionTest.from_pretrained(bundled_model(), noise="poisson")
    rows, columns = np.mgrid[:16, :16]
    photograph = np.round(128 + 60 * np.sin(rows / 5) * np.cos(columns / 4))
    assert "less than the noise alone would make them" in str(test(photograph).noise_doubt)
    rng = np.random.default_rng(0)
    for rate in (0.5, 5.0, 500.0):
        assert test(rng.poisson(rate * (1 + columns / 8))).noise_doubt is None


@pytest.mark.parametrize("contrast", ["region-mean", Filtered("laplacian"), Reference(), lambda mask: mask * 1.0])
def test_other_contrasts_are_refused(contrast: Any) -> None:
    with pytest.raises(InputError, match="compares the counts of two parts of an image"):
        AttentionTest(tiny_vit(), noise="poisson", contrast=contrast)


def test_what_needs_a_noise_model_is_refused_in_a_sentence() -> None:
    test = AttentionTest(tiny_vit(), noise="poisson")
    result = test(COUNTS)
    for ask, message in (
        (lambda: test(COUNTS, certification=Certification(draws=9)), "divided once, and tested without a search"),
        (lambda: test.replace(draws=3)(COUNTS), "use draws=1"),
        (lambda: result.sensitivity(), "nothing to be sensitive to"),
        (lambda: test.sensitivity(COUNTS), "nothing to be sensitive to"),
        (lambda: test.margins(COUNTS, [0.0]), "has no covariance"),
        (lambda: test(np.zeros((8, 8))), "no counts left to test, of 0 in all|constant"),
        (lambda: AttentionTest(tiny_vit(), noise="gaussian"), "noise must be"),
    ):
        with pytest.raises(InputError, match=message):
            ask()


def test_words_say_rates_and_ratios_and_the_record_comes_back(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    image = COUNTS.copy()
    test = AttentionTest(tiny_vit(), noise="poisson", threshold=0.5)
    image[test.attention_region(image)[1]] += 60
    results = test.map([COUNTS, image])
    for result in results:
        record = result.record()
        values = json.loads(json.dumps(record.to_dict(), allow_nan=False))
        assert ResultRecord.from_dict(values).to_dict() == record.to_dict()
        assert "mean rate of this attention region" in result.verdict()
        assert "If the mean rates were equal" in result.verdict()
        row = row_of("scan", record)
        assert "50% of them" in selection_notes(row)[0]
        assert "difference of 0" not in contradiction_text(record, 0.05)
        axes = result.plot()[-1]
        assert "ratio of mean rates" in [child.get_xlabel() for child in axes.child_axes]
    assert "ratio of the mean rates" in results[0]._repr_html_()
    results.report(tmp_path / "counts.html")
    page = (tmp_path / "counts.html").read_text()
    assert "ratio of the mean rates inside and outside" in page
    assert "p would be" not in page  # for other noise


def test_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.save("counts.npy", rng.poisson(5.0, size=(16, 16)))
    np.save("scaled.npy", rng.poisson(5.0, size=(16, 16)) / 2)
    arguments = ["test", "counts.npy", "scaled.npy", "--noise", "poisson", "--out", "tested", "--csv", "counts.csv"]
    done = run_main(capsys, *arguments)
    assert done.code == 1
    assert "for images of counts" in done.err
    assert "estimate and interval are of the ratio of the mean rates" in done.out
    again = run_main(capsys, *arguments)
    assert again.out == done.out
    for wrong, message in (
        (["--rho", "0.3"], "--rho goes with a number"),
        (["--sensitivity"], "--sensitivity is to a noise model"),
        (["--certify"], "divided once, and tested without a search"),
    ):
        assert message in run_main(capsys, "test", "counts.npy", "--noise", "poisson", *wrong).err


def test_a_cohort_of_counts_has_what_p_values_say_together_and_no_mean() -> None:
    rng = np.random.default_rng(3)
    results = AttentionTest(tiny_vit(), noise="poisson").map(rng.poisson(5.0, size=(6, 8, 8)))
    cohort = results.cohort()
    assert 0 <= cohort.at_least() <= 6
    assert "of which no mean is offered" in cohort.summary()
    assert "same amount" not in cohort.summary()
    for ask in (cohort.mean, cohort.common_effect):
        with pytest.raises(InputError, match="of which no mean is offered"):
            ask()
