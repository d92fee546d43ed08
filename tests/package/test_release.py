"""What a release needs agrees with the rest of the repository."""

from __future__ import annotations

import re
import runpy
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import attentest

ROOT = Path(__file__).parents[2]
ADDRESS = "https://github.com/attentest/attentest"
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)", re.MULTILINE)


@pytest.fixture
def check_release(tmp_path: Path) -> Callable[[str, str], None]:
    """The check of the release workflow, in a copy of the files that it reads, whose changelog has a date."""
    for name in ("src/attentest/__init__.py", "pyproject.toml", ".github/workflows/check_release.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").replace("(unreleased)", "(2026-12-01)")
    (tmp_path / "CHANGELOG.md").write_text(changelog, encoding="utf-8")
    return runpy.run_path(str(tmp_path / ".github/workflows/check_release.py"))["main"]  # type: ignore[no-any-return]


def test_a_tag_that_agrees_may_be_released(check_release: Callable[[str, str], None]) -> None:
    check_release(f"v{attentest.__version__}", ADDRESS)


@pytest.mark.parametrize(
    ("tag", "address", "sentence"),
    [
        ("v9.9.9", ADDRESS, "the tag is v9.9.9, but the version is"),
        (f"v{attentest.__version__}", "https://example.org/fork", r"\[project.urls\] in pyproject.toml says"),
    ],
)
def test_another_tag_or_address_ends_a_release(
    check_release: Callable[[str, str], None], tag: str, address: str, sentence: str
) -> None:
    with pytest.raises(SystemExit, match=sentence):
        check_release(tag, address)


def test_a_changelog_without_a_date_ends_a_release(check_release: Callable[[str, str], None], tmp_path: Path) -> None:
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text(changelog.read_text(encoding="utf-8").replace("(2026-12-01)", "(unreleased)"))
    with pytest.raises(SystemExit, match="put the date of the release there"):
        check_release(f"v{attentest.__version__}", ADDRESS)


def test_the_lock_file_has_the_versions_that_make_installs() -> None:
    constraints, locked = (
        dict(PIN.findall((ROOT / name).read_text(encoding="utf-8")))
        for name in ("constraints.txt", "requirements-dev.lock")
    )
    shared = constraints.keys() & locked.keys()
    assert len(shared) > 100
    assert {name: locked[name] for name in shared} == {name: constraints[name] for name in shared}


def test_every_pin_of_a_lock_file_has_a_checksum() -> None:
    for name in ("requirements-dev.lock", "requirements-build.lock"):
        requirements = re.split(r"^(?=[A-Za-z0-9])", (ROOT / name).read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
        assert requirements
        assert [text for text in requirements if "--hash=sha256:" not in text] == []


def test_forms_of_issues_ask_for_something() -> None:
    forms = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))
    read = {form.name: yaml.safe_load(form.read_text(encoding="utf-8")) for form in forms}
    assert read.pop("config.yml") == {"blank_issues_enabled": True}
    assert len(read) == 3
    for form in read.values():
        assert {"name", "description", "labels", "body"} <= form.keys()
        assert any(field.get("validations", {}).get("required") for field in form["body"])


def test_the_workflow_publishes_nothing_that_was_not_tested() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))
    jobs = workflow["jobs"]
    assert jobs["publish"]["needs"] == ["build", "wheel"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert set(jobs["wheel"]["strategy"]["matrix"]["os"]) == {"ubuntu-latest", "macos-latest", "windows-latest"}
    assert workflow["permissions"] == {"contents": "read"}


def test_works_cited_in_the_article_are_in_its_bibliography() -> None:
    article, bibliography = ((ROOT / name).read_text(encoding="utf-8") for name in ("paper.md", "paper.bib"))
    cited = set(re.findall(r"@([a-z0-9]+)", article.split("---", 2)[2]))
    assert cited == set(re.findall(r"^@\w+\{(\w+),", bibliography, re.MULTILINE))
