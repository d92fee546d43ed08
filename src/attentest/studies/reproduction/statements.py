"""The rules by which data agree with the statements of the paper, and with ours, which are in statements.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np
from scipy.stats import norm

from attentest.statistics.multiple_testing import rate_of
from attentest.studies.document import NO_DATA, NOT_IN_THE_PAPER, Verdict, span
from attentest.studies.reproduction.experiment import EXPERIMENTS, PAPERS, series_words
from attentest.studies.reproduction.measures import COUNTS, IMAGES, PERMUTATION, POWER, SECONDS, Setting, chosen, label

Rate: TypeAlias = Mapping[str, Any]
Settings: TypeAlias = Sequence[Setting]

OURS = f"ours, {NOT_IN_THE_PAPER}"  # place in the paper of a statement about our tests
SIGNIFICANCE = 0.05  # of all comparisons of a statement together
FEWEST_EXPECTED = 10  # expected rejections of a valid test below which a rate says nothing about its level
FEWEST_IMAGES = 100  # below which a rate is not compared with a published one
FEWEST_TIMED = 10  # images of a search below which its cost is not compared
SLIGHTLY = 1.5  # rates up to this many times a level exceed it slightly
STRAIGHT = 0.9  # share of steps that must be straight for curves to be approximately linear
CLOSE_TO_ZERO = 0.05  # largest |f_i| that counts as close to zero, in every image; attention lies between 0 and 1
SAME_P = 1e-3  # largest difference of p-values that counts as none


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A statement, and what decides whether it holds."""

    text: str
    rule: str  # name of the function of this file that judges
    arguments: Mapping[str, Any] = field(default_factory=dict)  # of it, beside the evidence
    evidence: Mapping[str, Any] = field(default_factory=lambda: {"name": "chosen"})
    """Name and arguments of the function that selects what the rule judges from the settings of the experiment."""
    where: str | None = None  # place in the paper, if it is not that of the experiment
    ours: bool = False  # whether it is about our tests; without data of them it is left out
    series: bool = False  # whether it is one about series, too

    def judged(self, settings: Settings) -> Verdict:
        """Return what the settings of an experiment say about it."""
        options = dict(self.evidence)
        evidence = globals()[options.pop("name")](settings, **options)
        verdict: Verdict = globals()[self.rule](evidence, **self.arguments) if evidence else NO_DATA
        return verdict

    def on_series(self, where: str) -> Statement:
        """Return the same statement about series, with the place in the paper of that about images."""
        text = series_words(self.text, on_series=True)
        return replace(self, text=f"On series, {text[0].lower()}{text[1:]}", where=f"{where}, of images")


@cache
def statements_of(experiment: str) -> tuple[Statement, ...]:
    """Return the statements that the data of an experiment decide."""
    on_images = EXPERIMENTS[EXPERIMENTS[experiment].kind]
    text = (files("attentest.studies.reproduction") / "statements.toml").read_text(encoding="utf-8")
    known = tuple(Statement(**entry) for entry in tomllib.loads(text)[on_images.name])
    about_series = (entry.on_series(on_images.where) for entry in known if entry.series)
    return tuple(about_series) if EXPERIMENTS[experiment].on_series else known


def findings(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every statement with its verdict and the numbers, JSON-ready."""
    judged = []
    for experiment, described in EXPERIMENTS.items():
        data = summary["experiments"].get(experiment, {})
        for statement in statements_of(experiment):
            settings = data.get("ours" if statement.ours else "settings", [])
            if statement.ours and not settings:
                continue
            outcome, numbers = statement.judged(settings)
            where = OURS if statement.ours else statement.where or described.where
            entry = {"experiment": experiment, "statement": statement.text, "where": where, "verdict": outcome}
            judged.append({**entry, "numbers": series_words(numbers, described.on_series), "ours": statement.ours})
    return judged


def enough(rate: Rate) -> bool:
    """Return whether a rate has enough images to say something about its level."""
    # A product such as 1000 * 0.01 may fall short of 10 by its rounding.
    return bool(rate["total"] * rate["level"] >= FEWEST_EXPECTED - 1e-9)


def _shares(rates: Sequence[Rate]) -> str:
    return span([rate["value"] for rate in rates], "{:.3f}".format)


def _described(rates: Sequence[tuple[str, Rate]]) -> str:
    """Return how many rates there are, of how many images, their range, and how many lie above the band."""
    images = span([rate["total"] for _, rate in rates], "{:,}".format)
    counted = f"1 rate of {images} images" if len(rates) == 1 else f"{len(rates)} rates of {images} images each"
    above = sum(rate["above_band"] for _, rate in rates)
    return f"{counted}: {_shares([rate for _, rate in rates])}; {above} above the band"


def keeps_level(rates: Sequence[tuple[str, Rate]]) -> Verdict:
    """Judge that a test keeps its level: none of its rates, given with their names, lies above the band."""
    above = [f"{name}: {rate['value']:.3f}" for name, rate in rates if rate["above_band"]]
    below = sum(not rate["within_band"] and not rate["above_band"] for _, rate in rates)
    numbers = f"{_described(rates)}, {below} below it."
    few = sum(not enough(rate) for _, rate in rates)
    if above:
        more = f"; and {len(above) - 4} more" if len(above) > 4 else ""
        numbers += f" Above: {'; '.join(above[:4])}{more}."
    elif 0 < few < len(rates):
        numbers += f" {few} had too few images to tell."
    return Verdict.of(numbers, holds=not above and few < len(rates), differs=above)


def breaks_level(rates: Sequence[tuple[str, Rate]]) -> Verdict:
    """Judge that a test does not keep its level: some of its rates lie above the band."""
    above, known = (any(test(rate) for _, rate in rates) for test in (itemgetter("above_band"), enough))
    return Verdict.of(f"{_described(rates)}.", holds=above, differs=known)


def score(theirs: float, ours: Rate) -> float:
    """Return the difference of our rate from a published one, in units of its standard error."""
    variance = theirs * (1 - theirs) / IMAGES + ours["value"] * (1 - ours["value"]) / ours["total"]
    return float((ours["value"] - theirs) / np.sqrt(variance))


def largest_agreeing_score(comparisons: int) -> float:
    """Return the |z| that some comparisons of equal rates stay below together with probability 0.95."""
    return float(norm.isf(SIGNIFICANCE / comparisons / 2))


def agrees(pairs: Sequence[tuple[str, float, Rate]]) -> Verdict:
    """Judge that published rates and ours, given with their names, differ by no more than chance explains."""
    shown = "; ".join(f"{name}: {theirs:.3f}, here {ours['value']:.3f}" for name, theirs, ours in pairs)
    if min(ours["total"] for _, _, ours in pairs) < FEWEST_IMAGES:
        return Verdict("not enough data", f"Published and here: {shown}.")
    greatest = max(abs(score(theirs, ours)) for _, theirs, ours in pairs)
    most = largest_agreeing_score(len(pairs))
    numbers = f"Published and here: {shown}. Greatest |z| {greatest:.2f}; up to {most:.2f} is chance."
    return Verdict.of(numbers, holds=greatest <= most, differs=True)


def more_powerful(settings: Settings) -> Verdict:
    """Judge that the selective test finds more than Bonferroni: their intervals are apart in every setting."""
    ours, theirs = ([setting["tests"][test] for setting in settings] for test in ("selective", "bonferroni"))
    apart = sum(first["low"] > second["high"] for first, second in zip(ours, theirs, strict=True))
    values, others = ([rate["value"] for rate in rates] for rates in (ours, theirs))
    return Verdict.of(
        f"In {apart} of {len(settings)} settings the interval of the selective test lies above that of Bonferroni; "
        f"selective {min(values):.3f} to {max(values):.3f}, Bonferroni at most {max(others):.3f}.",
        holds=apart == len(settings),
        differs=min(rate["total"] for rate in ours) >= FEWEST_IMAGES,
    )


def finds_as_many(settings: Settings) -> Verdict:
    """Judge that our tests find as many signals as the paper's: none finds fewer by more than chance explains.

    They see the same images, so that differences are taken for more random than they are.
    """
    pairs = [pair for setting in settings for pair in _beside(setting, settings, "pixels", "rejected")]
    if not pairs:
        return NO_DATA
    scores = [_difference(paper, ours) for paper, ours in pairs]
    most = float(norm.isf(SIGNIFICANCE / len(pairs)))
    fewer, more = sum(z < -most for z in scores), sum(z > most for z in scores)
    paper_rates, our_rates = ([pair[at] for pair in pairs] for at in (0, 1))
    known = min(rate["total"] for rate in our_rates) >= FEWEST_IMAGES
    return Verdict.of(
        f"Of {len(pairs)} comparisons ours finds more in {more} and fewer in {fewer}, by more than chance explains; "
        f"the paper's {_shares(paper_rates)}, ours {_shares(our_rates)}.",
        holds=known and not fewer,
        differs=known,
    )


def _beside(setting: Setting, settings: Settings, region: str, value: str) -> list[tuple[Any, Any]]:
    """Return a value of the other test on the same images without randomised selection, beside that of a setting."""
    names = ("model", "noise", "published", "delta")
    others = chosen(settings, randomise=0.0, region=region, **{name: setting[name] for name in names})
    return [(other[value], setting[value]) for other in others if other is not setting and other[value]]


def _difference(first: Rate, second: Rate) -> float:
    """Return the difference of two rates in units of its standard error; each counts half an image more, of two."""
    shares = [((rate["count"] + 0.5) / (rate["total"] + 1), rate["total"]) for rate in (first, second)]
    return float((shares[1][0] - shares[0][0]) / np.sqrt(sum(share * (1 - share) / total for share, total in shares)))


def within_bounds(settings: Settings) -> Verdict:
    """Judge that no interval is longer than its bound, but for what its search left open."""
    lengths = [setting["length"] for setting in settings if setting["length"] and setting["length"]["bounded"]]
    if not lengths:
        return NO_DATA
    count, over = (sum(length[name] for length in lengths) for name in ("bounded", "over_bound"))
    longest = max(length["longest"] for length in lengths)
    return Verdict.of(
        f"{over:,} of {count:,} intervals are longer than their bounds; the longest has {longest:.4f} times its bound.",
        holds=not over and count >= FEWEST_IMAGES,
        differs=over,
    )


def takes_no_more(settings: Settings) -> Verdict:
    """Judge that randomised selection takes no more evaluations than conditioning on the same kind of region does."""
    pairs = [
        pair
        for setting in settings
        if setting["randomise"] and setting["evaluations"]
        for pair in _beside(setting, settings, setting["region"], "evaluations")
    ]
    if not pairs:
        return NO_DATA
    more = sum(ours > exact for exact, ours in pairs)
    known = min(setting["images"] for setting in settings) >= FEWEST_TIMED
    exact_range, our_range = (span(pair[at] for pair in pairs) for at in (0, 1))
    return Verdict.of(
        f"More in {more} of {len(pairs)} comparisons of mean evaluations per image; without randomising {exact_range}, "
        f"with it {our_range}. All searches go as far as a 95% interval needs, to the same tolerance.",
        holds=known and not more,
        differs=known,
    )


def adaptive_needs_least(settings: Settings, field: str) -> Verdict:
    """Judge that adaptive needs less than fixed and combination; field is "seconds" or "evaluations"."""
    costs: dict[tuple[str, str], dict[str, float]] = {}
    for setting in settings:
        if setting[field] is not None:
            costs.setdefault((setting["model"], setting["noise"]), {})[setting["search"]] = setting[field]
    compared = [cost for cost in costs.values() if set(SECONDS) <= set(cost)]
    if not compared:
        return NO_DATA
    least = sum(cost["adaptive"] < min(cost["fixed"], cost["combination"]) for cost in compared)
    known = min(setting["images"] for setting in settings if setting["search"] in SECONDS) >= FEWEST_TIMED
    unit = "s" if field == "seconds" else field
    ranges = "; ".join(f"{search} {span(cost[search] for cost in compared)} {unit}" for search in SECONDS)
    paper = "; ".join(f"{search} {low:,.0f} to {high:,.0f} s" for search, (low, high) in SECONDS.items())
    beside = f" The paper, on its machine: {paper}." if field == "seconds" else ""
    return Verdict.of(
        f"Adaptive is least in {least} of {len(compared)} settings. Per image: {ranges}.{beside}",
        holds=known and least == len(compared),
        differs=known,
    )


def beyond_levels(settings: Settings, direction: str) -> Verdict:
    """Judge by which rates have intervals, 95% together, that lie above their level, below it, or far above it.

    Rates are "below" the levels if some intervals are, and none is above; "slightly above" at most if no interval is
    above 1.5 times its level; and "above" if some intervals are.
    """
    rates = [
        (f"{setting['distance']:g} at level {alpha}", float(alpha), rate)
        for setting in settings
        for alpha, rate in setting["levels"].items()
    ]
    above, below, far = [], [], []
    for name, alpha, rate in rates:
        interval = rate_of(np.arange(rate["total"]) < rate["count"], 1 - SIGNIFICANCE / len(rates))
        above += [name] * (interval.low > alpha)
        below += [name] * (interval.high < alpha)
        far += [name] * (interval.low > SLIGHTLY * alpha)
    shown = ", ".join(
        f"{setting['distance']:g}: " + " and ".join(f"{rate['value']:.3f}" for rate in setting["levels"].values())
        for setting in settings
    )
    numbers = (
        f"Rates at levels {' and '.join(settings[0]['levels'])} by distance: {shown}. "
        f"Above the level: {'; '.join(above) or 'none'}. Below it: {'; '.join(below) or 'none'}. "
        f"Above {SLIGHTLY:g} times the level: {'; '.join(far) or 'none'}."
    )
    # With fewer images than in the paper, a level that seems kept may not be.
    as_many = all(setting["images"] >= COUNTS["non-gaussian"] for setting in settings)
    holds, differs = {
        "below": (below and not above, above),
        "slightly above": (not far, True),
        "above": (above, as_many),
    }[direction]
    # The intervals of too few images are wide and not to be trusted.
    known = all(enough(rate) for _, _, rate in rates)
    return Verdict.of(numbers, holds=known and holds, differs=known and differs)


def nearly_linear(settings: Settings) -> Verdict:
    """Judge that f_i is nearly linear over the paper's largest step, away from the statistic."""
    bent, total = (sum(setting["bent"][name] for setting in settings) for name in ("count", "total"))
    return Verdict.of(
        f"{bent:,} of {total:,} steps of about 0.2 ({bent / total:.1%}) leave the chord by more than a tenth of their "
        f"change (or of 0.01, where the change is smaller). Up to {1 - STRAIGHT:.0%} counts as nearly linear.",
        holds=bent <= (1 - STRAIGHT) * total,
        differs=True,
    )


def small_nearby(settings: Settings) -> Verdict:
    """Judge that some f_i come close to zero near the statistic."""
    smallest, typical = (
        ", ".join(f"{setting[name]:.2g}" for setting in settings) for name in ("smallest_close", "median_close")
    )
    return Verdict.of(
        f"Smallest |f_i| within 0.1 of the statistic, over all pixels: {smallest}; that of the median pixel drawn: "
        f"{typical}. Up to {CLOSE_TO_ZERO} in every image counts as close to zero.",
        holds=max(setting["smallest_close"] for setting in settings) <= CLOSE_TO_ZERO,
        differs=True,
    )


def same_in_float32(settings: Settings) -> Verdict:
    """Judge that float32 gives the regions and the p-values of float64."""
    sentences = [
        f"{label(setting)}, {setting['images']:,} images: the region differs on "
        f"{setting['region_differs']['value']:.1%}, p by {setting['float32']['median']:.2g} in the median and up to "
        f"{setting['float32']['greatest']:.2f}, the verdict at 0.05 on "
        f"{setting['float32']['verdict_changes']['value']:.1%}; the same search in float64 moves p by at most "
        f"{setting['float64']['greatest']:.1g}."
        for setting in settings
    ]
    differ = any(setting["float32"]["greatest"] > SAME_P or setting["region_differs"]["count"] for setting in settings)
    known = min(setting["images"] for setting in settings) >= FEWEST_IMAGES
    return Verdict.of(" ".join(sentences), holds=known and not differ, differs=differ)


def rates(settings: Settings, test: str, **wanted: str) -> list[tuple[str, Rate]]:
    """Select the type I errors of a test with attentest's models."""
    own = chosen(settings, published=False, **wanted)
    return [(label(setting), setting["tests"][test]) for setting in own if test in setting["tests"]]


def levels(settings: Settings) -> list[tuple[str, Rate]]:
    """Select the rates at all levels."""
    return [
        (f"{label(setting)}, level {alpha}", rate) for setting in settings for alpha, rate in setting["levels"].items()
    ]


def published_power(settings: Settings, published: bool) -> list[tuple[str, float, Rate]]:
    """Select the published power and ours, by noise and strength of the signal."""
    return [
        (
            f"{setting['noise']}, Delta {setting['delta']:g}",
            POWER[setting["noise"]][setting["delta"]],
            setting["tests"]["selective"],
        )
        for setting in chosen(settings, published=published)
    ]


def published_errors(settings: Settings, published: bool) -> list[tuple[str, float, Rate]]:
    """Select the published type I error of the permutation test and ours, by model."""
    return [
        (setting["model"], PERMUTATION[setting["model"]], setting["tests"]["permutation"])
        for setting in chosen(settings, published=published, noise="correlated")
        if setting["model"] in PERMUTATION and "permutation" in setting["tests"]
    ]


def our_rates(settings: Settings, rate: str) -> list[tuple[str, Rate]]:
    """Select a rate of each of our tests in each setting."""
    ours = [setting for setting in settings if setting["test"] != PAPERS]
    return [(f"{label(setting)}, Delta {setting['delta']:g}, {setting['test']}", setting[rate]) for setting in ours]


def with_the_papers(settings: Settings, randomised: bool) -> list[Setting]:
    """Select our tests with or without randomised selection, and the paper's beside them."""
    return [setting for setting in settings if (setting["randomise"] > 0) == randomised or setting["test"] == PAPERS]
