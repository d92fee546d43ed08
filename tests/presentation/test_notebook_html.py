"""What notebooks show: valid, escaped and self-contained HTML with the numbers of each object."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from PIL import Image

from attentest import AttentionTest, Preprocessing, Results, bundled_model, calibrate, contrast, noise, plan
from attentest.presentation.number_texts import interval_text
from attentest.presentation.report import MOST_ROWS, PICTURE_SIDE
from attentest.presentation.words import result_numbers
from attentest.runs.engine import FailedImage
from attentest.search import Certification, SpectralSearch
from toys import SoftmaxScores, tiny_vit

TINY = np.array([[3.0, 0.1], [0.2, 0.3]])
ACROSS = [[0.25, 1.0, 0.25]]
"""Covariances of pixels in a row."""

CELLS = {"th", "td", "b", "div"}


class Page(HTMLParser):
    """Elements and texts of a page; fails if a tag is not closed, or asks for anything outside the page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.cells: list[str] = []
        self.pictures: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in {"div", "b", "table", "thead", "tbody", "tr", "th", "td", "img"}
        given = dict(attrs)
        assert not re.search(r"colou?r|background|url|font", given.get("style") or "")  # those of the notebook
        self.tags.append(tag)
        if tag == "img":
            assert str(given["src"]).startswith("data:image/png;base64,")
            assert given["alt"]
            self.pictures.append(str(given["src"]).split(",")[1])
        else:
            self.open.append(tag)
            if tag in CELLS:
                self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.cells[-1] += data

    @property
    def text(self) -> str:
        return "\n".join(self.cells)

    def value(self, name: str) -> str:
        """Return the text of the cell after that of a name."""
        return self.cells[self.cells.index(name) + 1]


def shown(value: Any) -> Page:
    return Page(value._repr_html_())


@pytest.fixture(scope="module")
def tiny_test() -> AttentionTest:
    return AttentionTest(SoftmaxScores(), noise=1.0)


def test_a_test_is_a_table_of_definitions() -> None:
    page = shown(AttentionTest.from_pretrained(bundled_model(), noise=noise.AR1(0.5), top_fraction=0.25))
    assert page.value("model") == "vit on cpu"
    assert page.value("model input") == "1 x 16 x 16 (channels x height x width)"
    assert page.value("region") == "0.25 of the pixels, those of greatest attention"
    assert page.value("contrast") == "Background()"
    assert page.value("noise") == "AR1(rho=0.5, sigma=1.0)"
    assert page.value("search").startswith("SpectralSearch(tol=1e-06")


def test_a_test_of_a_colour_model_shows_preprocessing_and_randomisation() -> None:
    test = AttentionTest(
        tiny_vit(channels=3),
        noise=1.0,
        randomise=0.5,
        channels=1,
        region_unit="patches",
        confidence_level=None,
        preprocessing=Preprocessing(resize=(8, 8)),
    )
    page = shown(test)
    assert page.value("selection") == "randomised, gamma = 0.5"
    assert page.value("channels") == "1"
    assert page.value("region") == "patches with attention above 0.6"
    assert page.value("preprocessing") == "Preprocessing(resize=(8, 8))"
    assert page.value("confidence level") == "p alone, no interval"


def test_a_result_has_its_verdict_its_numbers_and_its_picture(tiny_test: AttentionTest) -> None:
    result = tiny_test(TINY, certification=Certification(draws=9))
    page = shown(result)
    assert result.verdict() in page.text
    assert page.value("selective p").startswith(f"{result.pvalue_text()} (valid; error bar ")
    assert page.value("naive p").startswith(f"{result.naive_pvalue:.3g} (not valid: ")
    assert page.value("certified p").startswith(f"{result.certificate.pvalue:.3g} (")  # type: ignore[union-attr]
    assert page.value("estimate").startswith(f"{result.estimate:.3g} (median-unbiased given the selection")
    assert page.value("region") == "1 of 4 pixels (25% of what the model sees)"
    assert page.value("95% interval").startswith("{:.3g} to {:.3g} (".format(*result.confidence_interval()))
    (data,) = page.pictures
    picture = Image.open(io.BytesIO(base64.b64decode(data)))
    assert picture.size == (PICTURE_SIDE, PICTURE_SIDE)
    pixels = np.array(picture).astype(int)
    outlined = np.all(pixels == [213, 94, 0], axis=2)
    half = PICTURE_SIDE // 2
    assert outlined[:half, :half].any()  # the region is the upper left pixel
    assert not outlined[half:].any()
    assert not outlined[:, half:].any()
    assert "certified p" not in shown(tiny_test(TINY)).cells


def test_what_the_model_saw_is_named_beside_the_image(tiny_test: AttentionTest) -> None:
    result = tiny_test.replace(randomise=0.5)(TINY)
    page = shown(result)
    assert len(page.pictures) == 2
    assert "what the model saw: image plus noise" in page.text
    first = Image.open(io.BytesIO(base64.b64decode(page.pictures[0])))
    not_randomised = replace(result, randomised_image=None)
    assert np.array_equal(np.array(first), picture_of(shown(not_randomised)))
    assert "image plus noise" not in shown(not_randomised).text


def picture_of(page: Page) -> np.ndarray:
    (data,) = page.pictures
    return np.array(Image.open(io.BytesIO(base64.b64decode(data))))


def test_a_wide_colour_image_keeps_its_shape() -> None:
    test = AttentionTest(lambda images: images[:, 0], noise=1.0, image_shape=(3, 4, 8), confidence_level=None)
    page = shown(test(np.random.default_rng(0).normal(size=(4, 8, 3))))
    assert Image.open(io.BytesIO(base64.b64decode(page.pictures[0]))).size == (PICTURE_SIDE, PICTURE_SIDE // 2)
    assert not any("interval" in cell for cell in page.cells)


def test_results_are_a_table_with_what_could_not_be_tested(tiny_test: AttentionTest) -> None:
    tested = tiny_test(TINY)
    hostile = "<script>alert(1)</script>\x07\n\udc80\u202e"
    results = Results([tested, FailedImage(number=1, reason="<img src=x>")], names=[hostile, 7])
    html = results._repr_html_()
    assert html.isprintable()
    page = Page(html)
    assert "Results(1 result, 1 failure)" in page.cells
    row = page.cells.index("<script>alert(1)</script>\\x07\\n\\udc80\\u202e")
    assert page.cells[row + 1 : row + 4] == [
        tested.pvalue_text(),
        f"{results.adjusted_pvalues()[0]:.3g}",
        f"{tested.naive_pvalue:.3g}",
    ]
    assert page.value("7") == "could not be tested: <img src=x>"


def test_only_the_first_of_many_results_are_shown(tiny_test: AttentionTest) -> None:
    tested = tiny_test(TINY)
    page = shown(Results([tested] * (MOST_ROWS + 1)))
    assert page.tags.count("tr") == 1 + MOST_ROWS
    assert f"The first {MOST_ROWS} of {MOST_ROWS + 1} rows; to_pandas() has all." in page.cells
    assert "Benjamini-Hochberg-adjusted p" in page.cells
    assert "The first" not in shown(Results([tested] * MOST_ROWS)).text


def test_results_that_share_a_noisy_reference_are_adjusted_for_that() -> None:
    test = AttentionTest(SoftmaxScores(), noise=1.0, contrast=contrast.Reference(np.zeros((2, 2))))
    assert "Benjamini-Yekutieli-adjusted p" in shown(test.map([TINY, TINY + 1])).cells


def test_nothing_tested_is_shown_too() -> None:
    page = shown(Results([FailedImage(number=0, reason="no")]))
    assert page.value("0") == "could not be tested: no"
    assert "Results(0 results)" in shown(Results([])).cells


def test_components_are_adjusted_by_holm(tiny_test: AttentionTest) -> None:
    page = shown(tiny_test.components(TINY))
    assert {"component", "Holm-adjusted p"} <= set(page.cells)


def test_a_calibration_has_its_rates_limits_and_verdict(tiny_test: AttentionTest) -> None:
    calibration = calibrate(tiny_test, 3)
    page = shown(calibration)
    assert calibration.conclusion().split("\n")[-1] in page.cells
    row = page.cells.index("0.05")
    rate, naive = calibration.rates[1], calibration.naive_rates[1]
    assert page.cells[row + 1 : row + 4] == [str(rate), f"{calibration.limits[1]} of 3", str(naive)]


def test_a_plan_has_a_row_for_each_design_and_height(tiny_test: AttentionTest) -> None:
    p_alone = tiny_test.replace(confidence_level=None)
    page = shown(plan(p_alone, 2, randomise=0.5, region_unit="pixels", deltas=[0, 1], side=1))
    assert page.tags.count("tr") == 3
    assert page.cells.count("pixels") == 2


def test_a_certificate_and_an_interval_are_short(tiny_test: AttentionTest) -> None:
    result = tiny_test(TINY, certification=Certification(draws=9))
    page = shown(result.certificate)
    assert result.certificate.summary() in page.cells  # type: ignore[union-attr]
    low, high = result.confidence_interval(0.9)
    assert shown(result.confidence_interval(0.9)).cells == ["90% confidence interval: ", f"{low:.4g} to {high:.4g}"]


def correlated(shape: tuple[int, ...]) -> Any:
    """Return images of which neighbours within pairs of columns are equal."""
    return np.repeat(np.random.default_rng(0).normal(size=shape), 2, axis=2)


def test_a_fitted_estimator_shows_what_it_found() -> None:
    assert shown(noise.StationaryCovariance(3)).value("status").startswith("not fitted yet")
    page = shown(noise.StationaryCovariance().fit(correlated((200, 16, 8))))
    assert page.value("images") == "200"
    assert page.value("sigma").startswith(("0.9", "1"))
    down, across = re.findall(r"(\S+) of neighbours in a column and (\S+) in a row", page.text)[0]
    assert float(across) == pytest.approx(0.5, abs=0.05)  # standard error below 0.01
    assert float(down) == pytest.approx(0.0, abs=0.05)
    assert "1/e at 0.6 rows and 1.3 columns" in page.text


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (noise.Isotropic(2.5), "with a standard deviation of 2.5"),
        (noise.AR1(0.5), "a correlation of 0.5 to the power of the distance"),
        (noise.Diagonal(np.arange(1.0, 10.0).reshape(3, 3)), "for each of 9, 1 to 3"),
        (noise.Dense([[4.0, 1.0], [1.0, 1.0]]), "0.50 as the strongest correlation"),
        (noise.Stationary([[0.25, 1.0, 0.25]], (4, 4)), "0.00 of neighbours in a column"),
        (noise.Stationary([[0.25, 1.0, 0.25]], (4, 4)), "1/e at 0.6 rows and 0.8 columns"),
        (noise.PerChannel([1.0, 2.0]), "[[1.0, 0.0], [0.0, 4.0]]"),
        (noise.PerChannel([1.0, 2.0]), "within each channel: independent between pixels"),
        (noise.Averaged(noise.Isotropic(3.0), 9), "the mean of 9 images"),
        (noise.Estimated(noise.Isotropic(1.0), {"from": "<i>"}), "<i>"),
        (noise.FromImage(), "estimated from the tested image itself"),
    ],
)
def test_a_noise_model_shows_its_numbers(model: Any, text: str) -> None:
    assert text in shown(model).text


@pytest.mark.parametrize(("model", "said"), [(1.0, "valid;"), (noise.FromImage("sample"), "approximate, as the noise")])
def test_p_is_called_valid_only_where_the_noise_is_not_from_the_tested_image(model: Any, said: str) -> None:
    test = AttentionTest(SoftmaxScores(), noise=model, search=SpectralSearch(tol=1e-2), confidence_level=None)
    note = result_numbers(test(np.array([[0.1, 0.7], [1.3, 2.0]])).record())[0].note
    assert note.startswith(said)
    assert "; error bar " in note


def test_noise_of_the_users_own_describes_itself() -> None:
    class Own:
        size = None

        def apply(self, v: Any) -> Any:
            return v

        def sample(self, rng: Any, k: int, n: Any = None) -> Any:
            return rng.normal(size=(k, n))

        def describe(self) -> dict[str, Any]:
            return {"model": "own", "list": list(range(1000))}

    page = shown(noise.Averaged(Own(), 2))
    assert "the mean of 2 images, each with this noise: the model 'own'" in page.text
    assert len(page.text) < 1000


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [(1, 2.5, "1 to 2.5"), ("-inf", 2, "2 or less"), (1, "inf", "1 or more"), ("-inf", "inf", "unbounded")],
)
def test_intervals_may_have_no_end(low: Any, high: Any, text: str) -> None:
    assert interval_text(float(low), float(high)) == text
