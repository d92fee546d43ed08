"""``attentest demo``, ``app`` and ``train``: to try it, with the bundled models and others like them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from attentest.cli.attention_test_options import onnx_file
from attentest.cli.options import alpha_option, check_level, device_option, image_json_option, search_option
from attentest.cli.output import check_figure, print_json, progress_bar, say, write_figure
from attentest.definition import PretrainedDefinition, option
from attentest.errors import InputError
from attentest.training.bundled import TrainingSettings, check_target

SIZES = {1: 256, 2: 16, 3: 16}  # side of what is tested, that of the bundled model, by the number of axes

HEIGHTS = {1: 1.5, 2: 3.0, 3: 1.5}
"""Mean of the signal, in standard deviations of the noise: clear to the test, not to the eye."""


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """What is shown, and where it goes."""

    out: Path = option("File of the figure: .png, .svg or .pdf.", default=Path("demo/demo.png"))
    signal: bool = option("Signals of 256 samples in place of images.", default=False)
    volume: bool = option("Volumes of 16 x 16 x 16 voxels in place of images.", default=False)
    seed: int = option("Seed of the two images.", default=0, limits=(0, None))
    search: str = search_option()
    alpha: float = alpha_option()
    as_json: bool = image_json_option()


def demo(options: DemoOptions) -> None:
    """Test an image of noise alone and one with a signal, and draw both.

    For example:

    ```
    attentest demo --out demo.png
    attentest demo --signal --out signal.png
    ```

    The naive test calls both regions of the images significant. The selective test accounts for the model having chosen
    the region from the same image, and tells them apart. Volumes are tested with --randomise 0.5 and --region-unit
    patches: given the exact outline of a region among thousands of voxels, little is left to find.
    """
    import numpy as np

    from attentest.cli.batch import print_table
    from attentest.presentation.result_figure import results_figure
    from attentest.presentation.rows import row_of

    signal, volume, alpha = options.signal, options.volume, options.alpha
    check_level(alpha)
    if signal and volume:
        raise InputError("--signal and --volume are two demonstrations: give one of them.")
    check_figure(options.out)
    from attentest.pipeline.attention_test import AttentionTest
    from attentest.simulation.images import null_images, signal_images
    from attentest.training.bundled import bundled_model

    axes = 1 if signal else 3 if volume else 2
    size, height = SIZES[axes], HEIGHTS[axes]
    with progress_bar(f"testing 2 {'signals' if signal else 'volumes' if volume else 'images'}") as progress:
        rng = np.random.default_rng(options.seed)
        images = [null_images(rng, 1, size, axes=axes)[0], signal_images(rng, 1, size, height, axes=axes)[0][0]]
        chosen: dict[str, Any] = {"randomise": 0.5, "region_unit": "patches"} if volume else {}
        test = AttentionTest.from_pretrained(bundled_model(axes=axes), noise=1.0, search=options.search, **chosen)
        titles = "pure noise", f"signal of {height:g} sigma"
        named = list(zip(titles, test.map(images, progress), strict=True))
    if options.as_json:
        for title, result in named:
            verdict = {"alpha": alpha, "reject": result.reject_at(alpha)}
            print_json({"image": title, **result.to_dict(), **verdict})
    else:
        print_table([[row_of(title, result.record())] for title, result in named], alpha)
    write_figure(options.out, lambda: results_figure([result.picture(title) for title, result in named], alpha=alpha))


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Options of a training: those of its settings, by name, and where it is done."""

    settings: Annotated[dict[str, Any], TrainingSettings]
    device: str = device_option()


def train(
    options: TrainingOptions,
    directory: Path = typer.Argument(help="New directory for the model."),
) -> None:
    """Train the paper's classifier on its synthetic images, or signals or volumes, and save it as a directory.

    For example:

    ```
    attentest train my-vit --image-size 16 --epochs 20
    attentest train my-signal-model --axes 1 --image-size 256 --architecture small
    ```

    Folders above the directory are created if they do not exist.
    """
    check_target(directory)
    settings = TrainingSettings(**options.settings)
    from attentest.training.classifier import save_or_rescue
    from attentest.training.signal_classifier import train as run_training

    size = settings.image_size
    with progress_bar(f"training {settings.architecture} {'x'.join([str(size)] * settings.axes)}") as progress:
        trained = run_training(settings, options.device, progress)
    save_or_rescue(trained, directory)
    accuracy = trained.record["accuracy"]
    say(f"accuracy on held-out images {accuracy['held_out']:.4f}, on training images {accuracy['training']:.4f}")
    typer.echo(str(directory))


@dataclass(frozen=True, kw_only=True)
class PageOptions:
    """What the page offers, where, and how much can be uploaded to it."""

    model: list[Path] | None = option(
        "Directory of a saved ViT or CNN of Hugging Face or timm, or ONNX file, that the page offers; repeatable.",
        metavar="DIR",
        shown_default="the bundled models alone",
    )
    port: int = option("Port of the page; 0 takes any that is free.", default=7860, limits=(0, 65535))
    open_browser: bool = option("Whether to open the page in the browser.", default=True, flag="--open/--no-open")
    max_upload_mb: int = option("Largest file that can be uploaded, in megabytes.", default=20, limits=(1, 4096))
    max_total_mb: int = option("Most megabytes of all uploaded files.", default=1000, limits=(1, 1_000_000))
    device: str = device_option()
    defined: Annotated[dict[str, Any], PretrainedDefinition, ("image_size",)]


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
