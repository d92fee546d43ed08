"""What is paid before anything is computed, and what the size of an image itself costs, in time and memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attentest.attention.device import usable_device
from attentest.images.preprocessing import Preprocessing
from attentest.pipeline.attention_test import AttentionTest
from attentest.search import SpectralSearch
from attentest.studies.benchmark.measurement import FRESH, NotMeasured, Ratio, Workload, measured_alone, timed

INPUT = 224
"""Side of the model's input."""

SHAPES = ((480, 640), (2000, 3000))
"""Heights and widths of the images."""


def large_images(workload: Workload) -> Iterator[Ratio]:
    """Compare memory with the image's own bytes, and time with that of an image of the size of the model's input."""
    settings = workload.settings
    for height, width in SHAPES:
        found = measured_alone("large_images", (height, width, settings.tol, settings.device, settings.seed))
        name = f"{height}x{width} RGB"
        yield Ratio(
            comparison="large-images",
            of=name,
            over=f"{INPUT}x{INPUT}",
            quantity="seconds",
            numerator=found["seconds"],
            denominator=found["small_seconds"],
        )
        for what, taken in found["memory"].items():
            if taken:  # not 0 either: what was freed before was enough
                yield Ratio(
                    comparison="large-images",
                    of=f"{what} for {name}",
                    over="the image",
                    quantity="bytes",
                    numerator=taken,
                    denominator=found["image"],
                )


def measure(height: int, width: int, tol: float, device_name: str, seed: int) -> dict[str, Any]:
    """Return the seconds of a p-value, the bytes that it takes at most, and those of the 8-bit image."""
    from transformers import ViTConfig, ViTModel

    device = usable_device(device_name)
    torch.manual_seed(seed)
    config = ViTConfig(
        image_size=INPUT,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=96,
        initializer_range=0.1,
    )
    test = AttentionTest(
        ViTModel(config),
        noise=10.0,
        preprocessing=Preprocessing(resize=(INPUT, INPUT), rescale=1 / 255, mean=(0.5,) * 3, std=(0.5,) * 3),
        search=SpectralSearch(tol=tol, precision="float64"),
        confidence_level=None,
        device=device,
    )
    rng = np.random.default_rng(seed)
    small, image = scene(rng, INPUT, INPUT), scene(rng, height, width)
    test(small)  # the first call of anything is slow, and takes memory once and for all
    peak = PeakMemory(device)
    large = timed(lambda: test(image), device)
    memory = {"memory": peak.of_process(), "memory of the device": peak.of_device()}
    return {
        "seconds": large.seconds,
        "small_seconds": timed(lambda: test(small), device).seconds,
        "memory": memory,
        "image": image.nbytes,
    }


def scene(rng: np.random.Generator, height: int, width: int) -> NDArray[np.uint8]:
    """Draw smooth blobs of colour with noise of standard deviation 10 on top, in 8 bits."""
    rows, columns = np.arange(height)[:, None], np.arange(width)
    image = np.full((height, width, 3), 110.0)
    for _ in range(12):
        centre, spread = rng.uniform(0, (height, width)), rng.uniform(0.05, 0.2) * min(height, width)
        blob = np.exp(-((rows - centre[0]) ** 2 + (columns - centre[1]) ** 2) / (2 * spread**2))
        image += blob[:, :, None] * rng.uniform(-60, 60, size=3)
    noisy: NDArray[np.float64] = image + rng.normal(scale=10, size=image.shape)
    return noisy.clip(0, 255).astype(np.uint8)


class PeakMemory:
    """The bytes that the process, and its device, take at most from now on, beyond those that they take now."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._on_device = 0
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            self._on_device = torch.cuda.memory_allocated(device)
        try:
            Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
            self._resident: int | None = self._status("VmRSS")
        except OSError:  # only Linux tells
            self._resident = None

    def of_process(self) -> int | None:
        """Return the bytes of the process; None where the system does not tell."""
        return None if self._resident is None else max(0, self._status("VmHWM") - self._resident)

    def of_device(self) -> int | None:
        """Return the bytes of the GPU; None without one."""
        if self._device.type != "cuda":
            return None
        return torch.cuda.max_memory_allocated(self._device) - self._on_device

    def _status(self, name: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    height, width, tol, device, seed = sys.argv[1:]
    print(json.dumps(measure(int(height), int(width), float(tol), device, int(seed))))


TORCH = "import torch"
STARTS = {
    TORCH: ("-c", "import torch"),
    "import AttentionTest": ("-c", "import attentest; attentest.AttentionTest"),
    "attentest --help": ("-m", "attentest", "--help"),
}
"""Arguments of Python, by what a table calls them."""


def start_up(workload: Workload) -> Iterator[Ratio]:
    """Compare the CPU seconds of new interpreters, which do not depend on what else the machine does."""
    for arguments in STARTS.values():
        _cpu_seconds(arguments)  # the files are read from the disk, and compiled, once
    runs = [
        {name: _cpu_seconds(arguments) for name, arguments in STARTS.items()} for _ in range(workload.settings.repeats)
    ]
    times = {name: median(run[name] for run in runs) for name in STARTS}
    if not times[TORCH] > 0:
        raise NotMeasured("this system does not tell the CPU time of processes that have ended.")
    for name in STARTS:
        if name != TORCH:
            yield Ratio(
                comparison="start-up",
                of=name,
                over=TORCH,
                quantity="CPU seconds",
                numerator=times[name],
                denominator=times[TORCH],
            )


def _cpu_seconds(arguments: tuple[str, ...]) -> float:
    """Return the CPU seconds of a new interpreter."""
    before = os.times()
    subprocess.run([*FRESH, *arguments], capture_output=True, check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system
