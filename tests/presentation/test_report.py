"""The report of a batch: complete, self-contained, and harmless whatever the names of the files are."""

from __future__ import annotations

import json
import re
import shutil
from base64 import b64decode, b64encode
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from attentest import AttentionTest
from attentest.errors import InputError
from attentest.markup import plain
from attentest.presentation.picture import MAP_COLOURS
from attentest.presentation.sensitivity import recorded_sensitivity
from attentest.presentation.small_picture import LONGEST_SIDE, SmallPicture, content_digest, map_pixels
from attentest.presentation.tested_batch import batch_of_folder
from attentest.results.batch import Results, small_picture
from attentest.runs.engine import FailedImage
from attentest.search import Certification
from command_line import run_main
from toys import SoftmaxScores, tiny_vit

NASTY = (
    "<script>alert(1);.npy",
    '"><img src=x onerror=alert(1)>.npy',
    "a'b\"c&amp;.npy",
    "over\u202egnp.npy",
    "bell\x07\x1b[31m.npy",
    b"not-utf-8-\xff.npy".decode("utf-8", "surrogateescape"),
    "=1+1.npy",
    "{{ 7 * 7 }}.npy",
    "x" * 200 + ".npy",
)
"""Names that a careless page would run, hide or fail on."""


class Page(HTMLParser):
    """Takes note of the elements of a page, and of its text outside of style and script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.raw = text
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._inside = ""
        self.sources: dict[str, str] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside in ("style", "script"):
            self.sources[self._inside] = data
        else:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())

    def attributes(self, name: str) -> list[str]:
        return [attributes[name] or "" for _, attributes in self.tags if name in attributes]


@pytest.fixture(scope="module")
def test() -> AttentionTest:
    return AttentionTest(tiny_vit(), noise=1.0)


@pytest.fixture(scope="module")
def results(test: AttentionTest) -> Results:
    """Images of noise; of the last two one is randomised and certified, and one could not be tested."""
    images = np.random.default_rng(0).normal(size=(2, 8, 8))
    images[0, 2:4, 2:4] += 4
    special = test.replace(randomise=1.0)(images[0], certification=Certification(draws=19))
    failed = FailedImage(number=3, reason="b\x00ad.png is <b>no</b> image.")
    return Results([*test.map(images), special, failed], ["a", "b", "special", "b\x00ad.png"])


@pytest.fixture(scope="module")
def page(results: Results, tmp_path_factory: pytest.TempPathFactory) -> Page:
    target = tmp_path_factory.mktemp("report") / "report.html"
    results.report(target)
    return Page(target.read_text("utf-8"))


def test_it_says_what_the_results_say(results: Results, page: Page) -> None:
    assert page.text.count("The dark share of the area is p.") == 3
    assert page.text.count("Image and region") == 3
    assert "3 images were tested." in page.text
    rejected = sum(bool(result.reject_at(0.05)) for result in results.tested)
    assert f"{rejected} of 3 {'is' if rejected == 1 else 'are'} significant at 0.05" in page.text
    assert "1 image could not be tested" in page.text
    for result in results.tested:
        assert result.verdict() in page.text
    assert sum(attributes.get("class") == "card" for _, attributes in page.tags) == 3
    assert f"{results[0].naive_pvalue:.3g} (not valid: it ignores that the model chose the region)" in page.text
    certificate = results[2].certificate
    assert certificate is not None
    assert certificate.summary() in page.text
    assert "randomised selection: the region was chosen on the image plus noise of 1 times its own" in page.text
    assert "Independent between pixels, with a standard deviation of 1; given, not estimated" in page.text
    assert "Statistical Test for Attention Map in Vision Transformer" in page.text


def test_it_needs_no_other_file_and_allows_no_other_code(page: Page) -> None:
    for name in ("src", "href"):
        assert all(value.startswith(("data:", "#")) for value in page.attributes(name))
    policy = next(attributes for _, attributes in page.tags if "http-equiv" in attributes)["content"] or ""
    assert policy.startswith("default-src 'none'; img-src data:; ")
    for tag, text in page.sources.items():
        assert f"{tag}-src 'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" in policy
    assert not page.attributes("style")
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert "url(" not in page.sources["style"]


def test_the_mark_of_a_footnote_is_no_digit_of_a_p_value(page: Page) -> None:
    marks = re.findall(r"([\d.]) <sup>([^<]*)</sup>", page.raw)
    assert marks
    assert len(marks) == page.raw.count("<sup>")
    assert all(re.fullmatch("[a-z]( [a-z])*", mark) for _, mark in marks)
    assert '<ol class="footnotes" type="a">' in page.raw


def test_pictures_are_small_and_show_the_region(results: Results, page: Page) -> None:
    pictures = page.attributes("src")
    assert len(pictures) == 3 * 3 + 1  # and what the model saw of the randomised one
    assert page.text.count("What the model saw: image plus noise") == 1
    for picture in pictures:
        image = Image.open(BytesIO(b64decode(picture.partition(",")[2])))
        assert max(image.size) <= 1024
    overlay = Image.open(BytesIO(b64decode(pictures[0].partition(",")[2]))).convert("RGB")
    assert (213, 94, 0) in {colour for _, colour in overlay.getcolors(100_000) or []}  # the outline


def test_a_footnote_is_said_once_and_cards_lead_to_it(results: Results, tmp_path: Path) -> None:
    special = results[2]
    Results([special, special]).report(tmp_path / "same.html")
    page = Page((tmp_path / "same.html").read_text("utf-8"))
    assert page.text.count("randomised selection: the region was chosen on the image plus noise") == 1
    linked = [href for href in page.attributes("href") if href.startswith("#note-")]
    assert len(linked) >= 2
    assert {href.removeprefix("#") for href in linked} <= set(page.attributes("id"))


def test_adjusted_p_values_are_said_to_be_of_upper_bounds(results: Results, page: Page) -> None:
    assert "BH p and Holm p are adjusted from the upper bounds on p." in page.text
    assert "Adjusted for the 3 tested images, from upper bounds on p: " in page.text


def test_what_the_map_shows_is_named(tmp_path: Path) -> None:
    result = AttentionTest(SoftmaxScores(), noise=1.0)(np.array([[2.0, 0.3], [-0.4, 0.9]]))
    Results([result]).report(tmp_path / "saliency.html")
    page = Page((tmp_path / "saliency.html").read_text("utf-8"))
    assert "Are the saliency regions real?" in page.text
    assert "Saliency map" in page.text
    assert "where the saliency map of the model exceeds" in page.text
    assert "attention" not in page.text.replace("Test for Attention Map", "").lower().replace("attentest", "")


@pytest.mark.parametrize("alternative", ["two-sided", "equal-tailed"])
def test_of_several_draws_the_dark_share_is_that_of_one(alternative: Any, tmp_path: Path) -> None:
    test = AttentionTest(tiny_vit(), noise=1.0, randomise=1.0, draws=3, randomise_seed=1, alternative=alternative)
    result = test(np.random.default_rng(0).normal(size=(8, 8)))
    Results([result]).report(tmp_path / "draws.html")
    page = Page((tmp_path / "draws.html").read_text("utf-8"))
    half = "half of " if alternative == "equal-tailed" else ""
    assert f"The dark share of the area is {half}the p of the draw with the median p." in page.text
    assert "Image and pixels that most draws chose" in page.text
    assert "the line is the border of the pixels that most draws chose" in page.text
    assert "pixels chosen in most draws" in result._repr_html_()


@pytest.mark.skipif(shutil.which("chromium") is None, reason="there is no Chromium here")
def test_it_is_as_wide_as_a_telephone(results: Results, tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    results.report(tmp_path / "report.html")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for width in (390, 1200):
            page = browser.new_page(viewport={"width": width, "height": 800})
            page.goto(f"file://{tmp_path}/report.html")
            assert page.evaluate("document.documentElement.scrollWidth") == width
            assert page.evaluate(
                "[...document.querySelectorAll('.card')].every(card => [...card.querySelectorAll('td, img, p')].every("
                "part => part.getBoundingClientRect().right <= card.getBoundingClientRect().right))"
            )
        browser.close()


def test_sensitivity_agrees_with_the_verdict_at_the_assumed_noise(results: Results) -> None:
    for result in results.tested:
        found = recorded_sensitivity(result, None, alpha=0.05, confidence_level=0.95)
        at_one = next(row for row in found.to_dict()["factors"] if row["factor"] == 1.0)
        assert at_one["pvalue"] == pytest.approx(result.pvalue, rel=1e-9)
        assert at_one["reject"] is result.reject_at(0.05)


def test_components_are_adjusted_within_their_image(test: AttentionTest, tmp_path: Path) -> None:
    for seed in range(20):
        found = test.components(np.random.default_rng(seed).normal(size=(8, 8)))
        if len(found) > 1:
            break
    found.report(tmp_path / "components.json")
    content = json.loads((tmp_path / "components.json").read_text())
    assert content["counts"]["tested"] == 1
    assert content["counts"]["components"] == len(found)
    assert [each["pvalue_holm"] for each in content["results"]] == pytest.approx(list(found.adjusted_pvalues()))
    found.report(tmp_path / "components.html", cards=1)
    text = Page((tmp_path / "components.html").read_text()).text
    assert f"The 1 of {len(found)} with the smallest p-values" in text


def test_small_pictures_are_small_and_come_back_from_a_file(results: Results, tmp_path: Path) -> None:
    large = np.zeros((700, 1300))
    large[:350] = 1.0
    region = large > 0
    result = replace(results[0], image=large, attention=large, region=region, part=region)
    picture = small_picture([result])
    assert picture.parts.shape == (276, 512)
    assert max(picture.parts.shape) <= LONGEST_SIDE
    assert abs(picture.parts.mean() - 0.5) < 0.01
    path = tmp_path / "picture.npz"
    path.write_bytes(picture.to_bytes())
    again = SmallPicture.read(path, content_digest(path.read_bytes()))
    assert again is not None
    np.testing.assert_array_equal(again.image, picture.image)
    np.testing.assert_array_equal(again.parts, picture.parts)
    path.write_bytes(picture.to_bytes()[:-40])
    assert SmallPicture.read(path, content_digest(path.read_bytes())) is None
    seen = small_picture([replace(result, randomised_image=1.0 - large)])
    path.write_bytes(seen.to_bytes())
    again = SmallPicture.read(path, content_digest(path.read_bytes()))
    assert again is not None
    np.testing.assert_array_equal(again.randomised_image, 255 - seen.image)
    assert again.seen() is not None
    assert picture.seen() is None
    strip = replace(results[0], image=large[:3], attention=large[:3], region=region[:3], part=region[:3])
    assert small_picture([strip]).parts.shape == (1, 512)


def test_pixels_have_the_colours_of_figures() -> None:
    from matplotlib import colormaps

    levels = np.arange(256)[None] / 255.0
    expected = np.asarray(colormaps[MAP_COLOURS](levels, bytes=True)[..., :3], dtype=int)
    assert np.abs(map_pixels(levels) - expected).max() <= 6  # between the steps, out of 255


def test_names_are_shown_and_do_nothing() -> None:
    assert plain("a\u202eb\x1b[0m\n") == "a\\u202eb\\x1b[0m\\n"
    assert plain("画像.png") == "画像.png"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model")
    tiny_vit().save_pretrained(directory)
    return directory


def arguments(model: Path) -> list[str]:
    return ["--noise", "1", "--model", str(model)]


def test_a_folder_gives_the_report_of_its_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "scans"
    folder.mkdir()
    rng = np.random.default_rng(1)
    for name in NASTY:
        np.save(folder / name, rng.normal(size=(8, 8)))
    (folder / "broken.npy").write_text("nothing")
    done = run_main(
        capsys, "test", "scans", *arguments(model), "--out", "out", "--report", "report.html", "--report-cards", "1"
    )
    assert done.code == 1
    assert "report: report.html" in done.err
    raw = (tmp_path / "report.html").read_bytes()
    text = raw.decode("utf-8")
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e]", text)
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    page = Page(text)
    assert sum(tag == "script" for tag, _ in page.tags) == 1
    for name in NASTY:
        assert plain(f"scans/{name}") in page.attributes("title")
    assert "broken.npy is not a readable" in page.text
    assert "attentest test scans --noise 1" in page.text
    assert len(list((tmp_path / "out" / "pictures").iterdir())) == len(NASTY)

    printed = run_main(capsys, "report", "out", "--json")
    assert printed.code == 0
    content = json.loads(printed.out)
    assert content["counts"]["tested"] == len(NASTY)
    assert {each["image"] for each in content["results"]} == {f"scans/{name}" for name in (*NASTY, "broken.npy")}
    assert run_main(capsys, "report", "out", "--cards", "2").code == 0
    again = Page((tmp_path / "out" / "report.html").read_text())
    assert sum(attributes.get("class") == "card" for _, attributes in again.tags) == 2


def test_preprocessing_is_what_was_done_with_each_image(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    np.save("as-it-is.npy", rng.normal(size=(16, 16)))
    Image.fromarray(rng.integers(0, 255, size=(20, 20), dtype=np.uint8)).save("photograph.png")

    def reported(*names: str) -> tuple[Any, str]:
        done = run_main(capsys, "test", *names, "--noise", "1", "--report", "report.json", "--max-evaluations", "64")
        assert done.code == 0, done.err
        made = json.loads(Path("report.json").read_text())["settings"]["preprocessing"]
        done = run_main(capsys, "test", *names, "--noise", "1", "--report", "report.html", "--max-evaluations", "64")
        assert done.code == 0, done.err
        return made, Page(Path("report.html").read_text("utf-8")).text

    made, page = reported("as-it-is.npy")
    assert made is None
    assert "preprocessingnone" in page.replace(" ", "")
    resized, page = reported("photograph.png")
    assert resized["resize"] == [16, 16]
    assert "preprocessing resize (16, 16)" in page.replace("preprocessingresize", "preprocessing resize")
    both, page = reported("as-it-is.npy", "photograph.png")
    assert both == [{"images": 1, "steps": None}, {"images": 1, "steps": resized}]
    assert "images 1, steps none; images 1, steps resize (16, 16)" in page


def test_folders_without_pictures_say_how_to_get_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("scan.npy", np.random.default_rng(1).normal(size=(8, 8)))
    command = ["test", "scan.npy", *arguments(model), "--out", "out"]
    assert run_main(capsys, *command, "--save", "none").code == 0
    assert not Path("out/pictures").exists()
    assert run_main(capsys, *command).code == 0  # nothing is tested again for a picture that was not asked for
    assert not Path("out/pictures").exists()
    assert run_main(capsys, "report", "out").code == 0
    assert "no picture of this image in the folder" in Path("out/report.html").read_text()
    assert run_main(capsys, *command, "--save", "pictures").code == 0
    assert batch_of_folder(Path("out")).picture(0) is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--report", "report.pdf"], "--report must end in .html, .htm, .json, got 'report.pdf'"),
        (["--report", "scan.npy"], "would overwrite the input scan.npy"),
        (["--report-cards", "3"], "--report-cards is for --report"),
        (
            ["--save", "faces", "--out", "out"],
            "--save takes regions, masks, maps, pictures, separated by commas, or none",
        ),
    ],
)
def test_bad_options_are_refused_before_anything_is_computed(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("scan.npy", np.zeros((8, 8)))
    done = run_main(capsys, "test", "scan.npy", "--noise", "1", "--model", "no-such-model", *options)
    assert done.code == 2
    assert message in done.err


def test_a_folder_without_results_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    done = run_main(capsys, "report", str(tmp_path))
    assert done.code == 2
    assert "has no results.jsonl" in done.err


def test_in_python_a_bad_path_is_refused(results: Results, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must end in \.html"):
        results.report(tmp_path / "report.txt")
    with pytest.raises(InputError, match="cards must be at least 0"):
        results.report(tmp_path / "report.html", cards=-1)
    assert not list(tmp_path.iterdir())


def test_a_batch_of_failures_alone_has_a_report(tmp_path: Path) -> None:
    Results([FailedImage(number=0, reason="it is no image.")]).report(tmp_path / "report.html")
    text = Page((tmp_path / "report.html").read_text()).text
    assert "0 images were tested." in text
    assert "it is no image." in text


def test_progress_is_told(results: Results, tmp_path: Path) -> None:
    told: list[Any] = []
    results.report(tmp_path / "report.json", cards=2, progress=lambda done, total: told.append((done, total)))
    assert told == [(0, 2), (1, 2), (2, 2)]
