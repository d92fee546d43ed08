"""P-values as text, wherever they are shown: of a search that did not converge, its error bar and its status."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from attentest import AttentionTestResult
from attentest.cli.result_table import print_component_table, print_table
from attentest.presentation.result_figure import results_figure
from attentest.presentation.rows import row_of
from attentest.presentation.words import number_text, pvalue_text, with_sign
from attentest.studies.brain.figures import gallery_figure
from attentest.studies.brain.summary import Gallery
from brain_gallery import gallery, result

UNSURE = ["max_evaluations", "precision", "sharp", "contradicted", "decided"]
"""Statuses other than "converged", one of them unknown to the library."""


def unsure(status: str, low: float = 0.02, high: float = 0.41) -> AttentionTestResult:
    bounds = float(np.log(low)), float(np.log(high))
    return replace(result(p=0.3), status=status, log_pvalue_bounds=bounds)


def test_texts() -> None:
    assert pvalue_text(0.04219, (0.0421, 0.0422), "converged") == "0.0422"
    assert pvalue_text(0.3, (0.02, 0.41), "precision") == "0.02 to 0.41 (precision)"
    assert pvalue_text(1e-310, (5e-324, 1e-3), "decided") == "0 to 0.001 (decided)"
    assert number_text(1e-310) == "<1e-307"
    assert with_sign(number_text(1e-310)) == "< 1e-307"
    assert with_sign(number_text(0.042)) == "= 0.042"


@pytest.mark.parametrize("status", UNSURE)
def test_every_text_shows_the_range_and_the_status(status: str, capsys: pytest.CaptureFixture[str]) -> None:
    one, text = unsure(status), f"0.02 to 0.41 ({status})"
    assert one.pvalue_text() == text
    assert f"pvalue={text}," in repr(one)

    print_table([row_of("scan", one.record())], 0.05)
    table = capsys.readouterr().out
    assert " 0.02 to 0.41 " in table
    assert f"(status {status}): what is shown as a range" in table
    assert "undecided" in table
    assert " 0.3 " not in table

    rows = [row_of("scan", each.record()) for each in (one, unsure("converged", 0.3, 0.3))]
    print_component_table([[{"component": number, **row} for number, row in enumerate(rows, start=1)]], 0.05)
    table = capsys.readouterr().out
    assert " 0.02 to 0.41 " in table
    assert f"(status {status})" in table
    assert " 0.04 to 0.6 " in table  # Holm

    figure = results_figure([one.picture("scan")])
    assert any(f"selective p = {text}" in axes.get_title() for axes in figure.axes)

    pictures = gallery_figure(Gallery(gallery(1).slices, (one,)), maps_only=False)
    assert pictures.subfigs[0].axes[0].get_title() == f"naive p < 1e-307\nselective p = {text}"


def test_a_search_that_converged_has_a_plain_p(capsys: pytest.CaptureFixture[str]) -> None:
    one = unsure("converged", 0.29, 0.31)
    assert "pvalue=0.3," in repr(one)
    print_table([row_of("scan", one.record())], 0.05)
    assert " 0.3 " in capsys.readouterr().out
