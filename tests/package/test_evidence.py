"""The pages of evidence state what was measured, and nothing else."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "evidence"
MEASURED = sorted(path.stem for path in PAGES.glob("*.json"))

MODELS = r"ViT-B/16 at 224|ViT-L/16 at 384|DINOv2-L/14 at 518|ResNet-18|16x16"
STATED = re.compile(rf"{{[{{%].*?[%}}]}}|`[^`]*`|!?\[[^\]]*\]\([^)]*\)|{MODELS}|95%|\d+\.\d+\.\d+", re.DOTALL)
"""What a template may state: what is measured, commands, links, models, versions, and the level of intervals."""


def is_among(number: str, text: str) -> bool:
    """Return whether a text has a number, and not only as a part of another one."""
    return re.search(rf"(?<![\d.]){re.escape(number.rstrip('.,'))}(?!\d|\.\d)", text) is not None


@pytest.fixture(scope="module")
def evidence() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        return import_module("evidence")


def test_there_are_the_pages_that_the_contents_list() -> None:
    assert MEASURED
    contents = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert [page for page in MEASURED if f"evidence/{page}" not in contents] == []


@pytest.mark.parametrize("page", MEASURED)
def test_a_page_is_made_of_its_data(evidence: ModuleType, page: str) -> None:
    assert (PAGES / f"{page}.md").read_text(encoding="utf-8") == evidence.rendered(page)


@pytest.mark.parametrize("page", MEASURED)
def test_a_page_states_no_number_that_its_data_do_not(evidence: ModuleType, page: str) -> None:
    template = (ROOT / "benchmarks" / "evidence" / f"{page}.md").read_text(encoding="utf-8")
    stated = re.findall(r"\d[\d.,]*", STATED.sub(" ", template))
    data = (PAGES / f"{page}.json").read_text(encoding="utf-8")
    assert [number for number in stated if not is_among(number, data)] == []


@pytest.mark.parametrize(
    "path", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda path: path.name
)
def test_a_sentence_that_cites_a_page_of_evidence_states_its_numbers(path: Path) -> None:
    for sentence in re.split(r"(?<=[.;:|])\s|\n\n|\n(?=[-|#])", path.read_text(encoding="utf-8")):
        pages = re.findall(r"\]\([^)]*evidence/(\w+)\.md[^)]*\)", sentence)
        stated = re.findall(r"(?<![\w.])\d[\d.,]*(?![\w/])", STATED.sub(" ", sentence)) if pages else []
        cited = "".join((PAGES / f"{page}.md").read_text(encoding="utf-8") for page in pages)
        wrong = [number for number in stated if not is_among(number, cited)]
        assert not wrong, f"{wrong} of {sentence!r} is on none of {pages}"


@pytest.mark.parametrize("page", MEASURED)
def test_each_section_says_how_it_was_made(evidence: ModuleType, page: str) -> None:
    sections = json.loads((PAGES / f"{page}.json").read_text(encoding="utf-8"))
    for name, section in sections.items():
        assert name in evidence.SECTIONS[page]
        script = section["command"].split()[1]
        assert (ROOT / script).is_file()
        assert section["versions"]["attentest"]
        assert section["date"] >= "2026-11-18"
        for table in section["tables"]:
            assert table["rows"]
            assert {len(row) for row in table["rows"]} == {len(table["header"])}
