"""The server of the page: on this machine alone, for as long as the command runs, guarded against other origins."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from attentest.errors import InputError

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

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

    def __init__(self, application: Application, *, port: int, uploads: Path) -> None:
        self._application = application
        self._hosts = {f"{host}:{port}" for host in HOSTS} | (set(HOSTS) if port == 80 else set())
        self._uploads = uploads.resolve()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
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
        if refusal is not None:
            await _refuse(send, *refusal)
            return
        await self._application(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Return status and reason if a request is refused for where it comes from or what it asks for."""
        sent = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        hosts = [value for name, value in sent if name == "host"]
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return 421, f"this page is served to {' and '.join(sorted(self._hosts))} alone"
        if any(name == "origin" and value.lower() not in self._origins for name, value in sent):
            return 403, "this page is not served to other pages"
        path = scope["path"]
        elsewhere = any(name == "sec-fetch-site" and value not in ("same-origin", "none") for name, value in sent)
        if elsewhere and path != "/":  # a link to the page itself is welcome
            return 403, "this page is not served to other pages"
        if scope["method"] not in ("GET", "HEAD", "POST") or not (path in PAGES or path.startswith(PREFIXES)):
            return 404, "there is nothing here"
        return None

    @property
    def _origins(self) -> set[str]:
        return {f"http://{host}" for host in self._hosts}

    def _refused_question(self, body: bytes) -> tuple[int, str] | None:
        """Refuse a question that names a file which was not uploaded; Gradio would read it, or fetch its address."""
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
            message["headers"] = [*message.get("headers", []), *_HEADERS]
        await send(message)

    return answer


async def _refuse(send: Send, status: int, reason: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), *_HEADERS]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": f"{reason}\n".encode()})


_HEADERS = [(name.encode(), value.encode()) for name, value in HEADERS.items()]


SECONDS_TO_END = 1
"""Time that open connections have to end after Ctrl-C."""

FONTS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif")
FIXED_WIDTH_FONTS = ("ui-monospace", "Consolas", "monospace")
"""Fonts that are on the machine: none is loaded."""

REPORT_HEADERS = {"content-disposition": 'attachment; filename="attentest-report.html"'}
"""The browser saves the report and does not show it as a part of this page."""

SETTINGS = {
    "GRADIO_ANALYTICS_ENABLED": "False",
    "GRADIO_ALLOWED_PATHS": "",
    "GRADIO_ROOT_PATH": "",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}
"""Environment in which Gradio is imported: it then asks nobody for its version and serves no other files."""


def check_gradio() -> None:
    """Refuse where Gradio is missing; importing it takes seconds, so that is left for later."""
    from importlib.util import find_spec

    if find_spec("gradio") is None:
        raise InputError("the page needs Gradio: pip install 'attentest[app]'.")


def listening_socket(port: int) -> socket.socket:
    """Return a socket that listens on a port of this machine, 0 for any that is free; refuse one in use."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((HOST, port))
        bound.listen()
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            other = port + 1 if port < 65535 else 0
            raise InputError(f"port {port} is in use: end what uses it, or take another with port={other}.") from None
        reason = (error.strerror or str(error)).rstrip(".")
        raise InputError(f"port {port} cannot be used ({reason}): take another from 1024 to 65535.") from None
    return bound


def serve(
    bound: socket.socket,
    *,
    models: Iterable[Path],
    device: str,
    max_upload: int,
    ready: Callable[[str], None],
) -> None:
    """Serve the page until Ctrl-C; uploaded files are deleted then.

    Parameters
    ----------
    bound
        A socket that listens on a port of this machine.
    models
        Directories of models that are offered beside the bundled ones.
    device
        Where to compute.
    max_upload
        Most bytes of an uploaded file.
    ready
        Called with the address of the page when it is served.
    """
    from attentest.app.actions import Actions
    from attentest.app.offered import OfferedModels

    port = bound.getsockname()[1]
    actions = Actions(OfferedModels(models, device))
    with TemporaryDirectory(prefix="attentest-app-") as folder:
        os.environ.update(SETTINGS, GRADIO_TEMP_DIR=folder)
        application = Guard(_application(actions, max_upload), port=port, uploads=Path(folder))
        asyncio.run(_serve(application, bound, lambda: ready(f"http://{HOST}:{port}/"), actions.stop))


def _application(actions: Any, max_upload: int) -> Any:
    """Return page and report as one application; the environment must be set before."""
    import fastapi
    import gradio as gr

    from attentest.app.page import new_page

    application = fastapi.FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    def report(key: str) -> Any:
        found = actions.report(key)
        if found is None:
            return fastapi.Response("this result is no longer known: test the image again\n", 404)
        return fastapi.Response(found, media_type="text/html", headers=REPORT_HEADERS)

    application.add_api_route("/report", report)
    theme = gr.themes.Default(primary_hue="blue", neutral_hue="slate", font=FONTS, font_mono=FIXED_WIDTH_FONTS)
    return gr.mount_gradio_app(
        application,
        new_page(actions),
        path="/",
        server_name=HOST,
        allowed_paths=[],
        max_file_size=max_upload,
        show_error=False,
        footer_links=[],
        run_history=False,
        ssr_mode=False,
        mcp_server=False,
        enable_monitoring=False,
        pwa=False,
        theme=theme,
        css=Path(__file__).with_name("style.css").read_text(encoding="utf-8"),
    )


async def _serve(application: Any, bound: socket.socket, ready: Callable[[], None], stop: Any) -> None:
    """Serve an application until a signal comes; the test that runs then is told to stop."""
    import uvicorn

    settings = uvicorn.Config(
        application,
        lifespan="on",
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=SECONDS_TO_END,
    )
    server = uvicorn.Server(settings)
    end = server.handle_exit

    def ended(number: int, frame: Any) -> None:
        stop.asked = True
        # Open pages are cut off, which is an error to the server and to nobody else.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        end(number, frame)

    server.handle_exit = ended
    serving = asyncio.create_task(server.serve(sockets=[bound]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    if server.started:
        ready()
    await serving
