"""Screenshots of the web page for the documentation, taken in Chromium.

    python docs/screenshots.py                      # docs/figures/app.png
    python docs/screenshots.py --dark --width 400 --example "Pure noise" --out narrow.png

Needs the extra ``dev`` and Debian's ``chromium``.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

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


def main() -> None:
    """Read the command line and take one picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=FIGURE)
    parser.add_argument("--width", type=int, default=1200)
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--example", default="Noise and a signal")
    options = parser.parse_args()
    with served_page() as address:
        take(address, options.out, width=options.width, dark=options.dark, example=options.example)


if __name__ == "__main__":
    main()
