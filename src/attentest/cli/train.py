"""``attentest train``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from attentest.cli.command import with_options_of
from attentest.cli.options import DeviceOption
from attentest.cli.output import progress_bar, say
from attentest.training.bundled import check_target
from attentest.training.settings import TrainingSettings


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Options of a training: those of its settings, by name, and where it is done."""

    settings: Annotated[dict[str, Any], TrainingSettings]
    device: DeviceOption = "cpu"


@with_options_of(TrainingOptions)
def train(
    directory: Annotated[Path, typer.Argument(help="New directory for the model.", show_default=False)],
    options: TrainingOptions,
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
    from attentest.training.paper_model import train as run_training

    size = settings.image_size
    with progress_bar(f"training {settings.architecture} {'x'.join([str(size)] * settings.axes)}") as progress:
        trained = run_training(settings, options.device, progress)
    save_or_rescue(trained, directory)
    accuracy = trained.record["accuracy"]
    say(f"accuracy on held-out images {accuracy['held_out']:.4f}, on training images {accuracy['training']:.4f}")
    typer.echo(str(directory))
