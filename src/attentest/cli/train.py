"""``attentest train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attentest.cli.options import ArchitectureName, DeviceOption
from attentest.cli.output import progress_bar, say


def train(
    directory: Annotated[Path, typer.Argument(help="New directory for the model.", show_default=False)],
    image_size: Annotated[int, typer.Option(help="Side of the images in pixels.")] = 16,
    architecture: Annotated[
        ArchitectureName, typer.Option(help="Size of the model: small, base, large or huge.", metavar="NAME")
    ] = ArchitectureName.base,
    seed: Annotated[int, typer.Option(help="Seed of the images, the initial weights, the batches and dropout.")] = 0,
    epochs: Annotated[int, typer.Option(help="Passes over the training images.")] = 100,
    batch_size: Annotated[int, typer.Option(help="Images per training step.")] = 32,
    learning_rate: Annotated[float, typer.Option(help="Adam's learning rate.")] = 1e-4,
    dropout: Annotated[float, typer.Option(help="Dropout rate during training.")] = 0.1,
    images_per_class: Annotated[int, typer.Option(help="Training images with a signal, and as many without.")] = 1000,
    device: DeviceOption = "cpu",
) -> None:
    """Train the paper's classifier on its synthetic images and save it as a Hugging Face directory.

    For example:

    ```
    attentest train my-vit --image-size 16 --epochs 20
    ```

    Folders above the directory are created if they do not exist.
    """
    from attentest.training.bundled import check_target
    from attentest.training.settings import TrainingSettings

    check_target(directory)
    settings = TrainingSettings(
        image_size=image_size,
        architecture=architecture.value,
        seed=seed,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        dropout=dropout,
        images_per_class=images_per_class,
    )
    from attentest.training.classifier import save_or_rescue
    from attentest.training.paper_model import train as run_training

    with progress_bar(f"training {architecture.value} {image_size}x{image_size}") as progress:
        trained = run_training(settings, device, progress)
    save_or_rescue(trained, directory)
    accuracy = trained.record["accuracy"]
    say(f"accuracy on held-out images {accuracy['held_out']:.4f}, on training images {accuracy['training']:.4f}")
    typer.echo(str(directory))
