"""What README and the pages of docs/ print: blocks of commands and of Python, and how each is run in a test."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(path for path in ROOT.glob("docs/**/*.md"))],
    key=lambda path: path.relative_to(ROOT).parts,
)

FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```$", re.M | re.S)

NOT_RUN = {
    r"attentest bench\b": "takes minutes: tests/studies/test_benchmark.py runs a small one",
    r"attentest demo\b": "tests/cli/test_cli.py runs all three demonstrations",
    r"attentest app\b": "serves a page until Ctrl-C: tests/app/test_server.py opens it",
    r"attentest reproduce(?! list| report)": "takes minutes to hours: tests/studies/test_cli_reproduce.py",
    r"attentest reproduce report": "needs the trials of such a run: tests/studies/test_cli_reproduce.py",
    r"attentest brain .*--data": "needs the data and trains for minutes: tests/cli/test_cli_brain.py",
    r"attentest train\b": "trains for minutes: tests/training/test_training.py trains a small model",
    r"attentest .*--engine (processes|ray)": "starts workers for every core: tests/runs/test_engines_with_workers.py",
    r"attentest test slice.npy --model mine/model": "needs what the study of the page writes, which trains for minutes",
    r"ray start": "starts Ray's own servers",
    r"pip install": "changes the environment: its extras are compared with pyproject.toml",
    r"make\b": "its recipe is looked up in the Makefile: it runs these tests or a demonstration, or takes minutes",
}
"""Commands that are read (their options must exist) and not run, with the reason."""

SUBSTITUTIONS = {
    r"--certify-draws 999": ("--certify-draws 4", "a certificate of 999 draws takes 28,000 evaluations"),
    r"--certify(?!-| --certify-draws)": ("--certify --certify-draws 4", "99 draws take 3,000 evaluations"),
    r"attentest noise check": (
        "attentest noise check --simulations 19 --alpha 0.4",
        "999 simulations take seconds, and fewer than 19 are refused",
    ),
    r"google/vit-base-patch16-224": ("my-vit", "the model is on a hub"),
    r"facebook/dinov2-base": ("rescaling-vit", "the model is on a hub"),
    r"attentest calibrate": ("attentest calibrate --images 2", "1,000 null images take minutes"),
    r"attentest power(?!.*--delta)": ("attentest power --delta 3", "four heights take four times as long as one"),
    r"attentest power(?!.*--decide)": ("attentest power --decide", "intervals take longer than decisions"),
    r"attentest power": ("attentest power --images 1", "50 images for each row take minutes"),
    r"attentest power (.*--delta 0) --delta 0.5 --delta 1": (
        r"attentest power \1",
        "one height takes a third of the time",
    ),
    r"--draws 1 --draws 21": ("--draws 1 --draws 3", "a test of 21 draws takes as long as 21"),
    r"--side 40": ("--side 4", "the images here have 16x16 pixels"),
}
"""What is changed in a command before it is run, in order: what it becomes, and why."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page in order, without their indentation."""
    found = []
    for match in FENCE.finditer(page.read_text(encoding="utf-8")):
        text = re.sub(f"^{match['indent']}", "", match["text"], flags=re.M)
        found.append(Block(page, match["language"].strip(), text))
    return found


def commands(page: Path) -> Iterator[str]:
    """Yield the commands of the blocks of a page that have no language, one by one, without comments."""
    for block in blocks(page):
        if block.language == "":
            for line in block.text.replace("\\\n", " ").splitlines():
                if command := re.sub(r"(^|\s)#.*", "", line).strip():
                    yield " ".join(command.split())


def reason_not_to_run(command: str) -> str | None:
    """Return why a command is not run, if it is not."""
    return next((reason for pattern, reason in NOT_RUN.items() if re.match(pattern, command)), None)


def substituted(command: str) -> str:
    """Return a command as it is run."""
    for pattern, (replacement, _) in SUBSTITUTIONS.items():
        command = re.sub(pattern, replacement, command)
    return command


PYTHON_NOT_RUN = {
    "docs/brain/README.md": "tests/studies/test_brain_docs.py runs it",
    "docs/clusters.md": "starts workers for every core: tests/runs/test_engines_with_workers.py",
}
"""Pages whose Python is only compiled, with the reason."""

PYTHON_SUBSTITUTIONS = {
    r'AttentionTest\.from_pretrained\(\s*"google/vit-base-patch16-224"': (
        'AttentionTest.from_pretrained("my-vit"',
        "this model is on a hub",
    ),
    r'device="cuda"': ('device="cpu"', "there may be no GPU"),
    r"n=1000?\b": ("n=2", "power and calibration take minutes"),
    r"draws=199": ("draws=4", "199 draws take 6,000 evaluations"),
    r"draws=99": ("draws=4", "the same"),
    r"draws=21\)": ("draws=21, confidence_level=None)", "p alone is printed, which takes less time than an interval"),
    r"noise_check\(Isotropic\(10\.0\), images": (
        "noise_check(Isotropic(10.0), images, simulations=199",
        "999 simulations take seconds; 199 are enough for the verdict that is printed",
    ),
    r"randomise=\[0, 0\.3, 0\.5, 1\], (.*) deltas=\[0, 1, 2, 3\]": (
        r"randomise=[0, 1], \1 deltas=[1]",
        "32 rows take minutes",
    ),
    r"randomise=\[0, 0\.5\], (.*) deltas=\[1, 2\]": (r"randomise=[0.5], \1 deltas=[2]", "the same of four"),
}
"""What is changed in Python before it is run: what it becomes, and why."""


def python_as_run(text: str) -> str:
    """Return a block of Python as it is run."""
    for pattern, (replacement, _) in PYTHON_SUBSTITUTIONS.items():
        text = re.sub(pattern, replacement, text)
    return text
