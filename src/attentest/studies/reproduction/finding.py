"""Statements of the paper in our own words, some that we added, and the rule that judges each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from attentest.studies.document import NO_DATA, NOT_IN_THE_PAPER, Verdict
from attentest.studies.reproduction import rules
from attentest.studies.reproduction.experiment import EXPERIMENTS, PAPERS
from attentest.studies.reproduction.measures import PERMUTATION, POWER, Setting, chosen, label

Select: TypeAlias = Callable[[Sequence[Setting]], Sequence[Any]]
"""Selects what a rule judges from the settings of an experiment: named rates, or settings."""


class Finding(NamedTuple):
    """A statement, and what decides whether it holds."""

    statement: str
    rule: Callable[[Any], Verdict]
    evidence: Select = list  # all settings
    where: str | None = None  # place in the paper, if it is not that of the experiment
    ours: bool = False  # whether it is about our tests: earlier data have none, and it is then left out


def findings(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every statement with its verdict and the numbers, JSON-ready."""
    found = []
    for experiment, statements in FINDINGS.items():
        data = summary["experiments"].get(experiment, {})
        for statement, rule, select, where, ours in statements:
            settings = data.get("ours" if ours else "settings", [])
            if ours and not settings:
                continue
            evidence = select(settings)
            outcome, numbers = rule(evidence) if evidence else NO_DATA
            entry = {"experiment": experiment, "statement": statement, "where": where or EXPERIMENTS[experiment].where}
            found.append({**entry, "verdict": outcome, "numbers": numbers, "ours": ours})
    return found


def _rates(test: str, **wanted: str) -> Select:
    """Select the type I errors of a test with attentest's models."""
    return lambda settings: [
        (label(setting), setting["tests"][test])
        for setting in chosen(settings, published=False, **wanted)
        if test in setting["tests"]
    ]


def _levels(settings: Sequence[Setting]) -> Sequence[Any]:
    return [
        (f"{label(setting)}, level {alpha}", rate) for setting in settings for alpha, rate in setting["levels"].items()
    ]


def _power(published: bool) -> Select:
    """Select the published power and ours, by noise and strength of the signal."""
    return lambda settings: [
        (f"{noise}, Delta {setting['delta']:g}", POWER[noise][setting["delta"]], setting["tests"]["selective"])
        for setting in chosen(settings, published=published)
        for noise in [setting["noise"]]
    ]


def _permutation(published: bool) -> Select:
    """Select the published type I error of the permutation test and ours, by model."""
    return lambda settings: [
        (setting["model"], PERMUTATION[setting["model"]], setting["tests"]["permutation"])
        for setting in chosen(settings, published=published, noise="correlated")
        if setting["model"] in PERMUTATION and "permutation" in setting["tests"]
    ]


def _family(family: str) -> Select:
    return lambda settings: chosen(settings, family=family)


def _our_rates(name: str) -> Select:
    """Select a rate of each of our tests in each setting."""
    return lambda settings: [
        (f"{label(one)}, Delta {one['delta']:g}, {one['test']}", one[name]) for one in settings if one["test"] != PAPERS
    ]


def _with_the_papers(wanted: Callable[[Setting], bool]) -> Select:
    """Select some of our tests, and the paper's beside them."""
    return lambda settings: [one for one in settings if wanted(one) or one["test"] == PAPERS]


def _ours(statement: str, rule: Callable[[Any], Verdict], evidence: Select = list) -> Finding:
    return Finding(statement, rule, evidence, f"ours, {NOT_IN_THE_PAPER}", ours=True)


KEEPS = "test keeps the level 0.05 for every image size and architecture, with both covariances."
BREAKS = "The permutation test does not keep the level with"
ERROR = "models and correlated noise, the permutation test has its published type I error."
POWERFUL = "models the selective test has its published power."
LEAST = "than the fixed and the combination search."
SLIGHTLY = "noise the selective test keeps the level, or exceeds it slightly."
CURVES = "sections 3 and 4, figure 9"

OF_OUR_INTERVALS = (
    _ours(
        "Our 95% intervals miss the true difference in no more than 5% of the images, in every setting.",
        rules.keeps_level,
        _our_rates("missed"),
    ),
    _ours("No interval after randomised selection is longer than its bound.", rules.within_bounds),
    _ours("Randomised selection takes no more evaluations of the model.", rules.takes_no_more),
)
"""Statements that are judged with signal and without."""

FINDINGS: Mapping[str, Sequence[Finding]] = {
    "type-i-error": (
        Finding(f"The selective {KEEPS}", rules.keeps_level, _rates("selective")),
        Finding(f"The Bonferroni {KEEPS}", rules.keeps_level, _rates("bonferroni")),
        Finding("The naive test does not keep the level.", rules.breaks_level, _rates("naive")),
        Finding(f"{BREAKS} correlated noise.", rules.breaks_level, _rates("permutation", noise="correlated")),
        Finding(f"{BREAKS} independent noise.", rules.breaks_level, _rates("permutation", noise="independent")),
        Finding(f"With attentest's {ERROR}", rules.agrees, _permutation(False), "figure 4, of other models"),
        Finding(f"With the authors' {ERROR}", rules.agrees, _permutation(True), "figure 4"),
        _ours(
            "With randomised selection, whole patches and both, the selective test keeps the level 0.05 in every "
            "setting.",
            rules.keeps_level,
            _our_rates("rejected"),
        ),
        *OF_OUR_INTERVALS,
    ),
    "additional-trials": (
        Finding(
            "With more null images the selective test keeps the levels 0.01, 0.05 and 0.10 in every setting.",
            rules.keeps_level,
            _levels,
        ),
    ),
    "power": (
        Finding(
            "The selective test has much more power than Bonferroni for every strength of the signal.",
            rules.more_powerful,
        ),
        Finding(f"With attentest's {POWERFUL}", rules.agrees, _power(False), "figure 6, of another model"),
        Finding(f"With the authors' {POWERFUL}", rules.agrees, _power(True), "figure 6"),
        _ours(
            "With randomised selection, of pixels or whole patches, the test finds at least as many signals as the "
            "paper's.",
            rules.finds_as_many,
            _with_the_papers(lambda one: one["randomise"] > 0),
        ),
        _ours(
            "With whole patches alone the test finds at least as many signals as the paper's.",
            rules.finds_as_many,
            _with_the_papers(lambda one: not one["randomise"]),
        ),
        *OF_OUR_INTERVALS,
    ),
    "computation-time": (
        Finding(f"The adaptive search takes less time {LEAST}", rules.adaptive_needs_least("seconds")),
        Finding(
            f"The adaptive search needs fewer evaluations of the model {LEAST}",
            rules.adaptive_needs_least("evaluations"),
            where=NOT_IN_THE_PAPER,
        ),
    ),
    "estimated-variance": (
        Finding(
            "With the variance estimated from the tested image, the selective test keeps the levels 0.01, 0.05 and "
            "0.10.",
            rules.keeps_level,
            _levels,
        ),
    ),
    "non-gaussian": (
        Finding(
            "With gennormflat noise the selective test rejects less often than the level says.",
            rules.below_levels,
            _family("gennormflat"),
        ),
        Finding(f"With skewnorm {SLIGHTLY}", rules.at_most_slightly_above, _family("skewnorm")),
        Finding(f"With gennormsteep {SLIGHTLY}", rules.at_most_slightly_above, _family("gennormsteep")),
        Finding(f"With t {SLIGHTLY}", rules.at_most_slightly_above, _family("t")),
        Finding(
            "With exponnorm noise the selective test does not keep the level.", rules.above_levels, _family("exponnorm")
        ),
    ),
    "demonstration": (
        Finding("Away from the observed statistic f_i is approximately linear.", rules.nearly_linear, where=CURVES),
        Finding("Close to the observed statistic some f_i tend to be close to zero.", rules.small_nearby, where=CURVES),
    ),
    "precision": (
        Finding(
            "float32 gives the regions and p-values of float64 for images of 64x64 pixels.",
            rules.same_in_float32,
            where=NOT_IN_THE_PAPER,
        ),
    ),
}
"""The statements, by the experiment whose data decide."""
