"""A truncation set, as far as a search knows it."""

from __future__ import annotations

from dataclasses import dataclass

from attentest.statistics.intervals import Intervals


@dataclass(frozen=True, kw_only=True)
class TruncationSet:
    """The values of z at which the model would choose the observed region.

    Parameters
    ----------
    intervals : (n, 2)
        The best estimate of the set; contains the observed z.
    certain, possible : (n, 2)
        A subset and a superset of the true set, under the assumptions of the search.
    """

    intervals: Intervals
    certain: Intervals
    possible: Intervals

    def __repr__(self) -> str:
        counts = {"intervals": self.intervals, "certain": self.certain, "possible": self.possible}
        return f"TruncationSet({', '.join(f'{name}=<{len(found)}>' for name, found in counts.items())})"
