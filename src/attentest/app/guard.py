"""Who may ask the page, for what, and about which files: who knows its token, and uploaded files alone."""

from __future__ import annotations

import json
import math
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from attentest.errors import shortened
from attentest.progress import duration

if TYPE_CHECKING:
    import gradio as gr

HOST = "127.0.0.1"  # the only address that the server listens on

HOSTS = (HOST, "localhost")
"""Names by which a browser on this machine reaches it; another name is that of a website which points here."""

PAGES = (
    "/",
    "/config",
    "/theme.css",
    "/favicon.ico",
    "/manifest.json",
    "/report",
    "/gradio_api/queue/data",
    "/gradio_api/upload_progress",
)
PREFIXES = ("/assets/", "/static/", "/gradio_api/heartbeat/")
"""Addresses that can be read, and beginnings of such addresses: the page's own scripts, and answers to questions."""

OF_GRADIO = (*PREFIXES, "/gradio_api/upload_progress")
"""Beginnings of addresses whose errors Gradio would answer with a word or two."""

NOTHING = "there is nothing here."
AS_FORM = "send files as multipart/form-data, as the page does."
"""The answer to other addresses, and how uploads are sent."""

LONGEST_PATH = 200  # most characters of an address

QUESTIONS = ("/gradio_api/queue/join", "/gradio_api/run/")
UPLOAD = "/gradio_api/upload"
"""Beginnings of addresses to which questions are sent, and the address to which files are."""

LARGEST_QUESTION = 1_000_000
"""Most bytes of the values that the page sends with a question; files are uploaded by themselves."""

LONGEST_UNUSED = 3600.0  # seconds after which an uploaded file is deleted that no question has named

UNREADABLE = (AttributeError, ClientDisconnect, LookupError, OSError, TypeError, ValueError)
"""What Gradio raises for an upload that no browser sends, that is broken off, or for which the disk has no room."""

HEADERS = {
    "content-security-policy": (
        "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; font-src 'self' data:; object-src 'none'; base-uri 'self'; form-action 'self'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}
"""Sent with every answer: the browser itself then refuses to load anything from elsewhere, or the page into a frame."""


class Refusal(NamedTuple):
    """Status and reason, in a sentence, of an answer to what is refused."""

    status: int
    reason: str


class Uploads:
    """The directory of uploaded files, which have at most so many bytes in all."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder, self._most_bytes = folder.resolve(), most_bytes
        self._running = self._to_come = 0  # uploads that are being received, and their bytes that are not here yet

    def forget_unused(self) -> int:
        """Delete the files that no question has named for an hour; return the bytes of the others."""
        used = 0
        for path in [path for path in self._folder.rglob("*") if path.is_file()]:
            status = path.stat()
            if time.time() - status.st_mtime > LONGEST_UNUSED:
                path.unlink(missing_ok=True)
            else:
                used += status.st_size
        return used

    def use(self, path: Any) -> Refusal | None:
        """Note that a question names a file; return why that is refused unless it is an uploaded one."""
        try:
            known = isinstance(path, str) and Path(path).resolve().is_relative_to(self._folder)
            if known:
                os.utime(path)
        except FileNotFoundError:
            return Refusal(410, "the uploaded file was not used for an hour and is deleted: upload it again.")
        except (OSError, ValueError):
            known = False
        return None if known else Refusal(403, "the question names a file that was not uploaded.")

    def refusal(self, length: str) -> Refusal | None:
        """Return why an upload of so many bytes, as a header says, is refused."""
        if not length.isdecimal():
            return Refusal(411, "an upload must say how many bytes it has (content-length).")
        used = self.forget_unused() + self._to_come
        if used + int(length) <= self._most_bytes:
            return None
        return Refusal(
            413,
            f"this upload of {int(length) / 1e6:.3g} MB is refused: uploaded files already take {used / 1e6:.3g} of "
            f"{self._most_bytes / 1e6:.3g} MB. Files are deleted an hour after their last use; more are kept with "
            "attentest app --max-total-mb.",
        )

    async def receive(self, application: ASGIApp, scope: Scope, receive: Receive, send: Send, length: int) -> None:
        """Let an application receive an upload of so many bytes, for which room is kept; answer what it cannot read."""
        left = length
        self._running, self._to_come = self._running + 1, self._to_come + left

        async def counted() -> Message:
            nonlocal left
            message = await receive()
            size = min(len(message.get("body", b"")), left)
            left -= size
            self._to_come -= size
            return message

        def reason(status: int) -> str:
            return (
                "a file is larger than the page takes: more is allowed by attentest app --max-upload-mb."
                if status == 413
                else f"the upload cannot be stored: {AS_FORM}"
            )

        try:
            await _in_own_words(application, scope, counted, send, reason)
        except UNREADABLE as error:
            await PlainTextResponse(f"the upload cannot be stored ({error}): {AS_FORM}", 400)(scope, receive, send)
        finally:
            self._running, self._to_come = self._running - 1, self._to_come - left
            if not self._running:  # what is not in a folder of its own belongs to an upload that was broken off
                for path in [path for path in self._folder.iterdir() if path.is_file()]:
                    path.unlink(missing_ok=True)


MOST_WAITING = 100  # most tests that wait at a time, of all open pages
LONGEST_SESSION = 64  # most characters of the name of a session, which the page draws at random

TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "boolean": ((bool,), "true or false"),
    "integer": ((int, float), "a finite number"),
    "number": ((int, float), "a finite number"),
    "string": ((str,), "a text"),
}
"""Types of values by their names in the fields' own descriptions, and how messages call them."""


class Questions:
    """What a page can answer: a question is compared with the fields it is about, before anything is computed.

    Gradio itself finds out while it answers, and then says "500" to the browser and writes a stack trace to the log.
    """

    def __init__(self, page: gr.Blocks) -> None:
        self._page = page

    def knows(self, session: str) -> bool:
        """Return whether a session waits for answers."""
        return session in self._page._queue.pending_messages_per_session

    def checked(self, question: Any) -> dict[str, Any] | Refusal:
        """Return a question, with that alone in it which is needed; or why it is refused."""
        if not isinstance(question, dict):
            return Refusal(400, f"a question must be a JSON object, got {shortened(question)}.")
        number, session, values = (question.get(name) for name in ("fn_index", "session_hash", "data"))
        function = self._page.fns.get(number) if type(number) is int else None
        if function is None or function.fn is None:
            return Refusal(404, f"the page has no function {shortened(number)}: load it again.")
        if not isinstance(session, str) or not session.isalnum() or len(session) > LONGEST_SESSION:
            return Refusal(
                400,
                f"session_hash must be 1 to {LONGEST_SESSION} letters and digits, got {shortened(session)}.",
            )
        if not isinstance(values, list) or len(values) != len(function.inputs):
            count = f"{len(values)} values" if isinstance(values, list) else shortened(values)
            return Refusal(400, f"data must be a list of {len(function.inputs)} values, got {count}.")
        for field, value in zip(function.inputs, values, strict=True):
            expected = _expected(field, value)
            if expected:
                name = getattr(field, "label", None) or field.get_block_name()
                return Refusal(400, f"the field {name!r} must be {expected}, got {shortened(value)}.")
        if function.queue and len(self._page._queue) >= MOST_WAITING:
            return Refusal(429, self._full())
        return {"data": values, "fn_index": number, "session_hash": session}

    def _full(self) -> str:
        """Return how many tests wait and how long that takes, from the tests that were made."""
        times = self._page._queue.process_time_per_fn.values()
        count, waiting = sum(time.count for time in times), len(self._page._queue)
        if not count:
            return f"{waiting} tests wait already: try again when the first are done."
        seconds = waiting * sum(time.process_time for time in times) / count
        return f"{waiting} tests wait already, which takes about {duration(seconds, 0)}: try again then."


def _expected(field: Any, value: Any) -> str | None:
    """Return what the value of a field must be if it is something else."""
    if field.stateful:  # the server has its value
        return None
    if field.data_model is not None:
        return None if value is None or _is_valid(field.data_model, value) else "uploaded files"
    described = field.api_info()
    types, words = TYPES[described["type"]]
    least, most = getattr(field, "minimum", None), getattr(field, "maximum", None)
    if value is None and bool not in types and least is None:  # an empty field: what needs it says so
        return None
    if "enum" in described and not getattr(field, "lists_follow_the_image", False):
        return None if value in described["enum"] else f"one of {', '.join(described['enum'])}"
    if type(value) not in types or (float in types and not _is_finite(value)):
        return words
    return None if least is None or least <= value <= most else f"from {least:g} to {most:g}"


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number of hundreds of digits
        return False


def _is_valid(model: Any, value: Any) -> bool:
    try:
        model.model_validate(value, context={"validate_meta": True})
    except (ValueError, TypeError):
        return False
    return True


class Guard:
    """A web application, by the protocol ASGI, behind checks of who asks, for what, and about which files.

    A question may name no file but those among ``uploads``, and ``questions`` are what the page can answer.
    """

    def __init__(self, application: ASGIApp, *, port: int, uploads: Uploads, questions: Questions) -> None:
        self._application, self._uploads, self._questions = application, uploads, questions
        self._hosts = {f"{host}:{port}" for host in HOSTS} | (set(HOSTS) if port == 80 else set())
        self._token, self._token_of_one_visit = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self._cookie = f"attentest-{port}"  # cookies are for a host and all its ports
        self.address = f"http://{HOST}:{port}/?token={self._token}"
        """Address of the page with its token, without which nothing is answered. The first visit sets a cookie."""
        self.address_to_open = f"http://{HOST}:{port}/?token={self._token_of_one_visit}"
        """The same with a token that is good for one visit: while a browser is started, everybody on this machine can
        see its arguments."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, if it passes the checks."""
        if scope["type"] == "lifespan":
            await self._application(scope, receive, send)
            return
        if scope["type"] != "http":
            raise ValueError(f"the page has no use for a connection of the kind {scope['type']}")
        request, path = HTTPConnection(scope), scope["path"]
        refusal = self._refused_request(request, scope["method"])
        if refusal is None and path == UPLOAD:
            length = request.headers.get("content-length", "")
            refusal = self._uploads.refusal(length)
        elif refusal is None and scope["method"] == "POST":
            question = await self._question(receive)
            refusal = question if isinstance(question, Refusal) else None
            receive = _again(json.dumps(question).encode())
        if refusal is not None:
            # The page shows what it reads as JSON in the answer to a question.
            answer = JSONResponse if path.startswith(QUESTIONS) else PlainTextResponse
            said = {"error": refusal.reason, "detail": refusal.reason} if answer is JSONResponse else refusal.reason
            await answer(said, refusal.status, HEADERS)(scope, receive, send)
            return
        send = _with_headers(send, None if self._has_cookie(request) else f"{self._cookie}={self._token}")
        if path == UPLOAD:
            await self._uploads.receive(self._application, scope, receive, send, int(length))
        elif path.startswith(OF_GRADIO):
            await _in_own_words(self._application, scope, receive, send, lambda status: NOTHING)
        else:
            await self._application(scope, receive, send)

    def _refused_request(self, request: HTTPConnection, method: str) -> Refusal | None:
        """Return why a request is refused for where it comes from or what it asks for."""
        headers, path = request.headers, request.scope["path"]
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return Refusal(421, f"this page is served to {' and '.join(sorted(self._hosts))} alone.")
        origins = {f"http://{host}" for host in self._hosts}
        elsewhere = not {"same-origin", "none"}.issuperset(headers.getlist("sec-fetch-site"))
        # A link to the page itself is welcome.
        if not origins.issuperset(map(str.lower, headers.getlist("origin"))) or (elsewhere and path != "/"):
            return Refusal(403, "this page is not served to other pages.")
        if not self._is_allowed(request):
            return Refusal(403, "this page belongs to one person: use the address that attentest app has printed.")
        served = (
            path.startswith(QUESTIONS) or path == UPLOAD
            if method == "POST"
            else (method in ("GET", "HEAD") and (path in PAGES or path.startswith(PREFIXES)))
        )
        if not served or len(path) > LONGEST_PATH or not (path.isascii() and path.isprintable()):
            return Refusal(404, NOTHING)
        if path.startswith(QUESTIONS) and headers.get("content-type", "").partition(";")[0] != "application/json":
            return Refusal(415, "a question must be application/json.")
        if path == "/gradio_api/queue/data" and not self._questions.knows(request.query_params.get("session_hash", "")):
            return Refusal(404, "no question of this page waits for an answer.")
        return None

    def _is_allowed(self, request: HTTPConnection) -> bool:
        """Return whether a request has the token, in its cookie or in its address."""
        shown = request.query_params.get("token", "")
        if self._has_cookie(request) or _same(shown, self._token):
            return True
        if not _same(shown, self._token_of_one_visit):
            return False
        self._token_of_one_visit = secrets.token_urlsafe(32)
        return True

    def _has_cookie(self, request: HTTPConnection) -> bool:
        return _same(request.cookies.get(self._cookie, ""), self._token)

    async def _question(self, receive: Receive) -> dict[str, Any] | Refusal:
        """Return the question that a request asks, or why it is refused."""
        body = await _body(receive)
        if body is None:
            return Refusal(413, f"a question must have at most {LARGEST_QUESTION:,} bytes.")
        try:
            question = self._questions.checked(json.loads(body))
        except (ValueError, RecursionError):
            return Refusal(400, "the question is not JSON.")
        # Gradio would read or fetch any file that a question names.
        waiting: list[Any] = [] if isinstance(question, Refusal) else [question["data"]]
        while waiting:
            value = waiting.pop()
            if isinstance(value, dict):
                refusal = self._uploads.use(value["path"]) if "path" in value else None
                if refusal is not None:
                    return refusal
                waiting.extend(value.values())
            elif isinstance(value, list):
                waiting.extend(value)
        return question


async def _in_own_words(
    application: ASGIApp, scope: Scope, receive: Receive, send: Send, reason: Callable[[int], str]
) -> None:
    """Let an application answer, but for errors, which are answered with the reason for their status."""
    refused = 0

    async def unless_refused(message: Message) -> None:
        nonlocal refused
        refused = refused or (message["status"] if message.get("status", 0) >= 400 else 0)
        if not refused:
            await send(message)

    await application(scope, receive, unless_refused)
    if refused:
        await PlainTextResponse(reason(refused), refused)(scope, receive, send)


def _same(shown: str, token: str) -> bool:
    """Compare in a time that says nothing about where two texts differ."""
    return secrets.compare_digest(shown.encode(errors="replace"), token.encode())


async def _body(receive: Receive) -> bytes | None:
    """Return the body of a request; None if it is too large."""
    parts: list[bytes] = []
    size = 0
    more = True
    while more:
        message = await receive()
        part = message.get("body", b"")
        size += len(part)
        if size > LARGEST_QUESTION:
            return None
        parts.append(part)
        more = message.get("more_body", False)
    return b"".join(parts)


def _again(body: bytes) -> Receive:
    """Return a source that gives a body which was read already, and then says that the client has gone."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return messages.pop() if messages else {"type": "http.disconnect"}

    return receive


def _with_headers(send: Send, cookie: str | None) -> Send:
    async def answer(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update(HEADERS)
            if cookie is not None:
                headers.append("set-cookie", f"{cookie}; Path=/; HttpOnly; SameSite=Strict")
        await send(message)

    return answer
