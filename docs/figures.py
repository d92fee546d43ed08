"""The figures of the documentation, made by the commands and the code that its pages print.

    python docs/figures.py                          # all, into docs/figures/; power takes an hour or two on two cores
    python docs/figures.py tutorial noise-check     # some
    python docs/figures.py app --dark --width 400 --example "Pure noise" --out narrow

Needs the extra ``dev``, and for the page and the report Debian's ``chromium``. Those of the guide to noise models are
made by benchmarks/noise_guide.py, with its tables.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright

from attentest import AttentionTest, Results, bundled_model, calibrate

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))  # what reads the blocks of a page

from documentation import blocks

DOCS = Path(__file__).resolve().parent

COMMANDS = {
    "demo": ("attentest demo", "--out demo.png", "demo.png"),
    "sensitivity": (
        "attentest test scan.npy --noise 1.0 --randomise 0.5 --sensitivity --sensitivity-figure sensitivity.png",
        "",
        "sensitivity.png",
    ),
    "power": (
        "attentest power --noise 1.0 --images 500 --randomise 0 --randomise 0.5 --randomise 1",
        "--out power",
        "power/power.png",
    ),
}
"""Commands that pages print, what is added to each, and the file of its figure."""

LONG = {r"n=1000?\b": "n=2"}
"""What is changed in blocks of Python: simulations whose results no figure shows."""


def of_command(name: str, out: Path) -> None:
    """Run a printed command in a folder that has the image of the tutorial."""
    _run_blocks("tutorial", until="np.save")
    printed, further, figure = COMMANDS[name]
    subprocess.run([sys.executable, "-m", *shlex.split(f"{printed} {further}")], check=True)
    shutil.copy(figure, out)


def of_tutorial(out: Path) -> None:
    """Run the blocks of the tutorial until it saves its figure."""
    _run_blocks("tutorial", until="savefig")
    shutil.copy("tutorial.png", out)


def of_noise_check(out: Path) -> None:
    """Run the example of the page about checking the noise."""
    _run_blocks("noise-check", until="check.plot()")["figure"].savefig(out, dpi=100)


def of_calibration(out: Path) -> None:
    """Draw the calibration of the bundled model."""
    test = AttentionTest.from_pretrained(bundled_model(), noise=1.0)
    calibrate(test, 1000, 0, progress=True).figure().savefig(out, dpi=150)


def _run_blocks(page: str, until: str) -> dict[str, Any]:
    """Run the blocks of Python of a page, as far as one that has some words; return what they define."""
    names: dict[str, Any] = {}
    for block in blocks(DOCS / f"{page}.md"):
        if block.language == "python":
            text = block.text
            for pattern, replacement in LONG.items():
                text = re.sub(pattern, replacement, text)
            exec(compile(text, page, "exec"), names)
            if until in text:
                return names
    raise ValueError(f"no block of {page} has {until!r}")


@contextmanager
def served_page() -> Iterator[str]:
    """Start the page on a free port and yield its address."""
    command = [sys.executable, "-m", "attentest", "app", "--port", "0", "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGINT)


def of_app(out: Path, width: int = 1200, dark: bool = False, example: str = "Noise and a signal") -> None:
    """Click an example on the web page and take a picture of the whole page with its result."""
    with served_page() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(
            viewport={"width": width, "height": 800}, color_scheme="dark" if dark else "light", reduced_motion="reduce"
        )
        page.goto(address)
        page.get_by_role("button", name=example).click()
        page.wait_for_selector("#result .verdict", timeout=120_000)
        page.mouse.move(0, 0)
        page.wait_for_timeout(1000)  # for the progress to fade out
        page.screenshot(path=out, full_page=True)
        browser.close()


def of_report(out: Path, width: int = 1100, dark: bool = False) -> None:
    """Write a report of six images, three of them with a signal, and take a picture of its beginning."""
    rng = np.random.default_rng(0)
    images = rng.normal(size=(6, 16, 16))
    for image in images[::2]:
        top, left = rng.integers(0, 12, 2)
        image[top : top + 5, left : left + 5] += 2
    test = AttentionTest.from_pretrained(bundled_model(), noise=1.0, randomise=0.5)
    results = Results(test.map(images), names=[f"slice-{number:02}.npy" for number in range(6)])
    results.report("report.html")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 1750}, color_scheme="dark" if dark else "light")
        page.goto(f"file://{Path.cwd()}/report.html")
        page.screenshot(path=out)
        browser.close()


FIGURES: dict[str, Callable[..., None]] = {
    **{name: lambda out, name=name: of_command(name, out) for name in COMMANDS},
    "tutorial": of_tutorial,
    "noise-check": of_noise_check,
    "calibration": of_calibration,
    "app": of_app,
    "report": of_report,
}
"""How each figure is made."""


def main() -> None:
    """Make the figures that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(FIGURES)}; by default all")
    parser.add_argument("--out", help="name of the file of a single figure, without .png")
    seen = parser.add_argument_group("for app and report")
    seen.add_argument("--width", type=int, default=argparse.SUPPRESS)
    seen.add_argument("--dark", action="store_true", default=argparse.SUPPRESS)
    seen.add_argument("--example", default=argparse.SUPPRESS, help="for app: the button that is clicked")
    asked = vars(parser.parse_args())
    names, out = asked.pop("names") or list(FIGURES), asked.pop("out")
    if unknown := set(names) - FIGURES.keys():
        parser.error(f"there is no figure {', '.join(sorted(unknown))}")
    matplotlib.use("agg")
    os.environ["MPLBACKEND"] = "agg"
    for name in names:
        file = (DOCS / "figures" / f"{out or name}.png").resolve()
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            FIGURES[name](file, **asked)
        Image.open(file).convert("RGB").save(file, optimize=True)
        print(file)


if __name__ == "__main__":
    main()
