"""The README's own example runs and says what the README says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def test_the_first_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code, *_) = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    assert len(code.strip().splitlines()) <= 10
    exec(compile(code, str(README), "exec"), {})
    naive, selective, rest = capsys.readouterr().out.split("\n", 2)
    assert float(naive) < 0.05 < float(selective)
    assert rest.startswith("10 pixels;")
    low, high = map(float, re.findall(r"-?\d+\.\d+", rest)[1:])
    assert low < 0 < high


def test_every_file_it_links_to_is_there() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text()):
        assert (README.parent / target).is_file(), target
