"""The command line: data on standard output, everything else on standard error."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from attentest import __version__
from attentest.bundled import bundled_model
from attentest.errors import AttentestError, InputError

if TYPE_CHECKING:
    from attentest.bench import Report
    from attentest.result import AttentionTestResult

INTERRUPTED = 130
"""Exit code after Ctrl-C, by convention; Typer turns the interrupt into it."""

app = typer.Typer(
    name="attentest",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Is the region a Vision Transformer attends to statistically real?",
    epilog="Start with: attentest demo",
)


class SearchName(StrEnum):
    """Searches for the truncation set."""

    spectral = "spectral"
    adaptive = "adaptive"
    fixed = "fixed"
    combination = "combination"


class AlternativeName(StrEnum):
    """Alternatives."""

    two_sided = "two-sided"
    greater = "greater"
    less = "less"


class ArchitectureName(StrEnum):
    """Architectures of the paper."""

    small = "small"
    base = "base"
    large = "large"
    huge = "huge"


SearchOption = Annotated[
    SearchName,
    typer.Option(
        help="How to search the z axis: spectral (attentest's own, fast and with an error bar), or as in the paper: "
        "adaptive steps, a fixed step of 1e-3, or a combination of 1e-4 near the observed statistic and 1e-2 elsewhere."
    ),
]
DEFAULT_TOL = 1e-6
TolOption = Annotated[
    float, typer.Option(help="Width of the error bar of p at which the spectral search stops.", show_default=True)
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object an image, batch by batch.")]
AlphaOption = Annotated[float, typer.Option(help="Significance level of the verdict, between 0 and 1.")]
DeviceOption = Annotated[str, typer.Option(help="Where to compute: cpu, cuda, cuda:1, ...")]


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Is the region a Vision Transformer attends to statistically real?"""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where to write the figure (png, svg or pdf).")] = Path("demo/demo.png"),
    seed: Annotated[int, typer.Option(help="Seed of the two images.", min=0)] = 0,
    search: SearchOption = SearchName.spectral,
    alpha: AlphaOption = 0.05,
    as_json: JsonOption = False,
) -> None:
    """Test an image of pure noise and one with a signal, and draw both.

    The naive test calls both regions significant. The selective test, which knows that the model chose the region by
    looking at the image, tells them apart.
    """
    from attentest.demo import demo_panels
    from attentest.plots import check_figure_path, results_figure, save_figure

    _check_level(alpha)
    check_figure_path(out)
    with progress_bar("testing 2 images") as progress:
        panels = demo_panels(seed, search.value, progress)
    _print_results([(panel.title, panel.result) for panel in panels], alpha, as_json)
    save_figure(results_figure(panels), out)
    _say(f"figure: {out}")


@app.command()
def test(
    images: Annotated[list[Path], typer.Argument(help="Image files: .npy, or PNG, JPEG, TIFF.", show_default=False)],
    noise: Annotated[
        float,
        typer.Option(help="Standard deviation of the pixel noise, in the images' own units.", show_default=False),
    ],
    model: Annotated[
        Path | None, typer.Option(help="Hugging Face ViT directory.", show_default="the bundled 16x16 model")
    ] = None,
    rho: Annotated[float, typer.Option(help="AR(1) correlation along the flattened image.")] = 0.0,
    threshold: Annotated[float, typer.Option(help="The region is where the attention map exceeds this.")] = 0.6,
    search: SearchOption = SearchName.spectral,
    alternative: Annotated[
        AlternativeName, typer.Option(help="The region's mean differs from the background's, is greater, or is less.")
    ] = AlternativeName.two_sided,
    alpha: AlphaOption = 0.05,
    decide: Annotated[
        bool,
        typer.Option(
            "--decide", help="Stop each search as soon as the verdict at alpha is certain, and report it: faster."
        ),
    ] = False,
    tol: TolOption = DEFAULT_TOL,
    figure: Annotated[Path | None, typer.Option(help="Also draw the results to this file.", show_default=False)] = None,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Test whether the region a model attends to differs from the rest of each image.

    Example: attentest test scan.npy --noise 1.0 --model my-vit --figure scan.png
    """
    from attentest.attention_test import AttentionTest
    from attentest.image_file import read_image
    from attentest.noise import AR1, Isotropic
    from attentest.plots import Panel, check_figure_path, results_figure, save_figure
    from attentest.search import SpectralSearch

    if figure is not None:
        check_figure_path(figure, inputs=images)
    _check_level(alpha)
    if search is not SearchName.spectral and (decide or tol != DEFAULT_TOL):
        raise InputError(f"--tol and --decide belong to the spectral search, and {search.value} was asked for.")
    pixels = [read_image(path) for path in images]
    attention_test = AttentionTest.from_pretrained(
        model or bundled_model(),
        noise=AR1(rho, noise) if rho else Isotropic(noise),
        threshold=threshold,
        search=SpectralSearch(tol=tol) if search is SearchName.spectral else search.value,
        alternative=alternative.value,
        device=device,
    )
    for path, values in zip(images, pixels, strict=True):
        try:
            attention_test.check(values)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
    with progress_bar(f"testing {len(pixels)} image(s)") as progress:
        results: list[AttentionTestResult] = []
        stream = attention_test.stream(pixels, progress, alpha=alpha if decide else None)
        for path, result in zip(images, stream, strict=True):
            results.append(result)
            if as_json:
                _print_json(str(path), result)
    if not as_json:
        _print_table([(str(path), result) for path, result in zip(images, results, strict=True)], alpha)
    if figure is not None:
        panels = [
            Panel(title=path.name, image=image.squeeze(), result=result)
            for path, image, result in zip(images, pixels, results, strict=True)
        ]
        save_figure(results_figure(panels), figure)
        _say(f"figure: {figure}")


@app.command()
def bench(
    out: Annotated[Path, typer.Option(help="Directory for bench.json and bench.png.")] = Path("bench"),
    images: Annotated[int, typer.Option(help="Null images for the spectral search.", min=1)] = 100,
    grid_images: Annotated[
        int | None,
        typer.Option(help="Images for adaptive and combination.", show_default="2, or 20 with CUDA", min=1),
    ] = None,
    fixed_images: Annotated[
        int | None,
        typer.Option(
            help="Images on which fixed is run to its end and p compared; with 0 its time is extrapolated.",
            show_default="1, or 20 with CUDA",
            min=0,
        ),
    ] = None,
    size: Annotated[
        list[int] | None, typer.Option(help="Only models for images of this side; repeatable.", show_default="all")
    ] = None,
    tol: Annotated[float, typer.Option(help="Width of the error bar of the spectral search.")] = 1e-4,
    seed: Annotated[int, typer.Option(help="Seed of the images.", min=0)] = 0,
    device: DeviceOption = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON instead of tables.")] = False,
) -> None:
    """Measure what a p-value costs with each search, side by side, on the bundled models.

    Takes about a quarter of an hour on two cores, most of it for the paper's searches.
    """
    from attentest.bench import BenchSettings, benchmark_figure, run_benchmark
    from attentest.bundled import BUNDLED
    from attentest.plots import check_figure_path, save_figure

    figure = out / "bench.png"
    check_figure_path(figure)
    cuda = device.startswith("cuda")
    unknown = set(size or ()) - {side for _, side in BUNDLED}
    if unknown:
        raise InputError(f"there is no bundled model for images of side {min(unknown)}: use 8, 16, 32 or 64.")
    settings = BenchSettings(
        sizes=tuple(model for model in BUNDLED if not size or model[1] in size),
        images=images,
        grid_images=min(images, (20 if cuda else 2) if grid_images is None else grid_images),
        fixed_images=min(images, (20 if cuda else 1) if fixed_images is None else fixed_images),
        tol=tol,
        device=device,
        seed=seed,
    )
    with progress_bar("benchmark") as progress:
        report = run_benchmark(settings, progress)
    (out / "bench.json").write_text(report.to_json(), encoding="utf-8")
    if as_json:
        sys.stdout.write(report.to_json())
    else:
        _print_benchmark(report)
    save_figure(benchmark_figure(report), figure)
    _say(f"report: {out / 'bench.json'}, figure: {figure}")


@app.command()
def train(
    directory: Annotated[Path, typer.Argument(help="New directory for the model.", show_default=False)],
    image_size: Annotated[int, typer.Option(help="Side of the images in pixels.")] = 16,
    architecture: Annotated[ArchitectureName, typer.Option(help="Size of the model.")] = ArchitectureName.base,
    seed: Annotated[int, typer.Option(help="Seed of images, weights, batches and dropout.")] = 0,
    epochs: Annotated[int, typer.Option(help="Passes over the images.")] = 100,
    batch_size: Annotated[int, typer.Option(help="Images a step.")] = 32,
    learning_rate: Annotated[float, typer.Option(help="Adam's learning rate.")] = 1e-4,
    dropout: Annotated[float, typer.Option(help="Dropout while training.")] = 0.1,
    images_per_class: Annotated[int, typer.Option(help="Training images without and with a signal, each.")] = 1000,
    device: DeviceOption = "cpu",
) -> None:
    """Train the paper's classifier on its synthetic images and save it as a Hugging Face directory."""
    from attentest.training import TrainingSettings, check_target
    from attentest.training import train as run_training

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
    with progress_bar(f"training {architecture.value} {image_size}x{image_size}") as progress:
        trained = run_training(settings, device, progress)
    try:
        trained.save(directory)
    except OSError as error:
        rescue = Path(tempfile.mkdtemp(prefix="attentest-")) / directory.name
        trained.save(rescue)
        raise InputError(f"{directory} cannot be written ({error}); the trained model is in {rescue}.") from None
    accuracy = trained.record["accuracy"]
    _say(f"held-out accuracy {accuracy['held_out']:.4f}, on training images {accuracy['training']:.4f}")
    typer.echo(str(directory))


def main() -> None:
    """Run the command line; a user's mistake ends in one sentence and exit code 2."""
    try:
        app()
    except AttentestError as error:
        _fail(str(error), 2)
    except (KeyboardInterrupt, SystemExit) as stop:
        if isinstance(stop, SystemExit) and stop.code != INTERRUPTED:
            raise
        _fail("interrupted; what was printed is complete.", INTERRUPTED)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        _fail(f"{error.strerror or error}{where}.", 1)


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[float, float | None], None]]:
    """Show a bar on standard error and yield the callback (done, total) that moves it."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _print_results(results: Iterable[tuple[str, AttentionTestResult]], alpha: float, as_json: bool) -> None:
    results = list(results)
    if not as_json:
        return _print_table(results, alpha)
    for name, result in results:
        _print_json(name, result)


def _print_json(name: str, result: AttentionTestResult) -> None:
    sys.stdout.write(json.dumps({"image": name, **result.to_dict()}, allow_nan=False) + "\n")
    sys.stdout.flush()


def _print_table(results: Iterable[tuple[str, AttentionTestResult]], alpha: float) -> None:
    from rich.markup import escape

    table = Table()
    for heading in ("image", "statistic", "naive p", "selective p", "error bar", f"verdict at {alpha:g}"):
        table.add_column(heading, justify="right" if heading.endswith((" p", "statistic", "bar")) else "left")
    for name, result in results:
        lower, upper = result.pvalue_bounds
        verdict = "significant" if upper <= alpha else "not significant" if lower > alpha else "undecided"
        if result.status not in ("converged", "decided"):
            verdict += f" ({result.status})"
        numbers = (f"{result.statistic:.4f}", f"{result.naive_pvalue:.3g}", f"{result.pvalue:.4g}")
        table.add_row(escape(name), *numbers, f"{upper - lower:.0e}", verdict)
    _table_console().print(table)


def _print_benchmark(report: Report) -> None:
    from attentest.bench import ratio_to_adaptive

    console = _table_console()
    headings = (
        "model",
        "search",
        "images",
        "evaluations",
        "s an image",
        "times adaptive",
        "max |dp|",
        "median |dp|",
        "MiB",
    )
    table = Table(*headings, title=f"one p-value, error bar {report.settings['tol']:g}, {report.machine['device']}")
    for row in report.rows:
        table.add_row(
            row.model,
            row.search + (" (extrapolated)" if row.extrapolated else ""),
            str(row.images),
            f"{row.evaluations:.0f}",
            f"{row.seconds:.3g}",
            f"{ratio_to_adaptive(report.rows, row):.1f}",
            *("" if d is None else f"{d:.1e}" for d in (row.largest_difference, row.median_difference)),
            "" if row.peak_mebibytes is None else f"{row.peak_mebibytes:.0f}",
            end_section=row.search == "fixed",
        )
    console.print(table)
    growth = Table("images together", "ms an image", title="spectral, as the number of images grows")
    for point in report.growth:
        growth.add_row(f"{point['images']:.0f}", f"{1e3 * point['seconds']:.2f}")
    console.print(growth)
    sizes = Table("model", "pixels", "parameters", "ms an image", title="spectral in map, as images and models grow")
    for row in report.rows:
        if row.search.startswith("spectral, map"):
            sizes.add_row(row.model, str(row.pixels), str(row.parameters), f"{1e3 * row.seconds:.2f}")
    console.print(sizes)
    stages = Table("stage", "ms an image", "share", title="where the time of the spectral search goes")
    for name, seconds in report.stages.items():
        stages.add_row(name, f"{1e3 * seconds:.2f}", f"{seconds / report.stages['in all']:.0%}")
    console.print(stages)


def _check_level(alpha: float) -> None:
    if not 0 < alpha < 1:
        raise InputError(f"alpha must lie strictly between 0 and 1, got {alpha}.")


def _table_console() -> Console:
    """Return a console on standard output that is wide enough for tables where it is no terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=max(console.width, 132))


def _say(text: str) -> None:
    typer.echo(text, err=True)


def _fail(text: str, code: int) -> None:
    _say(f"attentest: {text}")
    raise SystemExit(code)


__all__ = ["app", "main"]
