"""The README's own example runs and says what the README says; links of the documentation lead somewhere."""

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


def test_every_file_that_a_page_links_to_is_there() -> None:
    pages = [*README.parent.glob("*.md"), *README.parent.glob("docs/**/*.md")]
    links = [(page, target) for page in pages for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())]
    assert len(links) > 20
    assert not [(page, target) for page, target in links if not (page.parent / target).exists()]
