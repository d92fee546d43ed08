"""``attentest test``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attentest.cli.attention_test_options import AttentionTestOptions
from attentest.cli.option_group import with_options_of
from attentest.cli.options import (
    COMPARED,
    OUTPUT,
    AlphaOption,
    FrameOption,
    JsonOption,
    SearchName,
    WindowOption,
    check_level,
)
from attentest.cli.output import print_json, progress_bar, say
from attentest.cli.result_table import print_component_table, print_table
from attentest.errors import InputError

if TYPE_CHECKING:
    from attentest.attention_test import AttentionTest
    from attentest.results import ComponentResults, Results

MOST_PANELS = 40
"""Rows of a figure; more take minutes to draw and nobody looks at them."""

USUAL_CONFIDENCE = 0.95


@with_options_of(AttentionTestOptions)
def test(
    images: Annotated[
        list[Path],
        typer.Argument(help="Image files: .npy, PNG, JPEG, TIFF, DICOM, NIfTI, ...", show_default=False),
    ],
    options: AttentionTestOptions,
    frame: FrameOption = None,
    window: WindowOption = False,
    reference: Annotated[
        list[Path] | None,
        typer.Option(
            help="For --contrast reference: the image to compare with. Once for all images, or as often as there are "
            "images, in their order.",
            show_default=False,
            rich_help_panel=COMPARED,
        ),
    ] = None,
    components: Annotated[
        bool,
        typer.Option(
            "--components",
            help="Test each connected component of the region by itself, with p-values adjusted (Holm) for their "
            "number.",
            rich_help_panel=COMPARED,
        ),
    ] = False,
    connectivity: Annotated[
        int | None,
        typer.Option(
            help="Of components: 1 for pixels that share an edge, 2 for those that share a corner too.",
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
            "--decide", help="Stop each search as soon as the verdict at alpha is certain, and report it: faster."
        ),
    ] = False,
    confidence_level: Annotated[
        float | None,
        typer.Option(help="Of the confidence interval of the difference, in the images' units.", show_default="0.95"),
    ] = None,
    no_interval: Annotated[bool, typer.Option("--no-interval", help="Search only as far as p needs: faster.")] = False,
    csv: Annotated[
        Path | None,
        typer.Option(
            help="Also write a table of all results to this .csv file.", show_default=False, rich_help_panel=OUTPUT
        ),
    ] = None,
    parquet: Annotated[
        Path | None,
        typer.Option(help="The same as a .parquet file.", show_default=False, rich_help_panel=OUTPUT),
    ] = None,
    figure: Annotated[
        Path | None,
        typer.Option(
            help="Also draw the results to this .png, .svg or .pdf file.", show_default=False, rich_help_panel=OUTPUT
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Test whether the region a model attends to differs from the rest of each image.

    For each image: the statistic, an estimate of the difference with its confidence interval, and the p-value, all of
    them valid although the model chose the region by looking at the image; and the naive p-value, which is not.

    Examples:
    attentest test scan.npy --noise 1.0 --model my-vit --figure scan.png

    attentest test photo.jpg --noise 8 --model google/vit-base-patch16-224 --attention last-layer

    attentest test scans/*.npy --noise noise.safetensors --top-fraction 0.1 --components --csv scans.csv

    attentest test after.npy --contrast reference --reference before.npy --noise 1.0
    """
    from attentest.image_file import read_image

    check_level(alpha)
    _check_together(options, components, connectivity, decide, confidence_level, no_interval)
    references = _checked_references(images, reference or [], options.contrast)
    inputs = [*images, *references, *options.input_files]
    _check_outputs(inputs, csv, parquet, figure, len(images), components)
    searched_level = None if no_interval else USUAL_CONFIDENCE if confidence_level is None else confidence_level
    attention_test = options.attention_test(searched_level)
    read = partial(read_image, frame=frame, window=window)
    read_references = partial(_references, read, references, len(images))
    _check_images(images, read, read_references(), attention_test)
    tested = _tested(
        attention_test,
        images,
        read,
        read_references(),
        (connectivity or 1) if components else None,
        alpha if decide else None,
        as_json,
    )
    names = [str(path) for path in images]
    results = _together(tested, names) if not components else None
    regions = list(zip(names, tested, strict=True))
    if not as_json:
        if results is None:
            print_component_table(regions, alpha, searched_level)  # type: ignore[arg-type]  # of components here
        else:
            print_table(results, alpha, searched_level)
            if len(images) > 1:
                typer.echo(results.summary(alpha))
    table_level = searched_level or USUAL_CONFIDENCE
    _write_tables(
        _component_columns(regions, table_level) if results is None else results.table(table_level), csv, parquet
    )
    if figure is not None and results is not None:
        _draw(images, read, results, figure)


def _check_together(
    options: AttentionTestOptions,
    components: bool,
    connectivity: int | None,
    decide: bool,
    confidence_level: float | None,
    no_interval: bool,
) -> None:
    """Refuse options that contradict each other."""
    if decide and options.search is not SearchName.spectral:
        raise InputError(f"--decide belongs to the spectral search, and {options.search.value} was asked for.")
    if connectivity is not None and not components:
        raise InputError("--connectivity is that of --components, which was not asked for.")
    if decide and components:
        raise InputError(
            "--decide stops when it knows on which side of alpha a p-value lies, but components are judged by their "
            "adjusted p-values: leave out --decide or --components."
        )
    if no_interval and confidence_level is not None:
        raise InputError("--no-interval leaves out what --confidence-level is about: give one of them.")


def _checked_references(images: Sequence[Path], references: list[Path], contrast: str) -> list[Path]:
    if contrast != "reference":
        if references:
            raise InputError(f"--reference belongs to --contrast reference, and {contrast} was asked for.")
        return []
    if len(references) not in (1, len(images)):
        raise InputError(
            f"--contrast reference needs --reference once, or once for each of the {len(images)} image(s), got it "
            f"{len(references)} times."
        )
    paired = references if len(references) == len(images) else references * len(images)
    for image, reference in zip(images, paired, strict=True):
        if image.resolve() == reference.resolve():
            raise InputError(f"{image} would be compared with itself: a reference has noise of its own.")
    return references


def _check_outputs(
    inputs: Sequence[Path],
    csv: Path | None,
    parquet: Path | None,
    figure: Path | None,
    images: int,
    components: bool,
) -> None:
    """Refuse what cannot be written before hours of computation, not after."""
    from attentest.plots import check_figure_path
    from attentest.table_file import check_csv_path, check_parquet_path

    if csv is not None:
        check_csv_path(csv, inputs)
    if parquet is not None:
        check_parquet_path(parquet, inputs)
    if figure is not None:
        check_figure_path(figure, inputs)
        if images > MOST_PANELS:
            raise InputError(f"a figure shows at most {MOST_PANELS} images, got {images}: leave --figure out.")
        if components:
            raise InputError("a figure shows regions as a whole: leave out --figure or --components.")


def _references(read: Callable[[Path], Any], paths: Sequence[Path], images: int) -> Iterator[Any] | None:
    """Return the reference of each image, or None if there are none."""
    if len(paths) == 1:
        return repeat(read(paths[0]), images)
    return map(read, paths) if paths else None


def _check_images(
    images: Sequence[Path],
    read: Callable[[Path], Any],
    references: Iterator[Any] | None,
    attention_test: AttentionTest,
) -> None:
    """Find a file that cannot be tested before hours of computation, not after."""
    for path in images:
        values = read(path)
        reference = None if references is None else next(references)
        try:
            attention_test.check(values, reference=reference)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None


def _tested(
    attention_test: AttentionTest,
    images: Sequence[Path],
    read: Callable[[Path], Any],
    references: Iterator[Any] | None,
    connectivity: int | None,
    alpha: float | None,
    as_json: bool,
) -> list[Results]:
    """Return the results of each image, one or one a component, and print each batch as JSON if asked to."""
    from attentest.results import Results

    tested: list[Results] = []
    with progress_bar(f"testing {len(images)} image(s)") as progress:

        def report(done: float, _: int | None) -> None:
            progress(done, len(images))

        # Read again, one batch at a time: all files together may not fit in memory.
        pixels = map(read, images)
        stream: Iterator[Results]
        if connectivity is None:
            stream = (
                Results([one]) for one in attention_test.stream(pixels, report, references=references, alpha=alpha)
            )
        else:
            stream = attention_test.stream_components(pixels, report, references=references, connectivity=connectivity)
        for path, results in zip(images, stream, strict=True):
            tested.append(results)
            if as_json:
                _print_as_json(str(path), results, connectivity is not None)
    return tested


def _print_as_json(name: str, results: Results, components: bool) -> None:
    adjusted = results.adjusted_pvalues("holm").tolist()
    for number, (result, holm) in enumerate(zip(results, adjusted, strict=True), start=1):
        which = {"component": number, "pvalue_holm": holm} if components else {}
        print_json({"image": name, **which, **result.to_dict()})


def _together(tested: Sequence[Results], names: Sequence[str]) -> Results:
    from attentest.results import Results

    return Results([results[0] for results in tested], names)


def _component_columns(regions: Sequence[tuple[str, Results]], confidence_level: float) -> dict[str, list[Any]]:
    """Return one table of the components of all images, with p-values adjusted within each image."""
    columns: dict[str, list[Any]] = {}
    for name, results in regions:
        own = results.table(confidence_level)
        numbered = {"image": [name] * len(results), "component": list(range(1, len(results) + 1))}
        for heading, values in {**numbered, **{key: own[key] for key in own if key != "image"}}.items():
            columns.setdefault(heading, []).extend(values)
    return columns


def _write_tables(columns: dict[str, list[Any]], csv: Path | None, parquet: Path | None) -> None:
    from attentest.table_file import write_csv, write_parquet

    for path, write in ((csv, write_csv), (parquet, write_parquet)):
        if path is not None:
            write(columns, path)
            say(f"table: {path}")


def _draw(images: Sequence[Path], read: Callable[[Path], Any], results: Results, figure: Path) -> None:
    from attentest.plots import Panel, results_figure, save_figure

    panels = [
        Panel(title=path.name, image=read(path).squeeze(), result=result)
        for path, result in zip(images, results, strict=True)
    ]
    save_figure(results_figure(panels), figure)
    say(f"figure: {figure}")
