"""The directive ``public-names``: the documentation of every name that a module has in ``__all__``, by kind."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.docutils import SphinxDirective


def defining_modules(module: ModuleType) -> dict[str, str]:
    """Return the module that each imported name of a module comes from."""
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def escaped(line: str) -> str:
    """Return a line of a docstring in which the stars of shapes such as (C, *axes) begin no emphasis."""
    return re.sub(r"(?<=[( ])\*(?=\w+[),])", r"\\*", line)


def escape_docstring(app: Sphinx, kind: str, name: str, value: object, options: Any, lines: list[str]) -> None:
    """Escape the shapes of a docstring."""
    lines[:] = map(escaped, lines)


def data_lines(module: ModuleType, name: str, value: Any) -> Iterator[str]:
    """Yield the description of a constant or a type alias, with the docstring below its definition."""
    defined_in = defining_modules(module).get(name, module.__name__)
    comments = ModuleAnalyzer.for_module(defined_in).find_attr_docs()
    yield f".. py:data:: {name}"
    if isinstance(value, (int, float, str)):
        yield f"   :value: {value!r}"
    yield ""
    for line in comments.get(("", name), ["A type, for annotations.", ""]):
        yield f"   {escaped(line)}"


def lines(module: ModuleType) -> Iterator[str]:
    """Yield the reStructuredText of all public names of a module: classes, functions, and the rest."""
    public = [(name, getattr(module, name)) for name in module.__all__]
    classes = [name for name, value in public if inspect.isclass(value)]
    functions = [name for name, value in public if inspect.isfunction(value)]
    yield f".. currentmodule:: {module.__name__}"
    yield ""
    for name in classes:
        yield from (f".. autoclass:: {name}", "   :members:", "   :inherited-members: object, Module", "")
    for name in functions:
        yield from (f".. autofunction:: {name}", "")
    for name, value in public:
        if name not in classes and name not in functions:
            yield from data_lines(module, name, value)


class PublicNames(SphinxDirective):
    """``.. public-names:: attentest.noise``."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the documentation."""
        module = import_module(self.arguments[0])
        content = StringList(list(lines(module)), source=module.__name__)
        parent = nodes.section()
        self.state.nested_parse(content, self.content_offset, parent)
        return parent.children


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directive."""
    app.add_directive("public-names", PublicNames)
    app.connect("autodoc-process-docstring", escape_docstring, priority=400)  # before its sections are read
    return {"parallel_read_safe": True}
