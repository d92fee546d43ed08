"""``attentest test``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attentest.cli.attention_test_options import AttentionTestOptions
from attentest.cli.command import with_options_of
from attentest.cli.images import image_sources
from attentest.cli.option_checks import (
    as_certification,
    check_inputs,
    check_outputs,
    check_pairs,
    check_sensitivity_figure,
    check_together,
    is_folder,
    saved_kinds,
)
from attentest.cli.options import (
    CERTIFICATE,
    OUTPUT,
    SEARCH,
    AlphaOption,
    EngineOptions,
    FrameOption,
    JsonOption,
    RetryOption,
    WindowOption,
    check_level,
)
from attentest.cli.output import SOME_FAILED, Interruption
from attentest.cli.report import check_report_option, picture_kinds, records_folder, write_folder_report
from attentest.definition import COMPARED, IMAGE
from attentest.errors import InputError
from attentest.files import make_directory
from attentest.presentation.report import MOST_CARDS, USUAL_CARDS
from attentest.registry import IMAGE_FORMATS

DEFAULT_CONFIDENCE = 0.95


@with_options_of(EngineOptions)
@with_options_of(AttentionTestOptions)
def test(
    images: Annotated[
        list[Path],
        typer.Argument(
            help=f"Image files ({', '.join(IMAGE_FORMATS)}, ...), folders, quoted patterns, or .txt files of paths.",
            show_default=False,
        ),
    ],
    options: AttentionTestOptions,
    recursive: Annotated[
        bool,
        typer.Option("--recursive", help="Look for images in the folders of folders too."),
    ] = False,
    stack: Annotated[
        bool,
        typer.Option(
            "--stack",
            help="Each array of a .npy or .npz file is a stack of images, (k, H, W) or (k, H, W, C).",
            rich_help_panel=IMAGE,
        ),
    ] = False,
    frame: FrameOption = None,
    window: WindowOption = False,
    reference: Annotated[
        list[Path] | None,
        typer.Option(
            help="For --contrast reference: the image to compare with; once, or once for each image in order.",
            metavar="FILE",
            show_default=False,
            rich_help_panel=COMPARED,
        ),
    ] = None,
    components: Annotated[
        bool,
        typer.Option(
            "--components",
            help="Test each connected component of the region by itself: p-values adjusted by Holm's method, intervals "
            "that cover together.",
        ),
    ] = False,
    connectivity: Annotated[
        int | None,
        typer.Option(
            help="For --components: pixels join that share an edge (1), or a corner too (2).",
            metavar="N",
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
            help="Level of the confidence interval of the difference.",
            metavar="X",
            show_default="0.95",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    no_interval: Annotated[
        bool,
        typer.Option(
            "--no-interval",
            help="Leave out the confidence interval, and search only as far as p needs: faster.",
            rich_help_panel=SEARCH,
        ),
    ] = False,
    certify: Annotated[
        bool,
        typer.Option(
            "--certify",
            help="Add a certified p-value, valid whatever the model does between the evaluations of the search; the "
            "one to report if the status is sharp. Slow.",
            rich_help_panel=CERTIFICATE,
        ),
    ] = False,
    draws: Annotated[
        int | None,
        typer.Option(
            help="For --certify: number of draws; the least possible p is 1 / (N + 1).",
            metavar="N",
            show_default="99",
            rich_help_panel=CERTIFICATE,
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            help="For --certify: steps behind each draw; too few cost power, never validity.",
            metavar="N",
            show_default="6",
            rich_help_panel=CERTIFICATE,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="For --certify: seed of the draws.",
            metavar="N",
            show_default="the image itself",
            rich_help_panel=CERTIFICATE,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the results of each image as it is tested: the same command goes on where it stopped.",
            metavar="FOLDER",
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    retry: RetryOption = False,
    save: Annotated[
        str | None,
        typer.Option(
            help="For --out: also save regions (.npy), masks (as .png), maps (.npy) or pictures (for reports), "
            "separated by commas; or none.",
            metavar="NAMES",
            show_default="pictures of up to 1000 images",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(
            help="Also write a table of all results to this .csv file, row by row.",
            metavar="FILE",
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    parquet: Annotated[
        Path | None,
        typer.Option(
            help="Also write this table to a .parquet file.", metavar="FILE", show_default=False, rich_help_panel=OUTPUT
        ),
    ] = None,
    figure: Annotated[
        str | None,
        typer.Option(
            help="Also draw the result to this .png, .svg or .pdf file, several on one sheet, or each into FOLDER/.",
            metavar="FILE",
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    sensitivity: Annotated[
        bool,
        typer.Option(
            "--sensitivity",
            help="Also show p and interval for other noise: 0.5 to 2 times as large, which takes no time, and with "
            "other correlation lengths, which takes four more tests of each image.",
        ),
    ] = False,
    sensitivity_figure: Annotated[
        str | None,
        typer.Option(
            help="For --sensitivity: also draw it to this .png, .svg or .pdf file, or that of each image into FOLDER/.",
            metavar="FILE",
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            help="Also write a report to this .html file, which needs no other, or as .json.",
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    report_cards: Annotated[
        int | None,
        typer.Option(
            help="For --report: most results with pictures and details, those with the smallest p-values.",
            metavar="N",
            min=0,
            max=MOST_CARDS,
            show_default=str(USUAL_CARDS),
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    as_json: JsonOption = False,
    *,
    context: typer.Context,
    where: EngineOptions,
) -> None:
    r"""Test whether the region that a model attends to differs from the rest of each image.

    For example:

    ```
    attentest test scan.npy --noise 1.0 --model my-vit --figure scan.png
    attentest test photo.jpg --noise 8 --model google/vit-base-patch16-224 \
        --attention last-layer
    attentest test scans/*.npy --noise noise.safetensors --top-fraction 0.1 \
        --components --csv scans.csv
    attentest test after.npy --contrast reference --reference before.npy \
        --noise 1.0
    attentest test scan.npy --noise 1.0 --sensitivity \
        --sensitivity-figure noise.png
    attentest test scan.npy --noise 1.0 --certify --draws 999
    attentest test scans --recursive --noise 1.0 --out tested --csv scans.csv \
        --report scans.html
    ```

    Prints for each image the size of the region, the difference with an estimate and a confidence interval, and the
    selective p-value, which are valid although the model chose the region from the same image; and the naive p-value,
    which is not valid. A narrow terminal shows fewer columns. An image that cannot be read or tested is reported with
    its reason, and the others go on; the exit code is then 1.
    """
    from attentest.images.image_source import ImageSource

    check_level(alpha)
    check_together(
        options, components, connectivity, decide, confidence_level, no_interval, sensitivity, reference or []
    )
    kinds = saved_kinds(save, retry, out)
    where.check()
    check_inputs(reference or [], options)
    options.check()
    sources = image_sources(images, recursive=recursive, stack=stack, frame=frame, window=window)
    references = [ImageSource(path=path, frame=frame, window=window) for path in reference or []]
    check_pairs(sources, references)
    inputs = {*(source.path for source in (*sources, *references)), *options.input_files}
    check_outputs(inputs, csv, parquet, figure, components)
    check_sensitivity_figure(sensitivity_figure, sensitivity, len(sources), inputs)
    if report is not None:
        check_report_option(report, "--report", inputs)
    elif report_cards is not None:
        raise InputError("--report-cards is for --report, which is not there: add it.")
    if out is not None:
        make_directory(out)
    from attentest.cli.batch import BatchOutput, RunLog, print_results, say_failures, tested_rows, write_tables

    log = context.with_resource(RunLog())
    folder = context.with_resource(records_folder(out, report, where))
    kinds, unasked = picture_kinds(kinds, save, len(sources), where)
    certification = as_certification(certify, draws=draws, steps=steps, seed=seed)
    searched_level = None if no_interval else DEFAULT_CONFIDENCE if confidence_level is None else confidence_level
    from attentest.pipeline.file_run import BatchRun, SavedArrays
    from attentest.pipeline.run import Request

    figures = None
    if figure is not None:
        from attentest.cli.figures import FigureOutput

        figures = FigureOutput(place=Path(figure), is_folder=is_folder(figure), alpha=alpha)
    sensitivities = None
    if sensitivity:
        from attentest.cli.figures import SensitivityOutput

        sensitivities = SensitivityOutput(
            names=[source.name for source in sources],
            with_intervals=not no_interval,
            figure=None if sensitivity_figure is None else Path(sensitivity_figure),
            is_folder=sensitivity_figure is not None and is_folder(sensitivity_figure),
        )
    run = BatchRun(
        test=options.attention_test(searched_level),
        images=sources,
        references=references,
        confidence_level=searched_level or DEFAULT_CONFIDENCE,
        request=Request(
            decide_at=alpha if decide else None,
            certification=certification,
            connectivity=(connectivity or 1) if components else None,
        ),
        sensitivity=alpha if sensitivity else None,
        save=SavedArrays(directory=folder, kinds=kinds, optional=unasked) if folder is not None and kinds else None,
        keep=figures.keep if figures is not None and where.is_local else None,
    )
    interruption = Interruption()
    take = None if sensitivities is None else sensitivities.take
    output = BatchOutput(alpha=alpha, csv=csv, as_json=as_json, take=take)
    with log.written_to(folder):
        rows = tested_rows(run, where.chosen(), output, interruption, out=folder, retry=retry)
    failed = [row for row in rows.all() if "error" in row]
    if len(failed) < len(rows) or csv is not None or parquet is not None or report is not None:
        try:
            write_tables(rows, components, csv, parquet)
            if figures is not None:
                figures.finish(run, rows)
            if sensitivities is not None:
                sensitivities.finish()
            if report is not None and folder is not None and len(rows):
                most = USUAL_CARDS if report_cards is None else report_cards
                write_folder_report(folder, report, alpha=alpha, cards=most, names=rows.names)
        finally:  # the numbers are computed, and are shown even if a file cannot be written
            if not as_json and len(failed) < len(rows):
                print_results(rows, components, alpha, searched_level)
                if sensitivities is not None:
                    sensitivities.print()
    say_failures(failed, len(rows), stack)
    interruption.done = len(rows)  # a batch, which is what the run yields, is several images
    interruption.finish(len(sources), "image")
    if failed:
        raise typer.Exit(SOME_FAILED)
