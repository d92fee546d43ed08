"""Certified p-values: exact validity on known laws, agreement with closed forms, reproducibility, all ways to ask."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from test_law import INTERVALS, LAW, STATISTIC, brute_force
from torch import Tensor

from attentest import AttentionTest, Results
from attentest.cli.batch import print_table
from attentest.contrast import Reference
from attentest.errors import InputError
from attentest.pipeline import run
from attentest.presentation.result_figure import results_figure
from attentest.presentation.rows import row_of
from attentest.results.certificate import Certificate
from attentest.search import Certification, Fixed, GridSearch, SearchProblem, certification
from attentest.statistics.alternative import Alternative
from attentest.statistics.law import Law
from attentest.statistics.selection_laws import RandomisedNormal, TruncatedNormal
from command_line import run_main
from toys import COARSE, SoftmaxScores, curve_problem, softmax_boundary, tiny_vit
from truncated import log_pvalue

ISLANDS = ((-3.0, -2.5), (1.0, 1.2), (2.0, 4.0))
NARROW_AND_FAR = ((6.0, 6.001),)
EVERYTHING = ((-np.inf, np.inf),)
DUST = tuple((k / 8, k / 8 + 1 / 32) for k in range(-24, 24))
"""A set of 48 small intervals."""

ALTERNATIVES: tuple[Alternative, ...] = ("two-sided", "greater", "less")

Ends = tuple[tuple[float, float], ...]


def set_problem(law: Law, intervals: Ends, **options: Any) -> SearchProblem:
    """A problem whose images all have the same truncation set."""
    edges = torch.tensor(intervals, dtype=torch.float64)

    def margin(z: Tensor) -> Tensor:
        inside = ((z[:, None] > edges[:, 0]) & (z[:, None] < edges[:, 1])).any(dim=1)
        return torch.where(inside, -1.0, 1.0).to(torch.float64)

    return replace(curve_problem([0.0], margin, batch_size=4096, **options), law=law)


def truncated_normals(rng: np.random.Generator, intervals: Ends, count: int) -> NDArray[np.float64]:
    """Draw from the standard normal distribution truncated to a set, by inverting its distribution function."""
    low, high = np.array(intervals).T
    # Upper tails, which are exact far from zero to the right, where the narrow set is.
    upper, lower = stats.norm.sf(low), stats.norm.sf(high)
    which = rng.choice(len(low), size=count, p=(upper - lower) / (upper - lower).sum())
    return stats.norm.isf(lower[which] + rng.random(count) * (upper - lower)[which])


def null_law(rng: np.random.Generator, kind: str, intervals: Ends, count: int) -> Law:
    """Return a law whose observed statistics are draws from itself, given the set."""
    if kind == "normal":
        return TruncatedNormal(statistic=truncated_normals(rng, intervals, count))
    scale = np.sqrt(1.25)
    z = scale * truncated_normals(rng, tuple((low / scale, high / scale) for low, high in intervals), count)
    statistic = rng.normal(z / 1.25, np.sqrt(0.2))  # T given z
    return RandomisedNormal(statistic=statistic, observed_z=z, gamma=np.full(count, 0.5))


def ranks(law: Law, draws: list[certification.ExchangeableDraws]) -> NDArray[np.int64]:
    """Return how many of its draws lie above each observed statistic."""
    return np.array([np.sum(own.statistics > one) for own, one in zip(draws, law.statistic, strict=True)])


def uniformity(found: NDArray[np.int64], draws: int) -> float:
    """Return the p-value of the chi-square test that ranks from 0 to the number of draws are equally frequent."""
    return float(stats.chisquare(np.bincount(found, minlength=draws + 1)).pvalue)


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize(
    ("kind", "intervals"),
    [
        ("normal", ISLANDS),
        ("normal", NARROW_AND_FAR),
        ("normal", DUST),
        ("normal", EVERYTHING),
        ("randomised", ISLANDS),
        ("randomised", DUST),
    ],
)
def test_ranks_are_uniform_however_short_the_chains(kind: str, intervals: Ends, steps: int) -> None:
    """Exact validity: 3,000 ranks of 10 values; a level of 1e-4 for each of twelve seeded tests."""
    law = null_law(np.random.default_rng(steps), kind, intervals, 3000)
    draws = Certification(draws=9, steps=steps).draw(set_problem(law, intervals))
    assert uniformity(ranks(law, draws), 9) > 1e-4


def test_chains_from_the_observed_point_itself_are_not_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the hub the same test finds fault: it can see what it is meant to see."""
    law = null_law(np.random.default_rng(1), "normal", EVERYTHING, 3000)
    certify = Certification(draws=9, steps=1)
    original = certification.slice_step

    def without_hub(problem: Any, image: Any, state: Any, rngs: Any) -> Any:
        ends, evaluations = original(problem, image, state, rngs)
        return (state, evaluations) if len(image) == 3000 else (ends, evaluations)

    monkeypatch.setattr(certification, "slice_step", without_hub)
    assert uniformity(ranks(law, certify.draw(set_problem(law, EVERYTHING))), 9) < 1e-10


@pytest.mark.parametrize(
    ("z", "intervals", "steps"), [(1.1, ISLANDS, 40), (6.0004, NARROW_AND_FAR, 6), (0.001, DUST, 6)]
)
def test_draws_follow_the_closed_form(z: float, intervals: Ends, steps: int) -> None:
    """5,000 draws: their share is within five standard deviations of p."""
    law = TruncatedNormal(statistic=np.array([z]))
    (draws,) = Certification(draws=5000, steps=steps).draw(set_problem(law, intervals))
    for alternative in ALTERNATIVES:
        p = np.exp(log_pvalue(z, np.array(intervals), alternative))
        found = certificate_of(z, draws.statistics, alternative)
        assert abs(found.extreme / 5000 - p) < 5 * np.sqrt(p * (1 - p) / 5000)
        assert found.moved == 1.0


def test_more_steps_show_that_chains_were_too_short() -> None:
    """The example in docs/certificate.md: few chains go from one narrow interval to the other."""
    z, intervals = 1.0, ((0.50, 0.52), (0.99, 1.05))
    law, p = TruncatedNormal(statistic=np.array([z])), np.exp(log_pvalue(z, np.array(intervals)))
    found = []
    for steps in (6, 12, 30):
        (draws,) = Certification(draws=999, steps=steps).draw(set_problem(law, intervals))
        found.append(certificate_of(z, draws.statistics, bounds=(p, p)))
    assert p == pytest.approx(0.5555, abs=5e-5)
    assert [each.pvalue for each in found] == pytest.approx([0.682, 0.434, 0.565])
    assert [each.agrees for each in found] == [False, False, True]
    assert all(each.moved == 1.0 for each in found)


def test_draws_of_another_law_follow_it() -> None:
    """The noisy Laplace law of tests/statistics/test_law.py, of a continuous and a two-valued number."""
    problem = set_problem(LAW, tuple(INTERVALS))  # type: ignore[arg-type]
    (draws,) = Certification(draws=500, steps=20).draw(problem)
    for alternative, p in brute_force(STATISTIC, INTERVALS).items():
        share = certificate_of(STATISTIC, draws.statistics, alternative).extreme / 500
        assert share == pytest.approx(p, abs=5 * np.sqrt(p * (1 - p) / 500) + 2e-4)


def certificate_of(
    observed: float, statistics: Any, alternative: Any = "two-sided", bounds: tuple[float, float] = (0.0, 1.0)
) -> Certificate:
    return Certificate(
        observed=observed,
        moved=float(np.mean(np.asarray(statistics) != observed)),
        statistics=np.asarray(statistics, dtype=np.float64),
        alternative=alternative,
        pvalue_bounds=bounds,
        steps=6,
        seed=None,
        evaluations=1,
    )


def test_the_pvalue_counts_ties_and_the_observed_one() -> None:
    found = certificate_of(-2.0, [2.0, -2.0, 3.0, 0.5, -1.0, -4.0, 1.0, 0.0, 1.9])
    assert (found.extreme, found.draws, found.pvalue) == (4, 9, 0.5)
    assert found.moved == pytest.approx(8 / 9)
    assert found.compared_with("less", (0.0, 1.0)).pvalue == 0.3
    assert found.compared_with("greater", (0.0, 1.0)).pvalue == 0.9


@pytest.mark.parametrize(("extreme", "bounds"), [(0, (0.1, 0.2)), (9, (0.1, 0.2)), (3, (0.3, 0.3)), (2, (0.0, 1.0))])
def test_agreement_is_that_of_the_most_favourable_p(extreme: int, bounds: tuple[float, float]) -> None:
    found = certificate_of(1.0, [2.0] * extreme + [0.0] * (9 - extreme), bounds=bounds)
    p = np.linspace(*bounds, 2001)
    tails = 2 * np.minimum(stats.binom.cdf(extreme, 9, p), stats.binom.sf(extreme - 1, 9, p))
    assert found.agreement == pytest.approx(min(1.0, tails.max()))
    assert found.agrees == (found.agreement >= 0.001)


def test_a_chain_that_cannot_move_says_so() -> None:
    """The set is a single point: p is 1, and the summary names the reason."""
    problem = replace(curve_problem([0.0], lambda z: torch.where(z == 0.3, -1.0, 1.0).double()))
    law = TruncatedNormal(statistic=np.array([0.3]))
    (draws,) = Certification(draws=19, steps=2).draw(replace(problem, law=law))
    found = certificate_of(0.3, draws.statistics, bounds=(0.01, 0.02))
    assert (found.pvalue, found.moved, found.agrees) == (1.0, 0.0, False)
    assert "only 0% of the chains moved" in found.summary()
    assert draws.evaluations <= 20 * 2 * 64


def test_memory_is_bounded_and_does_not_change_the_draws() -> None:
    law = null_law(np.random.default_rng(0), "normal", ISLANDS, 20)
    shares: list[float] = []
    ample = Certification(draws=9).draw(set_problem(law, ISLANDS))
    tight = Certification(draws=9).draw(set_problem(law, ISLANDS, memory=30_000), shares.append)
    for one, other in zip(ample, tight, strict=True):
        assert np.array_equal(one.statistics, other.statistics)
        assert one.evaluations == other.evaluations
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert len(shares) > 12  # several parts


def rounded(images: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scores of 2 x 2 patches that jump at every fifth of a grey level: not smooth anywhere."""
    patches = images[:, 0].reshape(len(images), 2, 2, 2, 2).mean(axis=(2, 4))
    return np.floor(5 * patches) + 0.3 * np.floor(7 * patches[:, ::-1]) + np.array([[0.0, 0.01], [0.02, 0.03]])


def test_a_discontinuous_function_has_a_valid_certificate() -> None:
    """200 null images: rejections at three levels within an exact binomial band of 1e-4 on both sides."""
    test = AttentionTest(rounded, noise=1.0, image_shape=(1, 4, 4), search=GridSearch(step=Fixed(step=0.5)))
    images = np.random.default_rng(7).normal(size=(200, 4, 4))
    p = np.array([r.certificate.pvalue for r in test.map(images, certification=Certification(draws=19, steps=3))])
    for alpha in (0.05, 0.2, 0.5):
        low, high = stats.binom.interval(1 - 2e-4, 200, alpha)
        assert low <= np.sum(p <= alpha + 1e-12) <= high


@pytest.fixture(scope="module")
def tiny_test() -> AttentionTest:
    return AttentionTest(tiny_vit(), noise=1.0, confidence_level=None)


IMAGES = np.random.default_rng(3).normal(size=(3, 8, 8))
QUICK = Certification(draws=9, steps=2)


def test_a_certificate_is_a_function_of_the_image(tiny_test: AttentionTest) -> None:
    batch = tiny_test.map(IMAGES, certification=QUICK)
    for image, result in zip(IMAGES, batch, strict=True):
        alone = tiny_test(image, certification=Certification(draws=9, steps=2))
        assert np.allclose(alone.certificate.statistics, result.certificate.statistics, rtol=0, atol=1e-9)
        assert alone.certificate.evaluations == result.certificate.evaluations
    seeded, again = (
        tiny_test(IMAGES[0], certification=Certification(draws=9, steps=2, seed=5)).certificate for _ in range(2)
    )
    assert np.array_equal(seeded.statistics, again.statistics)
    assert not np.array_equal(seeded.statistics, batch[0].certificate.statistics)
    assert (seeded.seed, batch[0].certificate.seed) == (5, None)
    assert not seeded.statistics.flags.writeable


def test_the_softmax_toy_agrees_with_its_closed_form() -> None:
    image = np.array([[1.4, 0.2], [-0.3, 0.5]])
    z, left = softmax_boundary(image, 0.6)
    result = AttentionTest(SoftmaxScores(), noise=1.0)(image, certification=Certification(draws=500))
    p = np.exp(log_pvalue(z, np.array([[left, np.inf]])))
    assert result.certificate.extreme / 500 == pytest.approx(p, abs=5 * np.sqrt(p * (1 - p) / 500))
    assert result.certificate.agrees
    lower = result.with_alternative("less")
    assert lower.certificate.pvalue_bounds == lower.pvalue_bounds
    assert lower.certificate.extreme == 500 - result.certificate.extreme
    assert lower.certificate.agrees


@pytest.mark.parametrize(
    "options",
    [
        {"contrast": "neighbourhood:2"},
        {"contrast": Reference(np.zeros((8, 8)))},
        {"top_fraction": 0.2},
        {"alternative": "greater"},
        {"search": COARSE},
        {"attention": "last-layer"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_every_kind_of_test_can_be_certified(options: dict[str, Any]) -> None:
    """99 draws, so a false alarm of one of the six has a probability of 0.006; they are seeded by the image."""
    result = AttentionTest(tiny_vit(), noise=1.0, confidence_level=None, **options)(
        IMAGES[1], certification=Certification()
    )
    assert result.certificate.agrees, result.certificate
    assert result.certificate.moved == 1.0
    assert result.certificate.alternative == result.alternative


def test_components_and_decisions_can_be_certified(tiny_test: AttentionTest) -> None:
    parts = tiny_test.components(IMAGES[0], certification=QUICK)
    (streamed,) = tiny_test.map(IMAGES[:1], certification=QUICK, components=1)
    for one, other in zip(parts, streamed, strict=True):
        assert np.allclose(one.certificate.statistics, other.certificate.statistics, atol=1e-9)
    decided = tiny_test(IMAGES[0], decide_at=0.05, certification=QUICK)
    assert decided.certificate.agrees


def test_results_record_the_certificate(tiny_test: AttentionTest) -> None:
    result, plain = tiny_test(IMAGES[0], certification=Certification(draws=9, steps=2)), tiny_test(IMAGES[1])
    values = json.loads(json.dumps(result.to_dict(arrays=True), allow_nan=False))["certificate"]
    assert values["pvalue"] == result.certificate.pvalue
    assert len(values["statistics"]) == values["draws"] == 9
    assert "statistics" not in result.to_dict()["certificate"]
    assert plain.to_dict()["certificate"] is None
    assert "certificate_pvalue" not in Results([plain]).table()
    table = Results([result, plain]).table()
    assert table["certificate_pvalue"] == [result.certificate.pvalue, None]
    assert table["certificate_agrees"] == [True, None]
    assert "certified p" in repr(result)
    figure = results_figure([result.picture("one")])
    assert any("certified p" in axes.get_title() for axes in figure.axes)


def test_progress_covers_the_certificate(tiny_test: AttentionTest) -> None:
    seen: list[float] = []
    tiny_test.map(IMAGES, lambda done, total: seen.append(done), certification=QUICK)
    assert seen == sorted(seen)
    assert seen[-1] == 3
    assert any(3 * run.SEARCH_SHARE < done < 3 for done in seen)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"draws": 0}, "draws must be at least 1 and at most 100000, got 0"),
        ({"draws": 9.5}, "draws must be a whole number, got 9.5"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
    ],
)
def test_bad_numbers_are_refused(options: dict[str, Any], message: str, tiny_test: AttentionTest) -> None:
    with pytest.raises(InputError, match=message):
        tiny_test(IMAGES[0], certification=Certification(**options))


def test_anything_else_than_a_certification_is_refused(tiny_test: AttentionTest) -> None:
    for call in (tiny_test, tiny_test.components, lambda image, **keywords: tiny_test.map([image], **keywords)):
        with pytest.raises(InputError, match=r"certification must be Certification\(draws=99, ...\) or None, got 99"):
            call(IMAGES[0], certification=99)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    np.save(tmp_path / "scan.npy", IMAGES[0])
    return tmp_path / "scan.npy"


def test_the_command_line_certifies(capsys: pytest.CaptureFixture[str], saved_tiny_model: Path, file: Path) -> None:
    options = ("--model", str(saved_tiny_model), "--noise", "1.0", "--no-interval", "--tol", "1e-2",
               "--certify", "--certify-draws", "3", "--certify-steps", "1")  # fmt: skip
    table = run_main(capsys, "test", str(file), *options)
    assert table.code == 0
    assert "certified p" in table.out
    whole = json.loads(run_main(capsys, "test", str(file), *options, "--certify-seed", "4", "--json").out)
    assert {name: whole["certificate"][name] for name in ("draws", "steps", "seed")} == {
        "draws": 3,
        "steps": 1,
        "seed": 4,
    }
    parts = run_main(capsys, "test", str(file), *options, "--components", "--json").out.splitlines()
    assert all(json.loads(line)["certificate"]["draws"] == 3 for line in parts)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--certify-draws", "9"), "--certify-draws is for --certify, which is not there: add it."),
        (("--certify-steps", "3", "--certify-seed", "1"), "--certify-steps and --certify-seed are for --certify"),
        (("--certify", "--certify-draws", "0"), "--certify-draws must be at least 1"),
        (("--certify", "--certify-seed", "-1"), "--certify-seed must be at least 0"),
    ],
)
def test_the_command_line_refuses(
    capsys: pytest.CaptureFixture[str], file: Path, options: tuple[str, ...], message: str
) -> None:
    done = run_main(capsys, "test", str(file), "--noise", "1.0", *options)
    assert done.code != 0
    assert message in done.err


def test_a_disagreement_is_marked_and_explained(capsys: pytest.CaptureFixture[str], tiny_test: AttentionTest) -> None:
    result = tiny_test(IMAGES[0], certification=Certification(draws=9, steps=2))
    wrong = replace(result.certificate, statistics=np.zeros(99), pvalue_bounds=(0.9, 0.95))
    doubtful = replace(result, certificate=wrong)
    plain = replace(result, certificate=None)
    named = {"good.npy": result, "bad.npy": doubtful, "plain.npy": plain}
    print_table([[row_of(name, each.record())] for name, each in named.items()], 0.05, None)
    out = capsys.readouterr().out
    cells = {line.split()[0]: line.split()[-1] for line in out.splitlines() if ".npy  " in line}
    assert cells == {"good.npy": "-", "bad.npy": "a", "plain.npy": "-"}
    assert "a: the certified p contradicts the search." in out
    assert "bad.npy: 0 of 99 draws are at least as extreme: certified p = 0.01, but p from 0.9 to 0.95" in out
    assert "good.npy: " not in out
    print_table([[{"component": 1, **row_of("scan.npy", doubtful.record())}]], 0.05, None)
    assert "\nscan.npy, component 1: 0 of 99" in capsys.readouterr().out
