"""The compared part of a region, and its result once the truncation set is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.errors import SearchError
from attentest.results.certificate import Certificate
from attentest.results.result import AttentionTestResult, corrected_for_all_regions
from attentest.search import Certification, ExchangeableDraws, SearchOutcome
from attentest.statistics.alternative import Tails, parameters_of
from attentest.statistics.baselines import naive_log_pvalue
from attentest.statistics.intervals import contains
from attentest.statistics.law import Law
from attentest.statistics.pvalue import log_pvalues


@dataclass(frozen=True, kw_only=True, eq=False)
class ComparedPart:
    """One compared part of a region: everything in its result besides the numbers of the test.

    Parameters
    ----------
    region, part, attention, seen : (H, W)
    image, randomised_image : (H, W) or (H, W, C)
        As in :class:`AttentionTestResult`.
    selectable
        Number of pixels or whole patches from which the region was chosen.
    standard_error
        Standard deviation of the compared difference.
    settings
        Record of how the test was made.
    """

    region: NDArray[np.bool_]
    part: NDArray[np.bool_]
    image: NDArray[np.float64]
    attention: NDArray[np.float64]
    seen: NDArray[np.bool_]
    selectable: int
    standard_error: float
    settings: Mapping[str, Any]
    randomised_image: NDArray[np.float64] | None = None


def results_of(
    law: Law,
    outcomes: Sequence[SearchOutcome],
    parts: Sequence[ComparedPart],
    *,
    alternative: Tails,
    alpha: float | None,
    confidence_level: float | None,
    connectivity: int | None,
) -> list[AttentionTestResult]:
    """Return the results of k tested parts and their truncation sets; their arrays become read-only."""
    for z, outcome in zip(law.z_obs, outcomes, strict=True):
        if not contains(outcome.intervals, z):
            raise SearchError(
                f"the search returned a truncation set without the observed statistic {z:.17g}, "
                "which lies in it by definition: the search is at fault."
            )
    logs = log_pvalues(law, outcomes, alternative)
    results = []
    for i, (outcome, part) in enumerate(zip(outcomes, parts, strict=True)):
        arrays = part.region, part.part, part.image, part.attention, part.seen
        if part.randomised_image is not None:
            part.randomised_image.setflags(write=False)
        for array in (*arrays, outcome.intervals, outcome.certain, outcome.possible):
            array.setflags(write=False)
        log_naive = naive_log_pvalue(float(law.statistic[i]), alternative)
        results.append(
            AttentionTestResult(
                law=law.chosen(slice(i, i + 1)),
                standard_error=part.standard_error,
                region=part.region,
                part=part.part,
                image=part.image,
                attention=part.attention,
                seen=part.seen,
                selectable=part.selectable,
                intervals=outcome.intervals,
                certain_intervals=outcome.certain,
                possible_intervals=outcome.possible,
                log_pvalue=float(logs.best[i]),
                log_pvalue_bounds=(float(logs.low[i]), float(logs.high[i])),
                naive_log_pvalue=log_naive,
                bonferroni_log_pvalue=corrected_for_all_regions(log_naive, part.selectable, connectivity),
                **parameters_of(alternative),
                alpha=alpha,
                confidence_level=confidence_level,
                connectivity=connectivity,
                evaluations=outcome.evaluations,
                status=outcome.status,
                settings=part.settings,
                audit=outcome.audit,
                randomised_image=part.randomised_image,
            )
        )
    return results


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
        alternative=result.tails,
        pvalue_bounds=result.with_known_noise().pvalue_bounds,
        moved=draws.moved,
        steps=certification.steps,
        seed=certification.seed,
        evaluations=draws.evaluations,
    )
    return replace(result, certificate=certificate)
