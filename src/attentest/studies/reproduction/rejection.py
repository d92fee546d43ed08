"""The experiments that count rejections: type I error, additional trials, power and the two checks of robustness."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from attentest.results.calibration import ALPHAS
from attentest.studies.reproduction.preset import PRESETS
from attentest.studies.reproduction.series import Series
from attentest.studies.reproduction.tally import Tally, described_rate, judged_rate, uniformity

LEVEL = 0.05
"""Of the paper's main text."""

NON_GAUSSIAN_ALPHAS = (0.05, 0.01)

PAPER_COUNT = PRESETS["paper"].null
"""Images of the type I error, of which the additional trials have more."""

REJECTED, MISSED = 0.0, 1.0
"""P-value that stands for a failed trial: a rejection where there is nothing to find, a miss where there is."""

Read = Callable[[Series, int | None], Tally | None]
"""From a series, and how many of its images, to its rows if there are any."""


def type_i_error(series: Sequence[Series], read: Read) -> list[dict[str, Any]]:
    """Return the rates of all four tests at 0.05 on the first thousand null images of each setting."""
    found = [
        (tally, read(replace(one, work="permutation", permutations=0), PAPER_COUNT))
        for one in series
        if one.work == "selective" and (tally := read(one, PAPER_COUNT)) is not None
    ]
    settings = []
    for tally, permuted in found:
        together = sum(other.series.published == tally.series.published for other, _ in found)
        pvalues = tally.pvalues("selective", REJECTED)
        tests = {
            test: judged_rate(tally.pvalues(test, REJECTED) <= LEVEL, together, LEVEL)
            for test in ("selective", "naive", "bonferroni")
        }
        entry = {**tally.setting(), **uniformity(pvalues), "tests": tests, "permutation": None}
        if permuted is not None:
            permutations = permuted.series.permutations or 1
            hits = permuted.pvalues("permutation", REJECTED) <= LEVEL
            tests["permutation"] = judged_rate(hits, together, permutation_level(LEVEL, permutations))
            entry["permutation"] = {**permuted.setting(), "permutations": permutations}
        settings.append(entry)
    return settings


def permutation_level(alpha: float, permutations: int) -> float:
    """Return how often count / B is at most alpha under exchangeability: all ranks of the observed are equally likely.

    Parameters
    ----------
    alpha
        Significance level.
    permutations
        B.
    """
    # Up to a rounding of alpha * B, for which 0.05 * 1000 must be 50.
    return (int(alpha * permutations + 1e-9) + 1) / (permutations + 1)


def null_levels(series: Sequence[Series], read: Read, alphas: Sequence[float] = ALPHAS) -> list[dict[str, Any]]:
    """Return the rates of the selective test at several levels, on all null images of each setting."""
    tallies = [tally for one in series if (tally := read(one, None)) is not None]
    settings = []
    for tally in tallies:
        pvalues = tally.pvalues("selective", REJECTED)
        rates = {f"{alpha:g}": judged_rate(pvalues <= alpha, len(tallies) * len(alphas), alpha) for alpha in alphas}
        entry = {**tally.setting(), **uniformity(pvalues), "levels": rates}
        if tally.series.family is not None:
            shape = tally.headers[0]["series"].get("family_shape") if tally.headers else None
            entry |= {"family": tally.series.family, "distance": tally.series.distance, "shape": shape}
        settings.append(entry)
    return settings


def power(series: Sequence[Series], read: Read) -> list[dict[str, Any]]:
    """Return how often the selective and the Bonferroni test find a signal, at 0.05."""
    return [
        {
            **tally.setting(),
            "delta": one.delta,
            "tests": {
                test: described_rate(tally.pvalues(test, MISSED) <= LEVEL) for test in ("selective", "bonferroni")
            },
        }
        for one in series
        if (tally := read(one, None)) is not None
    ]
