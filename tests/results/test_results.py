from __future__ import annotations

import csv
import json
import math
import pickle
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from scipy import stats

from attentest import AttentionTest, Results
from attentest.contrast import Background, Contrast, Filtered, Reference
from attentest.errors import InputError
from attentest.noise import FromImage, PooledVariance
from attentest.presentation.rows import TEXT_COLUMNS
from attentest.results.components import ComponentResults
from attentest.runs.engine import FailedImage
from attentest.search import CONVERGED, SpectralSearch
from attentest.statistics.multiple_testing import Adjustment
from toys import COARSE, tiny_vit

IMAGES = np.random.default_rng(0).normal(size=(6, 8, 8))
FEW = 3


@pytest.fixture(scope="module")
def test_() -> AttentionTest:
    return AttentionTest(tiny_vit(), noise=1.0)


@pytest.fixture(scope="module")
def results(test_: AttentionTest) -> Results:
    return test_.map(IMAGES)


def test_results_are_a_sequence(results: Results) -> None:
    assert len(results) == 6
    assert results[0] is next(iter(results))
    assert isinstance(results[2:4], Results)
    assert results[2:4].names == (2, 3)
    assert results.pvalues.tolist() == [result.pvalue for result in results]
    assert repr(results) == "Results(6 results)"


def test_intervals_contain_their_estimates_and_nest(results: Results) -> None:
    reached = 0
    for result in results:
        wide, narrow = result.confidence_interval(0.95), result.confidence_interval(0.5)
        assert wide.low < narrow.low < result.estimate < narrow.high < wide.high
        low, high = result.estimate_bounds
        assert low <= result.estimate <= high
        far = wide.high - wide.low > 1e3  # what such an end depends on lies too far out to be searched
        assert far or wide.error < 1e-2 * (wide.high - wide.low)
        reached += not far
        assert result.difference in result.naive_confidence_interval()
        assert result.difference == pytest.approx(result.statistic * result.standard_error)
    assert reached >= 4


def test_the_sign_of_the_statistic_is_that_of_the_alternative() -> None:
    """As in SciPy: "greater" is small where the region is brighter."""
    image = IMAGES[0].copy()
    p = {}
    for alternative in ("two-sided", "greater", "less"):
        result = AttentionTest(tiny_vit(), noise=1.0, alternative=alternative, confidence_level=None)(image)
        p[alternative] = result.pvalue
        assert result.alternative == alternative
        z = result.statistic
        assert result.naive_pvalue == pytest.approx(_z_test(z, alternative))
    assert p["greater"] + p["less"] == pytest.approx(1, abs=1e-5)


def _z_test(z: float, alternative: str) -> float:
    return {"two-sided": 2 * stats.norm.sf(abs(z)), "greater": stats.norm.sf(z), "less": stats.norm.cdf(z)}[alternative]


def test_another_alternative_costs_no_evaluation(test_: AttentionTest, results: Results) -> None:
    for alternative in ("greater", "less"):
        others = AttentionTest(tiny_vit(), noise=1.0, alternative=alternative).map(IMAGES[:2])
        for theirs, result in zip(others, results, strict=False):
            ours = result.with_alternative(alternative)
            low, high = ours.pvalue_bounds
            assert low - 1e-6 <= theirs.pvalue <= high + 1e-6
            assert ours.naive_pvalue == theirs.naive_pvalue
            assert ours.bonferroni_pvalue == pytest.approx(theirs.bonferroni_pvalue)
            assert ours.evaluations == result.evaluations
            ends = tuple(ours.confidence_interval())
            assert ends == pytest.approx(tuple(theirs.confidence_interval()), abs=1e-3 * abs(ours.difference) + 1e-2)
    with pytest.raises(InputError, match="alternative must be"):
        results[0].with_alternative("both")  # type: ignore[arg-type]


def test_p_alone_is_cheaper_and_its_interval_still_holds(test_: AttentionTest, results: Results) -> None:
    alone = test_.replace(confidence_level=None).map(IMAGES)
    assert sum(r.evaluations for r in alone) < sum(r.evaluations for r in results)
    for cheap, full in zip(alone, results, strict=True):
        assert cheap.pvalue == pytest.approx(full.pvalue, abs=1e-6)
        wide, exact = cheap.confidence_interval(), full.confidence_interval()
        assert wide.low <= exact.low + exact.error
        assert wide.high >= exact.high - exact.error


def test_table_csv_parquet_and_pandas_say_the_same(results: Results, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow.parquet")
    pd = pytest.importorskip("pandas")
    table = results.table(0.9)
    assert {len(column) for column in table.values()} == {6}
    ends = [tuple(result.confidence_interval(0.9)) for result in results]
    np.testing.assert_allclose(list(zip(table["confidence_low"], table["confidence_high"], strict=True)), ends)
    np.testing.assert_allclose(table["estimate"], [result.estimate for result in results])
    named = Results(results, names=[f"scan, {i}.png" for i in range(6)])
    named.to_csv(tmp_path / "t.csv", 0.9)
    with open(tmp_path / "t.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["pvalue"]) for row in rows] == table["pvalue"]
    assert rows[3]["image"] == "scan, 3.png"
    named.to_parquet(tmp_path / "t.parquet", 0.9)
    read = pa.read_table(tmp_path / "t.parquet").to_pydict()
    frame = named.to_pandas(0.9)
    assert isinstance(frame, pd.DataFrame)
    for column in table:
        if column != "image":
            assert read[column] == table[column]
            assert [None if value != value else value for value in frame[column].tolist()] == table[column]
    assert read["image"] == frame["image"].tolist() == [row["image"] for row in rows]


@pytest.mark.parametrize("failed", [False, True])
def test_a_data_frame_has_numbers_for_what_is_missing(results: Results, failed: bool) -> None:
    pytest.importorskip("pandas")
    given = [*results[:2], *[FailedImage(number=2, reason="it cannot be read")] * failed]
    frame = Results(given).to_pandas()
    kinds = {name: kind.kind for name, kind in frame.dtypes.items() if name not in TEXT_COLUMNS}
    assert kinds.pop("approximate_noise") == "b"
    assert set(kinds.values()) == ({"f"} if failed else {"f", "i"})
    assert frame["top_fraction"].isna().all()
    assert frame["pvalue"].isna().tolist() == [False, False, *[True] * failed]
    assert len(Results([]).to_pandas()) == 0


def test_every_column_is_documented(results: Results) -> None:
    missing = [name for name in results.table() if f"``{name}``" not in str(Results.table.__doc__)]
    assert not missing


def test_results_record_the_audit_of_their_search(results: Results, tmp_path: Path) -> None:
    audits = [result.audit for result in results]
    assert all(audit.points > 0 for audit, result in zip(audits, results, strict=True) if result.status == CONVERGED)
    assert [result.to_dict()["audit"] for result in results] == [
        {"points": audit.points, "contradictions": audit.contradictions} for audit in audits
    ]
    on_a_grid = AttentionTest(tiny_vit(), noise=1.0, search=COARSE, confidence_level=None)(IMAGES[0])
    assert on_a_grid.to_dict()["audit"] is on_a_grid.audit is None
    both = Results([results[0], on_a_grid])
    assert both.table()["audit_points"] == [audits[0].points, None]
    assert both.table()["audit_contradictions"] == [audits[0].contradictions, None]
    both.to_csv(tmp_path / "t.csv")
    with open(tmp_path / "t.csv", newline="") as file:
        assert [row["audit_points"] for row in csv.DictReader(file)] == [str(audits[0].points), ""]


def test_adjustments_rates_and_summary(results: Results) -> None:
    upper = np.array([result.pvalue_bounds[1] for result in results])
    np.testing.assert_allclose(results.adjusted_pvalues(), stats.false_discovery_control(upper))
    np.testing.assert_allclose(results.adjusted_pvalues("by"), stats.false_discovery_control(upper, method="by"))
    assert (results.adjusted_pvalues("holm") >= results.pvalues).all()
    rate = results.rejection_rate(0.5)
    assert rate.count == int((results.pvalues <= 0.5).sum())
    assert results.rejection_rate(0.05, naive=True).count == int((results.naive_pvalues <= 0.05).sum())
    text = results.summary(0.1)
    assert "6 images" in text
    assert "selective p <= 0.1" in text
    assert "Holm" in text


@pytest.fixture(scope="module")
def exact() -> Results:
    return with_signal().map(SIGNALS)


@pytest.fixture(scope="module")
def decided() -> Results:
    return with_signal().map(SIGNALS, decide_at=0.05)


SIGNALS = IMAGES * np.linspace(1, 5, 6)[:, None, None]
"""Some of these have small p-values."""


def with_signal() -> AttentionTest:
    return AttentionTest(tiny_vit(), noise=1.0, confidence_level=None, search=SpectralSearch(tol=1e-9))


def test_a_pvalue_that_was_only_decided_makes_no_false_certainty(exact: Results, decided: Results) -> None:
    open_, told = 0, 0
    assert {result.status for result in decided} == {"decided"}
    for method in (None, *get_args(Adjustment)):
        if method is not None:
            low, high = decided.adjusted_pvalue_bounds(method)
            resolved = exact.adjusted_pvalues(method)
            assert (low <= resolved).all()
            assert (resolved <= high).all()
            assert decided.adjusted_pvalues(method).tolist() == high.tolist()
        for alpha in (0.001, 0.01, 0.05, 0.1, 0.2, 0.5):
            truth = exact.decisions(alpha, method)
            assert None not in truth
            for quick, sure in zip(decided.decisions(alpha, method), truth, strict=True):
                assert quick in (sure, None)
                open_ += quick is None
                told += quick is not None
    assert open_ > 0
    assert told > 0
    assert decided.decisions(0.05) == exact.decisions(0.05) == [result.reject for result in decided]


def test_the_summary_says_what_is_open_and_how_to_resolve_it(exact: Results, decided: Results) -> None:
    assert "undecided" not in exact.summary(0.2)
    text = decided.summary(0.2)
    count = decided.decisions(0.2).count(None)
    assert count > 0
    rate = decided.rejection_rate(0.2)
    assert rate.count == decided.decisions(0.2).count(True)
    assert f"selective p <= 0.2: {rate}, {count} undecided" in text
    for name, method in (("Hochberg", "bh"), ("Yekutieli", "by")):
        made = decided.decisions(0.2, method)  # type: ignore[arg-type]
        undecided = f", {made.count(None)} undecided" if None in made else ""
        assert f"Benjamini-{name}-adjusted p <= 0.2: {made.count(True)} of 6{undecided}\n" in text
    assert text.endswith("contain 0.2; to resolve them, test without decide_at= (without --decide)")
    wide = Results(replace(result, status="max_evaluations") for result in decided)
    assert wide.summary(0.2).endswith(
        "or a larger max_evaluations= (--max-evaluations) may resolve them, or certify (certification=, --certify)"
    )
    sharp = Results([*wide[1:], replace(decided[0], status="sharp")])
    assert sharp.summary(0.2).endswith("--certify), or use a larger max_evaluations= (--max-evaluations)")


def test_components_that_were_only_decided_are_not_adjusted_as_if_exact() -> None:
    for image in SIGNALS[1:4]:
        sure, quick = (with_signal().components(image, decide_at=alpha) for alpha in (None, 0.05))
        low, high = quick.adjusted_pvalue_bounds()
        assert quick.adjusted_pvalues().tolist() == high.tolist()
        assert (low <= sure.adjusted_pvalues()).all()
        assert (sure.adjusted_pvalues() <= high).all()
        assert quick.table()["pvalue_holm"] == high.tolist()
        for made, truth in zip(quick.decisions(0.05), sure.decisions(0.05), strict=True):
            assert made in (truth, None)


@pytest.mark.parametrize(
    ("contrast", "references", "dependent"),
    [
        (Reference(IMAGES[5]), None, True),
        (Filtered("laplacian", of=Reference(IMAGES[5])), None, True),
        (Reference(IMAGES[5], noise=0), None, False),
        (Reference(), IMAGES[3:5], False),
        (Reference(), IMAGES[[5, 5]], True),
        (Background(), None, False),
    ],
)
def test_images_that_share_a_noisy_reference_are_known_to_depend_on_each_other(
    contrast: Contrast, references: np.ndarray | None, dependent: bool
) -> None:
    test = AttentionTest(
        tiny_vit(), noise=1.0, contrast=contrast, search=SpectralSearch(tol=1e-2), confidence_level=None
    )
    text = test.map(IMAGES[:2], references=references).summary()
    assert "Benjamini-Yekutieli-adjusted" in text
    assert ("Benjamini-Hochberg-adjusted" in text) is not dependent
    assert ("Benjamini-Hochberg does not apply" in text) is dependent


@pytest.fixture(scope="module")
def components_of_images(test_: AttentionTest) -> list[ComponentResults]:
    return test_.replace(confidence_level=None).map(IMAGES, components=1)


def test_components_are_adjusted_by_holm(components_of_images: list[ComponentResults]) -> None:
    found = [c for c in components_of_images if len(c) > 1]
    assert found, "no image has two components: choose others"
    for components in found:
        np.testing.assert_allclose(components.adjusted_pvalues(), Results(components).adjusted_pvalues("holm"))
        assert components.labels.max() == len(components)
        assert np.array_equal(components.labels > 0, components.region)
        union = np.zeros_like(components.region)
        for number, result in enumerate(components, start=1):
            assert np.array_equal(result.part, components.labels == number)
            union |= result.part
            assert result.settings["components"] == 1
        assert np.array_equal(union, components.region)
        assert "components of one region" in components.summary()
        assert "Benjamini" not in components.summary()
        with pytest.raises(InputError, match="adjusted together"):
            components[:1]


class OnlyOnce:
    """Images whose number is known, and that are gone once they were seen, as behind a progress bar."""

    def __init__(self, images: np.ndarray) -> None:
        self._images = iter(images)

    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Iterator[np.ndarray]:
        return self._images


def test_images_that_can_be_seen_only_once_will_do(test_: AttentionTest) -> None:
    assert len(test_.replace(confidence_level=None).map(OnlyOnce(IMAGES[:3]))) == 3


def test_results_of_components_share_what_is_the_same(components_of_images: list[ComponentResults]) -> None:
    for components in components_of_images:
        for result in components:
            assert result.attention is components[0].attention
            assert result.region is components[0].region
            assert not result.part.flags.writeable


def test_components_in_map_are_as_one_by_one(
    test_: AttentionTest, components_of_images: list[ComponentResults]
) -> None:
    test = test_.replace(confidence_level=None)
    for image, together in zip(IMAGES[:FEW], components_of_images[:FEW], strict=True):
        alone = test.components(image)
        assert len(alone) == len(together)
        np.testing.assert_allclose(alone.pvalues, together.pvalues, atol=2e-6)
        if len(alone) == 1:
            assert alone[0].pvalue == pytest.approx(test(image).pvalue, abs=2e-6)


def test_everything_has_the_level_that_was_searched_for() -> None:
    results = AttentionTest(tiny_vit(), noise=1.0, confidence_level=0.8).map(IMAGES[:2])
    assert results.table()["confidence_level"] == [0.8, 0.8]
    assert results.table()["confidence_low"] == [result.confidence_interval(0.8).low for result in results]
    assert results[0].to_dict()["confidence_interval"]["confidence_level"] == 0.8
    assert results.table(0.9)["confidence_level"] == [0.9, 0.9]
    result = results[0]
    assert result.confidence_interval() == result.confidence_interval(0.8) != result.confidence_interval(0.95)
    assert result.naive_confidence_interval() == result.naive_confidence_interval(0.8)
    assert result.sensitivity().confidence_level == result.record().confidence_interval.confidence_level == 0.8
    components = AttentionTest(tiny_vit(), noise=1.0, confidence_level=0.8).components(IMAGES[0])
    assert components.confidence_intervals() == components.confidence_intervals(0.8)
    p_alone = AttentionTest(tiny_vit(), noise=1.0, confidence_level=None)(IMAGES[0])
    assert p_alone.confidence_interval().confidence_level == 0.95


def test_noise_of_an_image_without_noise_is_refused_before_anything_is_computed() -> None:
    test = AttentionTest(tiny_vit(), noise=FromImage(), contrast=Reference())
    flat = np.ones((8, 8))
    with pytest.raises(InputError, match="no noise in the image"):
        test.validate(flat, reference=IMAGES[0])
    with pytest.raises(InputError, match=r"the reference: .* no noise"):
        test.validate(IMAGES[0], reference=flat)
    with pytest.raises(InputError, match=r"^image 5: .* no noise"):
        AttentionTest(tiny_vit(), noise=FromImage()).map([*IMAGES[:5], flat])
    with pytest.raises(InputError, match="noise must be"):
        AttentionTest(tiny_vit(), noise=FromImage)  # type: ignore[arg-type]


def test_a_fitted_estimator_is_named_in_the_results() -> None:
    fitted = PooledVariance().fit(np.random.default_rng(3).normal(size=(12, 8, 8)))
    result = AttentionTest(tiny_vit(), noise=fitted, confidence_level=None)(IMAGES[0])
    assert result.settings["noise"]["estimator"] == "PooledVariance"
    assert result.settings["noise"]["images"] == 12


def test_noise_from_the_image_is_that_of_each_image() -> None:
    test = AttentionTest(tiny_vit(), noise=FromImage(), confidence_level=None)
    scaled = IMAGES * np.linspace(1, 3, 6)[:, None, None]
    for image, result in zip(scaled, test.map(scaled), strict=True):
        region = result.region
        spread = np.sqrt(1 / region.sum() + 1 / (~region).sum())
        assert result.standard_error == pytest.approx(image.std(ddof=1) * spread, rel=1e-10)
        assert result.settings["noise"]["approximate"] is True
    assert "FromImage" in repr(test.noise)


def test_a_result_is_json_ready_with_infinite_ends(results: Results) -> None:
    one_sided = results[0].with_alternative("greater")
    text = json.dumps(one_sided.to_dict(arrays=True), allow_nan=False)
    read = json.loads(text)
    assert read["confidence_interval"]["high"] == "inf"
    assert float(read["confidence_interval"]["high"]) == math.inf
    assert read["confidence_interval"]["confidence_level"] == 0.95
    assert read["estimate"] == one_sided.estimate
    assert read["part"] == one_sided.part.tolist()


def test_results_travel_between_processes(results: Results) -> None:
    copy = pickle.loads(pickle.dumps(results))  # noqa: S301  # our own bytes
    assert copy.pvalues.tolist() == results.pvalues.tolist()
    assert tuple(copy[0].confidence_interval()) == tuple(results[0].confidence_interval())


@pytest.mark.parametrize("level", [1e-17, 1 - 1e-16])
def test_confidence_levels_that_rounding_makes_certain_are_refused(results: Results, level: float) -> None:
    for alternative in ("two-sided", "greater"):
        with pytest.raises(InputError, match="confidence_level must be at least 1e-12 from 0 and from 1"):
            results[0].with_alternative(alternative).confidence_interval(level)  # type: ignore[arg-type]
    assert results[0].confidence_interval(1 - 1e-12).low < results[0].confidence_interval(0.999).low


@pytest.mark.parametrize("alpha", [0, 1, -0.1, 1.5, math.nan, "0.05", None])
def test_levels_outside_the_open_unit_interval_are_refused(results: Results, alpha: object) -> None:
    with pytest.raises(InputError, match="alpha must"):
        results.rejection_rate(alpha)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="alpha must"):
        results.summary(alpha)  # type: ignore[arg-type]
    if alpha is not None:
        with pytest.raises(InputError, match="confidence_level must"):
            results[0].confidence_interval(alpha)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="confidence_level must"):
            results[0].naive_confidence_interval(alpha)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="confidence_level must"):
            AttentionTest(tiny_vit(), noise=1.0, confidence_level=alpha)  # type: ignore[arg-type]


def test_tables_that_cannot_be_written_are_refused(results: Results, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the table .* cannot be written"):
        results.to_csv(tmp_path / "nowhere" / "t.csv")
    (tmp_path / "kept.csv").write_text("before")
    with pytest.raises(InputError, match="confidence_level"):
        results.to_csv(tmp_path / "kept.csv", 2.0)
    assert (tmp_path / "kept.csv").read_text() == "before"
    with pytest.raises(InputError, match="a name for each result, got 2 for 6"):
        Results(results, names=["a", "b"])
    for wrong in (lambda: Results(5), lambda: Results(results, "abcdef"), lambda: Results([1, 2])):  # type: ignore[arg-type]
        with pytest.raises(InputError, match="Results takes"):
            wrong()
    with pytest.raises(InputError, match="must be a path, got int"):
        results.to_csv(5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="at least one component"):
        ComponentResults([])


@pytest.mark.parametrize(("hidden", "method"), [("pandas", "to_pandas"), ("pyarrow", "to_parquet")])
def test_tables_without_their_packages_say_what_to_install(
    hidden: str, method: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, hidden, None)
    arguments = [tmp_path / "t.parquet"] if method == "to_parquet" else []
    with pytest.raises(InputError, match=r"pip install 'attentest\[tables\]'"):
        getattr(Results([]), method)(*arguments)
