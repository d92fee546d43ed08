"""One RGB photograph-like image through ViT-B/16 at 224 x 224, random weights: time and memory of a p-value.

python benchmarks/real_size.py [--device cuda] [--images 1] [--photograph]
python benchmarks/real_size.py --tiny --height 2000 --width 3000     # a small model: what the image itself costs
python benchmarks/real_size.py --tiny --cases float64,ar1

Each case is a process of its own, which reads images that were made before. Its resident memory (on Linux, from /proc)
is read before the images are tested, when the model is in memory and the small one has tested a small image. The peak
of the process is compared with it, in units of one image in float64.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import ViTConfig, ViTModel

from attentest import AttentionTest
from attentest.images.preprocessing import Preprocessing
from attentest.noise import AR1, NoiseModel, PerChannel, Stationary
from attentest.search import SpectralSearch

PREPROCESSING = Preprocessing(resize=(224, 224), rescale=1 / 255, mean=(0.5,) * 3, std=(0.5,) * 3)
"""That of google/vit-base-patch16-224."""

SIGMA = 10.0
"""Standard deviation of the noise, in grey levels."""

CASES = ("float64", "mixed", "ar1", "stationary", "randomised")
"""Independent noise in float64 and mixed precision; and in float64 correlated noise, or randomised selection."""


def scene(seed: int, size: tuple[int, int] = (480, 640)) -> NDArray[np.uint8]:
    """Smooth blobs of colour with noise of standard deviation 10 on top, 8 bits."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[: size[0], : size[1]]
    image = np.full((*size, 3), 110.0)
    for _ in range(12):
        centre, spread = rng.uniform(0, size), rng.uniform(20, 90)
        blob = np.exp(-((rows - centre[0]) ** 2 + (columns - centre[1]) ** 2) / (2 * spread**2))
        image += blob[:, :, None] * rng.uniform(-60, 60, size=3)
    return (image + rng.normal(scale=SIGMA, size=image.shape)).clip(0, 255).astype(np.uint8)


def test_of(case: str, model: ViTModel, size: tuple[int, int], device: str) -> AttentionTest:
    """Return the test of a case, for images of (height, width)."""
    noise: float | NoiseModel = SIGMA
    if case == "ar1":
        noise = AR1(0.5, SIGMA)
    elif case == "stationary":
        profile = np.exp(-0.5 * (np.arange(-16, 17) / 2.0) ** 2)
        noise = PerChannel(np.eye(3), Stationary(SIGMA**2 * np.outer(profile, profile), size))
    search = SpectralSearch(tol=1e-4, precision="mixed" if case == "mixed" else "float64")
    randomise = 0.5 if case == "randomised" else 0.0
    options: dict[str, Any] = {"preprocessing": PREPROCESSING, "search": search, "randomise": randomise}
    return AttentionTest(model, noise=noise, confidence_level=None, device=device, **options)


def resident() -> float:
    """Return the resident memory of this process in MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def measure(case: str, files: list[Path], tiny: bool, device: str) -> None:
    """Test images in files, and print time and memory."""
    imported = resident()
    torch.manual_seed(0)
    small = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 96}
    model = ViTModel(ViTConfig(initializer_range=0.1, **small) if tiny else ViTConfig())
    images = [np.load(file) for file in files]
    size = images[0].shape[:2]
    if tiny:  # what is imported or reserved when it is first needed is no part of the image's memory
        test_of(case, model, (96, 128), device)(scene(0, (96, 128)))
    test = test_of(case, model, size, device)
    ready, started, used = resident(), time.perf_counter(), time.process_time()
    results = test.map(images)
    seconds, cpu = (time.perf_counter() - started) / len(images), (time.process_time() - used) / len(images)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    of_image = images[0].size * 8 / 2**20
    cuda = device.startswith("cuda")
    on_device = f", {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB on the device" if cuda else ""
    print(
        f"{case}: {seconds:.2f} s an image ({cpu:.2f} s of CPU), {np.mean([r.evaluations for r in results]):.0f} "
        f"evaluations, {set(r.status for r in results)}{on_device}\n"
        f"  memory: {imported:.0f} MiB imported, {ready:.0f} with the model, at most {peak:.0f}: "
        f"{(peak - ready) / of_image:.1f} times the {of_image:.0f} MiB of an image in float64"
    )
    for result in results[:3]:
        print(f"  statistic {result.statistic:.1f}, log p {result.log_pvalue:.4g}, p {result.pvalue:.4g}")


def main() -> None:
    """Make the images, and measure each case in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--images", type=int, default=1)
    parser.add_argument("--photograph", action="store_true", help="use scikit-image's astronaut")
    parser.add_argument("--tiny", action="store_true", help="a model of two layers instead of ViT-B")
    parser.add_argument("--height", type=int, default=480)
    parser.add_argument("--width", type=int, default=640)
    parser.add_argument("--cases", help=f"some of {','.join(CASES)}; by default all, with ViT-B the first two")
    parser.add_argument("--files", nargs="+", type=Path, help=argparse.SUPPRESS)  # in the process of one case
    options = parser.parse_args()
    cases = (options.cases or ",".join(CASES if options.tiny else CASES[:2])).split(",")
    if unknown := set(cases) - set(CASES):
        parser.error(f"--cases may be some of {','.join(CASES)}, got {','.join(sorted(unknown))}.")
    if options.files:
        measure(cases[0], options.files, options.tiny, options.device)
        return
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{number}.npy" for number in range(1 if options.photograph else options.images)]
        for number, file in enumerate(files):
            np.save(file, _image(options, number))
        print(f"{len(files)} image(s) of {np.load(files[0], mmap_mode='r').shape}", flush=True)
        for case in cases:
            flags = ["--tiny"] if options.tiny else []
            command = [sys.executable, __file__, "--device", options.device, "--cases", case, *flags, "--files"]
            subprocess.run([*command, *map(str, files)], check=True)


def _image(options: argparse.Namespace, number: int) -> NDArray[np.uint8]:
    if options.photograph:
        from skimage import data

        return np.asarray(data.astronaut())
    return scene(number, (options.height, options.width))


if __name__ == "__main__":
    main()
