"""Build the documentation of this version beside those of other versions.

``python docs/build.py`` writes ``build/docs/VERSION/``, a list of the versions that are there (``versions.html``) and
an ``index.html`` that leads to the newest. Warnings of Sphinx, links that lead nowhere and errors in a notebook make it
fail.
"""

from __future__ import annotations

import argparse
import gc
import html
import os
import sys
from pathlib import Path

from packaging.version import InvalidVersion, Version
from sphinx.cmd.build import main as sphinx_build

import attentest

SOURCE = Path(__file__).parent

LEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>attentest</title>
<meta http-equiv="refresh" content="0; url={newest}/index.html"></head>
<body><a href="{newest}/index.html">The documentation of attentest {newest}</a>,
<a href="versions.html">all versions</a></body></html>
"""

VERSIONS = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>attentest: versions</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font-family: system-ui, sans-serif; max-width: 40rem; margin: 3rem auto; padding: 0 1rem; line-height: 1.6; }}
</style></head>
<body><h1>attentest: versions of the documentation</h1>
<ul>
{rows}
</ul></body></html>
"""


def built_versions(folder: Path) -> list[str]:
    """Return the versions whose documentation is in a folder, newest first."""
    found = []
    for page in folder.glob("*/index.html"):
        try:
            found.append(Version(page.parent.name))
        except InvalidVersion:
            continue
    return [str(version) for version in sorted(found, reverse=True)]


def write_version_list(folder: Path) -> None:
    """Write the page that leads to the newest version in a folder, and the list of all."""
    versions = [html.escape(version) for version in built_versions(folder)]
    rows = "\n".join(f'<li><a href="{version}/index.html">{version}</a></li>' for version in versions)
    (folder / "index.html").write_text(LEAD.format(newest=versions[0]), encoding="utf-8")
    (folder / "versions.html").write_text(VERSIONS.format(rows=rows), encoding="utf-8")


def main() -> int:
    """Build the documentation, and return the exit code of Sphinx."""
    parser = argparse.ArgumentParser(description="Build the documentation.")
    parser.add_argument("--out", type=Path, default=SOURCE.parent / "build" / "docs", help="where the versions are")
    quick = "for a test: do not run the notebooks, and leave names out of the contents beside a page"
    parser.add_argument("--without-outputs", action="store_true", help=quick)
    options = parser.parse_args()
    out = options.out
    # Kernels of notebooks inherit it: without ipywidgets, tqdm says so whenever transformers imports it.
    os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found"
    gc.set_threshold(100_000)  # a page is made of many objects: searching for garbage would take a seventh of the time
    strict = ["-E", "-W", "--keep-going", "-q"]
    notebooks = ["-D", "nb_execution_mode=off", "-D", "toc_object_entries=0"] if options.without_outputs else []
    trees = ["-d", str(out / ".doctrees" / attentest.__version__)]
    code = sphinx_build(["-b", "html", *strict, *notebooks, *trees, str(SOURCE), str(out / attentest.__version__)])
    if code == 0:
        write_version_list(out)
    return code


if __name__ == "__main__":
    sys.exit(main())
