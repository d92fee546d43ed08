"""Who may ask the page, for what, and about which files: this machine alone, and uploaded files alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOST = "127.0.0.1"
"""The only address that the server listens on."""

HOSTS = (HOST, "localhost")
"""Names by which a browser on this machine reaches it; another name is that of a website which points here."""

PAGES = ("/", "/config", "/theme.css", "/favicon.ico", "/manifest.json", "/report")
"""Addresses that are served, beside those that begin as follows."""

PREFIXES = (
    "/assets/",
    "/static/",
    "/gradio_api/heartbeat/",
    "/gradio_api/queue/",
    "/gradio_api/run/",
    "/gradio_api/upload",
)
"""Beginnings of addresses that are served: the page's own scripts, its questions and answers, and uploads."""

LARGEST_QUESTION = 1_000_000
"""Most bytes of the values that the page sends with a question; files are uploaded by themselves."""

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


class Guard:
    """A web application behind checks of who asks, for what, and about which files.

    Parameters
    ----------
    application
        The application, by the protocol ASGI.
    port
        The port that it is served on.
    uploads
        Directory of the uploaded files: a question may name no other file.
    """

    def __init__(self, application: ASGIApp, *, port: int, uploads: Path) -> None:
        self._application = application
        self._hosts = {f"{host}:{port}" for host in HOSTS} | (set(HOSTS) if port == 80 else set())
        self._uploads = uploads.resolve()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, if it passes the checks."""
        if scope["type"] == "lifespan":
            await self._application(scope, receive, send)
            return
        if scope["type"] != "http":
            raise ValueError(f"the page has no use for a connection of the kind {scope['type']}")
        refusal = self._refusal(scope)
        if refusal is None and scope["method"] == "POST" and not scope["path"].startswith("/gradio_api/upload"):
            body = await _body(receive)
            refusal = (413, "too much was sent") if body is None else self._refused_question(body)
            receive = _again(body or b"")
        if refusal is None:
            await self._application(scope, receive, _with_headers(send))
        else:
            status, reason = refusal
            await PlainTextResponse(f"{reason}\n", status, HEADERS)(scope, receive, send)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Return status and reason if a request is refused for where it comes from or what it asks for."""
        headers, path = Headers(scope=scope), scope["path"]
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return 421, f"this page is served to {' and '.join(sorted(self._hosts))} alone"
        origins = {f"http://{host}" for host in self._hosts}
        elsewhere = not {"same-origin", "none"}.issuperset(headers.getlist("sec-fetch-site"))
        # A link to the page itself is welcome.
        if not origins.issuperset(map(str.lower, headers.getlist("origin"))) or (elsewhere and path != "/"):
            return 403, "this page is not served to other pages"
        if scope["method"] not in ("GET", "HEAD", "POST") or not (path in PAGES or path.startswith(PREFIXES)):
            return 404, "there is nothing here"
        return None

    def _refused_question(self, body: bytes) -> tuple[int, str] | None:
        """Return status and reason if a question names a file that was not uploaded: Gradio would read or fetch it."""
        try:
            question = json.loads(body) if body else None
        except (ValueError, RecursionError):
            return 400, "the question is not JSON"
        waiting = [question]
        while waiting:
            value = waiting.pop()
            if isinstance(value, dict):
                if "path" in value and not self._is_uploaded(value["path"]):
                    return 403, "the question names a file that was not uploaded"
                waiting.extend(value.values())
            elif isinstance(value, list):
                waiting.extend(value)
        return None

    def _is_uploaded(self, path: Any) -> bool:
        try:
            return isinstance(path, str) and Path(path).resolve().is_relative_to(self._uploads)
        except (OSError, ValueError):
            return False


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


def _with_headers(send: Send) -> Send:
    async def answer(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(HEADERS)
        await send(message)

    return answer
