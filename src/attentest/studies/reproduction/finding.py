"""Statements of the paper, in our own words, and some beside them, and what the data say of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from attentest.studies.reproduction.non_gaussian_finding import conservative, out_of_control, slightly_above
from attentest.studies.reproduction.numerical_finding import adaptive_is_least, single_precision, small_close, straight
from attentest.studies.reproduction.published_figure import PERMUTATION, POWER
from attentest.studies.reproduction.verdict import (
    FEWEST_IMAGES,
    Rated,
    Setting,
    agrees,
    breaks_level,
    keeps_level,
    label,
)
from attentest.studies.verdict import NO_DATA, NOT_IN_THE_PAPER, Verdict

Judge: TypeAlias = Callable[[Sequence[Setting]], Verdict]
"""From the settings of an experiment in the summary to the verdict."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A statement of the paper, or one that its experiments raise.

    Parameters
    ----------
    experiment
        Whose data decide.
    statement
        In our own words.
    where
        In the paper.
    judge
        What decides.
    """

    experiment: str
    statement: str
    where: str
    judge: Judge


def findings(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every statement with its verdict and our numbers, JSON-ready."""
    found = []
    for finding in FINDINGS:
        settings = summary["experiments"].get(finding.experiment, {}).get("settings", [])
        verdict = finding.judge(settings)
        found.append(
            {
                "experiment": finding.experiment,
                "statement": finding.statement,
                "where": finding.where,
                "verdict": verdict.outcome,
                "numbers": verdict.numbers,
            }
        )
    return found


def _type_i(settings: Sequence[Setting], test: str, noise: str | None = None) -> list[Rated]:
    return [
        (label(setting), setting["tests"][test])
        for setting in settings
        if test in setting["tests"] and noise in (None, setting["noise"]) and not setting["published"]
    ]


def _keeps_type_i(settings: Sequence[Setting], test: str) -> Verdict:
    return keeps_level(_type_i(settings, test))


def _breaks_type_i(settings: Sequence[Setting], test: str, noise: str | None = None) -> Verdict:
    return breaks_level(_type_i(settings, test, noise))


def _keeps_levels(settings: Sequence[Setting]) -> Verdict:
    return keeps_level(
        [
            (f"{label(setting)}, level {alpha}", rate)
            for setting in settings
            for alpha, rate in setting["levels"].items()
        ]
    )


def _of_family(settings: Sequence[Setting], family: str, judge: Judge) -> Verdict:
    return judge([setting for setting in settings if setting["family"] == family])


def _stronger(settings: Sequence[Setting]) -> Verdict:
    """Judge that the selective test finds more than Bonferroni: the intervals are apart at every strength."""
    if not settings:
        return NO_DATA
    pairs = [(setting["tests"]["selective"], setting["tests"]["bonferroni"]) for setting in settings]
    apart = sum(ours["low"] > other["high"] for ours, other in pairs)
    strongest = max(other["value"] for _, other in pairs)
    sentence = (
        f"In {apart} of {len(pairs)} settings the interval of the selective test lies above that of Bonferroni; "
        f"selective {min(ours['value'] for ours, _ in pairs):.3f} to {max(ours['value'] for ours, _ in pairs):.3f}, "
        f"Bonferroni at most {strongest:.3f}."
    )
    if apart == len(pairs):
        return Verdict(outcome="holds", numbers=sentence)
    few = min(ours["total"] for ours, _ in pairs) < FEWEST_IMAGES
    return Verdict(outcome="not enough data" if few else "differs", numbers=sentence)


def _published_power(settings: Sequence[Setting], published: bool) -> Verdict:
    return agrees(
        [
            (f"{setting['noise']}, Delta {setting['delta']:g}", POWER[setting["noise"]][setting["delta"]], rate)
            for setting in settings
            if setting["published"] == published
            for rate in [setting["tests"]["selective"]]
        ]
    )


def _published_permutation(settings: Sequence[Setting], published: bool) -> Verdict:
    return agrees(
        [
            (setting["model"], PERMUTATION[setting["model"]], setting["tests"]["permutation"])
            for setting in settings
            if setting["published"] == published
            and setting["noise"] == "correlated"
            and setting["model"] in PERMUTATION
            and "permutation" in setting["tests"]
        ]
    )


def _all() -> Iterator[Finding]:
    main = "section 4, figures 4 and 5"
    for test in ("selective", "bonferroni"):
        name = "Bonferroni" if test == "bonferroni" else test
        yield Finding(
            experiment="type-i-error",
            statement=f"The {name} test keeps the level 0.05 for every image size and architecture, with both "
            "covariances.",
            where=main,
            judge=partial(_keeps_type_i, test=test),
        )
    yield Finding(
        experiment="type-i-error",
        statement="The naive test does not keep the level.",
        where=main,
        judge=partial(_breaks_type_i, test="naive"),
    )
    for noise in ("correlated", "independent"):
        yield Finding(
            experiment="type-i-error",
            statement=f"The permutation test does not keep the level with {noise} noise.",
            where=main,
            judge=partial(_breaks_type_i, test="permutation", noise=noise),
        )
    for published, whose in ((False, "attentest's"), (True, "the authors'")):
        yield Finding(
            experiment="type-i-error",
            statement=f"With {whose} models and correlated noise, the permutation test has its published type I error.",
            where="figure 4" if published else "figure 4, of other models",
            judge=partial(_published_permutation, published=published),
        )
    yield Finding(
        experiment="additional-trials",
        statement="With more null images the selective test keeps the levels 0.01, 0.05 and 0.10 in every setting.",
        where="appendix E",
        judge=_keeps_levels,
    )
    yield Finding(
        experiment="power",
        statement="The selective test has much more power than Bonferroni for every strength of the signal.",
        where="section 4, figure 6",
        judge=_stronger,
    )
    for published, whose in ((False, "attentest's"), (True, "the authors'")):
        yield Finding(
            experiment="power",
            statement=f"With {whose} models the selective test has its published power.",
            where="figure 6" if published else "figure 6, of another model",
            judge=partial(_published_power, published=published),
        )
    for field, what, where in (
        ("seconds", "takes less time", "section 4, figures 7 and 8"),
        ("evaluations", "needs fewer evaluations of the model", NOT_IN_THE_PAPER),
    ):
        yield Finding(
            experiment="computation-time",
            statement=f"The adaptive search {what} than the fixed and the combination search.",
            where=where,
            judge=partial(adaptive_is_least, field=field),
        )
    yield Finding(
        experiment="estimated-variance",
        statement="With the variance estimated from the tested image, the selective test keeps the levels 0.01, 0.05 "
        "and 0.10.",
        where="appendix D.1",
        judge=_keeps_levels,
    )
    yield from _non_gaussian()
    yield Finding(
        experiment="demonstration",
        statement="Away from the observed statistic f_i is approximately linear.",
        where="sections 3 and 4, figure 9",
        judge=straight,
    )
    yield Finding(
        experiment="demonstration",
        statement="Close to the observed statistic some f_i tend to be close to zero.",
        where="sections 3 and 4, figure 9",
        judge=small_close,
    )
    yield Finding(
        experiment="precision",
        statement="float32 gives the regions and p-values of float64 for images of 64x64 pixels.",
        where=NOT_IN_THE_PAPER,
        judge=single_precision,
    )


def _non_gaussian() -> Iterator[Finding]:
    for families, statement, judge in (
        (("gennormflat",), "rejects less often than the level says", conservative),
        (("skewnorm", "gennormsteep", "t"), "keeps the level, or exceeds it slightly", slightly_above),
        (("exponnorm",), "does not keep the level", out_of_control),
    ):
        for family in families:
            yield Finding(
                experiment="non-gaussian",
                statement=f"With {family} noise the selective test {statement}.",
                where="appendix D.2",
                judge=partial(_of_family, family=family, judge=judge),
            )


FINDINGS: tuple[Finding, ...] = tuple(_all())
