"""How Sphinx makes the documentation; ``make docs`` (docs/build.py) runs it."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

from sphinx.application import Sphinx

import attentest

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project = "attentest"
author = "The attentest authors"
copyright = f"2026, {author}"
version = release = attentest.__version__
language = "en"
highlight_language = "none"  # blocks without a language are commands

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "command_help",
    "public_names",
]
exclude_patterns = ["extensions"]
nitpicky = True
nitpick_ignore_regex = [
    # Names of other libraries, and type aliases, have no page here, and nothing is looked up on the network.
    (r"py:.*", r"(?!attentest\.).*"),
    # Internal classes that appear in the signature of a public one and are of no use by themselves.
    (r"py:class", r"attentest\..*\.(Tokens|Sample|InputMap|Task|Item|TaskOfWork|Assumption|MeasuredNoise|Strips)"),
    (r"py:class", r"attentest\..*\.(ComparedRegion|Inference|Spacing)"),
    # Records and definitions behind public classes, whose fields these show themselves.
    (r"py:class", r"attentest\..*\.(Definition|ResultNumbers|ResultRecord|ExchangeableDraws)"),
]

# Markdown. Pages are read on GitHub too, so they have plain tables, links and code and few directives.
myst_heading_anchors = 4

# Notebooks are run for every build, as what they show depends on more than their own text. An error ends the build.
nb_execution_mode = "force"
nb_execution_timeout = 600
nb_execution_raise_on_error = True
# This one needs a model of another package; where that is missing, the notebook is shown without its outputs.
nb_execution_excludepatterns = [] if find_spec("openecg") and find_spec("pywt") else ["notebooks/ecg.ipynb"]
nb_execution_show_tb = True
nb_merge_streams = True

# Docstrings are NumPy's; types are in the signatures.
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 100
add_module_names = False

html_theme = "furo"
html_title = f"attentest {version}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
templates_path = ["_templates"]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/versions.html",
        "sidebar/scroll-end.html",
    ]
}
html_show_sourcelink = False
html_copy_source = False
copybutton_exclude = ".linenos, .gp, .go"


ROOT_PAGES = {"changelog": "CHANGELOG.md", "contributing": "CONTRIBUTING.md"}
"""Pages that are files of the repository's root; in ``docs/`` there is a link to each, for those who read there."""


def read_root_page(app: Sphinx, page: str, source: list[str]) -> None:
    """Replace the link by the file itself, with its own links as seen from ``docs/``."""
    if page in ROOT_PAGES:
        text = (app.srcdir.parent / ROOT_PAGES[page]).read_text(encoding="utf-8").replace("](docs/", "](")
        for name, file in ROOT_PAGES.items():
            text = text.replace(f"]({file}", f"]({name}.md")
        source[0] = text.replace("](CITATION.cff)", "](../CITATION.cff)")


def setup(app: Sphinx) -> None:
    """Connect what this file does to Sphinx."""
    app.connect("source-read", read_root_page)
