"""What a model evaluation costs, with and without its derivative, and what the searches make of it.

Run: python benchmarks/evaluation.py [--device cuda] [--images 4]
Prints tables of times and ratios measured side by side in one run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from attentest import AttentionTest, bundled_model
from attentest.attention import ViTScores, load_model
from attentest.simulation.images import null_images

REPEATS = 5


def seconds(work: Callable[[], object], device: str) -> float:
    """Return the least time of several runs: the machines are shared, and load only ever adds."""
    times = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        work()
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times[1:])


@torch.no_grad()
def evaluation_table(device: str) -> Table:
    """Time a forward pass and one with its derivative along a line, by batch size."""
    table = Table("images together", "forward, ms an image", "with derivative", "ratio", title="one evaluation")
    sizes = (1, 64, 1024, 4096) if device.startswith("cuda") else (1, 8, 16, 32, 64, 128)
    scores = ViTScores(load_model(bundled_model()).encoder, device=device, batch_size=max(sizes))
    rng = np.random.default_rng(0)
    for size in sizes:
        start, direction = torch.from_numpy(rng.normal(size=(2, size, 1, 16, 16))).to(device)
        z = torch.zeros(size, dtype=torch.float64, device=device)

        def along(z: torch.Tensor, start: torch.Tensor = start, direction: torch.Tensor = direction) -> torch.Tensor:
            return scores(start + direction * z[:, None, None, None])

        forward = seconds(lambda z=z, along=along: along(z), device)
        both = seconds(lambda z=z, along=along: torch.func.jvp(along, (z,), (torch.ones_like(z),)), device)
        table.add_row(str(size), f"{1e3 * forward / size:.3f}", f"{1e3 * both / size:.3f}", f"{both / forward:.1f}")
    return table


def search_table(device: str, count: int) -> Table:
    """Run the searches on the same null images, together and one by one."""
    table = Table("search", "evaluations", "s an image", "against adaptive", "max |dp|", title=f"{count} null images")
    images = null_images(np.random.default_rng(0), count, 16)
    adaptive: tuple[float, np.ndarray] | None = None
    for label, name, single in (
        ("adaptive, together", "adaptive", False),
        ("adaptive, one by one", "adaptive", True),
        ("combination, together", "combination", False),
    ):
        test = AttentionTest.from_pretrained(
            bundled_model(), noise=1.0, search=name, confidence_level=None, device=device
        )
        start = time.perf_counter()
        results = [test(image) for image in images] if single else test.map(images)
        each = (time.perf_counter() - start) / count
        pvalues = np.array([result.pvalue for result in results])
        adaptive = adaptive or (each, pvalues)
        evaluations = np.mean([result.evaluations for result in results])
        difference = np.abs(pvalues - adaptive[1]).max()
        table.add_row(label, f"{evaluations:.0f}", f"{each:.2f}", f"{each / adaptive[0]:.2f}", f"{difference:.1e}")
    return table


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--images", type=int, default=4)
    arguments = parser.parse_args()
    console = Console(width=100)
    console.print(evaluation_table(arguments.device))
    console.print(search_table(arguments.device, arguments.images))


if __name__ == "__main__":
    main()
