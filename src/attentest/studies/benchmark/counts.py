"""Evaluations of the model in a fixed set of small cases, and those recorded with attentest: a count, not a time.

A count is the same on every machine but for rounding, so a search that has become wasteful is seen in seconds, on a
machine of any speed and load.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from attentest.errors import InputError
from attentest.files import write_complete
from attentest.noise import AR1, NoiseLike
from attentest.pipeline.attention_test import AttentionTest
from attentest.progress import LabelledProgress
from attentest.search import SpectralSearch
from attentest.simulation.images import UNIT_NOISE, null_images, signal_images
from attentest.training.bundled import bundled_model

RECORD = Path(__file__).with_name("recorded_counts.json")
"""The counts that were recorded with this version of attentest."""

COMMAND = f"attentest bench counts --record {'/'.join(('src', *RECORD.parts[-4:]))}"
"""How they are recorded, in a clone of the repository."""

TOO_MANY = 2.0  # a case fails from this many times its recorded count on

MUCH_LOWER = 0.75
"""Below this share of its recorded count, a case should be recorded again, so that it fails from fewer on."""

TOL = 1e-4
SEED = 0
CORRELATED = AR1(rho=0.5)


@dataclass(frozen=True, kw_only=True)
class CountedCase:
    """Images and a test of them, all of which the seed determines."""

    name: str  # what is tested
    size: int  # side of the images in pixels, which with the architecture chooses the bundled model
    architecture: str = "base"
    images: int  # how many
    height: float = 0.0  # of a bright square in noise of standard deviation 1; 0 for null images
    noise: NoiseLike = UNIT_NOISE  # of the images, which the test knows
    precision: Literal["float64", "mixed"] = "float64"  # of the search
    alpha: float | None = None  # level at which to decide; None for p itself
    options: Mapping[str, Any] = field(default_factory=dict)  # other options of the test

    def count(self) -> int:
        """Return the evaluations that all images take together."""
        test = AttentionTest.from_pretrained(
            bundled_model(self.size, self.architecture),
            noise=self.noise,
            search=SpectralSearch(tol=TOL, precision=self.precision),
            **{"confidence_level": None, **self.options},
        )
        rng = np.random.default_rng(SEED)
        if self.height:
            images, _ = signal_images(rng, self.images, self.size, self.height, self.noise)
        else:
            images = null_images(rng, self.images, self.size, self.noise)
        return sum(result.evaluations for result in test.map(images, decide_at=self.alpha))


INTERVAL = {"confidence_level": 0.95}
RANDOMISED = {"randomise": 0.5}

CASES = (
    CountedCase(name="p, 8x8", size=8, images=6),
    CountedCase(name="p, 16x16", size=16, images=3),
    CountedCase(name="p, mixed precision", size=16, images=3, precision="mixed"),
    CountedCase(name="p and interval, 8x8", size=8, images=4, options=INTERVAL),
    CountedCase(name="p and interval, small 16x16", size=16, architecture="small", images=3, options=INTERVAL),
    CountedCase(name="decision at 0.05", size=8, images=6, alpha=0.05),
    CountedCase(name="p, correlated noise", size=16, architecture="small", images=6, noise=CORRELATED),
    CountedCase(name="p and interval, correlated noise", size=8, images=4, noise=CORRELATED, options=INTERVAL),
    CountedCase(name="p, far out", size=8, images=8, height=15.0),
    CountedCase(name="p and interval, far out", size=8, images=4, height=15.0, options=INTERVAL),
    CountedCase(name="p, far out, correlated noise", size=8, images=6, height=20.0, noise=CORRELATED),
    CountedCase(name="p, randomised", size=8, images=6, options=RANDOMISED),
    CountedCase(name="p and interval, randomised", size=8, images=4, options={**RANDOMISED, **INTERVAL}),
    CountedCase(name="p and interval, patches", size=8, images=4, options={"region_unit": "patches", **INTERVAL}),
)
"""Cases of about a second of a core each: null images unless stated, and far out is |z_obs| of 20 to 40."""


class Count(NamedTuple):
    """The evaluations per image of a case, now and when they were recorded, if they were."""

    case: str
    images: int
    evaluations: float
    recorded: float | None

    @property
    def ratio(self) -> float | None:
        """Evaluations now over those recorded."""
        return None if self.recorded is None else self.evaluations / self.recorded


def case_counts(
    recorded: Mapping[str, float], progress: LabelledProgress = lambda done, total, label: None
) -> Iterator[Count]:
    """Yield the evaluations per image of each case beside those recorded."""
    for place, case in enumerate(CASES):
        progress(place, len(CASES), case.name)
        per_image = round(case.count() / case.images, 2)
        yield Count(case.name, case.images, per_image, recorded.get(case.name))
    progress(len(CASES), len(CASES), "done")


def read_record() -> dict[str, float]:
    """Return the recorded evaluations per image of each case."""
    try:
        values = json.loads(RECORD.read_text(encoding="utf-8"))["evaluations_per_image"]
        if not all(type(value) in (int, float) and value > 0 for value in values.values()):
            raise ValueError("counts must be positive numbers")
    except OSError as error:
        raise InputError(f"{RECORD} cannot be read ({error.strerror}): record it with {COMMAND}.") from None
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(f"{RECORD} is damaged ({error}): record it again with {COMMAND}.") from None
    return {str(name): float(value) for name, value in values.items()}


def write_record(measured: list[Count], path: Path) -> None:
    """Write a file of recorded counts."""
    values = {"command": COMMAND, "evaluations_per_image": {count.case: count.evaluations for count in measured}}
    write_complete(path, (json.dumps(values, indent=2) + "\n").encode(), "the record")
