"""``attentest app``."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from attentest.cli.options import DeviceOption
from attentest.cli.output import say
from attentest.errors import InputError


def web_page(
    model: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIRECTORY",
            help="Directory of a saved Hugging Face ViT that the page offers; repeatable.",
            show_default="the bundled models alone",
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(help="Port of the page; 0 takes any that is free.", metavar="N", min=0, max=65535)
    ] = 7860,
    open_browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Whether to open the page in the browser.")
    ] = True,
    max_upload_mb: Annotated[
        int, typer.Option(help="Largest file that can be uploaded, in megabytes.", metavar="N", min=1, max=4096)
    ] = 20,
    max_total_mb: Annotated[
        int, typer.Option(help="Most megabytes of all uploaded files.", metavar="N", min=1, max=1_000_000)
    ] = 1000,
    device: DeviceOption = "cpu",
) -> None:
    """Open a web page: upload an image, see the region, its p-value and its interval, download the report.

    For example:

    ```
    attentest app
    attentest app --model my-vit --model other-vit --device cuda
    attentest app --port 8080 --no-open --max-upload-mb 200
    ```

    The page is served on this machine alone, at 127.0.0.1, and loads nothing from elsewhere. Its address is printed
    when it is ready; it has a token, and nobody is answered without it. Uploaded images are kept in a temporary folder
    until they were not used for an hour, or the command ends. Ctrl-C ends it.
    """
    from importlib.util import find_spec

    directories = model or []
    for directory in directories:
        if not directory.is_dir():
            raise InputError(
                f"there is no model directory {directory}: --model takes a directory made by save_pretrained or "
                "`attentest train`, and the page downloads nothing."
            )
    if find_spec("gradio") is None:
        raise InputError("the page needs Gradio: pip install 'attentest[app]'.")
    from attentest.app.server import listening_socket, serve

    bound = listening_socket(port)
    say("starting; this takes some seconds")
    with bound, suppress(KeyboardInterrupt):
        serve(
            bound,
            models=directories,
            device=device,
            max_upload=max_upload_mb * 1_000_000,
            max_total=max_total_mb * 1_000_000,
            ready=lambda address, to_open: _ready(address, to_open if open_browser else None),
        )
    say("stopped; uploaded images were deleted")


def _ready(address: str, to_open: str | None) -> None:
    typer.echo(address)
    say("press Ctrl-C to stop")
    if to_open is not None:
        import webbrowser

        webbrowser.open(to_open)
