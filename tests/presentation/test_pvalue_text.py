"""P-values as text, wherever they are shown: of a search that did not converge, its error bar and its status."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from attentest import AttentionTestResult
from attentest.cli.batch import print_table, say_failures
from attentest.contrast.context import Context, _known
from attentest.presentation.number_texts import number_text, pvalue_text, row_texts, with_sign
from attentest.presentation.result_figure import results_figure
from attentest.presentation.rows import row_of
from attentest.presentation.words import result_numbers, verdict_text
from attentest.statistics.alternative import alternatives
from attentest.studies.brain.page import gallery_figure
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


@pytest.mark.parametrize(
    ("p", "low", "high", "said"),
    [
        (4.57e-10, 2.6e-29, 2.61e-8, "selective p < 2.7e-08)"),
        (0.0107, 0.010699, 0.0107, "selective p = 0.0107)"),
        (3.12e-5, 3.09e-5, 3.15e-5, "selective p = 3.1e-05)"),
        (0.3, 0.29, 0.31, "selective p = 0.3)"),
        (1e-310, 1e-320, 1e-309, "selective p < 1e-307)"),
    ],
)
def test_a_verdict_has_the_digits_of_p_that_are_known(p: float, low: float, high: float, said: str) -> None:
    found = replace(unsure("converged", low, high), log_pvalue=float(np.log(p)))
    assert said in verdict_text(found.record(), 0.05)


def test_a_difference_of_rounding_is_0() -> None:
    row = {**row_of("scan", result(p=0.3).record()), "difference": -1.94e-16, "statistic": -2e-15}
    texts = row_texts(row)
    assert (texts["difference"], texts["statistic"]) == ("0", "0.0000")


def test_failures_that_are_not_printed_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    failed = [{"image": f"{number}.png", "error": "it is no image."} for number in range(13)]
    say_failures(failed, 20, 2, stack=False)
    said = capsys.readouterr().err.splitlines()
    assert said[-2:] == [
        "attentest: and 3 more, whose reasons are not printed here.",
        "attentest: 13 of 20 images could not be tested; the rows of --csv and --json say why.",
    ]


@pytest.mark.parametrize("status", UNSURE)
def test_every_text_shows_the_range_and_the_status(status: str, capsys: pytest.CaptureFixture[str]) -> None:
    one, text = unsure(status), f"0.02 to 0.41 ({status})"
    assert one.pvalue_text() == text
    assert f"pvalue={text}," in repr(one)

    print_table([[row_of("scan", one.record())]], 0.05)
    table = capsys.readouterr().out
    assert " 0.02 to 0.41 " in table
    assert f"(status {status}): what is shown as a range" in table
    assert "undecided" in table
    assert " 0.3 " not in table

    rows = [row_of("scan", each.record()) for each in (one, unsure("converged", 0.3, 0.3))]
    print_table([[{"component": number, **row} for number, row in enumerate(rows, start=1)]], 0.05)
    table = capsys.readouterr().out
    assert " 0.02 to 0.41 " in table
    assert f"(status {status})" in table
    assert " 0.04 to 0.6 " in table  # Holm

    figure = results_figure([one.picture("scan")])
    assert any(f"selective p = {text}" in " ".join(axes.get_title().split()) for axes in figure.axes)

    pictures = gallery_figure(Gallery(gallery(1).slices, (one,)), maps_only=False)
    assert pictures.subfigs[0].axes[0].get_title() == f"naive p < 1e-307\nselective p = {text}"


def test_a_search_that_converged_has_a_plain_p(capsys: pytest.CaptureFixture[str]) -> None:
    one = unsure("converged", 0.29, 0.31)
    assert "pvalue=0.3," in repr(one)
    print_table([[row_of("scan", one.record())]], 0.05)
    assert " 0.3 " in capsys.readouterr().out


def test_the_verdict_of_a_photograph_says_why_p_is_so_small(capsys: pytest.CaptureFixture[str]) -> None:
    tested = result(p=1e-300)
    compared = {**tested.settings, "contrast": {"name": "background"}}
    evident = replace(tested, settings=compared, log_pvalue_bounds=(-800.0, -690.0))
    usual = "So small a p is usual for photographs, whose parts are never equal and whose noise is small"
    assert usual in evident.verdict()
    context = Context(placements=412, smaller=260, standard_deviations=0.8, percent_of_range=12.0)
    placed = replace(evident, compared=_known(dict.fromkeys(alternatives(), context)))
    said = "63.1% of 412 regions of the same shape elsewhere in the image (descriptive)."
    assert placed.verdict().endswith(f"unusual. It is larger than the difference of {said}")
    one_sided = replace(placed, alternative="less", settings={**compared, "alternative": "less"})
    assert one_sided.verdict().endswith(f"It is lower than the difference of {said}")
    shown = {number.name: number.text for number in result_numbers(placed.record())}
    assert shown["effect size"] == "0.8 standard deviations of the image"
    assert shown["in the image"] == "larger than 63.1% of 412"
    alone = Context(placements=0, smaller=0, standard_deviations=0.8, percent_of_range=12.0)
    no_room = replace(evident, compared=_known(dict.fromkeys(alternatives(), alone)))
    assert no_room.verdict().endswith("elsewhere in the image: there is no room for them.")
    print_table([[row_of("photo", each.record())] for each in (placed, no_room)], 0.05)
    table = capsys.readouterr().out
    assert "63.1% of 412" in table
    assert "no room" in table
    assert "both are descriptive" in table
    strong = replace(placed, log_pvalue=-46.0, log_pvalue_bounds=(-46.0, -46.0))
    assert "elsewhere" not in strong.verdict()
    print_table([[row_of("photo", strong.record())]], 0.05)
    assert "larger than" not in capsys.readouterr().out
    print_table([[row_of("photo", strong.record())]], 0.05, context=True)
    assert "larger than" in capsys.readouterr().out
    for log_p in (-19.5, -46.0):  # the second is that of the demo's signal of three standard deviations
        strong = replace(evident, log_pvalue_bounds=(log_p - 0.5, log_p + 0.5), log_pvalue=log_p)
        assert usual not in strong.verdict()
    reference = {**compared, "contrast": {"name": "reference"}}
    assert usual not in replace(evident, settings=reference).verdict()
