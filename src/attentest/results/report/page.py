"""A report as one HTML file that needs no other and sends no request."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping
from hashlib import sha256
from importlib import import_module
from importlib.resources import files
from string import ascii_lowercase
from typing import Any

from attentest.results.many_pvalues import METHOD_NAMES
from attentest.results.notebook_html import interval_text
from attentest.results.pvalue_text import estimate_text, number_text, pvalue_text, range_text
from attentest.results.report.plain_text import plain, short
from attentest.results.report.report_file import required_jinja2
from attentest.results.rows import Row
from attentest.results.verdict import VERDICTS
from attentest.search import CONVERGED

HEADINGS = {"by": "BY p", "bh": "BH p", "holm": "Holm p"}
"""Short names of adjusted p-values."""


def html_page(content: Mapping[str, Any], pictures: Mapping[int, Mapping[str, bytes]]) -> str:
    """Return the page.

    Parameters
    ----------
    content
        What it says: see :func:`~attentest.results.report.content.report_content`.
    pictures
        PNG files of the results that are described in detail, by their number in the table and what they show.
    """
    jinja2 = required_jinja2()
    package = files("attentest.results")
    style = package.joinpath("html_style.css").read_text("utf-8")
    style += package.joinpath("report/templates/report.css").read_text("utf-8")
    script = package.joinpath("report/templates/report.js").read_text("utf-8")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("attentest.results.report"),
        autoescape=True,
        finalize=lambda value: plain(value) if type(value) is str else value,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        short=lambda name: short(plain(name)),
        data=lambda picture: f"data:image/png;base64,{b64encode(picture).decode()}",
        readable=_readable,
        pvalue=_pvalue,
        estimate=lambda row: estimate_text(
            float(row["estimate"]), (float(row["estimate_low"]), float(row["estimate_high"])), row["status"]
        ),
        interval=lambda row: _interval(row, "confidence"),
        simultaneous=lambda row: _interval(row, "simultaneous"),
        ends=interval_text,
        verdict=VERDICTS.get,
        p=number_text,
    )
    methods = [name for name in METHOD_NAMES if name in content["counts"]["adjusted"]]
    return str(
        environment.get_template("report.html.j2").render(
            **content,
            methods=methods,
            headings=HEADINGS,
            method_names=METHOD_NAMES,
            marks=_marks(content["results"]),
            pictures=pictures,
            style=_trusted(style),
            script=_trusted(script),
            policy="; ".join(
                [
                    "default-src 'none'",
                    "img-src data:",
                    f"style-src {_hash(style)}",
                    f"script-src {_hash(script)}",
                    "base-uri 'none'",
                    "form-action 'none'",
                ]
            ),
        )
    )


def _trusted(text: str) -> Any:
    """Return text of our own, which is inserted as it is."""
    return import_module("markupsafe").Markup(text)


def _hash(text: str) -> str:
    """Return the source expression of a content security policy that allows exactly this text."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _pvalue(row: Row) -> str:
    """Return p without the status, which a footnote explains."""
    bounds = row["pvalue_low"], row["pvalue_high"]
    return pvalue_text(row["pvalue"], bounds, CONVERGED) if row["status"] == CONVERGED else range_text(*bounds)


def _interval(row: Row, which: str) -> str:
    return f"{float(row[f'{which}_low']):.3g} to {float(row[f'{which}_high']):.3g}"


def _readable(value: Any) -> str:
    """Return a setting as text: the names and values of one that has several, "none" for one that is not there."""
    if isinstance(value, Mapping):
        return ", ".join(f"{str(name).replace('_', ' ')} {_readable(each)}" for name, each in value.items())
    if isinstance(value, (list, tuple)):
        return f"({', '.join(_readable(each) for each in value)})"
    return {"None": "none", "True": "yes", "False": "no"}.get(str(value), str(value))


def _marks(results: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return each footnote of the table with its letter: a number would look like a part of a p-value.

    There are fewer kinds of footnotes than letters; those of an unusual batch that has more share the last one.
    """
    notes = dict.fromkeys(note for result in results for note in result["footnotes"])
    return {note: ascii_lowercase[min(place, 25)] for place, note in enumerate(notes)}
