"""``attentest app``."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from attentest.cli.command import with_options_of
from attentest.cli.options import DeviceOption
from attentest.cli.output import say
from attentest.cli.values import onnx_file
from attentest.definition import PretrainedDefinition, option
from attentest.errors import InputError


@dataclass(frozen=True, kw_only=True)
class PageOptions:
    """What the page offers, where, and how much can be uploaded to it."""

    model: list[Path] | None = option(
        "Directory of a saved ViT or CNN of Hugging Face or timm, or ONNX file, that the page offers; repeatable.",
        default=None,
        metavar="DIR",
        shown_default="the bundled models alone",
    )
    port: int = option("Port of the page; 0 takes any that is free.", default=7860, limits=(0, 65535))
    open_browser: bool = option("Whether to open the page in the browser.", default=True, flag="--open/--no-open")
    max_upload_mb: int = option("Largest file that can be uploaded, in megabytes.", default=20, limits=(1, 4096))
    max_total_mb: int = option("Most megabytes of all uploaded files.", default=1000, limits=(1, 1_000_000))
    device: DeviceOption = "cpu"
    defined: Annotated[dict[str, Any], PretrainedDefinition]


@with_options_of(PageOptions, leave_out={field.name for field in fields(PretrainedDefinition)} - {"image_size"})
def web_page(options: PageOptions) -> None:
    """Open a web page: upload an image, see the region, its p-value and its interval, download the report.

    For example:

    ```
    attentest app
    attentest app --model my-vit --model my-resnet --device cuda
    attentest app --port 8080 --no-open --max-upload-mb 200
    ```

    The page is served on this machine alone, at 127.0.0.1, and loads nothing from elsewhere. Its address is printed
    when it is ready; it has a token, and nobody is answered without it. Uploaded images are kept in a temporary folder
    until they were not used for an hour, or the command ends. Ctrl-C ends it.
    """
    from importlib.util import find_spec

    directories = options.model or []
    for directory in directories:
        if not directory.is_dir() and not (directory.is_file() and onnx_file(str(directory))):
            raise InputError(
                f"there is no model directory {directory}: --model takes a directory made by save_pretrained or "
                "`attentest train`, or an ONNX file, and the page downloads nothing."
            )
    if find_spec("gradio") is None:
        raise InputError("the page needs Gradio: pip install 'attentest[app]'.")
    from attentest.app.server import listening_socket, serve

    bound = listening_socket(options.port)
    say("starting; this takes some seconds")
    from attentest.app.offered import OfferedModels

    with bound, suppress(KeyboardInterrupt):
        serve(
            bound,
            models=OfferedModels(directories, options.device, **options.defined),
            max_upload=options.max_upload_mb * 1_000_000,
            max_total=options.max_total_mb * 1_000_000,
            ready=lambda address, to_open: _ready(address, to_open if options.open_browser else None),
        )
    say("stopped; uploaded images were deleted")


def _ready(address: str, to_open: str | None) -> None:
    typer.echo(address)
    say("press Ctrl-C to stop")
    if to_open is not None:
        import webbrowser

        webbrowser.open(to_open)
