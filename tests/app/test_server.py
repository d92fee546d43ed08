"""The page as it is served: called by programs, by many at a time, and in a real browser."""

from __future__ import annotations

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
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.io import wavfile

if find_spec("gradio") is None:  # it takes seconds to import, and these tests do not use it themselves
    pytest.skip("the page needs attentest[app]", allow_module_level=True)

from attentest import AttentionTest, bundled_model
from attentest.app.form import IMAGE, questions
from attentest.attention import GradientRollout, RelevanceScores
from attentest.definition import COMPARED
from attentest.noise import FromImage

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


SERVER = """
import socket, sys
from dataclasses import dataclass

def refuse(*arguments, **keywords):
    print("the network is used:", arguments, file=sys.stderr)
    raise OSError("the network is used")

for name in ("connect", "connect_ex", "sendto"):
    setattr(socket.socket, name, refuse)
for name in ("getaddrinfo", "gethostbyname", "create_connection"):
    setattr(socket, name, refuse)
from attentest import AttentionTest
from attentest.cli import main
from attentest.definition import ModelDefinition, option

@dataclass(frozen=True, kw_only=True)
class Extended(ModelDefinition):
    dummy: int = option("A number that does nothing.", default=3, label="A new number", panel="New")

AttentionTest.definition_class = Extended
sys.argv = ["attentest", *sys.argv[1:]]
main()
"""
"""Runs a command, with one more option of a test; every use of the network is a line on standard error."""


LONGEST_WAIT = 120_000
"""Milliseconds that a page may take, on a machine that does other things as well."""


class Server:
    """``attentest app`` in a process of its own, which may use no network."""

    def __init__(self, folder: Path) -> None:
        options = ["--port", "0", "--no-open", "--max-upload-mb", "1", "--max-total-mb", "2"]
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.folder = folder / "here"
        self.folder.mkdir()
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, "app", *options],
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
        self.root, _, self.token = self.address.partition("?token=")
        self.port = int(self.root.rpartition(":")[2][:-1])

    def stop(self) -> tuple[int, str]:
        """Press Ctrl-C and return exit code and messages."""
        self.process.send_signal(signal.SIGINT)
        _, err = self.process.communicate(timeout=60)
        return self.process.returncode, err

    def ask(self, path: str, body: bytes | None = None, method: str = "", **headers: str) -> tuple[int, str]:
        """Return status and text, or the first lines of a stream, of the answer to a request with the right cookie."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        cookie = f"attentest-{self.port}={self.token}"
        sent = {"cookie": cookie, "content-type": "application/json"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method or ("GET" if body is None else "POST"), path, body, sent)
            answered = connection.getresponse()
            return answered.status, answered.read().decode(errors="replace")
        finally:
            connection.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all tests, because it takes seconds to start; at its end, it has left and complained nothing."""
    started = Server(tmp_path_factory.mktemp("server"))
    try:
        yield started
    except BaseException:
        started.process.kill()
        raise
    code, messages = started.stop()
    assert (code, messages.splitlines()[-1]) == (0, "stopped; uploaded images were deleted")
    assert "Traceback" not in messages, messages
    assert "the network is used" not in messages
    assert started.token not in messages
    assert not list(started.temporary.iterdir())
    assert not list(started.folder.iterdir())  # Gradio left nothing where the command was run


@pytest.fixture(scope="module")
def config(server: Server) -> dict[str, Any]:
    """What the page consists of, as its scripts read it."""
    return dict(json.loads(server.ask("/config")[1]))


def test_an_option_with_a_label_is_on_the_page(config: dict[str, Any]) -> None:
    shown = {component["props"].get("elem_id"): component["props"] for component in config["components"]}
    assert {name.replace("_", "-") for name in questions()} <= shown.keys()
    dummy = shown["dummy"]
    assert (dummy["label"], dummy["info"], dummy["value"]) == ("A new number", "A number that does nothing.", 3)


def test_no_noise_is_proposed(config: dict[str, Any]) -> None:
    shown = {component["props"].get("elem_id"): component["props"] for component in config["components"]}
    assert shown["noise"]["value"] == IMAGE
    assert shown["sigma"].get("value") is None


def good_question(config: dict[str, Any], name: str, session: str = "session") -> dict[str, Any]:
    """Return a question to a function of the page, with what its fields propose."""
    proposed = {component["id"]: component["props"].get("value") for component in config["components"]}
    function = next(function for function in config["dependencies"] if function["api_name"] == name)
    return {
        "data": [proposed[field] for field in function["inputs"]],
        "fn_index": function["id"],
        "session_hash": session,
    }


def malformed_questions(config: dict[str, Any]) -> list[bytes]:
    """Return questions that the page never asks."""
    preview, upload = good_question(config, "preview"), good_question(config, "take_upload")
    model, threshold, alpha = 1, 2, preview["data"].index(0.05)
    file, window, channels = 2, 4, 5
    changes: list[tuple[dict[str, Any], int, list[object]]] = [
        (preview, model, [5, True, [], {"a": 1}, "x\0", "google/vit"]),
        (preview, threshold, [None, "x", [], {}, 5, -1e308, 1e999, True]),
        (preview, alpha, ["x", [], {}, True, 10**400, float("nan")]),
        (upload, file, ["x", 5, [1], {}, {"path": 3}, {"path": "/etc/passwd"}, {"url": "http://example.com"}]),
        (upload, file, [{"path": path, "meta": {"_type": "gradio.FileData"}} for path in ("/etc/passwd", "\0", "")]),
        (upload, window, ["x"]),
        (upload, channels, [5, [], {}, True]),
        (upload, 1, [5, [], "x"]),
    ]
    questions_asked: list[object] = [
        *([], None, 3, "x", {}),
        *(preview | {"fn_index": value} for value in (None, 9999, -1, 10**30, "x", 1.5, True, [])),
        *(preview | {"session_hash": value} for value in (None, "", 3, "\0", "x" * 10_000, ["x"], "../x")),
        *(preview | {"data": value} for value in (None, {}, "x", [], [None] * 100)),
        *(
            question | {"data": [*question["data"][:place], value, *question["data"][place + 1 :]]}
            for question, place, values in changes
            for value in values
        ),
    ]
    no_json = [b"", b"{", b"\0", b"\xff", b"[" * 100_000, b"0" * 2_000_000]
    return no_json + [json.dumps(question).encode() for question in questions_asked]


def malformed_uploads() -> list[tuple[bytes, str, str]]:
    """Return uploads that a browser never makes, with their method and type."""
    form = "multipart/form-data; boundary=x"
    parts = ("form-data", 'form-data; name="files"', 'form-data; name="files"; filename=".."')
    return [
        *((f"--x\r\nContent-Disposition: {part}\r\n\r\na\r\n--x--\r\n".encode(), "POST", form) for part in parts),
        *((b"x", "POST", kind) for kind in (form, "multipart/form-data", "application/json", "")),
    ]


def test_malformed_calls_are_refused_in_a_sentence(server: Server, config: dict[str, Any]) -> None:
    """The server writes no stack trace either: the fixture looks for one when all tests are done."""
    api = "/gradio_api"
    join, run, data = f"{api}/queue/join", f"{api}/run/preview", f"{api}/queue/data"
    preview = json.dumps(good_question(config, "preview")).encode()
    calls: list[tuple[str, bytes | None, str, str]] = [
        *((path, body, "POST", "application/json") for path in (run, join) for body in malformed_questions(config)),
        *((run, preview, "POST", kind) for kind in ("text/plain", "", "multipart/form-data")),
        *((run, preview, method, "application/json") for method in ("PUT", "DELETE", "OPTIONS", "PATCH", "BREW")),
        *((path, preview, "POST", "application/json") for path in ("/", "/config", "/report", data, f"{run}%00")),
        *((f"{api}/upload{query}", *upload) for query in ("", "?upload_id=u") for upload in malformed_uploads()),
        *((f"{data}?session_hash={session}", None, "GET", "") for session in ("", "unknown", "%00", "%ff")),
        *((f"/report?key={key}", None, "GET", "") for key in ("", "unknown", "%00", "%ff")),
        *((f"/assets/{name}", None, "GET", "") for name in ("%00", "a" * 300, "%2e%2e/%2e%2e/x", "unknown")),
        *((f"{api}/{path}", None, "GET", "") for path in ("upload", "file=/etc/passwd", "heartbeat/" + "a" * 300)),
    ]
    assert len(calls) > 100
    for path, body, method, kind in calls:
        status, text = server.ask(path, body, method, content_type=kind)
        assert 400 <= status < 500, (path, body, status, text)
        assert text, (path, body)
        assert "Traceback" not in text


def test_twenty_parallel_users_are_answered(server: Server, config: dict[str, Any]) -> None:
    """While one test runs, twenty more are asked for; those have no image, so that their answer takes no time."""

    def answered(user: int) -> str:
        session = f"user{user}"
        if user == 0:
            asked = good_question(config, "partial", session) | {"data": [None]}
            assert server.ask("/gradio_api/run/example", json.dumps(asked).encode())[0] == 200
        question = good_question(config, "run", session)
        question["data"][1] = 0
        status, text = server.ask("/gradio_api/queue/join", json.dumps(question).encode())
        assert status == 200, text
        return server.ask(f"/gradio_api/queue/data?session_hash={session}")[1]

    with ThreadPoolExecutor(21) as users:
        first = users.submit(answered, 0)
        others = [users.submit(answered, user) for user in range(1, 21)]
        assert "process_completed" in first.result()
        for other in others:
            assert "Upload an image" in other.result()


def test_uploads_have_a_total_limit(server: Server) -> None:
    """The limit is 2 MB, and that of each file is 1 MB."""
    part = b'--x\r\nContent-Disposition: form-data; name="files"; filename="%d.npy"\r\n\r\n%s\r\n--x--\r\n'
    kind = "multipart/form-data; boundary=x"
    paths = [
        server.ask("/gradio_api/upload", part % (number, bytes([number]) * 700_000), content_type=kind)
        for number in range(3)
    ]
    assert [status for status, _ in paths] == [200, 200, 413]
    assert "uploaded files already take 1.4 of 2 MB" in paths[2][1]
    for _, text in paths[:2]:
        Path(json.loads(text)[0]).unlink()


@contextmanager
def open_browser() -> Iterator[Any]:
    sync_playwright = pytest.importorskip("playwright.sync_api").sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
def test_the_page_in_a_browser(server: Server, tmp_path: Path) -> None:
    """One visit, because a browser takes seconds to start."""
    image = np.random.default_rng(7).normal(size=(16, 16))
    scan, bad, large = tmp_path / "scan{1}!.npy", tmp_path / "bad.png", tmp_path / "large.npy"
    np.save(scan, image)
    bad.write_bytes(b"this is no image")
    np.save(large, np.zeros((400, 400)))
    root = server.root
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", root)
    with open_browser() as browser:
        with browser.new_page() as stranger:  # which also asks for an icon, and complains that it gets none
            assert "use the address that attentest app has printed" in stranger.goto(root).text()
        page = browser.new_page(viewport={"width": 390, "height": 800})
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.set_default_timeout(LONGEST_WAIT)
        complaints: list[str] = []
        page.on("console", lambda message: message.type == "error" and complaints.append(message.text))
        html = page.goto(server.address).text()
        page.wait_for_selector("#test")
        page.wait_for_url(root)  # without the token
        visit_uploads(page, scan, image)
        nothing_is_cut_off(page)
        page.set_viewport_size({"width": 1200, "height": 800})
        visit_slider(page, image)
        visit_maps(page, image)
        visit_mask(page, tmp_path / "mask.npy", image)
        visit_noise(page, image, "scan{1}!.npy")
        visit_report(page, tmp_path)
        visit_example(page, scan)
        assert not complaints
        visit_deleted_file(page, server.temporary)
        visit_bad_files(page, bad, large)
        foreign = [url for url in asked if not url.startswith((root, "data:", "blob:"))]
        assert not foreign
        assert not re.findall(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=.https?:[^>]+", html)
    assert server.ask("/", host="evil.example")[0] == 421
    assert [folder.name[:14] for folder in server.temporary.iterdir()] == ["attentest-app-"]


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
def test_signals_and_volumes_in_a_browser(server: Server, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    recording, volume = tmp_path / "ecg.wav", tmp_path / "head.npy"
    wavfile.write(recording, 128, np.repeat([0.0, 2.0, 0.0], [100, 85, 71]) + rng.normal(size=256))
    np.save(volume, rng.normal(size=(16, 16, 16)))
    with open_browser() as browser:
        page = browser.new_page(viewport={"width": 1200, "height": 800})
        page.set_default_timeout(LONGEST_WAIT)
        complaints: list[str] = []
        page.on("console", lambda message: message.type == "error" and complaints.append(message.text))
        page.goto(server.address)
        page.wait_for_selector("#test")
        page.set_input_files("#upload input[type=file]", recording)
        problem = page.locator("#problem .message")
        problem.filter(has_text="ecg.wav is taken for WAV, which holds signals, and an image is needed").wait_for()
        for path, axes, model, noun in (
            (recording, 1, "bundled, signals of 256 samples", "samples"),
            (volume, 3, "bundled, volumes of 16 × 16 × 16", "voxels"),
        ):
            page.click("#model input")
            page.get_by_role("option", name=model, exact=True).click()
            if path == volume:
                page.get_by_text("ecg.wav is taken for WAV").first.wait_for()
                page.click("#upload button[aria-label=Clear]")
                page.set_input_files("#upload input[type=file]", volume)
            result = AttentionTest.from_pretrained(bundled_model(axes=axes), noise=FromImage("wavelet"))(path)
            shown_region(page, f"{result.region.sum()} of {result.region.size:,} {noun}")
            problem.wait_for(state="hidden")
            page.click("#test")
            shown_result(page, result.pvalue_text())
            assert result.verdict(0.05) in page.inner_text("#result")
            for width in (390, 1200):
                page.set_viewport_size({"width": width, "height": 800})
                nothing_is_cut_off(page)
        assert not complaints


WIDER_THAN_THE_PAGE = """[...document.querySelectorAll('#result *')].filter(
    part => part.getBoundingClientRect().right > innerWidth
        || part.scrollWidth > part.clientWidth + 1 && part.clientWidth
).map(part => part.outerHTML.slice(0, 80))"""
"""Which parts of the result are cut off at the right, or can be scrolled."""


def nothing_is_cut_off(page: Any) -> None:
    """Wait until all of the result is within the page, which may still be moving."""
    for _ in range(50):
        if not page.evaluate(WIDER_THAN_THE_PAGE):
            return
        page.wait_for_timeout(100)
    assert page.evaluate(WIDER_THAN_THE_PAGE) == []


def expected(image: np.ndarray, threshold: float) -> Any:
    return AttentionTest.from_pretrained(bundled_model(), noise=FromImage("wavelet"), threshold=threshold)(image)


def shown_result(page: Any, p: str) -> None:
    """Wait until a p-value is shown."""
    page.wait_for_function(f"() => document.querySelector('#selective-p')?.textContent === {json.dumps(p)}")


def shown_region(page: Any, size: str) -> None:
    """Wait until a size of the region is shown."""
    page.wait_for_function(f"() => document.querySelector('#region-size')?.textContent === {json.dumps(size)}")


def visit_uploads(page: Any, scan: Path, image: np.ndarray) -> None:
    result = expected(image, 0.6)
    page.set_input_files("#upload input[type=file]", scan)
    shown_region(page, f"{result.region.sum()} of 256 pixels")
    page.click("#test")
    shown_result(page, result.pvalue_text())
    interval = result.confidence_interval()
    assert page.inner_text("#naive-p") == f"{result.naive_pvalue:.3g}"
    assert page.inner_text("#interval") == f"{interval.low:.3g} to {interval.high:.3g}"
    assert result.verdict(0.05) in page.inner_text("#result")


def visit_maps(page: Any, image: np.ndarray) -> None:
    for name, attention in (("gradient-rollout", GradientRollout()), ("rollout", "rollout")):
        page.click("#map-name input")
        page.locator("[role=option]").filter(has_text=re.compile(rf"^\W*{name}:")).click()
        test = AttentionTest.from_pretrained(bundled_model(), noise=1.0, top_fraction=0.1, attention=attention)
        shown_region(page, f"{test.attention_region(image)[1].sum()} of 256 pixels")
        page.wait_for_selector("#target", state="hidden" if name == "rollout" else "visible")
        if isinstance(test.pipeline.scores, RelevanceScores):
            ((_, _, score),) = test.pipeline.scores.ranked(torch.from_numpy(image)[None, None], 1)
            named = json.dumps(f"predicted: 0 (score {score:.3g})")  # it follows the region, in an event of its own
            page.wait_for_function(f"() => document.querySelector('#target input')?.value === {named}")


def visit_mask(page: Any, path: Path, image: np.ndarray) -> None:
    """The region is chosen within a mask that is uploaded, and in the whole image again once it is removed."""
    within = np.tri(16, dtype=bool)
    np.save(path, within)
    page.click(f"button.label-wrap:has-text('{COMPARED}')")
    page.set_input_files("#mask input[type=file]", path)
    test = AttentionTest.from_pretrained(bundled_model(), noise=1.0, top_fraction=0.1)
    shown_region(page, f"{test.replace(mask=within).attention_region(image)[1].sum()} of 256 pixels")
    page.locator("#mask-use").wait_for()
    page.click("#mask button[aria-label=Clear]")
    shown_region(page, f"{test.attention_region(image)[1].sum()} of 256 pixels")
    for choice, field, usual in (("contrast", "radius", "the rest"), ("filtered", "blur", "brightness")):
        page.locator(f"#{field}").wait_for(state="hidden")
        choose(page, choice, {"contrast": "a ring", "filtered": "blurred"}[choice])
        page.locator(f"#{field}").wait_for(state="visible")
        choose(page, choice, usual)
        page.locator(f"#{field}").wait_for(state="hidden")


def visit_noise(page: Any, image: np.ndarray, name: str) -> None:
    """The region of an image plus noise follows what is said of the noise."""
    page.click("button.label-wrap:has-text('Randomised selection')")
    gamma = page.locator("#randomise input[type=number]")
    page.click("#rule label:has-text('threshold')")
    gamma.fill("1")
    gamma.press("Enter")
    choose(page, "noise", "a number")
    sizes, tau = set(), float(page.input_value("#threshold input[type=number]"))
    for sigma in (1.0, 4.0):
        page.fill("#sigma textarea, #sigma input", f"{sigma:g}")
        test = AttentionTest.from_pretrained(bundled_model(), noise=sigma, randomise=1.0, threshold=tau)
        sizes.add(int(test.attention_region(image, name=name)[1].sum()))
        shown_region(page, f"{test.attention_region(image, name=name)[1].sum()} of 256 pixels")
    assert len(sizes) == 2
    gamma.fill("0")
    gamma.press("Enter")
    page.click("#rule label:has-text('greatest')")


def choose(page: Any, field: str, words: str) -> None:
    """Choose the first of the answers to a question that has some words, of buttons or of a menu."""
    buttons = page.locator(f"#{field} label").filter(has_text=words)
    if buttons.count():
        buttons.first.click()
    else:
        page.click(f"#{field} input")
        page.get_by_role("option").filter(has_text=words).first.click()


def visit_slider(page: Any, image: np.ndarray) -> None:
    slider = page.locator("#threshold input[type=range]")
    slider.scroll_into_view_if_needed()
    track = slider.bounding_box()
    page.mouse.move(track["x"] + 0.61 * track["width"], track["y"] + track["height"] / 2)
    page.mouse.down()
    page.mouse.move(track["x"] + 0.3 * track["width"], track["y"] + track["height"] / 2, steps=4)
    number = "document.querySelector('#threshold input[type=number]').value"
    page.wait_for_function(f"() => 0.2 < {number} && {number} < 0.4")
    tau = float(page.evaluate(number))
    result = expected(image, tau)
    before = page.inner_text("#selective-p")
    shown_region(page, f"{result.region.sum()} of 256 pixels")
    assert page.inner_text("#selective-p") == before  # the region follows at once, the test waits
    page.mouse.up()
    shown_result(page, result.pvalue_text())
    assert "tested with 2 different settings" in page.inner_text("#result")
    page.click("button.label-wrap:has-text('Region')")
    page.click("#rule label:has-text('greatest')")
    page.wait_for_selector("#top-fraction")
    page.wait_for_selector("#threshold", state="hidden")
    top = AttentionTest.from_pretrained(bundled_model(), noise=1.0, top_fraction=0.1).attention_region(image)[1].sum()
    shown_region(page, f"{top} of 256 pixels")
    page.locator("#changed:has-text('press Test again')").wait_for()


def visit_example(page: Any, scan: Path) -> None:
    """The noise of an example is known; that of the next image is not."""
    page.click("#examples button:has-text('Pure noise')")
    page.wait_for_function("() => document.querySelector('#sigma textarea, #sigma input')?.value === '1'")
    page.locator("#result .settings:has-text('pure noise'):has-text('top fraction 0.1')").wait_for()
    page.set_input_files("#upload input[type=file]", scan)
    page.wait_for_selector("#sigma", state="hidden")
    page.wait_for_selector("#noise input[value=image]:checked", state="attached")
    page.wait_for_selector("#region-size")


def visit_deleted_file(page: Any, uploads: Path) -> None:
    for path in uploads.rglob("scan1.npy"):
        path.unlink()
    page.click("button.label-wrap:has-text('Image')")
    page.fill("#frame textarea, #frame input", "0")
    page.get_by_text("was not used for an hour and is deleted: upload it again").first.wait_for()
    page.fill("#frame textarea, #frame input", "")


def visit_report(page: Any, folder: Path) -> None:
    with page.expect_download() as waiting:
        page.click("#result .download")
    assert waiting.value.suggested_filename == "attentest-report.html"
    waiting.value.save_as(folder / "report.html")
    report = (folder / "report.html").read_text()
    assert page.inner_text("#naive-p") in report
    assert "scan{1}!.npy" in report


def visit_bad_files(page: Any, bad: Path, large: Path) -> None:
    page.click("#upload button[aria-label=Clear]")
    page.set_input_files("#upload input[type=file]", bad)
    sentence = "bad.png is not an image that can be read: give .npy, PNG, JPEG, TIFF, DICOM or NIfTI."
    message = page.locator("#problem [role=alert]").filter(has_text=re.compile(rf"^\s*{re.escape(sentence)}\s*$"))
    message.wait_for()
    page.click("#upload button[aria-label=Clear]")
    message.wait_for(state="detached")
    page.set_input_files("#upload input[type=file]", large)
    page.get_by_text("maximum allowed size").first.wait_for()
