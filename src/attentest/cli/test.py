"""``attentest test``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attentest.cli.attention_test_options import AttentionTestOptions
from attentest.cli.engine_options import EngineOptions
from attentest.cli.image_list import image_sources
from attentest.cli.interruption import Interruption
from attentest.cli.option_group import with_options_of
from attentest.cli.option_names import option_names, own_options, with_option_names
from attentest.cli.option_value import as_saved_kinds, noise_file
from attentest.cli.options import (
    CERTIFICATE,
    COMPARED,
    IMAGE,
    OUTPUT,
    SEARCH,
    SPECTRAL,
    AlphaOption,
    FrameOption,
    JsonOption,
    WindowOption,
    check_level,
)
from attentest.cli.output import progress_bar, say
from attentest.cli.result_table import print_component_table, print_table
from attentest.errors import InputError
from attentest.registry import IMAGE_FORMATS

if TYPE_CHECKING:
    from attentest.api.batch_run import BatchRun
    from attentest.images.source import ImageSource
    from attentest.results.records import Row
    from attentest.results.result import AttentionTestResult
    from attentest.search import Certification

MOST_PANELS = 40
"""Largest number of images in a figure: more take minutes to draw and cannot be read."""

MOST_ROWS = 200
"""Largest number of images in the table that is printed; files have all of them."""

MOST_REASONS = 10
"""Largest number of images that could not be tested whose reasons are printed."""

SOME_FAILED = 1
"""Exit code if some images could not be tested."""

DEFAULT_CONFIDENCE = 0.95


@with_options_of(EngineOptions)
@with_options_of(AttentionTestOptions)
def test(
    images: Annotated[
        list[Path],
        typer.Argument(
            help=f"Image files ({', '.join(IMAGE_FORMATS)}, ...), folders of them, patterns in quotes, or .txt files "
            "with a path on each line.",
            show_default=False,
        ),
    ],
    options: AttentionTestOptions,
    recursive: Annotated[
        bool,
        typer.Option("--recursive", help="Look for images in the folders of folders too.", rich_help_panel=IMAGE),
    ] = False,
    stack: Annotated[
        bool,
        typer.Option(
            "--stack",
            help="Each .npy file is a stack of images, (k, H, W) or (k, H, W, C); each .npz file holds such arrays.",
            rich_help_panel=IMAGE,
        ),
    ] = False,
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
    out: Annotated[
        Path | None,
        typer.Option(
            help="Directory for the results of each image, on disk as soon as it is tested: the same command goes on "
            "where it was stopped.",
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    retry: Annotated[
        bool,
        typer.Option(
            "--retry", help="For --out: try the images again that could not be tested.", rich_help_panel=OUTPUT
        ),
    ] = False,
    save: Annotated[
        str | None,
        typer.Option(
            help="For --out: also save regions (.npy), masks (the same as .png) or maps (.npy), separated by commas.",
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(
            help="Also write a table of all results to this .csv file, row by row; adjusted p-values are added in the "
            "end.",
            show_default=False,
            rich_help_panel=OUTPUT,
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
    *,
    where: EngineOptions,
) -> None:
    """Test whether the region that a model attends to differs from the rest of each image.

    Prints for each image the statistic, an estimate of the difference with its confidence interval, and the selective
    p-value, which are valid although the model chose the region from the same image; and the naive p-value, which is
    not valid. An image that cannot be read or tested is reported with its reason, and the others go on; the exit code
    is then 1.

    Examples:
    attentest test scan.npy --noise 1.0 --model my-vit --figure scan.png

    attentest test photo.jpg --noise 8 --model google/vit-base-patch16-224 --attention last-layer

    attentest test scans/*.npy --noise noise.safetensors --top-fraction 0.1 --components --csv scans.csv

    attentest test after.npy --contrast reference --reference before.npy --noise 1.0

    attentest test scan.npy --noise 1.0 --certify --draws 999

    attentest test scans --recursive --noise 1.0 --out tested --csv scans.csv
    """
    from attentest.images.source import ImageSource

    check_level(alpha)
    certification = _certification(certify, draws=draws, steps=steps, seed=seed)
    _check_together(options, components, connectivity, decide, confidence_level, no_interval, reference or [])
    kinds = _saved_kinds(save, retry, out)
    where.check()
    sources = image_sources(images, recursive=recursive, stack=stack, frame=frame, window=window)
    references = [ImageSource(path=path, frame=frame, window=window) for path in reference or []]
    _check_pairs(sources, references)
    inputs = [*(source.path for source in (*sources, *references)), *options.input_files]
    _check_inputs(references, options)
    _check_outputs(inputs, csv, parquet, figure, len(sources), components)
    searched_level = None if no_interval else DEFAULT_CONFIDENCE if confidence_level is None else confidence_level
    from attentest.api.batch_run import BatchRun
    from attentest.api.saved_arrays import SavedArrays

    run = BatchRun(
        test=options.attention_test(searched_level),
        images=sources,
        references=references,
        confidence_level=searched_level or DEFAULT_CONFIDENCE,
        alpha=alpha if decide else None,
        certification=certification,
        connectivity=(connectivity or 1) if components else None,
        save=SavedArrays(directory=out, kinds=kinds) if out is not None and kinds else None,
    )
    interruption = Interruption()
    records, results = _tested(run, interruption, alpha, csv, as_json, out, retry, figure is not None, where)
    failed = [record for record in records if "error" in record]
    if len(failed) < len(records) or csv is not None or parquet is not None:
        try:
            _write_tables(records, components, csv, parquet)
            if figure is not None:
                _draw(run, results, figure)
        finally:  # the numbers are computed, and are shown even if a file cannot be written
            if not as_json and len(failed) < len(records):
                _print(records, components, alpha, searched_level)
    _say_failures(failed, len(records), stack)
    interruption.finish(len(sources), "images")
    if failed:
        raise typer.Exit(SOME_FAILED)


def _saved_kinds(save: str | None, retry: bool, out: Path | None) -> list[str]:
    """Return what to save of each image; refuse options that need a directory if there is none."""
    for option, given in (("--save", save is not None), ("--retry", retry)):
        if given and out is None:
            raise InputError(f"{option} is for --out, which is not there: add it.")
    return as_saved_kinds(save)


def _check_pairs(images: Sequence[ImageSource], references: Sequence[ImageSource]) -> None:
    """Refuse a number of references that does not fit the images, and an image that would be compared with itself."""
    if len(references) not in (0, 1, len(images)):
        raise InputError(
            f"--reference must be given once, or once for each of the {len(images)} image(s), got it "
            f"{len(references)} times."
        )
    paired = references if len(references) == len(images) else [*references] * len(images)
    for image, reference in zip(images, paired, strict=False):
        if image.path.resolve() == reference.path.resolve():
            raise InputError(f"{image.path} would be compared with itself: give a --reference with independent noise.")


def _check_inputs(references: Sequence[ImageSource], options: AttentionTestOptions) -> None:
    """Refuse files that are not there, before anything is imported that takes long."""
    noise = [noise_file(options.noise), noise_file(options.reference_noise)]
    for kind, paths in (("image", [source.path for source in references]), ("noise", noise)):
        for path in paths:
            if path is not None and not path.exists():
                raise InputError(f"there is no {kind} file {path}.")


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
    run: BatchRun,
    interruption: Interruption,
    alpha: float,
    csv: Path | None,
    as_json: bool,
    out: Path | None,
    retry: bool,
    keep_results: bool,
    where: EngineOptions,
) -> tuple[list[Row], dict[str, AttentionTestResult]]:
    """Return the records of the images in order, and the results by name if they are to be kept.

    Records are on disk, where they are to be, before they are printed; those of an earlier run are not computed again.
    """
    from attentest.cli.batch_output import BatchOutput, recorded_run

    results: dict[str, AttentionTestResult] = {}

    def keep(image: ImageSource, found: list[AttentionTestResult]) -> None:
        results[image.name] = found[0]

    if keep_results and where.is_local:
        run = replace(run, keep=keep)
    output = BatchOutput(alpha=alpha, csv=csv, as_json=as_json)
    with recorded_run(run, out, retry) as (known, places, write):
        output.add([known[image.name] for image in run.images if image.name in known])
        finished = dict(known)
        with progress_bar(f"testing {len(places)} image(s)") as progress:
            for _, rows in interruption.until(where.chosen().run(run, places, progress)):
                for row in rows:
                    if "error" in row:
                        row["error"] = with_option_names(row["error"], own_options())
                write(rows)
                output.add(rows)
                finished.update((row["image"], row) for row in rows)
    output.close()
    return [finished[image.name] for image in run.images if image.name in finished], results


def _print(records: Sequence[Row], components: bool, alpha: float, confidence_level: float | None) -> None:
    """Print the table and, of several images, a summary."""
    from attentest.cli.batch_output import rows_of_record
    from attentest.results.rows import pvalues_of

    shown = records[:MOST_ROWS]
    if components:
        print_component_table([rows_of_record(record) for record in shown], alpha, confidence_level)
        return
    print_table([row for record in shown for row in rows_of_record(record)], alpha, confidence_level)
    if len(records) > len(shown):
        say(f"attentest: note: the table has the first {len(shown)} of {len(records)} images; --csv has all.")
    known = pvalues_of(row for record in records for row in rows_of_record(record))
    if len(known) > 1:
        typer.echo(known.summary(alpha))


def _say_failures(failed: Sequence[Mapping[str, Any]], count: int, stack: bool) -> None:
    """Say which images could not be tested, and why."""
    from attentest.cli.result_table import shown
    from attentest.images.stack import looks_like_a_stack

    for record in failed[:MOST_REASONS]:
        name, reason = shown(record["image"]), shown(record["error"])
        say(f"attentest: {reason if reason.startswith(name) else f'{name}: {reason}'}")
    if failed and count > 1:
        say(f"attentest: {len(failed)} of {count} image(s) could not be tested; the rows of --csv and --json say why.")
    if not stack and any(looks_like_a_stack(Path(record["image"])) for record in failed):
        say("attentest: note: a file that holds several images needs --stack.")


def _write_tables(records: Sequence[Row], components: bool, csv: Path | None, parquet: Path | None) -> None:
    from attentest.cli.batch_output import table_of
    from attentest.results.tables import write_csv, write_parquet

    if csv is None and parquet is None:
        return
    columns = table_of(records, components)
    for path, write in ((csv, write_csv), (parquet, write_parquet)):
        if path is not None:
            write(columns, path)
            say(f"table: {path}")


def _draw(run: BatchRun, results: Mapping[str, AttentionTestResult], figure: Path) -> None:
    """Draw the results of the images that could be tested; those of an earlier run are computed again."""
    from attentest.results.plots import Panel, results_figure, save_figure

    panels = []
    for image in run.images:
        try:
            pixels = image.read()
        except InputError:
            continue
        result = results[image.name] if image.name in results else run.test(pixels, alpha=run.alpha)
        panels.append(Panel(title=image.path.name, image=pixels.squeeze(), result=result))
    if panels:
        save_figure(results_figure(panels), figure)
        say(f"figure: {figure}")
