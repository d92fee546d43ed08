"""Report pages as HTML: what is folded away, figures, verdicts, and text that stays text."""

from __future__ import annotations

import re

from attentest.studies.document import counts_of, fold, markdown, table, to_html


def body(text: str) -> str:
    """The body of a page, without line breaks."""
    page = to_html(f"# A title\n\n{text}\n", {"one": b"picture"})
    return " ".join(page.split("<main>")[1].split("</main>")[0].split())


def test_what_is_folded_away_is_an_element_with_its_summary() -> None:
    folded = fold("2 runs & <more>", lambda: str(table([{"a": 1}], {"a": "{a}"})))
    assert folded.startswith("<details>\n<summary>2 runs &amp; &lt;more&gt;</summary>\n\n| a |")
    shown = body(folded)
    assert "<details> <summary>2 runs &amp; &lt;more&gt;</summary>" in shown
    assert '<div class="table" tabindex="0"> <table>' in shown
    assert shown.index("<table>") < shown.index("</details>")
    assert fold("nothing", lambda: "  \n") == ""


def test_other_html_stays_text_also_where_it_looks_like_a_fold() -> None:
    for line in ("<details>", "</details>", "<summary>x</summary>", "<script>x</script>"):
        for text in (markdown(line), f"`{line}`", f"```\n{line}\n```", f"words\n{line}", f"- {markdown(line)}"):
            assert line not in body(str(text))
    assert "<b>" not in body("<b>bold</b>")


def test_an_image_and_the_text_below_it_are_a_figure_with_its_caption() -> None:
    shown = body("before\n\n![Title](figures/one.png)\n\nCaption.\n\nafter")
    assert re.search(
        r'<p>before</p> <figure class="wide"><img src="data:image/png;base64,cGljdHVyZQ==" alt="Title" ?/?>'
        r" ?<figcaption>Caption.</figcaption> </figure> <p>after</p>",
        shown.replace('<p class="lead">', "<p>"),
    ), shown
    assert "<figure" not in body("![Title](figures/one.png) and words\n\nwords")
    assert "<img" in body("![Title](figures/one.png)")


def test_verdicts_and_their_numbers_have_classes() -> None:
    found = [{"verdict": verdict} for verdict in ("holds", "holds", "differs", "not enough data")]
    counts = counts_of(found)
    assert counts == "**2 hold**, **1 differs**, **1 not enough data**"
    shown = body(f"{counts}\n\n**holds** **bold**")
    for name, text in (("good", "2 hold"), ("bad", "1 differs"), ("unknown", "1 not enough data"), ("good", "holds")):
        assert f'<strong class="verdict {name}">{text}</strong>' in shown
    assert "<strong>bold</strong>" in shown


def test_the_contents_list_every_heading() -> None:
    page = to_html("# A title\n\n## Of f\\_i & more\n\n### Deeper\n", {})
    assert '<li><a href="#of-f_i--more">Of f_i &amp; more</a></li>' in page
    assert 'id="of-f_i--more"' in page
    assert "#deeper" not in page
