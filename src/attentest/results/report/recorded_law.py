"""The law of a statistic from the record of its result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from attentest.statistics.law import Law
from attentest.statistics.law_values import law_from_values
from attentest.statistics.truncated_normal import TruncatedNormal


def recorded_law(values: Mapping[str, Any]) -> Law | None:
    """Return the law of a result from its JSON-ready values; None if it is not known.

    A record of an earlier version does not name it. It is the paper's, unless the selection was randomised.
    """
    statistic = float(values["statistic"])
    if values.get("law") is not None:
        return law_from_values(statistic, values["law"])
    return None if values.get("randomisation") else TruncatedNormal(statistic=np.array([statistic]))
