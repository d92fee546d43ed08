"""Runs that signals end at random moments: the same command goes on, to the table of a run that nothing disturbed."""

from __future__ import annotations

import csv
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from attentest import bundled_model
from command_line import kill_at_random, run_main

IMAGES = 6

EACH = int(os.environ.get("ATTENTEST_KILLS", "15"))
"""How often each signal is sent to each engine."""


def table(path: str) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return [{name: text for name, text in row.items() if name != "seconds"} for row in csv.DictReader(file)]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("engine", ["local", "processes", "ray"])
def test_a_run_that_was_killed_is_resumed_to_the_exact_table(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if engine == "ray":
        pytest.importorskip("ray")
    monkeypatch.chdir(tmp_path)
    Path("scans").mkdir()
    for number, image in enumerate(np.random.default_rng(5).normal(size=(IMAGES, 8, 8))):
        np.save(f"scans/{number:02}.npy", image)
    quick = ["--model", str(bundled_model(8)), "--tol", "1e-3", "--no-interval"]
    arguments = ["test", "scans", "--noise", "1", *quick, "--out", "o", "--csv"]
    assert run_main(capsys, *arguments, "whole.csv").code == 0
    shutil.rmtree("o")

    def finished() -> None:
        resumed, whole = table("table.csv"), table("whole.csv")
        assert [row["image"] for row in resumed] == [row["image"] for row in whole]
        for row, expected in zip(resumed, whole, strict=True):
            for name, text in expected.items():
                assert row[name] == text or float(row[name]) == pytest.approx(float(text), rel=1e-9), (name, row)
        shutil.rmtree("o")

    command = [sys.executable, "-m", "attentest", *arguments, "table.csv", "--engine", engine]
    workers = [] if engine == "local" else ["--workers", "2"]
    start = time.monotonic()
    kill_at_random([*command, *workers], 60.0, finished, [])
    signals = [signal.SIGINT, signal.SIGTERM, signal.SIGKILL] * EACH
    random.Random(3).shuffle(signals)
    kill_at_random([*command, *workers], time.monotonic() - start, finished, signals)
