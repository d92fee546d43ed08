"""Tests of one image with noise of other correlation lengths, for the region that the model chose already."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attentest.checks import float_array
from attentest.errors import InputError
from attentest.images.sample import channels_last
from attentest.noise.model import TOO_SMOOTH, NearlySingularError, complete
from attentest.pipeline.inputs import Input
from attentest.pipeline.many_images import ImageTests
from attentest.pipeline.run import Pipeline, Request
from attentest.presentation.sensitivity import Sensitivity
from attentest.progress import Progress
from attentest.results.result import AttentionTestResult
from attentest.runs.engine import FailedImage
from attentest.statistics.inference import confidence_intervals_of, estimates_of
from attentest.statistics.noise_factor import SensitivityCurve
from attentest.statistics.pvalue import LogPvalues

STRETCHES = (0.5, 0.5**0.5, 1.0, 2.0**0.5, 2.0)  # multiples of the correlation length that was assumed
LENGTHS = (0.0, 0.5, 1.0, 2.0, 4.0)  # correlation lengths in pixels, where pixels were assumed to be independent
LEFT_OUT = "Correlation lengths are left out"  # beginning of the note where there are none


def sensitivity_of(
    pipeline: Pipeline,
    tested: Input,
    result: AttentionTestResult | None,
    *,
    lengths: ArrayLike | None,
    factors: ArrayLike,
    alpha: float,
    report: Progress,
) -> Sensitivity:
    """Return how the result of an image depends on the noise; see :meth:`attentest.AttentionTest.sensitivity`."""
    if result is not None and not np.array_equal(result.image, channels_last(tested.image.pixels)):
        raise InputError("the result is of another image: leave it out, or give that of this image.")
    tried, note = _tried_lengths(tested, lengths)
    first, others = int(result is None), max(len(tried) - 1, 0)

    def tell(done: float, _: int | None = None, before: int = 0) -> None:
        report((before + done) / max(first + others, 1), 1)

    if result is None:
        result = pipeline.run([tested], Request(), tell)[0][0]
    by_factor = replace(result.sensitivity(alpha=alpha, factors=factors), note=note)
    if not len(tried):
        return by_factor
    assumed = complete(tested.noise).correlation_length()
    inputs = [_with_length(tested, assumed, length) for length in tried if length != assumed]
    try:
        tests = ImageTests(pipeline=pipeline, request=Request(), on_error="raise")
        batches = list(tests.results(inputs, None, partial(tell, before=first)))
    except NearlySingularError:
        if lengths is not None:
            raise
        return replace(by_factor, note=f"{LEFT_OUT}: {TOO_SMOOTH}. A test without randomised selection has them.")
    other_results = (tested[0] for batch in batches for tested in batch if not isinstance(tested, FailedImage))
    results = [result if length == assumed else next(other_results) for length in tried]
    logs = [(varied.log_pvalue, *varied.log_pvalue_bounds) for varied in results]
    return replace(
        by_factor,
        lengths=SensitivityCurve(
            values=tried,
            standard_errors=np.array([varied.standard_error for varied in results]),
            log_pvalues=LogPvalues(*np.array(logs).T),
            estimates=estimates_of(results),
            intervals=confidence_intervals_of(results, by_factor.confidence_level),
        ),
        assumed_length=assumed,
        evaluations=sum(varied.evaluations for varied in results if varied is not result),
    )


def _tried_lengths(tested: Input, lengths: ArrayLike | None) -> tuple[NDArray[np.float64], str | None]:
    """Return the correlation lengths to be tested, in order, that of the noise among them; or why there are none."""
    if lengths is not None and not np.size(lengths):
        return np.empty(0), None
    try:
        assumed = complete(tested.noise).correlation_length()
        if tested.reference_noise is not None:
            complete(tested.reference_noise).correlation_length()
    except InputError as error:
        if lengths is not None:
            raise
        return np.empty(0), f"{LEFT_OUT}: {error}"
    if lengths is None:
        return np.array([assumed * stretch for stretch in STRETCHES] if assumed else LENGTHS), None
    asked = float_array(lengths, "lengths")
    if asked.ndim != 1 or not np.all((asked >= 0) & np.isfinite(asked)):
        raise InputError(f"lengths must be a list of correlation lengths in pixels, 0 or more, got {lengths!r}.")
    return np.unique([*asked, assumed]), None


def _with_length(tested: Input, assumed: float, length: float) -> Input:
    """Return an image with noise of another correlation length, and with the same noise added to it."""
    shape, reference_noise = tested.geometry.shape, tested.reference_noise
    if reference_noise is not None:
        of_reference = complete(reference_noise).correlation_length()
        stretched = length if of_reference == assumed else of_reference * (length / assumed if assumed else 1.0)
        reference_noise = complete(reference_noise).with_correlation_length(stretched, shape)
    return replace(
        tested,
        noise=complete(tested.noise).with_correlation_length(length, shape),
        reference_noise=reference_noise,
        selection_noise=tested.noise,
    )
