"""The server of the page: on this machine alone, for as long as the command runs."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from attentest.app.guard import HOST, Guard, Questions, Uploads
from attentest.errors import InputError

if TYPE_CHECKING:
    from attentest.app.actions import Actions
    from attentest.app.offered import OfferedModels

SECONDS_TO_END = 1  # time that open connections have to end after Ctrl-C
SECONDS_TO_FORGET = 60  # time from one look for uploaded files that are no longer used to the next

WITHOUT_TOKEN = "() => history.replaceState(null, '', location.pathname)"
"""Takes the token from the address that the browser shows and remembers: the cookie has it."""

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


def listening_socket(port: int) -> socket.socket:
    """Return a socket that listens on a port of this machine, 0 for any that is free; one in use is an error."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((HOST, port))
        bound.listen()
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            other = port + 1 if port < 65535 else 0
            raise InputError(f"port {port} is in use: end what uses it, or take another, such as {other}.") from None
        reason = (error.strerror or str(error)).rstrip(".")
        raise InputError(f"port {port} cannot be used ({reason}): take another from 1024 to 65535.") from None
    return bound


def serve(
    bound: socket.socket,
    *,
    models: OfferedModels,
    max_upload: int,
    max_total: int,
    ready: Callable[[str, str], None],
) -> None:
    """Serve the page on a socket of this machine until Ctrl-C; uploaded files are deleted then.

    An uploaded file, and all of them together, have at most so many bytes. ``ready`` is called when the page is served,
    with its address and one for a single visit.
    """
    from attentest.app.actions import Actions

    port = bound.getsockname()[1]
    actions = Actions(models)
    with TemporaryDirectory(prefix="attentest-app-") as folder:
        # torch makes a folder, in which nothing is ever put here, when gradients are first asked for.
        os.environ.update(SETTINGS, GRADIO_TEMP_DIR=folder, TORCHINDUCTOR_CACHE_DIR=f"{folder}/torch")
        uploads = Uploads(Path(folder), max_total)
        application, questions = _application(actions, max_upload)
        guarded = Guard(application, port=port, uploads=uploads, questions=questions)
        server = _server(guarded, lambda: ready(guarded.address, guarded.address_to_open), actions, uploads)
        asyncio.run(server.serve(sockets=[bound]))


def _application(actions: Actions, max_upload: int) -> tuple[Any, Questions]:
    """Return page and report as one application, and what it can answer; the environment must be set before."""
    import fastapi
    import gradio as gr

    from attentest.app.page import new_page

    application = fastapi.FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    def report(key: str = "") -> fastapi.Response:
        content = actions.report(key)
        if content is None:
            return fastapi.Response("this result is no longer known: test the image again\n", 404)
        return fastapi.Response(content, media_type="text/html", headers=REPORT_HEADERS)

    application.add_api_route("/report", report)
    theme = gr.themes.Default(primary_hue="blue", neutral_hue="slate", font=FONTS, font_mono=FIXED_WIDTH_FONTS)
    page = new_page(actions)
    mounted = gr.mount_gradio_app(
        application,
        page,
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
        js=WITHOUT_TOKEN,
    )
    return mounted, Questions(page)


def _server(application: Guard, ready: Callable[[], None], actions: Actions, uploads: Uploads) -> Any:
    """Return a server that serves until a signal comes; the test that runs then is told to stop."""
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
    startup, handle_exit = server.startup, server.handle_exit

    async def forget_unused() -> None:
        while True:
            await asyncio.sleep(SECONDS_TO_FORGET)
            uploads.forget_unused()

    async def started(sockets: list[socket.socket]) -> None:
        await startup(sockets)
        if server.started:
            server.forgetting = asyncio.create_task(forget_unused())
            ready()

    def ended(number: int, frame: Any) -> None:
        actions.stopped = True
        # Open pages are cut off, which is an error to the server and to nobody else.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        handle_exit(number, frame)

    server.startup, server.handle_exit = started, ended
    return server
