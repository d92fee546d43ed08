"""Packages of attentest, the imports between them, and their lines: the structure in numbers.

Run: python benchmarks/structure.py [DIRECTORY OF A PACKAGE]
"""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path

import attentest

FILES = (".py", ".j2", ".css")


def imported_modules(path: Path, package: str) -> set[str]:
    """Return the parts at the top of a package that a file imports, wherever in the file it does."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found.update(names if node.module == package else [node.module])
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return {name.split(".")[1] for name in found if name.startswith(f"{package}.")}


def main() -> None:
    """Print one line per package or file at the top, from the command line down to the errors."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(attentest.__file__).parent
    lines: dict[str, int] = {}
    imports: dict[str, set[str]] = {}
    for path in sorted(path for path in root.rglob("*") if path.suffix in FILES):
        part = path.relative_to(root).with_suffix("").parts[0]
        lines[part] = lines.get(part, 0) + len(path.read_text(encoding="utf-8").splitlines())
        if path.suffix == ".py":
            imports.setdefault(part, set()).update(imported_modules(path, root.name))
    parts = set(lines) - {"__init__", "__main__"}
    arrows = {part: (imports.get(part, set()) & parts) - {part} for part in parts}

    @cache
    def floor(part: str) -> int:
        return 1 + max((floor(other) for other in arrows[part]), default=0)

    for part in sorted(parts, key=lambda part: (-floor(part), part)):
        print(f"floor {floor(part):2d}  {part:20s} {lines[part]:6d} lines, imports {len(arrows[part])} others")
    print(
        f"{len(parts)} packages and files, {max(map(floor, parts))} floors, {sum(map(len, arrows.values()))} imports "
        f"between them, {sum(lines.values())} lines"
    )


if __name__ == "__main__":
    main()
