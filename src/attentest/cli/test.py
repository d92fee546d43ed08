"""``attentest test``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attentest.cli.attention_test_options import AttentionTestOptions
from attentest.cli.image_files import ImageFiles
from attentest.cli.interruption import Interruption
from attentest.cli.option_group import with_options_of
from attentest.cli.option_names import option_names
from attentest.cli.options import (
    CERTIFICATE,
    COMPARED,
    OUTPUT,
    SEARCH,
    SPECTRAL,
    AlphaOption,
    FrameOption,
    JsonOption,
    WindowOption,
    check_level,
)
from attentest.cli.output import print_json, progress_bar, say
from attentest.cli.result_table import print_component_table, print_table
from attentest.errors import InputError
from attentest.registry import IMAGE_FORMATS

if TYPE_CHECKING:
    from attentest.api import AttentionTest
    from attentest.results.batch import ComponentResults, Results
    from attentest.search import Certification

MOST_PANELS = 40
"""Largest number of images in a figure: more take minutes to draw and cannot be read."""

DEFAULT_CONFIDENCE = 0.95


@with_options_of(AttentionTestOptions)
def test(
    images: Annotated[
        list[Path],
        typer.Argument(help=f"Image files: {', '.join(IMAGE_FORMATS)}, ...", show_default=False),
    ],
    options: AttentionTestOptions,
    frame: FrameOption = None,
    window: WindowOption = False,
    reference: Annotated[
        list[Path] | None,
        typer.Option(
            help="For --contrast reference: the image to compare with. Give it once for all images, or once per image "
            "in the same order.",
            show_default=False,
            rich_help_panel=COMPARED,
        ),
    ] = None,
    components: Annotated[
        bool,
        typer.Option(
            "--components",
            help="Test each connected component of the region by itself, with p-values adjusted for their number "
            "(Holm).",
            rich_help_panel=COMPARED,
        ),
    ] = False,
    connectivity: Annotated[
        int | None,
        typer.Option(
            help="For --components: 1 to join pixels that share an edge, 2 to join those that share a corner as well.",
            min=1,
            max=2,
            show_default="1",
            rich_help_panel=COMPARED,
        ),
    ] = None,
    alpha: AlphaOption = 0.05,
    decide: Annotated[
        bool,
        typer.Option(
            "--decide",
            help="Stop each search as soon as the verdict at --alpha is certain: faster.",
            rich_help_panel=SEARCH,
        ),
    ] = False,
    confidence_level: Annotated[
        float | None,
        typer.Option(
            help="Level of the confidence interval of the difference, which is in the units of the images.",
            show_default="0.95",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    no_interval: Annotated[
        bool,
        typer.Option(
            "--no-interval",
            help="Leave out the confidence interval and search only as far as p needs: faster.",
            rich_help_panel=SEARCH,
        ),
    ] = False,
    certify: Annotated[
        bool,
        typer.Option(
            "--certify",
            help="Add a certified p-value: exactly valid whatever the model does between the evaluations of the "
            "search, and a check of its error bar. For p-values with status 'sharp', where the scores change too "
            "abruptly for the search, it is the one to report. Takes thousands of evaluations for each p.",
            rich_help_panel=CERTIFICATE,
        ),
    ] = False,
    draws: Annotated[
        int | None,
        typer.Option(
            help="For --certify: number N of draws; the least possible certified p is 1 / (N + 1).",
            show_default="99",
            rich_help_panel=CERTIFICATE,
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            help="For --certify: steps of the chain behind each draw; too few cost power, never validity.",
            show_default="6",
            rich_help_panel=CERTIFICATE,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="For --certify: seed of the draws.",
            show_default="the image itself",
            rich_help_panel=CERTIFICATE,
        ),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(
            help="Also write a table of all results to this .csv file.", show_default=False, rich_help_panel=OUTPUT
        ),
    ] = None,
    parquet: Annotated[
        Path | None,
        typer.Option(help="Also write this table to a .parquet file.", show_default=False, rich_help_panel=OUTPUT),
    ] = None,
    figure: Annotated[
        Path | None,
        typer.Option(
            help="Also draw the results to this .png, .svg or .pdf file.", show_default=False, rich_help_panel=OUTPUT
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Test whether the region that a model attends to differs from the rest of each image.

    Prints for each image the statistic, an estimate of the difference with its confidence interval, and the selective
    p-value, which are valid although the model chose the region from the same image; and the naive p-value, which is
    not valid.

    Examples:
    attentest test scan.npy --noise 1.0 --model my-vit --figure scan.png

    attentest test photo.jpg --noise 8 --model google/vit-base-patch16-224 --attention last-layer

    attentest test scans/*.npy --noise noise.safetensors --top-fraction 0.1 --components --csv scans.csv

    attentest test after.npy --contrast reference --reference before.npy --noise 1.0

    attentest test scan.npy --noise 1.0 --certify --draws 999
    """
    check_level(alpha)
    certification = _certification(certify, draws=draws, steps=steps, seed=seed)
    _check_together(options, components, connectivity, decide, confidence_level, no_interval, reference or [])
    files = ImageFiles(images=images, references=reference or [], frame=frame, window=window)
    inputs = [*images, *files.references, *options.input_files]
    _check_outputs(inputs, csv, parquet, figure, len(images), components)
    searched_level = None if no_interval else DEFAULT_CONFIDENCE if confidence_level is None else confidence_level
    attention_test = options.attention_test(searched_level)
    files.check(attention_test)
    table_level = searched_level or DEFAULT_CONFIDENCE
    interruption = Interruption()
    if components:
        regions = _tested_components(
            attention_test, files, connectivity or 1, alpha, certification, as_json, interruption
        )
        if regions:
            try:
                _write_tables(_component_columns(regions, table_level), csv, parquet)
            finally:
                if not as_json:
                    print_component_table(regions, alpha, searched_level)
        return interruption.finish(len(images), "images")
    results = _tested(attention_test, files, alpha, decide, certification, as_json, interruption)
    if len(results) > 0:
        # Files first, because a pipe may be closed by its reader; the numbers in any case, because a disk may be full.
        try:
            _write_tables(results.table(table_level), csv, parquet)
            if figure is not None:
                _draw(files, results, figure)
        finally:
            if not as_json:
                print_table(results, alpha, searched_level)
            if not as_json and len(results) > 1:
                typer.echo(results.summary(alpha))
    interruption.finish(len(images), "images")


def _check_together(
    options: AttentionTestOptions,
    components: bool,
    connectivity: int | None,
    decide: bool,
    confidence_level: float | None,
    no_interval: bool,
    references: Sequence[Path],
) -> None:
    """Refuse options that contradict each other."""
    if decide and options.search != SPECTRAL:
        raise InputError(f"--decide is for the spectral search, but --search is {options.search}.")
    if connectivity is not None and not components:
        raise InputError("--connectivity is for --components: give both or neither.")
    if decide and components:
        raise InputError(
            "--decide stops when it is known on which side of --alpha a p-value lies, but the verdict on components is "
            "by adjusted p-values: leave out --decide or --components."
        )
    if no_interval and confidence_level is not None:
        raise InputError("--no-interval leaves out the interval that --confidence-level is for: give one of them.")
    if references and options.contrast != "reference":
        raise InputError(f"--reference is for --contrast reference, but --contrast is {options.contrast}.")
    if not references and options.contrast == "reference":
        raise InputError("--contrast reference compares with another image: give it with --reference.")


def _certification(certify: bool, **options: int | None) -> Certification | None:
    """Return how to certify the results, if they are to be; refuse options of a certificate that is not asked for."""
    given = {name: value for name, value in options.items() if value is not None}
    if not certify:
        if given:
            names = " and ".join(f"--{name}" for name in given)
            raise InputError(f"{names} {'are' if len(given) > 1 else 'is'} for --certify, which is not there: add it.")
        return None
    from attentest.search import Certification

    return Certification(**given)


def _check_outputs(
    inputs: Sequence[Path],
    csv: Path | None,
    parquet: Path | None,
    figure: Path | None,
    images: int,
    components: bool,
) -> None:
    """Refuse outputs that cannot be written, before anything is computed."""
    from attentest.results.plots import check_figure_path
    from attentest.results.tables import check_csv_path, check_parquet_path

    for path, name, option, check in (
        (csv, "the table", "--csv", check_csv_path),
        (parquet, "the table", "--parquet", check_parquet_path),
        (figure, "the figure", "--figure", check_figure_path),
    ):
        if path is not None:
            with option_names({f"the file name of {name}": option}):
                check(path, inputs)
    if figure is not None:
        if images > MOST_PANELS:
            raise InputError(f"--figure shows at most {MOST_PANELS} images, got {images}: leave it out.")
        if components:
            raise InputError("--figure shows whole regions: leave out --figure or --components.")


def _tested(
    attention_test: AttentionTest,
    files: ImageFiles,
    alpha: float,
    decide: bool,
    certification: Certification | None,
    as_json: bool,
    interruption: Interruption,
) -> Results:
    """Return the results; print them as JSON, if asked to, batch by batch."""
    from attentest.results.batch import Results

    found = []
    with _bar(files) as progress:
        stream = attention_test.stream(
            files.pixels(),
            progress,
            references=files.reference_pixels(),
            alpha=alpha if decide else None,
            certification=certification,
        )
        for name, result in zip(files.names, interruption.until(stream), strict=False):
            found.append(result)
            if as_json:
                print_json({"image": name, **result.to_dict(), "alpha": alpha, "reject": result.reject_at(alpha)})
    return Results(found, files.names[: len(found)])


def _tested_components(
    attention_test: AttentionTest,
    files: ImageFiles,
    connectivity: int,
    alpha: float,
    certification: Certification | None,
    as_json: bool,
    interruption: Interruption,
) -> list[tuple[str, ComponentResults]]:
    """Return the results of each image's components; print them as JSON, if asked to, batch by batch."""
    found = []
    with _bar(files) as progress:
        stream = attention_test.stream_components(
            files.pixels(),
            progress,
            references=files.reference_pixels(),
            connectivity=connectivity,
            certification=certification,
        )
        for name, results in zip(files.names, interruption.until(stream), strict=False):
            found.append((name, results))
            adjusted = zip(results.adjusted_pvalues().tolist(), results.decisions(alpha), strict=True)
            for number, (holm, rejected) in enumerate(adjusted if as_json else ()):
                which = {"image": name, "component": number + 1, "pvalue_holm": holm}
                print_json({**which, **results[number].to_dict(), "alpha": alpha, "reject": rejected})
    return found


@contextmanager
def _bar(files: ImageFiles) -> Iterator[Callable[[float, int | None], None]]:
    total = len(files.images)
    with progress_bar(f"testing {total} image(s)") as progress:
        yield lambda done, _: progress(done, total)


def _component_columns(
    regions: Sequence[tuple[str, ComponentResults]], confidence_level: float
) -> dict[str, list[Any]]:
    """Return one table of the components of all images as columns, with p-values adjusted within each image."""
    columns: dict[str, list[Any]] = {}
    for name, results in regions:
        own = results.table(confidence_level)
        del own["image"]
        count = len(results)
        numbered: dict[str, list[Any]] = {"image": [name] * count, "component": list(range(1, count + 1)), **own}
        for heading, values in numbered.items():
            columns.setdefault(heading, []).extend(values)
    return columns


def _write_tables(columns: dict[str, list[Any]], csv: Path | None, parquet: Path | None) -> None:
    from attentest.results.tables import write_csv, write_parquet

    for path, write in ((csv, write_csv), (parquet, write_parquet)):
        if path is not None:
            write(columns, path)
            say(f"table: {path}")


def _draw(files: ImageFiles, results: Results, figure: Path) -> None:
    from attentest.results.plots import Panel, results_figure, save_figure

    panels = [
        Panel(title=path.name, image=pixels.squeeze(), result=result)
        for path, pixels, result in zip(files.images, files.pixels(), results, strict=False)
    ]
    save_figure(results_figure(panels), figure)
    say(f"figure: {figure}")
