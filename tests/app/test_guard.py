"""Who may ask the page, for what, and about which files."""

from __future__ import annotations

import asyncio
import json
import os
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

if find_spec("gradio") is None:  # it takes seconds to import, and these tests do not use it themselves
    pytest.skip("the page needs attentest[app]", allow_module_level=True)

from attentest.app.guard import LONGEST_UNUSED, MOST_WAITING, PAGES, Guard, Questions, Refusal, Uploads

PORT = 7860

EMPTY_QUESTION = b'{"data": []}'


class AnyQuestion:
    """A page that can answer everything."""

    def knows(self, session: str) -> bool:
        return session == "known"

    def checked(self, question: Any) -> Any:
        return question


def new_guard(folder: Path, page: Any, most_bytes: int = 1000) -> Guard:
    return Guard(page, port=PORT, uploads=Uploads(folder, most_bytes), questions=AnyQuestion())


async def empty_page(scope: Any, receive: Any, send: Any) -> None:
    """Read a request and answer nothing."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def whole_answer(
    guard: Guard, path: str, method: str = "GET", body: bytes = b"", token: str | None = "", **headers: str
) -> tuple[int, dict[str, str], str]:
    """Return status, headers and text of the answer to a request, which has the right cookie unless it has a token."""
    sent: list[Any] = []
    path, _, query = path.partition("?")
    given = {"host": f"127.0.0.1:{PORT}", "content-type": "application/json", "content-length": str(len(body))}
    if token is not None:
        given["cookie"] = f"attentest-{PORT}={token or token_of(guard.address)}"
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(guard(scope, receive, send))
    assert (b"x-content-type-options", b"nosniff") in sent[0]["headers"]
    answered = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], answered, b"".join(message.get("body", b"") for message in sent[1:]).decode()


def answer(guard: Guard, path: str, method: str = "GET", body: bytes = b"", **headers: str) -> int:
    """Return the status of the answer to a request."""
    return whole_answer(guard, path, method, body, **headers)[0]


def token_of(address: str) -> str:
    return address.partition("?token=")[2]


@pytest.fixture
def guard(tmp_path: Path) -> Guard:
    return new_guard(tmp_path, empty_page)


class TestGuard:
    def test_only_this_machine_is_answered(self, guard: Guard) -> None:
        assert answer(guard, "/") == 200
        assert answer(guard, "/", host="localhost:7860") == 200
        for host in ("evil.example", "evil.example:7860", "127.0.0.1", "127.0.0.1:80", "127.0.0.1.evil.example:7860"):
            assert answer(guard, "/", host=host) == 421, host

    def test_other_pages_are_not_answered(self, guard: Guard) -> None:
        join = "/gradio_api/queue/join"
        assert answer(guard, join, "POST", EMPTY_QUESTION, origin="http://127.0.0.1:7860") == 200
        for origin in ("http://evil.example", "null", "https://127.0.0.1:7860", "http://127.0.0.1:8000"):
            assert answer(guard, join, "POST", EMPTY_QUESTION, origin=origin) == 403, origin
        assert answer(guard, "/config", sec_fetch_site="cross-site") == 403
        assert answer(guard, "/", sec_fetch_site="cross-site") == 200  # a link

    def test_nobody_is_answered_without_the_token(self, guard: Guard) -> None:
        for token in (None, "x", token_of(guard.address)[:-1], "\udcff", "\0"):
            for path in (*PAGES, "/assets/x.js", "/gradio_api/heartbeat/x", "/nothing", "/?token=", "/?token=x"):
                cookie = {} if token is None else {"cookie": f"attentest-{PORT}={token.encode('ascii', 'replace')!r}"}
                status, headers, text = whole_answer(guard, path, token=None, **cookie)
                assert (status, "set-cookie" in headers) == (403, False), path
                assert text == "this page belongs to one person: use the address that attentest app has printed."
            for path in ("/gradio_api/queue/join", "/gradio_api/run/preview", "/gradio_api/upload"):
                assert answer(guard, path, "POST", EMPTY_QUESTION, token=None) == 403

    def test_the_address_with_the_token_sets_a_cookie(self, guard: Guard) -> None:
        token = token_of(guard.address)
        assert len(token) > 40
        status, headers, _ = whole_answer(guard, f"/?token={token}", token=None)
        assert status == 200
        assert headers["set-cookie"] == f"attentest-{PORT}={token}; Path=/; HttpOnly; SameSite=Strict"
        assert whole_answer(guard, f"/?token={token}", token=None)[0] == 200  # it can be used again
        assert "set-cookie" not in whole_answer(guard, "/")[1]
        renewed = whole_answer(guard, f"/?token={token}", cookie=f"attentest-{PORT}=of-an-earlier-server")[1]
        assert token in renewed["set-cookie"]

    def test_the_token_that_a_browser_is_started_with_is_good_for_one_visit(self, guard: Guard) -> None:
        token = token_of(guard.address_to_open)
        assert token != token_of(guard.address)
        status, headers, _ = whole_answer(guard, f"/?token={token}", token=None)
        assert (status, headers["set-cookie"].split(";")[0]) == (200, f"attentest-{PORT}={token_of(guard.address)}")
        assert whole_answer(guard, f"/?token={token}", token=None)[0] == 403

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
            "/gradio_api/queue/status",
            "/gradio_api/queue/data?session_hash=unknown",
            "/assets/" + "a" * 5000,
            "/assets/\0",
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

        (tmp_path / "scan.png").touch()
        assert ask(str(tmp_path / "scan.png")) == 200
        assert ask(str(tmp_path / "gone.png")) == 410
        for path in ("/etc/passwd", "https://example.com/x.png", str(tmp_path / ".." / "x"), 1, None, "\0"):
            assert ask(path) == 403, path
        assert answer(guard, "/gradio_api/queue/join", "POST", b"{") == 400
        assert answer(guard, "/gradio_api/queue/join", "POST", b"0" * 2_000_000) == 413
        assert answer(guard, "/gradio_api/queue/join", "POST", b"{}", content_type="text/plain") == 415


class TestUploads:
    def upload(self, guard: Guard, size: int) -> tuple[int, str]:
        status, _, text = whole_answer(guard, "/gradio_api/upload", "POST", b"0" * size)
        return status, text

    def test_a_full_store_says_so(self, guard: Guard, tmp_path: Path) -> None:
        assert self.upload(guard, 1000)[0] == 200
        assert self.upload(guard, 1001)[0] == 413
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder" / "scan.npy").write_bytes(b"0" * 600)
        assert self.upload(guard, 400)[0] == 200
        status, text = self.upload(guard, 401)
        assert (status, text[: text.index(". F")]) == (
            413,
            "this upload of 0.000401 MB is refused: uploaded files already take 0.0006 of 0.001 MB",
        )
        assert answer(guard, "/gradio_api/upload", "POST", content_length="") == 411

    def test_files_are_deleted_an_hour_after_their_last_use(self, guard: Guard, tmp_path: Path) -> None:
        old, used = tmp_path / "a" / "old.npy", tmp_path / "b" / "used.npy"
        for path in (old, used):
            path.parent.mkdir()
            path.write_bytes(b"0" * 500)
            os.utime(path, (0, path.stat().st_mtime - LONGEST_UNUSED - 1))
        question = json.dumps({"data": [{"path": str(used)}]}).encode()
        assert answer(guard, "/gradio_api/run/preview", "POST", question) == 200
        assert self.upload(guard, 500)[0] == 200
        assert [path.name for path in tmp_path.rglob("*.npy")] == ["used.npy"]

    def test_what_cannot_be_stored_is_one_sentence_and_leaves_nothing(self, tmp_path: Path) -> None:
        async def broken(scope: Any, receive: Any, send: Any) -> None:
            (tmp_path / "part").write_bytes((await receive())["body"])
            await send({"type": "http.response.start", "status": 500, "headers": []})
            raise TypeError("no file")

        guard = new_guard(tmp_path, broken)
        for _ in range(3):  # the room that it kept is free again
            assert self.upload(guard, 900) == (
                400,
                "the upload cannot be stored (no file): send files as multipart/form-data, as the page does.",
            )
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize(
        ("path", "method", "status", "sentence"),
        [
            ("/gradio_api/upload", "POST", 413, "a file is larger than the page takes: more is allowed by attentest"),
            ("/gradio_api/upload", "POST", 400, "the upload cannot be stored: send files as multipart/form-data"),
            ("/static/x", "GET", 403, "there is nothing here."),
        ],
    )
    def test_what_gradio_refuses_is_said_in_a_sentence(
        self, tmp_path: Path, path: str, method: str, status: int, sentence: str
    ) -> None:
        async def refusing(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": status, "headers": []})
            await send({"type": "http.response.body", "body": b"Forbidden"})

        code, _, body = whole_answer(new_guard(tmp_path, refusing), path, method, b"x")
        assert code == status
        assert body.startswith(sentence)


class Waiting(list[int]):
    """A queue of tests; some were made before, in 1.5 seconds each."""

    def __init__(self, waiting: int, made: int) -> None:
        super().__init__(range(waiting))
        self.process_time_per_fn = {"test": SimpleNamespace(count=made, process_time=1.5 * made)}


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (4, "100 tests wait already, which takes about 2 min: try again then."),
        (0, "100 tests wait already: try again when the first are done."),
    ],
)
def test_a_full_queue_says_how_long(made: int, sentence: str) -> None:
    function = SimpleNamespace(fn=print, inputs=[], queue=True)
    question = {"data": [], "fn_index": 0, "session_hash": "s", "simple_format": True}
    page: Any = SimpleNamespace(fns={0: function}, _queue=Waiting(MOST_WAITING - 1, made))
    assert Questions(page).checked(question) == {"data": [], "fn_index": 0, "session_hash": "s"}
    page._queue.append(1)
    assert Questions(page).checked(question) == Refusal(429, sentence)
