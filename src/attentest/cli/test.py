"""``attentest test``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from attentest.cli.attention_test_options import AttentionTestOptions
from attentest.cli.command import with_options_of
from attentest.cli.images import check_pairs, for_model, image_sources
from attentest.cli.options import EngineOptions
from attentest.cli.output import SOME_FAILED, Interruption
from attentest.cli.output_options import CertificateOptions, OutputOptions, RunOptions, is_folder
from attentest.cli.report import picture_kinds, records_folder, write_batch_report
from attentest.cli.values import check_files, noise_file
from attentest.errors import worded
from attentest.presentation.report import USUAL_CARDS
from attentest.registry import IMAGE_FORMATS


@with_options_of(EngineOptions)
@with_options_of(OutputOptions)
@with_options_of(CertificateOptions)
@with_options_of(RunOptions)
@with_options_of(AttentionTestOptions)
def test(
    images: Annotated[
        list[Path],
        typer.Argument(
            help=f"Image files ({', '.join(IMAGE_FORMATS)}, ...), folders, quoted patterns, or .txt files of paths."
        ),
    ],
    options: AttentionTestOptions,
    asked: RunOptions,
    certificate: CertificateOptions,
    outputs: OutputOptions,
    context: typer.Context,
    where: EngineOptions,
) -> None:
    r"""Test whether the region that a model attends to differs from the rest of each image.

    For example:

    ```
    attentest test scan.npy --noise 1.0 --model my-vit --figure scan.png
    attentest test photo.jpg --noise 8 --model google/vit-base-patch16-224 \
        --map last-layer
    attentest test scans/*.npy --noise noise.safetensors --top-fraction 0.1 \
        --components --csv scans.csv
    attentest test after.npy --contrast reference --reference before.npy \
        --noise 1.0
    attentest test scan.npy --noise 1.0 --sensitivity \
        --sensitivity-figure noise.png
    attentest test scan.npy --noise 1.0 --certify --certify-draws 999
    attentest test scans --recursive --noise 1.0 --out tested --csv scans.csv \
        --report scans.html
    ```

    Prints for each image the size of the region, the difference with an estimate and a confidence interval, and the
    selective p-value, which are valid although the model chose the region from the same image; and the naive p-value,
    which is not valid. A narrow terminal shows fewer columns. An image that cannot be read or tested is reported with
    its reason, and the others go on; the exit code is then 1.
    """
    from attentest.images.dicom_series import series_in
    from attentest.images.image_source import ImageSource

    asked.check(options)
    kinds = outputs.saved_kinds()
    where.check()
    check_files("image", asked.reference or ())
    check_files("noise", [noise_file(options.noise), noise_file(options.reference_noise)])
    options.check()
    read: dict[str, Any] = {"frame": asked.frame, "window": asked.window, "channels": tuple(asked.channel or ())}
    sources = image_sources(images, recursive=asked.recursive, stack=asked.stack, **read)
    references = [
        ImageSource(path=path, slices=series_in(path) if path.is_dir() else (), **read)
        for path in asked.reference or ()
    ]
    inputs = {*(path for source in (*sources, *references) for path in source.files), *options.input_files}
    outputs.check(inputs, asked.components, asked.sensitivity)
    from attentest.cli.batch import BatchOutput, say_failures
    from attentest.runs.records import RunLog

    log = context.with_resource(RunLog())
    defined = options.attention_test(asked.searched_level)
    dimension = defined.pipeline.inputs.dimension
    sources = for_model(sources, dimension, asked.stack)
    check_pairs(sources, references)
    outputs.check_count(len(sources))
    folder = context.with_resource(records_folder(outputs.out, outputs.report, where))
    kinds, unasked = picture_kinds(kinds, outputs.save, len(sources), where)
    certification = certificate.certification()
    alpha, searched_level = asked.alpha, asked.searched_level
    from attentest.pipeline.file_run import BatchRun, SavedArrays
    from attentest.pipeline.run import Request

    figures = sensitivities = files = None
    if outputs.figure is not None or asked.sensitivity:
        from attentest.cli.figures import FigureFiles, FigureOutput, SensitivityOutput

        if outputs.figure is not None:
            place = FigureFiles(place=Path(outputs.figure), is_folder=is_folder(outputs.figure))
            figures = FigureOutput(files=place, alpha=alpha)
        if outputs.sensitivity_figure is not None:
            path, of_each = Path(outputs.sensitivity_figure), is_folder(outputs.sensitivity_figure)
            files = FigureFiles(place=path, is_folder=of_each, ending="-sensitivity.png")
        if asked.sensitivity:
            names = [source.name for source in sources]
            sensitivities = SensitivityOutput(names=names, with_intervals=not asked.no_interval, files=files)
    run = BatchRun(
        test=defined,
        images=sources,
        references=references,
        confidence_level=searched_level,
        request=Request(
            decide_at=alpha if asked.decide else None,
            certification=certification,
            connectivity=(asked.connectivity or 1) if asked.components else None,
        ),
        sensitivity=alpha if asked.sensitivity else None,
        save=SavedArrays(directory=folder, kinds=kinds, optional=unasked) if folder is not None and kinds else None,
        keep=figures.keep if figures is not None and where.is_local else None,
    )
    interruption = Interruption()
    take = None if sensitivities is None else sensitivities.take
    output = BatchOutput(asked=asked, outputs=outputs, take=take)
    with log.written_to(folder, interruption.writing):
        rows = output.tested_rows(run, where.chosen(), interruption, log, folder)
    failed = [row for row in rows.all() if "error" in row]
    some = any("error" not in row for row in rows.all())
    if some or any((outputs.csv, outputs.parquet, outputs.report)):
        try:
            output.write_tables(rows)
            if figures is not None:
                figures.finish(run, rows)
            if files is not None:
                files.finish("sensitivity")
            if outputs.report is not None and folder is not None and len(rows) and interruption.error is None:
                from attentest.presentation.report.tested_batch import batch_of_folder

                most = USUAL_CARDS if outputs.report_cards is None else outputs.report_cards
                write_batch_report(batch_of_folder(folder, rows.names), outputs.report, alpha, most)
        finally:  # the numbers are computed, and are shown even if a file cannot be written
            if not outputs.as_json and some:
                output.print_results(rows)
                if sensitivities is not None:
                    sensitivities.print()
    say_failures(failed, len(rows), dimension, asked.stack)
    interruption.done = len(rows)  # a batch, which is what the run yields, is several images
    interruption.finish(len(sources), worded("image", dimension))
    if failed:
        raise typer.Exit(SOME_FAILED)
