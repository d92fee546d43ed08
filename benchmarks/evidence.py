"""The evidence behind the documentation: measure it, and make its pages of what was measured.

    python benchmarks/evidence.py measure agreement dips sharp --processes 2   # all sections if none
    python benchmarks/evidence.py measure calibration level --device cuda
    python benchmarks/evidence.py render                                       # docs/evidence/*.md and their figures
    python benchmarks/evidence.py status                                       # which sections another code made

A section is a script of this directory and the tables that it prints. They are kept in docs/evidence/PAGE.json with the
command, the date, the machine, the versions and a checksum of the code that was measured. docs/evidence/PAGE.md is made
of this file and of a template (benchmarks/evidence/PAGE.md), which names the numbers that it states.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import io
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import time
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

import attentest

HERE = Path(__file__).parent
PAGES = HERE.parent / "docs" / "evidence"
TEMPLATES = HERE / "evidence"
LIBRARIES = ("numpy", "scipy", "torch", "transformers")
MEASURED = ("attention", "contrast", "images", "noise", "pipeline", "region", "search", "statistics")
"""Rooms of the package on which numbers depend."""

READERS = ("dicom", "dicom_series", "dicom_slice", "image_file", "image_source", "nifti", "pillow", "signal_file")
"""Files of them that read files, which no section does: it draws its images."""

SAME_NUMBERS = dict.fromkeys(
    ("296622242fe86eff", "9d4c4c06467522e9", "7aea0415e089769d", "a2753203c42fe521", "c043bb563099b34b"),
    "f5cbc8f11aef2873",
)
"""Code that was measured, and later code that only differs from it where no section goes: since the first, options that
contradict each other are refused in more cases, a module that is a function is copied before it is used, threads that
share a model do not share what is set aside of an image, masks in files are found by the whole names of their images
and refused where they lie elsewhere, have fractions or lost their edges, and names of presentation are imported from
other files."""

SECTIONS = {
    "agreement": {
        "published": "agreement.py published --device {device} --processes {processes}",
        "narrow": "agreement.py narrow --count 100 --device {device} --processes {processes}",
        "dense": "agreement.py dense --count 50 --device {device} --processes {processes}",
        "dips": "agreement.py dips --count 1000 --processes {processes}",
        "sharp": "agreement.py sharp --count 600 --processes {processes}",
        "batches": "agreement.py batches --count 1000 --device {device}",
        "report": "report_again.py --workers {processes} --experiments additional-trials",
    },
    "calibration": {
        "level": "rates.py level --images 10000 --device {device}",
        "coverage": "rates.py coverage --images 2000 --device {device}",
        "certificate": "certificate.py --parts functions",
        "cohorts": "cohorts.py --only means",
        "counts": "counts.py",
    },
    "power": {
        "power": "rates.py power --images 1000 --device {device}",
        "draws": "draws.py --images 200 --device {device}",
        "alternatives": "two_sided.py --size 8 --images 60",
    },
    "cost": {
        "throughput": "throughput.py --images 10000 --device {device}",
        "models": "large_models.py B:0.02 L:0.02 D:0.02 B:0.06",
        "preset": "preset.py --preset paper --device {device} --workers {processes}",
        "searches": "searches.py --images 1000 --grid-images 5 --device {device}",
        "sensitivity": "sensitivity.py",
        "axes": "axes.py --device {device}",
        "context": "context.py --size 512",
    },
    "noise": {
        "estimators": "noise_estimators.py --parts estimators",
        "references": "few_references.py --images 500 --device {device} --processes {processes}",
        "student": "randomised_student.py --draws 4000",
        "check": "noise_check.py --only level power",
        "implausible": "implausible_noise.py",
        "choices": "noise_guide.py --parts image",
        "wrong": "noise_guide.py --parts rates --images 2000 --device {device}",
    },
    "maps": {
        "maps": "maps.py --images 1000 --bars 300 --device {device}",
        "gradients": "maps.py --images 10000 --bars 0 --only 'input gradient, ' --device {device}",
        "trained": "networks.py trained --images 1000 --device {device}",
        "random": "networks.py random --count 500 --processes {processes}",
        "resnet": "networks.py resnet --sizes 32 32 64 128 224 --device {device}",
    },
    "comparison": {
        "validity": "comparison.py validity --signals 500 --gammas 0.5 --processes {processes}",
        "plain": "comparison.py plain --signals 200",
        "beside": "beside_si4attention.py --count 12",
    },
}


def device_name(device: str) -> str:
    """Return the machine in words."""
    import torch

    if device != "cpu":
        return torch.cuda.get_device_name(device)
    file = Path("/proc/cpuinfo")
    known = re.search(r"^model name\s*:\s*(.+)$", file.read_text(), re.M) if file.is_file() else None
    return f"{known[1] if known else platform.processor() or platform.machine()}, {os.cpu_count()} cores"


def code_checksum() -> str:
    """Return a checksum of the code on which numbers depend: without docstrings, comments and empty lines."""
    digest = hashlib.sha256()
    root = Path(attentest.__file__).parent
    measured = (path for room in MEASURED for path in (root / room).rglob("*.py"))
    for path in sorted(path for path in measured if path.parent.name != "images" or path.stem not in READERS):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0")
        digest.update("\n".join(statements(path.read_text(encoding="utf-8"))).encode())
    return digest.hexdigest()[:16]


def statements(source: str) -> Iterator[str]:
    """Yield the lines of a module that are neither documentation nor empty, without their comments."""
    documentation = {
        number
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {token.start[0]: token.start[1] for token in tokens if token.type == tokenize.COMMENT}
    for number, line in enumerate(source.splitlines(), start=1):
        kept = line[: comments.get(number)].rstrip()
        if kept and number not in documentation:
            yield kept


def parsed_tables(text: str) -> list[dict[str, Any]]:
    """Return the Markdown tables of a text: header and rows of each, and the lines before it."""
    tables: list[dict[str, Any]] = []
    before: list[str] = []
    lines = iter(text.splitlines())
    for line in lines:
        if not line.startswith("|"):
            before.append(line)
            continue
        header, rows, after = cells(line), [], []
        for line in lines:
            if not line.startswith("|"):
                after = [line]
                break
            if not set(line) <= set("|-: "):
                rows.append(cells(line))
        tables.append({"title": " ".join(part for part in before if part).strip(), "header": header, "rows": rows})
        before = after
    return tables


def cells(line: str) -> list[str]:
    """Return the cells of a row of a table."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def versions() -> dict[str, str]:
    """Return the versions of Python, of the package and of the libraries that compute."""
    known = {"python": platform.python_version(), "attentest": attentest.__version__}
    for library in LIBRARIES:
        try:
            known[library] = version(library)
        except PackageNotFoundError:
            continue
    return known


def overridden(command: str, options: str) -> str:
    """Return a command with further options, without those of the same names that it had."""
    names = [word for word in options.split() if word.startswith("--")]
    parts = re.split(r" (?=--)", command)
    return " ".join([*(part for part in parts if part.split()[0] not in names), options]).strip()


def measure(page: str, sections: list[str], device: str, processes: int, options: str, out: Path) -> None:
    """Run the scripts of sections, with further options, and keep what they print."""
    for name in sections or SECTIONS[page]:
        command = overridden(SECTIONS[page][name].format(device=device, processes=processes), options)
        print(f"{page}, {name}: python benchmarks/{command}", file=sys.stderr, flush=True)
        code, start = code_checksum(), time.monotonic()
        done = subprocess.run(
            [sys.executable, *shlex.split(command)], cwd=HERE, stdout=subprocess.PIPE, text=True, check=False
        )
        tables = parsed_tables(done.stdout)
        if done.returncode or not tables:
            print(f"{page}, {name}: no result (exit code {done.returncode})", file=sys.stderr)
            continue
        section = {
            "command": f"python benchmarks/{command}",
            "date": datetime.now(UTC).date().isoformat(),
            "device": device_name(device if "{device}" in SECTIONS[page][name] or name == "models" else "cpu"),
            "seconds": round(time.monotonic() - start),
            "code": code,
            "versions": versions(),
            "tables": tables,
        }
        file = out / f"{page}.json"
        known = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        ordered = {key: (known | {name: section})[key] for key in SECTIONS[page] if key in known or key == name}
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def number(cell: str) -> float:
    """Return the number that a cell starts with, without its standard error."""
    found = re.match(r"[-+]?[\d,]*\.?\d+(e[-+]?\d+)?", cell)
    if found is None:
        raise ValueError(f"no number in {cell!r}")
    return float(found.group().replace(",", ""))


@dataclass(frozen=True)
class Evidence:
    """What was measured for a page, as its template asks for it."""

    sections: dict[str, Any]

    def has(self, section: str) -> bool:
        """Return whether a section was measured."""
        return section in self.sections

    def table(self, section: str, which: int = 0, columns: list[str] | None = None) -> str:
        """Return a table in Markdown, all columns or some."""
        printed = self.sections[section]["tables"][which]
        kept = [i for i, name in enumerate(printed["header"]) if columns is None or name in columns]
        header, *rows = ([row[i] for i in kept] for row in (printed["header"], *printed["rows"]))
        lines = [header, ["---"] * len(header), *rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def made(self, section: str) -> str:
        """Return how a section was made, in a sentence."""
        made = self.sections[section]
        libraries = ", ".join(f"{name} {of}" for name, of in made["versions"].items() if name in ("torch", "attentest"))
        return (
            f"`{made['command']}` ({made['device']}, {made['date']}, {duration(made['seconds'])}; {libraries}, "
            f"checksum of the code {made['code'][:8]})"
        )

    def column(self, section: str, name: str, which: int = 0, **where: str) -> list[float]:
        """Return the numbers of a column, in the rows whose other columns have these values."""
        printed = self.sections[section]["tables"][which]
        place = printed["header"].index(name)
        wanted = {printed["header"].index(key.replace("_", " ")): value for key, value in where.items()}
        rows = [row for row in printed["rows"] if all(row[i] == value for i, value in wanted.items())]
        if not rows:
            raise ValueError(f"no row of {section} has {where}")
        return [number(row[place]) for row in rows if row[place]]


def duration(seconds: float) -> str:
    """Return seconds in words."""
    for size, unit in ((172_800, "days"), (7200, "h"), (120, "min")):
        if seconds >= size:
            whole = {"days": 86_400, "h": 3600, "min": 60}[unit]
            return f"{seconds / whole:.0f} {unit}"
    return f"{seconds:.0f} s"


def rendered(page: str, folder: Path = PAGES) -> str:
    """Return a page made of its template and what was measured."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), undefined=jinja2.StrictUndefined, trim_blocks=True, autoescape=False
    )
    environment.filters["count"] = lambda value: f"{value:,.0f}"
    environment.filters["duration"] = duration
    sections = json.loads((folder / f"{page}.json").read_text(encoding="utf-8"))
    evidence = Evidence(sections)
    parts = {name: getattr(evidence, name) for name in ("has", "table", "made", "column")}
    return environment.get_template(f"{page}.md").render(**parts).strip() + "\n"


def render(folder: Path = PAGES) -> None:
    """Write all pages, and the figure of each."""
    for page in measured_pages(folder):
        (folder / f"{page}.md").write_text(rendered(page, folder), encoding="utf-8")
        evidence = Evidence(json.loads((folder / f"{page}.json").read_text(encoding="utf-8")))
        if page in FIGURES:
            FIGURES[page](evidence, folder / f"{page}.png")


def measured_pages(folder: Path = PAGES) -> Iterator[str]:
    """Yield the pages for which something was measured."""
    yield from (page for page in SECTIONS if (folder / f"{page}.json").is_file())


def status() -> bool:
    """Print which sections are there, and whether they are of the code as it is; return whether all are."""
    code, current = code_checksum(), True
    for page, sections in SECTIONS.items():
        file = PAGES / f"{page}.json"
        known = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        for name in sections:
            measured = known.get(name, {}).get("code")
            is_current = code in (measured, SAME_NUMBERS.get(measured))
            state = "missing" if measured is None else "current" if is_current else "of other code"
            current &= is_current
            print(f"{page:12s} {name:12s} {state}")
    return current


def _axes() -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3.6), layout="constrained")
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def agreement_figure(evidence: Evidence, file: Path) -> None:
    """Draw how far p is from that of the dense grid, by model, beside the tolerance."""
    figure, axes = _axes()
    rows = evidence.sections["dense"]["tables"][0]["rows"]
    names = [f"{row[0]}, {row[1]}" for row in rows]
    for precision, marker in (("float64", "o"), ("mixed", "s")):
        for what, face in (("greatest difference of p", None), ("median difference", "none")):
            values = evidence.column("dense", f"{what}, {precision}")
            label = f"{what.split()[0]}, {precision}"
            axes.semilogx(values, names, marker, label=label, color=f"C{precision == 'mixed':d}", markerfacecolor=face)
    axes.axvline(1e-6, color="grey", linestyle=":", label="tolerance")
    axes.invert_yaxis()
    axes.set_xlabel("difference from the p of a dense float64 grid")
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    figure.savefig(file, dpi=150)


def calibration_figure(evidence: Evidence, file: Path) -> None:
    """Draw the rates of p at most 0.05 with two standard errors."""
    figure, axes = _axes()
    rows = evidence.sections["level"]["tables"][0]["rows"]
    for aside, (noise, marker) in zip((-0.15, 0.15), (("independent", "o"), ("AR(1), 0.5", "s")), strict=True):
        chosen = [row for row in rows if row[1] == noise]
        place = evidence.sections["level"]["tables"][0]["header"].index("p at most 0.05")
        errors = [2 * float(row[place].split("(")[1].rstrip(")")) for row in chosen]
        names, rates = [row[0] for row in chosen], [number(row[place]) for row in chosen]
        axes.errorbar(rates, np.arange(len(names)) + aside, xerr=errors, fmt=marker, capsize=2, label=f"{noise} noise")
        axes.set_yticks(range(len(names)), names)
    axes.axvline(0.05, color="grey", linestyle=":")
    axes.invert_yaxis()
    axes.set_xlabel("share of null images with p at most 0.05, with two standard errors")
    axes.legend(fontsize="small", loc="upper left")
    figure.savefig(file, dpi=150)


def power_figure(evidence: Evidence, file: Path) -> None:
    """Draw power against the strength of the signal."""
    figure, axes = _axes()
    printed = evidence.sections["power"]["tables"][0]
    heights = [float(name.removeprefix("signal ")) for name in printed["header"][3:]]
    for row in printed["rows"]:
        if row[1] == "independent":
            axes.plot(heights, [number(cell) for cell in row[3:]], "o-", label=row[0], markersize=4)
    axes.set_xlabel("height of the square, in standard deviations of the noise")
    axes.set_ylabel("share with p at most 0.05")
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    figure.savefig(file, dpi=150)


SIZES = {"B": "ViT-B/16, 224", "L": "ViT-L/16, 384", "D": "DINOv2-L/14, 518"}
"""What large_models.py calls models."""


def cost_figure(evidence: Evidence, file: Path) -> None:
    """Draw seconds per image of large models."""
    figure, axes = _axes()
    rows = evidence.sections["models"]["tables"][0]["rows"]
    for test in dict.fromkeys(row[1] for row in rows):
        chosen = [row for row in rows if row[1] == test]
        names = [f"{SIZES[row[0][0]]}, weights {row[0][2:]}" for row in chosen]
        axes.plot([number(row[2]) for row in chosen], names, "o", label=test)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xticks([0.05, 0.1, 0.2, 0.5, 1.0])
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    axes.set_xlabel("seconds per image")
    axes.legend(fontsize="small")
    figure.savefig(file, dpi=150)


def noise_figure(evidence: Evidence, file: Path) -> None:
    """Draw rejection rates against the number of reference images, with and without the correction."""
    figure, axes = _axes()
    printed = evidence.sections["references"]["tables"][0]
    for noise in dict.fromkeys(row[0] for row in printed["rows"]):
        chosen = [row for row in printed["rows"] if row[0] == noise and float(row[2]) == 1]
        counts = [float(row[1]) for row in chosen]
        for column, line in ((3, "-"), (4, ":")):
            color = f"C{list(dict.fromkeys(row[0] for row in printed['rows'])).index(noise)}"
            label = noise if column == 3 else None
            axes.semilogx(counts, [number(row[column]) for row in chosen], line, marker="o", color=color, label=label)
    axes.axhline(0.05, color="grey", linewidth=0.8)
    axes.set_xticks(sorted({float(row[1]) for row in printed["rows"]}))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    axes.set_xlabel("reference images (gamma 1; dotted: the estimate taken for the truth)")
    axes.set_ylabel("share with p at most 0.05")
    axes.legend(fontsize="small")
    figure.savefig(file, dpi=150)


FIGURES: dict[str, Callable[[Evidence, Path], None]] = {
    "agreement": agreement_figure,
    "calibration": calibration_figure,
    "power": power_figure,
    "cost": cost_figure,
    "noise": noise_figure,
}


def main() -> int:
    """Measure, render, or say what is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure", help="run the scripts of a page, or of some of its sections")
    measuring.add_argument("page", choices=SECTIONS)
    measuring.add_argument("sections", nargs="*")
    measuring.add_argument("--device", default="cpu")
    measuring.add_argument("--processes", type=int, default=1)
    measuring.add_argument("--options", default="", help="further options of the script, such as '--images 500'")
    measuring.add_argument("--out", type=Path, default=PAGES, help="where the data files are")
    commands.add_parser("render", help="make the pages of what was measured")
    commands.add_parser("status", help="say which sections another code made")
    asked = parser.parse_args()
    if asked.command == "measure":
        if unknown := set(asked.sections) - set(SECTIONS[asked.page]):
            parser.error(f"{asked.page} has no {', '.join(sorted(unknown))}: it has {', '.join(SECTIONS[asked.page])}")
        measure(asked.page, asked.sections, asked.device, asked.processes, asked.options, asked.out.resolve())
        return 0
    if asked.command == "render":
        render()
        return 0
    return 0 if status() else 1


if __name__ == "__main__":
    sys.exit(main())
