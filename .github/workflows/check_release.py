"""End with a sentence unless tag and version agree, the changelog has a date, and the project's address is this one.

python .github/workflows/check_release.py v0.1.0 https://example.org/owner/repository
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main(tag: str, address: str) -> None:
    """Compare a tag and an address with what the files say."""
    version = re.search(
        r'^__version__ = "(.+)"$', (ROOT / "src/attentest/__init__.py").read_text(encoding="utf-8"), re.M
    )
    if version is None or tag != f"v{version[1]}":
        sys.exit(
            f"the tag is {tag}, but the version is {version and version[1]}: tag the commit v{version and version[1]}."
        )
    heading = rf"^## {re.escape(version[1])} \(\d{{4}}-\d\d-\d\d\)$"
    if not re.search(heading, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M):
        sys.exit(f'CHANGELOG.md has no heading "## {version[1]} (YYYY-MM-DD)": put the date of the release there.')
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    if urls["Source"] != address:
        sys.exit(f"[project.urls] in pyproject.toml says {urls['Source']}, but this is {address}: correct it there.")


if __name__ == "__main__":
    main(*sys.argv[1:])
