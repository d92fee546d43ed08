"""The compared part of a region, and its result once the truncation set is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.errors import SearchError
from attentest.results.certificate import Certificate
from attentest.results.result import AttentionTestResult, corrected_for_all_regions
from attentest.search import Certification, ExchangeableDraws, SearchOutcome
from attentest.statistics.alternative import Alternative
from attentest.statistics.law import Law
from attentest.statistics.pvalue import log_pvalues, naive_log_pvalue
from attentest.statistics.truncation_set import Unions


@dataclass(frozen=True, kw_only=True, eq=False)
class ComparedParts:
    """The k compared parts of regions: everything in their results besides the numbers of the test.

    Parameters
    ----------
    region, part, attention, image, randomised_image, settings, standard_error
        As in :class:`AttentionTestResult`, k of each.
    seen, selectable
        As in :class:`AttentionTestResult`, the same for all.
    """

    region: Sequence[NDArray[np.bool_]]
    part: Sequence[NDArray[np.bool_]]
    attention: Sequence[NDArray[np.float64]]
    image: Sequence[NDArray[np.float64]]
    randomised_image: Sequence[NDArray[np.float64] | None]
    settings: Sequence[Mapping[str, Any]]
    standard_error: Sequence[float]
    seen: NDArray[np.bool_]
    selectable: int


def results_of(
    law: Law,
    outcomes: Sequence[SearchOutcome],
    parts: ComparedParts,
    *,
    alternative: Alternative,
    alpha: float | None,
    connectivity: int | None,
) -> list[AttentionTestResult]:
    """Return the results of k tested parts and their truncation sets; their arrays become read-only."""
    inside = Unions.of([outcome.truncation_set.intervals for outcome in outcomes]).contain(law.z_obs)
    if not inside.all():
        raise SearchError(
            f"the search returned a truncation set without the observed statistic {law.z_obs[~inside][0]:.17g}, "
            "which lies in it by definition: the search is at fault."
        )
    sets = [outcome.truncation_set for outcome in outcomes]
    own = zip(parts.region, parts.part, parts.attention, parts.image, parts.randomised_image, strict=True)
    for array in chain(
        [parts.seen], chain.from_iterable(own), chain.from_iterable(vars(known).values() for known in sets)
    ):
        if array is not None:
            array.setflags(write=False)
    best, low, high = (log.tolist() for log in log_pvalues(law, sets, alternative))
    naive = naive_log_pvalue(law.statistic, alternative)
    corrected = corrected_for_all_regions(naive, parts.selectable, connectivity)
    log_naive, log_bonferroni = naive.tolist(), corrected.tolist()
    common: dict[str, Any] = {
        "seen": parts.seen,
        "selectable": parts.selectable,
        "alpha": alpha,
        "alternative": alternative,
    }
    return [
        AttentionTestResult(
            law=own_law,
            truncation_set=outcome.truncation_set,
            standard_error=parts.standard_error[i],
            region=parts.region[i],
            part=parts.part[i],
            image=parts.image[i],
            attention=parts.attention[i],
            log_pvalue=best[i],
            log_pvalue_bounds=(low[i], high[i]),
            naive_log_pvalue=log_naive[i],
            bonferroni_log_pvalue=log_bonferroni[i],
            evaluations=outcome.evaluations,
            status=outcome.status,
            settings=parts.settings[i],
            audit=outcome.audit,
            randomised_image=parts.randomised_image[i],
            **common,
        )
        for i, (own_law, outcome) in enumerate(zip(law.each(), outcomes, strict=True))
    ]


def certified(
    result: AttentionTestResult, draws: ExchangeableDraws, certification: Certification
) -> AttentionTestResult:
    """Return a result with the certificate of its draws; their statistics become read-only.

    The draws are of the law with a known standard error, and so are the bounds on p that they are compared with.
    """
    draws.statistics.setflags(write=False)
    certificate = Certificate(
        observed=result.statistic,
        statistics=draws.statistics,
        alternative=result.alternative,
        pvalue_bounds=result.with_known_noise().pvalue_bounds,
        moved=draws.moved,
        steps=certification.steps,
        seed=certification.seed,
        evaluations=draws.evaluations,
    )
    return replace(result, certificate=certificate)
