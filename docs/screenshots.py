"""Screenshots of the web page and of a report for the documentation, taken in Chromium.

    python docs/screenshots.py                      # docs/figures/app.png
    python docs/screenshots.py --report --width 1100 --out docs/figures/report.png
    python docs/screenshots.py --dark --width 400 --example "Pure noise" --out narrow.png

Needs the extra ``dev`` and Debian's ``chromium``.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright

from attentest import AttentionTest, Results, bundled_model

FIGURE = Path(__file__).parent / "figures" / "app.png"


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


def take(address: str, out: Path, *, width: int, dark: bool, example: str) -> None:
    """Click an example and take a picture of the whole page with its result."""
    with sync_playwright() as playwright:
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
    Image.open(out).convert("RGB").save(out, optimize=True)


def take_report(out: Path, *, width: int, dark: bool) -> None:
    """Write a report of six images, three of them with a signal, and take a picture of its beginning."""
    rng = np.random.default_rng(0)
    images = rng.normal(size=(6, 16, 16))
    for image in images[::2]:
        top, left = rng.integers(0, 12, 2)
        image[top : top + 5, left : left + 5] += 2
    test = AttentionTest.from_pretrained(bundled_model(), noise=1.0, randomise=0.5)
    results = Results(test.map(images), names=[f"slice-{number:02}.npy" for number in range(6)])
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        results.report(Path(folder, "report.html"))
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 1750}, color_scheme="dark" if dark else "light")
        page.goto(f"file://{folder}/report.html")
        page.screenshot(path=out)
        browser.close()
    Image.open(out).convert("RGB").save(out, optimize=True)


def main() -> None:
    """Read the command line and take one picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=FIGURE)
    parser.add_argument("--width", type=int, default=1200)
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--example", default="Noise and a signal")
    parser.add_argument("--report", action="store_true", help="take a report in place of the page")
    options = parser.parse_args()
    if options.report:
        take_report(options.out, width=options.width, dark=options.dark)
        return
    with served_page() as address:
        take(address, options.out, width=options.width, dark=options.dark, example=options.example)


if __name__ == "__main__":
    main()
