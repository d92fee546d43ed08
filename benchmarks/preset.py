"""The paper's experiments in one run: how long it takes, and how much of it each experiment is.

    python benchmarks/preset.py --preset paper --device cuda --workers 8 --out build/preset

A run that was interrupted goes on; its time is then that of all runs in the folder. The experiments on series, and the
tests that are not the paper's, are left out. Models that are not bundled are trained on the way.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from agreement import table

from attentest.studies.reproduction.experiment import EXPERIMENTS, PRESETS


def main() -> None:
    """Run the experiments, and print two tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=PRESETS, default="paper")
    parser.add_argument("--images", type=int, help="at most so many images a series")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--out", type=Path, default=Path("../build/preset"))
    asked = parser.parse_args()
    names = [name for name, experiment in EXPERIMENTS.items() if not experiment.on_series]
    command = [sys.executable, "-m", "attentest", "reproduce", "--preset", asked.preset, "--tests", "paper"]
    command += [word for name in names for word in ("--experiment", name)]
    command += ["--device", asked.device, "--engine", "processes", "--workers", str(asked.workers)]
    command += ["--out", str(asked.out)] + (["--images", str(asked.images)] if asked.images else [])
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    summary = json.loads((asked.out / "report" / "summary.json").read_text(encoding="utf-8"))
    runs = summary["runs"]
    trained = sum(seconds for run in runs for seconds in run["trained"].values())
    whole = [f"{sum(run['seconds'] for run in runs):.0f}", f"{trained:.0f}", str(sum(run["trials"] for run in runs))]
    table(["runs", "workers", "s in all", "s of training", "trials"], [[str(len(runs)), str(asked.workers), *whole]])
    print()
    table(
        ["experiment", "trials", "evaluations", "s of all workers"],
        (
            [experiment["title"], str(took["trials"]), str(took["evaluations"]), f"{took['seconds']:.0f}"]
            for experiment in summary["experiments"].values()
            for took in [experiment["time"]]
        ),
    )


if __name__ == "__main__":
    main()
