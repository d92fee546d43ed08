"""The documentation builds without a warning, its notebooks run, and nothing in it leads nowhere.

``make docs`` runs the notebooks in kernels of their own; here they run in the process of the tests, which has imported
what they need.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import matplotlib
import pytest

import attentest
from toys import tiny_vit

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
"""What a browser loads without being asked, by tag."""


class Page(HTMLParser):
    """The ids, the links, and what is loaded, of one page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.ids = path, set[str]()
        self.links, self.loaded = list[str](), list[str]()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids.update(values[name] for name in ("id", "name") if name in values)
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag in LOADED and LOADED[tag] in values and values.get("rel") not in ("search", "index", "next", "prev"):
            self.loaded.append(values[LOADED[tag]])


def test_the_documentation_builds_and_everything_in_it_leads_somewhere(tmp_path: Path) -> None:
    for package in ("sphinx", "furo", "myst_nb", "sphinx_copybutton"):
        pytest.importorskip(package)
    out = tmp_path / "docs"
    older = out / "0.0.9"
    older.mkdir(parents=True)
    (older / "index.html").write_text("an older version")
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    built = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "build.py"), "--without-outputs", "--out", str(out)],
        **{"env": environment, "cwd": tmp_path, "capture_output": True, "text": True, "check": False},
    )
    assert built.returncode == 0, built.stderr[-3000:]
    site = out / attentest.__version__
    pages = {path: Page(path) for path in site.rglob("*.html")}
    check_links(pages)
    check_that_nothing_is_loaded_from_elsewhere(pages, site)
    check_public_names(site)
    check_versions(out)
    check_search(site)


def check_links(pages: dict[Path, Page]) -> None:
    """Check that links within the documentation lead to a file, and to a place that is in it."""
    broken = []
    for page in pages.values():
        for link in (*page.links, *page.loaded):
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path
            target = target / "index.html" if target.is_dir() else target
            there = target.is_file() and (target not in pages or parts.fragment in ("", *pages[target].ids))
            if not there:
                broken.append((page.path.name, link))
    assert not broken


def check_that_nothing_is_loaded_from_elsewhere(pages: dict[Path, Page], site: Path) -> None:
    """Check that pages and styles name no script, style, font or picture of another host."""
    loaded = [one for page in pages.values() for one in page.loaded if not one.startswith("data:")]
    assert len(loaded) > len(pages)
    assert not [one for one in loaded if urlsplit(one).netloc]
    styles = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    assert not [style for style in styles if re.search(r"(@import|url\()\s*['\"]?(https?:)?//", style)]


def check_public_names(site: Path) -> None:
    """Check that every public name has a place in the API reference."""
    from sphinx.util.inventory import InventoryFile

    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="")
    described = {name for kind, names in inventory.data.items() if kind.startswith("py:") for name in names}
    modules = ("noise", "contrast", "attention", "search", "errors")
    public = {f"attentest.{name}" for name in attentest.__all__}
    for module in modules:
        public |= {f"attentest.{module}.{name}" for name in import_module(f"attentest.{module}").__all__}
    assert len(public) > 80
    assert public <= described


def check_versions(out: Path) -> None:
    """Check that the first page leads to the newest version, and that all are listed."""
    assert f"url={attentest.__version__}/index.html" in (out / "index.html").read_text()
    listed = re.findall(r'href="([\d.]+)/index.html"', (out / "versions.html").read_text())
    assert listed == [attentest.__version__, "0.0.9"]


def check_search(site: Path) -> None:
    """Check in a browser that the search works from the disk, and that no page asks for anything from elsewhere."""
    chromium = shutil.which("chromium")
    if chromium is None:
        return
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        for name in ("index", "notebooks/quick-start", "api/attentest", "choosing-region"):
            page.goto(f"file://{site}/{name}.html")
        page.goto(f"file://{site}/search.html?q=certificate")
        page.locator("#search-results li a", has_text="certificate").first.wait_for()  # they come one by one
        browser.close()
    assert len(asked) > 10
    assert not [url for url in asked if not url.startswith(("file:", "data:"))]


def test_figures_are_those_that_scripts_make_of_what_pages_print() -> None:
    pages = {path: path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))}
    shown = {name for text in pages.values() for name in re.findall(r"\]\((?:docs/)?figures/([\w-]+)\.png\)", text)}
    assert {path.stem for path in (ROOT / "docs" / "figures").iterdir()} == shown
    pytest.importorskip("playwright")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "docs"))
        figures = import_module("figures")
    by_guide = set(re.findall(r'"([\w-]+)\.png"', (ROOT / "benchmarks" / "noise_guide.py").read_text(encoding="utf-8")))
    assert figures.FIGURES.keys() | by_guide == shown
    printed = "".join([(ROOT / "Makefile").read_text(encoding="utf-8"), *pages.values()])
    assert [command for command, *_ in figures.COMMANDS.values() if command not in printed] == []


def code_cells(notebook: Path) -> list[dict[str, Any]]:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


every_notebook = pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)


@every_notebook
def test_notebooks_are_committed_without_outputs(notebook: Path) -> None:
    cells = code_cells(notebook)
    assert cells
    assert not [cell["id"] for cell in cells if cell.get("outputs") or cell.get("execution_count")]


@every_notebook
def test_a_notebook_runs_and_shows_a_figure(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a small model in place of the bundled one: what is checked is that the cells run."""
    monkeypatch.chdir(tmp_path)
    for size, patch in ((8, 2), (16, 2), (32, 4)):
        tiny_vit(size, patch).save_pretrained(tmp_path / str(size))
    monkeypatch.setattr("attentest.bundled_model", lambda size=16: tmp_path / str(size), raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    known: dict[str, Any] = {"__name__": "__main__"}
    with matplotlib.rc_context({"backend": "agg"}):
        import matplotlib.pyplot as plt

        cells = ["".join(cell["source"]) for cell in code_cells(notebook)]
        for package in re.findall(r"^(?:import|from) (\w+)", "\n".join(cells), flags=re.MULTILINE):
            pytest.importorskip(package, reason=f"the notebook needs the package {package}, which is not installed")
        for cell in cells:
            run_cell(cell, known)
        figures = plt.get_fignums()
        plt.close("all")
    assert figures


def run_cell(source: str, known: dict[str, Any]) -> None:
    """Run a cell with few images and steps of training, and make what a notebook shows of its last expression."""
    cell = ast.parse(re.sub(r"\brange\(150\)", "range(15)", re.sub(r"\bn=[13]0\b", "n=3", source)))
    last = cell.body.pop() if isinstance(cell.body[-1], ast.Expr) else None
    exec(compile(cell, "cell", "exec"), known)
    if last is not None:
        shown = eval(compile(ast.Expression(last.value), "cell", "eval"), known)
        getattr(shown, "_repr_html_", shown.__repr__)()
