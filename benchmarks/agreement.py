"""Does p agree with the values that the paper's authors published, and does its error bar hold what a dense grid finds?

    python benchmarks/agreement.py published --reference REFERENCE --device cuda
    python benchmarks/agreement.py narrow --reference REFERENCE --count 100
    python benchmarks/agreement.py dense --reference REFERENCE --device cuda --processes 5
    python benchmarks/agreement.py dips --count 1000
    python benchmarks/agreement.py sharp --count 600 --processes 8
    python benchmarks/agreement.py batches --device cuda

- published: images, statistics and p-values of the authors' four models, computed in float32 on a grid of step 1e-3.
- narrow: the same images with error bars of 1e-10, in both precisions, and of 1e-6.
- dense: a float64 grid of step 1e-3, 5e-5 within 0.1 of z_obs, whose boundaries are bisected, on the authors' models.
- dips: smooth functions with one dip of the narrowest width that the search promises to find, or of half of it.
- sharp: tiny transformers with weights up to 200 times the usual ones.
- batches: the same images alone, together, and in another precision.

REFERENCE is a directory with the authors' models and their published values (expected.json).
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import multiprocessing
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from attentest import AttentionTest, Results, bundled_model
from attentest.noise import AR1, Isotropic, NoiseModel
from attentest.search import Combination, GridSearch, SearchProblem, SpectralSearch
from attentest.simulation.images import null_images, signal_images

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))  # functions on which an error bar can fail

from hard_scores import curve_with_a_dip, sharp_vit
from toys import curve_problem, negative_set
from truncated import bounds_on_log_p, log_pvalue

DENSE = GridSearch(step=Combination(fine=5e-5, coarse=1e-3, near=0.1))
GRID_ERROR = 1e-9  # how far the p of the grid may itself be off: its boundaries are brackets of 1e-12
BETWEEN = 64  # points at which a model is asked where grid and search differ: the grid overlooks what is narrower
TOLERANCE, NARROW = 1e-6, 1e-10
PRECISIONS = ("float64", "mixed")
SIDES = {"d8": 8, "d16small": 16, "d16": 16, "d32": 32, "d64": 64}
NOISES: dict[str, NoiseModel] = {"independent": Isotropic(1.0), "AR(1), 0.5": AR1(0.5)}
PUBLISHED = ("d8", "d16small", "d16", "d32")  # models with published values
PUBLISHED_AS = {"independent": "iid", "AR(1), 0.5": "corr"}
FIRST_CORRELATED_PIXEL = {8: 0.9670491499012616, 16: 0.009559821149255065, 32: -0.43690113098034805}
"""What the published correlated images start with: LAPACK libraries differ in the signs of singular vectors."""

Task = TypeVar("Task")
Value = TypeVar("Value")


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table in Markdown, each row as soon as it is known."""
    print(f"\n| {' | '.join(header)} |\n|{'---|' * len(header)}", flush=True)
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |", flush=True)


def on_processes(work: Callable[[Task], Value], tasks: Sequence[Task], processes: int) -> Iterator[Value]:
    """Yield what a function returns for each task, in their order."""
    if processes == 1:
        yield from map(work, tasks)
        return
    with multiprocessing.get_context("spawn").Pool(processes, torch.set_num_threads, (1,)) as pool:
        yield from pool.imap(work, tasks)


def published_images(side: int, noise: str) -> NDArray[np.float64] | None:
    """Return the images that the authors drew, or None where this machine's LAPACK draws others."""
    rng = np.random.default_rng(0)
    if noise == "independent":
        return rng.normal(0.0, 1.0, (102, side, side, 1))[:100, ..., 0]
    pixels = np.arange(side * side)
    covariance = 0.5 ** np.abs(np.subtract.outer(pixels, pixels))
    images = rng.multivariate_normal(np.zeros(len(pixels)), covariance, 102)[:100].reshape(-1, side, side)
    return images if abs(images[0, 0, 0] - FIRST_CORRELATED_PIXEL[side]) < 1e-9 else None


def published_row(case: tuple[str, str], reference: Path, device: str) -> list[str] | None:
    """Return how far statistics and p-values of 100 images are from the published ones."""
    name, noise = case
    images = published_images(SIDES[name], noise)
    if images is None:
        return None
    expected = json.loads((reference / "expected.json").read_text())["models"][name][PUBLISHED_AS[noise]]
    test = AttentionTest.from_pretrained(reference / name, noise=NOISES[noise], device=device, confidence_level=None)
    results = test.map(images)
    statistics, pvalues = (
        np.abs(np.array([getattr(result, field) for result in results]) - expected[field])
        for field in ("statistic", "pvalue")
    )
    shares = [f"{np.quantile(pvalues, share):.1e}" for share in (1, 0.9, 0.5)]
    return [name, noise, str(len(results)), f"{statistics.max():.1e}", *shares]


def published(asked: argparse.Namespace) -> None:
    """Compare with the published values."""
    cases = [(name, noise) for noise in NOISES for name in PUBLISHED]
    row = partial(published_row, reference=asked.reference, device=asked.device)
    rows = on_processes(row, cases, asked.processes)
    header = [
        "model",
        "noise",
        "images",
        "statistic, greatest difference",
        "p, greatest",
        "p, 90% of images",
        "p, median",
    ]
    table(header, [found for found in rows if found])


def outside(result: Any, pvalue: float) -> bool:
    """Return whether a p-value is outside the error bar of a result, by more than the grid's own error."""
    low, high = result.pvalue_bounds
    return not low - GRID_ERROR <= pvalue <= high + GRID_ERROR


def dense_row(case: tuple[str, bool], reference: Path, device: str, images: int) -> list[str]:
    """Compare the searches in both precisions with the dense grid, on null images or such with signals 1 to 4."""
    name, signal = case
    drawn = (
        np.concatenate(
            [
                signal_images(np.random.default_rng(1000 + height), images // 5, SIDES[name], float(height))[0]
                for height in (1, 2, 3, 4)
            ]
        )
        if signal
        else null_images(np.random.default_rng(1000), images, SIDES[name])
    )

    def tested(search: GridSearch | SpectralSearch) -> Results:
        test = AttentionTest.from_pretrained(
            reference / name, noise=1.0, device=device, search=search, confidence_level=None
        )
        return test.map(drawn)

    grid = tested(DENSE)
    columns: list[list[str]] = [[], [], [], []]
    for precision in PRECISIONS:
        results = tested(SpectralSearch(tol=TOLERANCE, precision=precision))  # type: ignore[arg-type]
        differences = [abs(result.pvalue - other.pvalue) for result, other in zip(results, grid, strict=True)]
        misses = sum(outside(result, other.pvalue) for result, other in zip(results, grid, strict=True))
        columns[0].append(str(misses))
        columns[1].append(f"{max(differences):.1e}")
        columns[2].append(f"{np.median(differences):.1e}")
        columns[3].append(f"{np.mean([result.evaluations for result in results]):.0f}")
    evaluations = f"{np.mean([result.evaluations for result in grid]):.0f}"
    kind = "signal 1 to 4" if signal else "null"
    return [name, kind, str(len(drawn)), *itertools.chain(*columns), evaluations]


def dense(asked: argparse.Namespace) -> None:
    """Compare with the dense grid."""
    cases = list(itertools.product(asked.models, (False, True)))
    row = partial(dense_row, reference=asked.reference, device=asked.device, images=asked.count)
    header = ["model", "images", "number"] + [
        f"{what}, {precision}"
        for what in ("outside the bar", "greatest difference of p", "median difference", "evaluations")
        for precision in PRECISIONS
    ]
    table([*header, "evaluations, grid"], on_processes(row, cases, asked.processes))


def dip_outside(seed: int, least: float, most: float) -> bool | None:
    """Return whether the true p of a curve is outside its converged bar; None if the dip is at z_obs itself."""
    z_obs, margin = curve_with_a_dip(seed, least, most)
    if float(margin(torch.tensor([z_obs], dtype=torch.float64))[0]) >= 0:
        return None
    (outcome,) = SpectralSearch(tol=TOLERANCE).find(curve_problem([z_obs], margin, exact=True))
    if outcome.status != "converged":
        return None
    known = outcome.truncation_set
    low, high = (math.exp(log) for log in bounds_on_log_p(z_obs, known.certain, known.possible))
    grid = np.unique(np.concatenate([np.arange(-14, 14, 1e-3), np.arange(z_obs - 14, z_obs + 14, 1e-3), [z_obs]]))
    pvalue = math.exp(log_pvalue(z_obs, negative_set(margin, grid, np.inf)))
    return not low - GRID_ERROR <= pvalue <= high + GRID_ERROR


def dips(asked: argparse.Namespace) -> None:
    """Look for narrow dips."""

    def rows() -> Iterator[list[str]]:
        for first, least, most in ((10_000, 0.1, 0.3), (30_000, 0.1, 0.1), (20_000, 0.05, 0.05)):
            seeds = range(first, first + asked.count)
            found = list(on_processes(partial(dip_outside, least=least, most=most), seeds, asked.processes))
            known = [missed for missed in found if missed is not None]
            width = f"{least}" if least == most else f"{least} to {most}"
            yield [width, str(len(known)), str(sum(known))]

    table(["standard deviation of the dip", "converged", "p outside the bar"], rows())


def sharp_statuses(seed: int) -> list[tuple[str, bool, int]]:
    """Return for each precision the status of a sharp model, whether p is outside a converged bar, and evaluations."""
    model, image, settings = sharp_vit(seed)
    problems: list[SearchProblem] = []

    class Recorded(SpectralSearch):
        def find(self, problem, report=None):  # type: ignore[no-untyped-def]
            problems.append(problem)
            return super().find(problem, report)

    results = []
    for precision in PRECISIONS:
        search = Recorded(tol=TOLERANCE, precision=precision)  # type: ignore[arg-type]
        results.append(AttentionTest(model, search=search, confidence_level=None, **settings)(image))
    grid = None
    if any(result.status == "converged" for result in results):
        grid = AttentionTest(model, search=DENSE, confidence_level=None, **settings)(image)
    statuses = []
    for result in results:
        missed = False
        if grid is not None and result.status == "converged" and outside(result, grid.pvalue):
            sets = [result.truncation_set.certain, result.truncation_set.possible, grid.intervals]
            missed = not all(_holds(problems[0], sets, start, end) for start, end in _stretches(sets))
        statuses.append((result.status, missed, result.evaluations))
    return statuses


def _stretches(sets: Sequence[NDArray[np.float64]]) -> Iterator[tuple[float, float]]:
    """Yield the stretches between all ends of sets of intervals."""
    edges = np.unique(np.concatenate([ends.ravel() for ends in sets]))
    yield from itertools.pairwise(edges[np.isfinite(edges)])


def _holds(problem: SearchProblem, sets: Sequence[NDArray[np.float64]], start: float, end: float) -> bool:
    """Return whether the model agrees, between points of the grid, with what the search is certain of."""
    certain, possible, _ = (bool(np.any((ends[:, 0] < end) & (ends[:, 1] > start))) for ends in sets)
    if end - start < GRID_ERROR or (possible and not certain):
        return True
    z = start + (end - start) * (np.arange(BETWEEN) + 0.5) / BETWEEN
    return bool(np.all(problem.inside_at(np.zeros(BETWEEN, dtype=np.intp), z) == certain))


def sharp(asked: argparse.Namespace) -> None:
    """Search sharp models."""
    found = list(on_processes(sharp_statuses, range(asked.count), asked.processes))

    def rows() -> Iterator[list[str]]:
        for precision, of_precision in zip(PRECISIONS, zip(*found, strict=True), strict=True):
            statuses = Counter(status for status, _, _ in of_precision)
            others = ", ".join(f"{status} {count}" for status, count in statuses.most_common() if status != "converged")
            missed = sum(wrong for _, wrong, _ in of_precision)
            evaluations = [count for _, _, count in of_precision]
            summary = f"{np.median(evaluations):.0f}", f"{np.mean(evaluations):.0f}"
            yield [precision, str(len(found)), str(statuses["converged"]), others, str(missed), *summary]

    header = ["precision", "models", "converged", "other statuses", "p outside a converged bar"]
    table([*header, "evaluations, median", "evaluations, mean"], rows())


def batches(asked: argparse.Namespace) -> None:
    """Compare images alone and together."""
    images = null_images(np.random.default_rng(3), asked.count, 16)

    def rows() -> Iterator[list[str]]:
        for precision in PRECISIONS:
            search = SpectralSearch(tol=TOLERANCE, precision=precision)  # type: ignore[arg-type]
            test = AttentionTest.from_pretrained(
                bundled_model(), noise=1.0, device=asked.device, search=search, confidence_level=None
            )
            together = [result.pvalue for result in test.map(images)]
            for kind, others in (("7", test.map(images[:7])), ("1", [test(image) for image in images[:7]])):
                greatest = max(abs(result.pvalue - p) for result, p in zip(others, together, strict=False))
                yield [precision, f"{kind} and {len(images)}", f"{greatest:.1e}"]

    table(["precision", "images together", "greatest difference of p"], rows())


def narrow_row(case: tuple[str, str], reference: Path, device: str, images: int) -> list[str] | None:
    """Return how far p of error bars of NARROW is from that of other settings, for the images of a model."""
    name, noise = case
    drawn = published_images(SIDES[name], noise)
    if drawn is None:
        return None
    bars = {"float64": NARROW, "mixed": NARROW, "usual": TOLERANCE}
    found = {}
    for setting, tol in bars.items():
        search = SpectralSearch(tol=tol, precision="mixed" if setting == "mixed" else "float64")
        settings = {"noise": NOISES[noise], "device": device, "search": search, "confidence_level": None}
        found[setting] = AttentionTest.from_pretrained(reference / name, **settings).map(drawn[:images])
    pvalues = {setting: np.array([result.pvalue for result in results]) for setting, results in found.items()}
    greatest = [f"{np.abs(pvalues[setting] - pvalues['float64']).max():.1e}" for setting in ("mixed", "usual")]
    evaluations = [f"{np.mean([result.evaluations for result in results]):.0f}" for results in found.values()]
    converged = sum(result.status == "converged" for results in found.values() for result in results)
    return [
        name,
        noise,
        str(len(pvalues["usual"])),
        f"{converged} of {3 * len(pvalues['usual'])}",
        *greatest,
        *evaluations,
    ]


def narrow(asked: argparse.Namespace) -> None:
    """Compare narrow error bars with each other and with the usual ones."""
    row = partial(narrow_row, reference=asked.reference, device=asked.device, images=asked.count)
    cases = [(name, noise) for noise in NOISES for name in PUBLISHED]
    found = on_processes(row, cases, asked.processes)
    header = ["model", "noise", "images", "converged", "float64 and mixed, 1e-10", "1e-6 and 1e-10, float64"]
    columns = [f"evaluations, {setting}" for setting in ("float64, 1e-10", "mixed, 1e-10", "float64, 1e-6")]
    table([*header, *columns], (row for row in found if row is not None))


def main() -> None:
    """Print the tables of one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {part.__name__: part for part in (published, narrow, dense, dips, sharp, batches)}
    parser.add_argument("part", choices=parts)
    parser.add_argument("--reference", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "reference")
    parser.add_argument("--models", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--count", type=int, default=50, help="null images, functions or models of a row")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--processes", type=int, default=1)
    asked = parser.parse_args()
    if asked.device != "cpu" and asked.part in ("dips", "sharp"):
        parser.error(f"{asked.part} is computed on the processor: without --device")
    torch.set_num_threads(max(1, torch.get_num_threads() // asked.processes))
    parts[asked.part](asked)


if __name__ == "__main__":
    main()
