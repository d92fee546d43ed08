"""The web page: the functions behind it, its guard, and the page itself in a real browser."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from attentest import AttentionTest, InputError, ModelError, bundled_model
from attentest.app.actions import Actions, Session
from attentest.app.form import CONTROLS, IMAGE, TOP_FRACTION, Form
from attentest.app.guard import Guard
from attentest.app.offered import OfferedModels, UploadedImage
from attentest.app.result_view import PREVIEW_SIDE, region_picture
from attentest.app.server import listening_socket
from attentest.definition import ModelDefinition, option
from attentest.noise import StationaryCovariance
from command_line import run_main

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def actions(saved_tiny_model: Path) -> Actions:
    return Actions(OfferedModels([saved_tiny_model]))


@pytest.fixture
def session(tiny_images: np.ndarray) -> Session:
    return Session(image=UploadedImage(name="<b>&.npy", pixels=tiny_images[0]))


def cell(html: str, key: str) -> str:
    """Return a number of a result."""
    found = re.search(rf'<td id="{key}">([^<]*)</td>', html)
    assert found, html
    return found[1]


def html_of(actions: Actions, session: Session, form: Form) -> str:
    """Test the image of a session and return what the page shows."""
    html = actions.test(session, session.ask(), "tiny", form, False, lambda share: None)
    assert html is not None
    return html


class TestModels:
    def test_only_offered_names_are_models(self, actions: Actions, saved_tiny_model: Path) -> None:
        assert actions.models.names[:2] == ["tiny", "bundled 8 × 8"]
        for name in (str(saved_tiny_model), "../tiny", "", None, 1, "google/vit-base-patch16-224"):
            with pytest.raises(InputError, match="the model must be one of tiny, bundled"):
                actions.models.model(name)

    def test_directories_of_one_name_are_told_apart(self, saved_tiny_model: Path, tmp_path: Path) -> None:
        shutil.copytree(saved_tiny_model, tmp_path / "tiny")
        assert OfferedModels([saved_tiny_model, tmp_path / "tiny"]).names[:2] == ["tiny", "tiny (2)"]

    def test_a_broken_model_is_known_before_the_page(self, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match=r"has no config\.json"):
            OfferedModels([tmp_path])


class TestActions:
    def test_the_result_is_that_of_the_library(
        self, actions: Actions, session: Session, saved_tiny_model: Path
    ) -> None:
        html = html_of(
            actions, session, Form.of(sigma=2.0, threshold=0.5, region_unit="patches", alternative="greater")
        )
        test = AttentionTest.from_pretrained(
            saved_tiny_model, noise=2.0, threshold=0.5, region_unit="patches", alternative="greater"
        )
        result = test(session.image.pixels)  # type: ignore[union-attr]
        assert cell(html, "selective-p") == result.pvalue_text(4)
        assert cell(html, "naive-p") == f"{result.naive_pvalue:.3g}"
        assert cell(html, "region") == f"{result.region.sum()} pixels"
        interval = result.confidence_interval()
        assert cell(html, "interval") == f"{interval.low:.3g} or more"
        assert result.verdict(0.05) in html.replace("&#39;", "'")
        assert "not valid: it ignores that the model chose the region" in html

    def test_names_are_text(self, actions: Actions, session: Session) -> None:
        html = html_of(actions, session, Form())
        assert "&lt;b&gt;&amp;.npy" in html
        assert "<b>" not in html
        assert "&lt;b&gt;&amp;.npy" in actions.preview(session, "tiny", Form())

    @pytest.mark.parametrize(
        "form",
        [
            Form.of(threshold=0.3),
            Form.of(rule=TOP_FRACTION, top_fraction=0.2),
            Form.of(randomise=0.5),
            Form.of(region_unit="patches"),
        ],
    )
    def test_the_preview_is_the_region_of_the_test(self, actions: Actions, session: Session, form: Form) -> None:
        html = actions.preview(session, "tiny", form)
        assert session.image is not None
        result = form.attention_test(actions.models.model("tiny"), session.image, form.noise_model())(
            session.image.pixels
        )
        assert f"<strong>{result.region.sum()}</strong> of 64 pixels" in html

    def test_the_model_is_evaluated_once_while_tau_moves(
        self, actions: Actions, session: Session, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        actions.preview(session, "tiny", Form())
        scores = actions.models.model("tiny").scores
        monkeypatch.setattr(scores, "_scores", None)  # an evaluation would fail
        shown = {actions.preview(session, "tiny", Form.of(threshold=tau)) for tau in (0.2, 0.4, 0.8)}
        assert len(shown) == 3

    def test_noise_fitted_to_controls(self, actions: Actions, session: Session, tmp_path: Path) -> None:
        controls = np.random.default_rng(5).normal(size=(12, 8, 8)) * 1.5
        paths = [str(tmp_path / f"{i}.npy") for i in range(len(controls))]
        for path, control in zip(paths, controls, strict=True):
            np.save(path, control)
        form = Form.of(noise=CONTROLS, controls=paths, estimator="stationary")
        html = html_of(actions, session, form)
        fitted = StationaryCovariance().fit(controls)
        scores = actions.models.model("tiny").scores
        assert session.image is not None
        assert cell(html, "selective-p") == AttentionTest(scores, noise=fitted)(session.image.pixels).pvalue_text(4)
        assert "estimated from 12 reference images" in html
        Path(paths[0]).unlink()
        assert session.noise(form) is session.noise(form)  # they are read once
        assert "there are no control images" in html_of(actions, session, replace(form, controls=None))

    def test_what_needs_a_note_has_one(self, actions: Actions, session: Session) -> None:
        html = html_of(actions, session, Form.of(noise=IMAGE, method="sample", randomise=0.5))
        assert "approximate" in html
        assert "the image plus noise of 0.5 times its own" in html
        assert "different settings" not in html
        assert "tested with 2 different settings on this page" in html_of(actions, session, Form.of(threshold=0.4))
        session.image = UploadedImage(name="large", pixels=np.random.default_rng(0).normal(size=(12, 10)))
        assert "so it saw this one resized" in html_of(actions, session, Form())
        assert "the model takes images of height 8" in html_of(actions, session, Form.of(resize=False))

    @pytest.mark.parametrize(
        ("form", "message"),
        [
            (Form.of(sigma=None), "the standard deviation of the noise must be a number, got an empty field"),
            (Form.of(sigma=-1.0), "the standard deviation of the noise must be positive"),
            (Form.of(threshold=2.0), "the threshold must lie strictly between 0 and 1"),
            (Form.of(alpha=None), "alpha must be"),
            (Form.of(black="0"), "only one of black and white is given"),
            (Form.of(black="0", white="x"), "white must be a number, or empty, got &#x27;x&#x27;"),
            (Form.of(black="0", white="1"), "black and white are for models that rescale images"),
            (Form.of(contrast="reference"), "contrast must be background, neighbourhood, region-mean"),
            (Form.of(contrast="neighbourhood", radius=0.0), "radius must be"),
            (Form.of(filtered="../x"), "kernel must be"),
            (Form.of(noise="file"), "noise must be number, controls, image, got"),
        ],
    )
    def test_a_bad_field_is_one_sentence(self, actions: Actions, session: Session, form: Form, message: str) -> None:
        html = html_of(actions, session, form)
        assert 'role="alert"' in html
        assert message in html

    def test_a_bad_file_is_one_sentence_without_its_folder(self, actions: Actions, tmp_path: Path) -> None:
        path = tmp_path / "scan<i>.png"
        path.write_bytes(b"no image")
        session = Session()
        html = actions.take_upload(session, str(path), "", False)
        assert "scan&lt;i&gt;.png is not an image that can be read" in html
        assert str(tmp_path) not in html
        assert "is not an image that can be read" in html_of(actions, session, Form())
        assert "Upload an image" in html_of(actions, Session(), Form())

    def test_a_frame_is_asked_for_by_its_field(self, actions: Actions, tmp_path: Path) -> None:
        pages = [Image.fromarray(np.full((8, 8), i, dtype=np.uint8)) for i in range(3)]
        pages[0].save(tmp_path / "pages.tif", save_all=True, append_images=pages[1:])
        session = Session()
        html = actions.take_upload(session, str(tmp_path / "pages.tif"), "", False)
        assert "pages.tif has 3 frames and one is needed: choose it in the field Frame, from 0 to 2" in html
        assert actions.take_upload(session, str(tmp_path / "pages.tif"), "2", False) == ""
        assert session.image is not None
        assert session.image.pixels.max() == 2
        assert "frame must be" in actions.take_upload(session, str(tmp_path / "pages.tif"), "1.5", False)

    def test_a_newer_test_replaces_an_older_one(self, actions: Actions, session: Session) -> None:
        shares: list[float] = []

        def show(share: float) -> None:
            shares.append(share)
            session.ask()

        assert actions.test(session, session.ask(), "tiny", Form(), False, show) is None
        assert len(shares) == 1  # it ended when it next reported its progress
        assert actions.test(session, 1, "tiny", Form(), False, shares.append) is None  # one that had to wait
        assert len(shares) == 1

    def test_examples_fit_bundled_models(self, actions: Actions) -> None:
        session = Session()
        for label in actions.examples:
            assert "Region" in actions.preview(session, actions.take_example(session, label), Form.of(resize=False))


@dataclass(frozen=True, kw_only=True)
class Extended(ModelDefinition):
    """A definition with one more option, which the page offers."""

    dummy: int = option("A number that does nothing.", default=3, label="A new number", panel="New")


def test_an_option_with_a_label_reaches_the_test(actions: Actions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AttentionTest, "definition_class", Extended, raising=False)
    image = UploadedImage(name="", pixels=np.zeros((8, 8)))
    form = Form.of(dummy=4, threshold=0.5)
    test = form.attention_test(actions.models.model("tiny"), image, form.noise_model())
    assert (test.settings["dummy"], test.settings["threshold"]) == (4, 0.5)


NEW_OPTION = """
from dataclasses import dataclass
from attentest import AttentionTest
from attentest.app.actions import Actions
from attentest.app.form import questions
from attentest.app.offered import OfferedModels
from attentest.app.page import new_page
from attentest.definition import Definition, ModelDefinition, option

@dataclass(frozen=True, kw_only=True)
class Extended(ModelDefinition):
    dummy: int = option("A number that does nothing.", default=3, label="A new number", panel="New")

AttentionTest.definition_class = Extended
shown = {getattr(block, "elem_id", None): block for block in new_page(Actions(OfferedModels())).blocks.values()}
assert {name.replace("_", "-") for name in questions()} <= shown.keys()
print(shown["dummy"].label, shown["dummy"].info, shown["dummy"].value, sep="|")
"""


def test_an_option_with_a_label_is_on_the_page(tmp_path: Path) -> None:
    """In a process of its own, because Gradio leaves an event loop open."""
    environment = {**os.environ, "GRADIO_ANALYTICS_ENABLED": "False", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", NEW_OPTION], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "A new number|A number that does nothing.|3\n", done.stderr


class TestPreview:
    def test_outline_surrounds_the_region(self) -> None:
        region = np.zeros((8, 8), dtype=bool)
        region[2:5, 3:6] = True
        picture = region_picture(np.zeros((8, 8)), region)
        assert picture.shape == (PREVIEW_SIDE, PREVIEW_SIDE, 3)
        coloured = np.argwhere(picture.any(axis=2))
        side = PREVIEW_SIDE // 8
        assert coloured.min(axis=0).tolist() == [2 * side, 3 * side]
        assert coloured.max(axis=0).tolist() == [5 * side - 1, 6 * side - 1]
        assert not picture[3 * side, 4 * side].any()

    def test_large_and_colour_images_fit(self) -> None:
        picture = region_picture(np.zeros((30, 1000, 3), dtype=np.uint8), np.ones((30, 1000), dtype=bool))
        assert picture.shape == (14, PREVIEW_SIDE, 3)


def answer(guard: Guard, path: str, method: str = "GET", body: bytes = b"", **headers: str) -> int:
    """Return the status of the answer to a request."""
    sent: list[dict[str, Any]] = []
    given = {"host": "127.0.0.1:7860", **{name.replace("_", "-"): value for name, value in headers.items()}}
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(dict(message))

    asyncio.run(guard(scope, receive, send))
    assert (b"x-content-type-options", b"nosniff") in sent[0]["headers"]
    return int(sent[0]["status"])


class TestGuard:
    @pytest.fixture
    def guard(self, tmp_path: Path) -> Guard:
        async def page(scope: Any, receive: Any, send: Any) -> None:
            await receive()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        return Guard(page, port=7860, uploads=tmp_path)

    def test_only_this_machine_is_answered(self, guard: Guard) -> None:
        assert answer(guard, "/") == 200
        assert answer(guard, "/", host="localhost:7860") == 200
        for host in ("evil.example", "evil.example:7860", "127.0.0.1", "127.0.0.1:80", "127.0.0.1.evil.example:7860"):
            assert answer(guard, "/", host=host) == 421, host

    def test_other_pages_are_not_answered(self, guard: Guard) -> None:
        assert answer(guard, "/gradio_api/queue/join", "POST", origin="http://127.0.0.1:7860") == 200
        for origin in ("http://evil.example", "null", "https://127.0.0.1:7860", "http://127.0.0.1:8000"):
            assert answer(guard, "/gradio_api/queue/join", "POST", origin=origin) == 403, origin
        assert answer(guard, "/config", sec_fetch_site="cross-site") == 403
        assert answer(guard, "/", sec_fetch_site="cross-site") == 200  # a link

    @pytest.mark.parametrize(
        "path",
        [
            "/gradio_api/file=/etc/passwd",
            "/gradio_api/file=https://example.com/",
            "/gradio_api/proxy=https://example.com/",
            "/gradio_api/info",
            "/gradio_api/openapi.json",
            "/gradio_api/mcp/",
            "/gradio_api/vibe-code",
            "/gradio_api/run-history/buckets",
            "/monitoring",
            "/docs",
        ],
    )
    def test_what_the_page_does_not_need_is_not_there(self, guard: Guard, path: str) -> None:
        assert answer(guard, path) == 404

    def test_a_question_names_uploaded_files_alone(self, guard: Guard, tmp_path: Path) -> None:
        def ask(path: object) -> int:
            question = {"data": [1, {"path": path, "meta": {"_type": "gradio.FileData"}}]}
            return answer(guard, "/gradio_api/queue/join", "POST", json.dumps(question).encode())

        assert ask(str(tmp_path / "x" / "scan.png")) == 200
        for path in ("/etc/passwd", "https://example.com/x.png", str(tmp_path / ".." / "x"), 1, None, "\0"):
            assert ask(path) == 403, path
        assert answer(guard, "/gradio_api/queue/join", "POST", b"{") == 400
        assert answer(guard, "/gradio_api/queue/join", "POST", b"0" * 2_000_000) == 413


class TestCommand:
    def test_a_port_in_use_is_one_sentence(self, capsys: pytest.CaptureFixture[str]) -> None:
        with listening_socket(0) as bound:
            port = bound.getsockname()[1]
            done = run_main(capsys, "app", "--port", str(port), "--no-open")
        assert done.code == 2
        assert done.err == (
            f"attentest: port {port} is in use: end what uses it, or take another, such as {port + 1}.\n"
        )

    def test_without_gradio_it_says_how_to_install_it(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        done = run_main(capsys, "app")
        assert (done.code, done.err) == (2, "attentest: the page needs Gradio: pip install 'attentest[app]'.\n")

    def test_a_model_is_a_directory(self, capsys: pytest.CaptureFixture[str]) -> None:
        done = run_main(capsys, "app", "--model", "google/vit-base-patch16-224")
        assert done.code == 2
        assert "the page downloads nothing" in done.err

    def test_help_has_examples(self, capsys: pytest.CaptureFixture[str]) -> None:
        done = run_main(capsys, "app", "--help")
        assert done.code == 0
        assert "attentest app --model my-vit" in done.out


WITHOUT_NETWORK = """
import atexit, socket, sys
def refuse(*arguments, **keywords):
    print("the network is used:", arguments, file=sys.stderr)
    raise OSError("the network is used")
for name in ("connect", "connect_ex", "sendto"):
    setattr(socket.socket, name, refuse)
for name in ("getaddrinfo", "gethostbyname", "create_connection"):
    setattr(socket, name, refuse)
from attentest.cli import main
sys.argv = ["attentest", *sys.argv[1:]]
main()
"""
"""Runs a command; every use of the network is a line on standard error."""


class Server:
    """``attentest app`` in a process of its own, which may use no network."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-c", WITHOUT_NETWORK, "app", "--port", "0", "--no-open", "--max-upload-mb", "1"]
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.folder = folder / "here"
        self.folder.mkdir()
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env={**os.environ, "TMPDIR": str(self.temporary), "OMP_NUM_THREADS": "1"},
        )
        assert self.process.stdout is not None
        watchdog = threading.Timer(120, self.process.kill)
        watchdog.start()
        self.address = self.process.stdout.readline().strip()
        watchdog.cancel()

    def stop(self) -> tuple[int, str]:
        """Press Ctrl-C and return exit code and messages."""
        self.process.send_signal(signal.SIGINT)
        _, err = self.process.communicate(timeout=60)
        return self.process.returncode, err

    def status(self, path: str, body: bytes | None = None, **headers: str) -> int:
        """Return the status of the answer to a request of something that is no browser."""
        port = int(self.address.rstrip("/").rsplit(":", 1)[1])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            connection.request("GET" if body is None else "POST", path, body, headers)
            return connection.getresponse().status
        finally:
            connection.close()


@contextmanager
def open_browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
def test_the_page_in_a_browser(tmp_path: Path) -> None:
    """One visit, because a server and a browser take seconds to start."""
    image = np.random.default_rng(7).normal(size=(16, 16))
    scan, bad, large = tmp_path / "scan.npy", tmp_path / "bad.png", tmp_path / "large.npy"
    np.save(scan, image)
    bad.write_bytes(b"this is no image")
    np.save(large, np.zeros((400, 400)))
    server = Server(tmp_path)
    try:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", server.address)
        with open_browser() as browser:
            page = browser.new_page()
            asked: list[str] = []
            page.on("request", lambda request: asked.append(request.url))
            complaints: list[str] = []
            page.on("console", lambda message: message.type == "error" and complaints.append(message.text))
            html = page.goto(server.address).text()
            page.wait_for_selector("#test")
            visit_uploads(page, scan, image)
            visit_slider(page, image)
            visit_report(page, tmp_path)
            assert not complaints
            visit_bad_files(page, bad, large)
            foreign = [url for url in asked if not url.startswith((server.address, "data:", "blob:"))]
            assert not foreign
            assert not re.findall(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=.https?:[^>]+", html)
        assert server.status("/", Host="evil.example") == 421
        assert server.status("/gradio_api/file=/etc/passwd") == 404
        assert server.status("/report?key=x") == 404
        leaked = {"data": [{"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}], "fn_index": 0}
        assert server.status("/gradio_api/queue/join", json.dumps(leaked).encode()) == 403
        assert [each.name[:14] for each in server.temporary.iterdir()] == ["attentest-app-"]
    except BaseException:
        server.process.kill()
        raise
    code, messages = server.stop()
    assert (code, messages.splitlines()[-1]) == (0, "stopped; uploaded images were deleted")
    assert "Traceback" not in messages, messages
    assert "the network is used" not in messages
    assert not list(server.temporary.iterdir())
    assert not list(server.folder.iterdir())  # Gradio left nothing where the command was run


def expected(image: np.ndarray, threshold: float) -> Any:
    return AttentionTest.from_pretrained(bundled_model(), noise=1.0, threshold=threshold)(image)


def shown_result(page: Any, p: str) -> None:
    """Wait until a p-value is shown."""
    page.wait_for_function(f"() => document.querySelector('#selective-p')?.textContent === {json.dumps(p)}")


def shown_region(page: Any, size: str) -> None:
    """Wait until a size of the region is shown."""
    page.wait_for_function(f"() => document.querySelector('#region-size')?.textContent === {json.dumps(size)}")


def visit_uploads(page: Any, scan: Path, image: np.ndarray) -> None:
    result = expected(image, 0.6)
    page.set_input_files("#upload input[type=file]", scan)
    page.wait_for_selector("#region-size")
    assert page.inner_text("#region-size") == f"{result.region.sum()} of 256 pixels"
    page.click("#test")
    shown_result(page, result.pvalue_text(4))
    interval = result.confidence_interval()
    assert page.inner_text("#naive-p") == f"{result.naive_pvalue:.3g}"
    assert page.inner_text("#interval") == f"{interval.low:.3g} to {interval.high:.3g}"
    assert result.verdict(0.05) in page.inner_text("#result")


def visit_slider(page: Any, image: np.ndarray) -> None:
    slider = page.locator("#threshold input[type=range]")
    slider.scroll_into_view_if_needed()
    track = slider.bounding_box()
    page.mouse.move(track["x"] + 0.61 * track["width"], track["y"] + track["height"] / 2)
    page.mouse.down()
    page.mouse.move(track["x"] + 0.3 * track["width"], track["y"] + track["height"] / 2, steps=4)
    tau = float(page.input_value("#threshold input[type=number]"))
    assert 0.2 < tau < 0.4
    result = expected(image, tau)
    before = page.inner_text("#selective-p")
    shown_region(page, f"{result.region.sum()} of 256 pixels")
    assert page.inner_text("#selective-p") == before  # the region follows at once, the test waits
    page.mouse.up()
    shown_result(page, result.pvalue_text(4))
    assert "tested with 2 different settings" in page.inner_text("#result")
    page.click("button.label-wrap:has-text('Region')")
    page.click("#rule label:has-text('greatest')")
    page.wait_for_selector("#top-fraction")
    page.wait_for_selector("#threshold", state="hidden")
    top = AttentionTest.from_pretrained(bundled_model(), noise=1.0, top_fraction=0.1).attention_region(image)[1].sum()
    shown_region(page, f"{top} of 256 pixels")
    assert "press Test again" in page.inner_text("#changed")


def visit_report(page: Any, folder: Path) -> None:
    with page.expect_download() as waiting:
        page.click("#result .download")
    assert waiting.value.suggested_filename == "attentest-report.html"
    waiting.value.save_as(folder / "report.html")
    report = (folder / "report.html").read_text()
    assert page.inner_text("#naive-p") in report
    assert "scan.npy" in report


def visit_bad_files(page: Any, bad: Path, large: Path) -> None:
    page.click("#upload button[aria-label=Clear]")
    page.set_input_files("#upload input[type=file]", bad)
    message = page.locator("#problem [role=alert]")
    message.wait_for()
    assert (
        message.inner_text() == "bad.png is not an image that can be read: give .npy, PNG, JPEG, TIFF, DICOM or NIfTI."
    )
    page.click("#upload button[aria-label=Clear]")
    message.wait_for(state="detached")
    page.set_input_files("#upload input[type=file]", large)
    page.get_by_text("maximum allowed size").first.wait_for()
