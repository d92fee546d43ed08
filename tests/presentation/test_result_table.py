"""The table of results on the terminal: a line per row at any width, names that differ, and footnotes."""

from __future__ import annotations

from math import inf, log
from typing import Any

import pytest
from rich.cells import cell_len

from attentest.cli.batch import print_table
from attentest.presentation.rows import failed_row

EVERYTHING = (
    *("image", "pixels", "difference", "estimate", "95% interval", "statistic", "naive p", "selective p"),
    *("error bar", "verdict at 0.05"),
)
NAMES = {
    "short": "{}.npy",
    "long": "/data/study of attention/patients/left hemisphere/patient_{:04d}_flair_registered_to_the_template.npy",
    "300 characters": "x" * 150 + "{:03d}" + "y" * 147,
    "wide": "/データ/患者の写真{:03d}番の画像、とても長い名前の付いたファイル.npy",
    "emoji": "🧠" * 40 + "{}" + "❤️" * 10,
    "control": "\x1b[31mred\n{}\r" + "\udcff" * 30,
}


def row(name: str, p: float = 0.3, **changes: Any) -> dict[str, Any]:
    values = {
        "image": name,
        "statistic": 2.868212,
        "pvalue": p,
        "pvalue_low": p,
        "pvalue_high": p,
        "log_pvalue_low": log(p),
        "log_pvalue_high": log(p),
        "naive_pvalue": 0.004128,
        "difference": 0.92512,
        "estimate": -4.7412,
        "estimate_low": -5.0,
        "estimate_high": 1.25,
        "confidence_low": -31.6,
        "confidence_high": 1.98,
        "part_pixels": 35,
        "seen_pixels": 256,
        "region_unit": "pixels",
        "gamma": 0.0,
        "randomise_seed": None,
        "approximate_noise": False,
        "alternative": "two-sided",
        "status": "converged",
    }
    return {**values, **changes}


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what a table of rows, or of the components of images, prints on a terminal of some width."""

    def lines(rows: list[Any], width: int | None = None, level: float | None = 0.95) -> list[str]:
        if width is not None:
            monkeypatch.setenv("COLUMNS", str(width))
        images = rows if isinstance(rows[0], list) else [[row] for row in rows]
        print_table(images, 0.05, level, ("--csv", "--json"))
        return [line.rstrip() for line in capsys.readouterr().out.splitlines()]

    return lines


def body(lines: list[str]) -> list[str]:
    """Return the lines of the rows: below the line under the headings, and with a verdict."""
    start = next(i for i, line in enumerate(lines) if line and set(line) == {"─"})
    ends = ("significant", "tested", "undecided", " a", " -")
    return [line for line in lines[start + 1 :] if line.endswith(ends) and not line.startswith("no room for")]


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize(
    ("width", "count"),
    [(40, 12), (80, 1), (80, 12), pytest.param(80, 500, marks=pytest.mark.slow), (120, 12), (200, 12)],
)
def test_each_row_is_one_line_with_a_name_of_its_own(printed: Any, kind: str, width: int, count: int) -> None:
    lines = printed([row(NAMES[kind].format(i)) for i in range(count)], width)
    rows = body(lines)
    assert len(rows) == count
    assert all(cell_len(line) <= width for line in lines if not line.startswith("images in"))
    p_values = [line.rindex("0.3") for line in rows]
    names = [line[: line.index("  ")] for line in rows]
    assert len(set(names)) == count
    assert len({cell_len(line[:place]) for line, place in zip(rows, p_values, strict=True)}) == 1
    assert not any("\x1b" in line for line in lines)


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (40, {"image", "selective p", "verdict at 0.05"}),
        (60, {"image", "95% interval", "selective p", "verdict at 0.05"}),
        (70, {"image", "estimate", "95% interval", "selective p", "verdict at 0.05"}),
        (80, {"image", "pixels", "estimate", "95% interval", "selective p", "verdict at 0.05"}),
        (90, {"image", "pixels", "difference", "estimate", "95% interval", "selective p", "verdict at 0.05"}),
        (120, {*EVERYTHING}),
        (None, {*EVERYTHING}),
    ],
)
def test_columns_are_left_out_by_rank_and_a_footnote_names_them(
    printed: Any, width: int | None, shown: set[str]
) -> None:
    lines = printed([row("scan1.npy"), row("scan2.npy")], width)
    note = next((line for line in [" ".join(lines)] if "no room for" in line), "")
    hidden = set(EVERYTHING) - shown
    assert bool(note) == bool(hidden)
    for heading in hidden:
        assert heading in note
    if hidden:
        assert "use a wider terminal, --csv or --json." in note
        assert not any(heading in note.split("no room for")[1] for heading in shown - {"image"})


def test_a_common_folder_is_said_once_where_names_do_not_fit(printed: Any) -> None:
    rows = [row(NAMES["long"].format(i)) for i in range(3)]
    lines = printed(rows, 80)
    assert lines[0] == "images in /data/study of attention/patients/left hemisphere/"
    assert [line.split()[0][:12] for line in body(lines)] == ["patient_0000", "patient_0001", "patient_0002"]
    assert "names are shortened: use a wider terminal, --csv or --json to see all of them." in " ".join(lines)
    wide = printed(rows, 250)
    assert all(one["image"] in line for one, line in zip(rows, body(wide), strict=True))
    assert not any("shortened" in line for line in wide)


def test_a_table_in_a_file_has_everything_and_no_empty_cell(printed: Any) -> None:
    name = NAMES["300 characters"].format(7)
    lines = printed([row(name, certificate_pvalue=0.01, certificate_agrees=True), failed_row("b.npy", "no file")])
    headings = [heading.strip() for heading in lines[0].split("  ") if heading.strip()]
    assert headings == [*EVERYTHING[:-1], "certified p", EVERYTHING[-1]]
    first, second = ([cell.strip() for cell in line.split("  ") if cell.strip()] for line in body(lines))
    assert first == [name, "35 of 256", "0.925", "-4.74", "-31.6 to 1.98", "2.8682", "0.00413", "0.3", "0e+00", "0.01",
                     "not significant"]  # fmt: skip
    assert second == ["b.npy", *["-"] * 9, "not tested"]
    assert "not tested: 1; see the messages on standard error, --csv or --json for the reasons." in lines


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"confidence_low": -inf}, "an infinite end: the image and the selection do not bound the difference"),
        ({"p": 0.04}, "p and the interval disagree about a difference of 0"),
        ({"confidence_low": 0.1}, "p and the interval disagree about a difference of 0"),
        ({"status": "sharp", "pvalue_low": 0.1}, "the scores change too abruptly for the search (status sharp)"),
        ({"status": "odd", "pvalue_low": 0.1}, "the search did not converge (status odd)"),
        ({"certificate_agrees": False, "certificate_pvalue": 0.01, "certificate_summary": "0 of 99 draws"},
         "the certified p contradicts the search"),
    ],
)  # fmt: skip
def test_a_number_that_needs_it_has_a_footnote(printed: Any, changes: dict[str, Any], note: str) -> None:
    lines = printed([row("plain.npy"), row("noted.npy", **changes), failed_row("none.npy", "")], 200)
    assert [line.split()[-1] for line in lines if ".npy  " in line] == ["-", "a", "-"]
    assert sum(line.startswith(f"a: {note}") for line in lines) == 1
    assert not any("a: " in line for line in printed([row("plain.npy")], 200))


def test_a_disagreement_of_p_and_interval_has_a_note(printed: Any) -> None:
    lines = printed([row("scan.npy", p=0.04)], None)
    assert any(line.endswith("the equal-tailed p agrees with it.") for line in lines)
    infinite = printed([row("scan.npy", p=0.04, confidence_low=-inf)], None)
    assert [line[:3] for line in infinite if line[1:3] == ": "] == ["a: ", "b: "]
    for changes in ({"p": 0.04}, {"confidence_low": 0.1}):
        equal = printed([row("scan.npy", alternative="equal-tailed", **changes)], None)
        assert not any("disagree" in line for line in equal)


def test_no_footnote_about_an_interval_that_is_not_shown(printed: Any) -> None:
    rows = [row("scan.npy", p=0.04), row("b.npy", confidence_high=inf)]
    assert any(line.startswith("b: ") for line in printed(rows, 200))
    for lines in (printed(rows, 50), printed(rows, 200, None)):
        assert not any(line.startswith(("a: ", "b: ")) for line in lines)


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"region_unit": "patches"}, "the region consists of whole patches of the model"),
        ({"gamma": 0.5, "randomise_seed": 3}, "on the image plus noise of 0.5 times its own, seed 3"),
        ({"approximate_noise": True}, "approximate: the noise was estimated from the tested image itself"),
        ({"alternative": "greater", "confidence_high": inf}, "intervals have one end"),
    ],
)
def test_what_all_rows_share_is_said_once(printed: Any, changes: dict[str, Any], note: str) -> None:
    assert sum(note in line for line in printed([row(f"{i}.npy", **changes) for i in range(3)], 200)) == 1


@pytest.mark.parametrize("width", [60, 80, 120, 200, None])
def test_components_have_a_line_each(printed: Any, width: int | None) -> None:
    images = [[row(NAMES["long"].format(i), component=k + 1) for k in range(3)] for i in range(5)]
    lines = printed([*images, [failed_row("z.npy", "")]], width)
    assert len(body(lines)) == 5 * 3 + 1
    if width is None:
        assert sum(line.startswith("/data/") for line in lines) == 15
    else:
        assert all(cell_len(line) <= width for line in lines)
        assert sum(line.startswith(("/data", "…", "patient", "data")) for line in body(lines)) == 5
    assert all(word in " ".join(lines) for word in ("component", "Holm"))


def test_ranges_of_components_fit_80_columns(printed: Any) -> None:
    open_ = {"status": "max_evaluations", "pvalue_low": 1.234e-5, "log_pvalue_low": log(1.234e-5)}
    images = [[row(NAMES["300 characters"].format(i), component=k, **open_) for k in (1, 2)] for i in range(3)]
    assert all(cell_len(line) <= 80 for line in printed(images, 80))


def test_many_disagreements_are_counted(printed: Any) -> None:
    wrong = {"certificate_agrees": False, "certificate_pvalue": 0.01, "certificate_summary": "0 of 99 draws"}
    lines = printed([row(f"{i}.npy", **wrong) for i in range(30)], 200)
    assert sum("0 of 99 draws" in line for line in lines) == 10
    assert "and 20 more certificates that contradict it." in lines
