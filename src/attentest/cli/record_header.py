"""The header of the records that a command writes: how they were made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attentest.pipeline.attention_test import AttentionTest
    from attentest.runs.engine import Engine


def record_header(test: AttentionTest, series: dict[str, Any], engine: Engine, seed: int = 0) -> dict[str, Any]:
    """Return what the records of one file have in common, and where they were made, which may differ within a file.

    Parameters
    ----------
    test
        The test.
    series
        What else distinguishes these records from others.
    engine
        Where the work is done.
    seed
        Seed of the images, if they are drawn.
    """
    from attentest.training.classifier import described_machine

    return {
        "series": {**series, **test.identity},
        "seed": seed,
        "model_sha256": test.model_sha256,
        "settings": test.settings,
        **described_machine(test.device),
        **engine.describe(),
    }
