"""The trials of the committed report (docs/reproduction), done again with the code as it is: are they the same?

    python benchmarks/report_again.py --workers 2 --experiments additional-trials

Images depend on the seed alone, so that all trials should have the p-values that they had on another device and with
earlier code. Compared are the numbers of rejections and the 101 quantiles of p of each setting, which the report keeps
to five digits; of the models that are bundled, and of those of the authors if they are given. Goes on where it was
interrupted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from agreement import table

from attentest.studies.paper_model import MODELS, is_bundled

REPORT = Path(__file__).parents[1] / "docs" / "reproduction" / "summary.json"
EXPERIMENTS = ("additional-trials", "power", "estimated-variance", "non-gaussian")
SETTING = ("model", "noise", "published", "delta", "family", "distance", "images")


def settings(summary: dict[str, Any], experiment: str) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the settings of an experiment by what they are."""
    known = summary["experiments"][experiment]["settings"]
    return {tuple(setting.get(name) for name in SETTING): setting for setting in known}


def rejections(setting: dict[str, Any]) -> dict[str, int]:
    """Return how many images were rejected, by test or level."""
    return {name: share["count"] for name, share in setting.get("tests", setting.get("levels")).items()}


def main() -> None:
    """Run the experiments, and print how far each is from the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", nargs="+", choices=EXPERIMENTS, default=EXPERIMENTS)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--published", type=Path, help="the authors' models")
    parser.add_argument("--out", type=Path, default=Path("../build/report_again"))
    asked = parser.parse_args()
    command = [sys.executable, "-m", "attentest", "reproduce", "--preset", "paper", "--tests", "paper"]
    command += [word for name in asked.experiments for word in ("--experiment", name)]
    command += [word for name in MODELS if is_bundled(name) for word in ("--model", name)]
    command += ["--engine", "processes", "--workers", str(asked.workers), "--out", str(asked.out)]
    command += ["--published", str(asked.published)] if asked.published else []
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    report = json.loads(REPORT.read_text(encoding="utf-8"))
    again = json.loads((asked.out / "report" / "summary.json").read_text(encoding="utf-8"))
    rows = []
    for experiment in asked.experiments:
        before, now = settings(report, experiment), settings(again, experiment)
        pairs = [(before[key], now[key]) for key in now if key in before]
        counts = [(a[name], b[name]) for a, b in (map(rejections, pair) for pair in pairs) for name in a]
        moved = [np.abs(np.subtract(a["quantiles"], b["quantiles"])).max() for a, b in pairs if "quantiles" in a]
        rows.append(
            [
                again["experiments"][experiment]["title"],
                len(pairs),
                sum(setting["images"] for setting, _ in pairs),
                sum(a for a, _ in counts),
                sum(abs(a - b) for a, b in counts),
                f"{max(moved):.1g}" if moved else "",
            ]
        )
    header = ["experiment", "settings", "trials"]
    table([*header, "rejections in the report", "rejections that differ", "greatest change of a quantile"], rows)


if __name__ == "__main__":
    main()
