"""Several draws of the noise that randomised selection adds, and what that noise comes from."""

from __future__ import annotations

import copy
import json
import math
import shutil
from collections.abc import Callable
from csv import DictReader
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from attentest import AttentionTest
from attentest.errors import InputError
from attentest.images.image_source import ImageSource, told_apart
from attentest.pipeline.file_run import BatchRun
from attentest.pipeline.inputs import numbered_images
from attentest.record import ResultRecord
from attentest.search import Certification, Fixed, GridSearch, SpectralSearch
from attentest.statistics.draws import combined_bounds, combined_log_pvalue, level_of_each_draw
from command_line import run_main
from toys import SoftmaxScores, tiny_vit

VIT = tiny_vit()
IMAGES = np.random.default_rng(0).normal(size=(6, 8, 8))
COUNT = 5
QUICK: dict[str, Any] = {"confidence_level": None, "search": GridSearch(step=Fixed(step=0.5))}
"""Options for tests of what does not depend on the search."""


def a_test(**options: Any) -> AttentionTest:
    return AttentionTest(VIT, **{"noise": 1.0, "search": SpectralSearch(tol=1e-4), "randomise": 0.5, **options})


def added(image: Any, **options: Any) -> NDArray[np.float64]:
    seen = a_test(**QUICK)(image, **options)
    assert seen.randomised_image is not None
    return np.asarray(seen.randomised_image - seen.image)


def test_the_noise_comes_from_seed_and_name_and_not_from_the_pixels() -> None:
    noise = added(IMAGES[0])
    for other in (IMAGES[0] + 1e-12, IMAGES[1], IMAGES[0].astype(np.float32)):
        assert np.allclose(added(other), noise, atol=1e-14)
    assert np.allclose(added(IMAGES[0], name=0), noise)
    different = [added(IMAGES[0], name="a"), added(IMAGES[0], name="0"), added(IMAGES[0], name=1)]
    correlation = np.corrcoef(np.stack([noise, *different]).reshape(4, -1))
    assert np.abs(correlation - np.eye(4)).max() < 0.5
    in_batch = a_test(**QUICK).map(IMAGES[:3], names=["a", 0, 1])
    assert np.allclose(in_batch[0].randomised_image - IMAGES[0], different[0])  # type: ignore[operator]
    assert [result.settings["randomise_name"] for result in in_batch] == ["a", 0, 1]
    assert in_batch.names == ("a", 0, 1)


def test_p_is_a_continuous_function_of_the_pixels() -> None:
    test = a_test(draws=3, search=SpectralSearch(tol=1e-7))
    p = test(IMAGES[1]).pvalue
    assert test(IMAGES[1] + 1e-12).pvalue == pytest.approx(p, abs=1e-6)
    assert test(IMAGES[1].astype(np.float32)).pvalue == pytest.approx(p, abs=1e-5)


def test_a_file_has_the_noise_of_its_name_wherever_it_lies(tmp_path: Path) -> None:
    for folder in ("here", "there/deep", "there/other"):
        (tmp_path / folder).mkdir(parents=True)
        np.save(tmp_path / folder / "scan.npy", IMAGES[0])
    alone = added(tmp_path / "here" / "scan.npy")
    assert np.array_equal(alone, added(ImageSource(path=tmp_path / "there/deep/scan.npy")))
    assert not np.allclose(alone, added(IMAGES[0]))
    shutil.move(tmp_path / "here", tmp_path / "moved")
    assert np.array_equal(alone, added(str(tmp_path / "moved" / "scan.npy")))


def test_no_two_images_of_one_run_share_their_noise() -> None:
    paths = [Path(f"/a/{folder}/scan.npy") for folder in ("1/x", "2/x", "3/y")]
    sources = told_apart([*map(lambda path: ImageSource(path=path), paths), ImageSource(path=Path("/b/other.npy"))])
    assert [source.identity for source in sources] == ["1/x/scan.npy", "2/x/scan.npy", "y/scan.npy", "other.npy"]
    run = BatchRun(test=a_test(**QUICK), images=[ImageSource(path=path) for path in paths])
    assert len({image.identity for image in run.images}) == 3
    stack = told_apart([ImageSource(path=paths[0], member=(None, i)) for i in range(2)])
    assert [source.identity for source in stack] == ["scan.npy[0]", "scan.npy[1]"]
    listed = numbered_images([paths[0], paths[1], IMAGES[0]], None)
    assert [identity for _, (*_, identity) in listed] == ["scan.npy", "scan.npy 1", 2]


@pytest.fixture(scope="module")
def several() -> Any:
    return a_test(draws=COUNT, confidence_level=0.9)(IMAGES[1])


def test_p_estimate_and_interval_are_those_of_all_draws(several: Any) -> None:
    each = [a_test(confidence_level=None).replace(draws=COUNT)(IMAGES[1]).draws[i] for i in range(COUNT)]
    pvalues = sorted(draw.pvalue for draw in several.draws)
    assert pvalues == pytest.approx(sorted(draw.pvalue for draw in each), abs=1e-4)
    assert several.pvalue == pytest.approx(min(1.0, 5 / 3 * pvalues[2]), abs=1e-9)
    assert several.pvalue_bounds[0] <= several.pvalue <= several.pvalue_bounds[1]
    assert several.estimate == pytest.approx(np.median([draw.estimate for draw in several.draws]))
    intervals = [draw.confidence_interval(1 - 0.1 * 3 / 5) for draw in several.draws]
    interval = several.confidence_interval()
    assert interval.low == pytest.approx(np.median([one.low for one in intervals]))
    assert interval.high == pytest.approx(np.median([one.high for one in intervals]))
    assert interval.confidence_level == 0.9
    assert several.evaluations > max(a_test()(IMAGES[1]).evaluations, 0)


def test_the_draws_are_different_and_the_first_is_that_of_one_draw(several: Any) -> None:
    single = a_test(confidence_level=0.9)(IMAGES[1])
    assert several.draws[0].pvalue == pytest.approx(single.pvalue, abs=1e-3)
    assert np.array_equal(several.draws[0].region, single.region)
    assert len({draw.pvalue for draw in several.draws}) == COUNT
    frequency = np.mean([draw.region for draw in several.draws], axis=0)
    assert np.allclose(several.selection_frequency, frequency)
    assert np.array_equal(several.majority_region, frequency > 0.5)
    assert several.significant_share(0.3) == np.mean([draw.pvalue <= 0.3 for draw in several.draws])
    assert np.array_equal(single.selection_frequency, single.region)


def test_the_result_goes_into_records_pictures_and_words(several: Any) -> None:
    values = json.loads(json.dumps(several.to_dict()))
    record = ResultRecord.from_dict(values)
    assert record.log_pvalue == several.log_pvalue
    assert record.draws is not None
    assert len(record.draws["log_pvalue"]) == COUNT
    picture = several.picture()
    assert np.array_equal(picture.attention, several.selection_frequency)
    assert picture.randomised_image is None
    titles = [axes.get_title() for axes in several.plot()]
    assert "chosen in most draws" in titles[0].replace("\n", " ")
    assert "how often chosen in 5 draws" in titles[1].replace("\n", " ")
    assert "5 draws of the noise added for the selection together" in several.verdict()
    (shown,) = [number for number in json.loads(json.dumps(several.to_dict(arrays=True)))["selection_frequency"][:1]]
    assert shown == several.selection_frequency[0].tolist()


@pytest.mark.parametrize(
    "damage",
    [
        lambda draws: draws["log_pvalue"].pop(),
        lambda draws: draws["log_pvalue_bounds"].__setitem__(2, [-30.0, -29.0]),
        lambda draws: draws["statistic"].append(1.0),
        lambda draws: draws["z_obs"].__setitem__(0, "abc"),
        lambda draws: draws.pop("gamma"),
    ],
)
def test_damaged_draws_of_a_record_end_in_one_sentence(several: Any, damage: Callable[[Any], object]) -> None:
    values = copy.deepcopy(several.to_dict())
    damage(values["draws"])
    with pytest.raises(InputError, match=r"the record of a result is (damaged|incomplete)"):
        ResultRecord.from_dict(values)


def test_other_alternatives_and_known_noise_follow_from_the_draws(several: Any) -> None:
    greater = several.with_alternative("greater")
    halves = sorted(draw.with_law(draw.law, "greater").pvalue for draw in several.draws)
    assert greater.pvalue == pytest.approx(min(1.0, 5 / 3 * halves[2]))
    assert several.with_known_noise().pvalue == pytest.approx(several.pvalue, rel=1e-9)


def test_draws_stop_where_the_verdict_cannot_change() -> None:
    # A model that looks at the brightest pixel chooses the same one in every draw of the first image.
    test = AttentionTest(SoftmaxScores(), noise=1.0, randomise=0.5, draws=COUNT, confidence_level=None)
    for image in (np.array([[9.0, 0.1], [-0.2, 0.3]]), np.array([[0.4, 0.1], [-0.2, 0.3]])):
        whole = test(image)
        early = test(image, decide_at=0.05)
        assert early.reject is whole.reject_at(0.05)
        assert early.status == "decided"
        assert len(early.draws) < COUNT
        assert early.pvalue_bounds[0] <= whole.pvalue_bounds[1]
        assert whole.pvalue_bounds[0] <= early.pvalue_bounds[1]
        ResultRecord.from_dict(early.to_dict())


def test_the_combined_p_is_valid_however_the_draws_depend() -> None:
    """Draws that are independent, that are equal, and the worst ones: either eleven are small, or none is."""
    rng = np.random.default_rng(0)
    shared, own = rng.uniform(size=(5000, 1)), rng.uniform(size=(5000, 21))
    small = 0.05 * 11 / 21
    eleven = (np.argsort(rng.uniform(size=own.shape), axis=1) < 11) & (shared < 0.05)
    worst = np.where(eleven, small * own, small + (1 - small) * own)
    rates = [
        np.mean([combined_log_pvalue(row) <= math.log(0.05) for row in np.log(pvalues)])
        for pvalues in (own, np.repeat(shared, 21, axis=1), worst)
    ]
    error = math.sqrt(0.05 * 0.95 / 5000)
    assert max(rates) <= 0.05 + 3 * error
    assert rates[2] == pytest.approx(0.05, abs=3 * error)
    assert combined_bounds([(-3.0, -2.0)], 3) == (-math.inf, 0.0)
    assert combined_log_pvalue([-2.0]) == -2.0


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: a_test(draws=0), "draws must be"),
        (lambda: a_test(draws=1.5), "draws must be"),
        (lambda: a_test(draws=10**6), "draws must be"),
        (lambda: a_test(randomise=0, draws=3), "draws 3 does nothing without randomise"),
        (
            lambda: a_test(draws=3).components(IMAGES[0]),
            "components takes a single draw of the added noise, got draws 3",
        ),
        (lambda: a_test(draws=3)(IMAGES[0], certification=Certification(draws=9)), "certification takes a single draw"),
        (lambda: a_test(draws=3, **QUICK)(IMAGES[0]).sensitivity(), "use draws=1"),
        (lambda: a_test()(IMAGES[0], name=1.5), "the name of an image must be a text or a whole number"),
        (lambda: a_test().map(IMAGES[:2], names=["a"]), "there must be as many names as images"),
    ],
)
def test_what_does_not_go_together_ends_in_one_sentence(act: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        act()


def test_on_the_command_line(saved_tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "one.npy", IMAGES[0])
    csv = tmp_path / "table.csv"
    call = ["test", str(tmp_path / "one.npy"), "--model", str(saved_tiny_model), "--noise", "1", "--tol", "1e-2",
            "--no-interval", "--randomise", "0.5", "--draws", "3"]  # fmt: skip
    out = run_main(capsys, *call, "--out", str(tmp_path / "o"), "--csv", str(csv)).out
    assert "p, estimate and interval are those of 3 draws of that noise together" in " ".join(out.split())
    (row,) = DictReader(csv.read_text().splitlines())
    assert [row[name] for name in ("draws", "randomise_seed", "randomise_name")] == ["3", "0", "one.npy"]
    again = run_main(capsys, *call, "--out", str(tmp_path / "o"), "--json")
    assert json.loads(again.out)["pvalue"] == float(row["pvalue"])
    assert "draws" in run_main(capsys, *call[:-1], "5", "--out", str(tmp_path / "o")).err
    assert "--draws must be" in run_main(capsys, *call[:-1], "0").err


@pytest.mark.parametrize("draws", [2, 3, 4])
def test_the_interval_of_draws_whose_regions_contradict_each_other_is_no_empty_one(draws: int) -> None:
    """One draw finds a bright quarter, another a dark one: of an even number, the inner ends once crossed."""

    def quarters(images: np.ndarray) -> np.ndarray:
        return np.exp(0.3 * np.abs(images.reshape(len(images), 2, 4, 2, 4).mean((2, 4))))

    image = np.random.default_rng(0).normal(size=(8, 8)) * 0.3
    image[:4, :4] += 2
    image[4:, 4:] -= 2
    test = AttentionTest(
        quarters, noise=1.0, image_shape=(1, 8, 8), randomise=1.0, draws=draws, region_unit="patches", top_fraction=0.25
    )
    result = test(image)
    ends = [draw.confidence_interval(level_of_each_draw(0.95, draws)) for draw in result.draws]
    interval = result.confidence_interval()
    assert interval.low == sorted(end.low for end in ends)[(draws - 1) // 2]
    assert interval.high == sorted(end.high for end in ends)[draws // 2]
    assert interval.low <= result.estimate <= interval.high
