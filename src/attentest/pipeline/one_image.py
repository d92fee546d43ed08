"""Tests of one image, and what else a test says of one image."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attentest.checks import as_generator, float_array, level, optional_level
from attentest.contrast import as_connectivity
from attentest.errors import InputError
from attentest.images.sample import ImageLike
from attentest.pipeline.inputs import Inputs
from attentest.pipeline.many_images import checked_certification
from attentest.pipeline.noise_sensitivity import sensitivity_of
from attentest.pipeline.run import MarginCurves, Pipeline
from attentest.presentation.sensitivity import Sensitivity
from attentest.progress import ProgressLike, progress_reports
from attentest.results.components import ComponentResults
from attentest.results.result import AttentionTestResult
from attentest.search import Certification
from attentest.statistics.noise_factor import FACTORS
from attentest.statistics.pvalue import PermutationResult, permutation_test


class OneImage:
    """What a test does with one image."""

    _inputs: Inputs
    _pipeline: Pipeline

    def __call__(
        self,
        image: ImageLike,
        *,
        reference: ImageLike | None = None,
        alpha: float | None = None,
        certification: Certification | None = None,
        progress: ProgressLike = None,
    ) -> AttentionTestResult:
        """Test one image.

        Parameters
        ----------
        image
            PIL image, NumPy array (H, W) or (H, W, C), or torch tensor (C, H, W); pixel values in the units of
            the noise, finite; of any size if there is preprocessing that resizes, otherwise of the size the model
            takes. A grey image for a colour model stays one channel in the statistics.
        reference
            The image's own reference, for the contrast ``Reference()``; it replaces that of ``Reference(image)``.
        alpha
            Decide at this level: the spectral search stops as soon as its error bar excludes it (the grid searches run
            to their end), and the result's ``reject`` says on which side p lies. Confidence intervals may then be
            wider, because less was searched.
        certification
            How to certify the result, if it is to be: ``Certification()``; see :meth:`certify`.
        progress
            True for a progress bar, in terminals and notebooks; or a function, which is called with (share done, 1).
        """
        return self._tested(image, reference, None, alpha, certification, progress)[0]

    def certify(
        self,
        image: ImageLike,
        draws: int = 99,
        *,
        steps: int = 6,
        seed: int | None = None,
        reference: ImageLike | None = None,
        alpha: float | None = None,
        progress: ProgressLike = None,
    ) -> AttentionTestResult:
        """Test one image, and add a certificate: a second p-value that does not depend on the search.

        The certified p-value is exactly valid in finite samples, whatever the model does between two evaluations, and
        it is an independent check of the error bar: ``result.certificate.agrees``. Where the scores change too
        abruptly for the search (status "sharp"), it is the p-value to report. It takes thousands of evaluations.

        Parameters
        ----------
        image, reference, alpha, progress
            As in calling the test.
        draws
            Number n of draws; the least possible certified p-value is 1 / (n + 1).
        steps
            Steps of each chain that makes a draw. Too few cost power, never validity; ``certificate.moved`` is the
            share of the chains that moved at all.
        seed
            By default the draws are a function of the image, so that repeating the test repeats them. A seed gives
            others, and is recorded.
        """
        chosen = Certification(draws=draws, steps=steps, seed=seed)
        return self(image, reference=reference, alpha=alpha, certification=chosen, progress=progress)

    def sensitivity(
        self,
        image: ImageLike,
        *,
        reference: ImageLike | None = None,
        result: AttentionTestResult | None = None,
        lengths: ArrayLike | None = None,
        factors: ArrayLike = FACTORS,
        alpha: float = 0.05,
        progress: ProgressLike = None,
    ) -> Sensitivity:
        """Return how p, estimate and interval depend on the noise: on its standard deviation and correlation length.

        A factor on the standard deviation takes no evaluation of the model (:meth:`AttentionTestResult.sensitivity`).
        Noise of another correlation length changes the line that is searched, so each length is a test of its own, for
        the region that the model chose with the assumed noise. Variances stay as they are assumed.

        Parameters
        ----------
        image, reference, progress
            As in calling the test.
        result
            The result of the image, if it is known; it is computed otherwise.
        lengths
            Correlation lengths in pixels; that of the noise is added. By default 0.5 to 2 times that of the noise, in
            five steps, or 0, 0.5, 1, 2 and 4 if its pixels are independent; where it has none that could be changed
            (``Dense``), none, with a note. An empty list leaves them out.
        factors
            Factors on the standard deviation; by default 25 from 0.5 to 2.
        alpha
            Significance level of the verdicts.
        """
        given = self._inputs.one(image, reference)
        with progress_reports(progress, 1) as report:
            return sensitivity_of(
                self._pipeline, given, result, lengths=lengths, factors=factors, alpha=level(alpha), report=report
            )

    def components(
        self,
        image: ImageLike,
        *,
        reference: ImageLike | None = None,
        connectivity: int = 1,
        alpha: float | None = None,
        certification: Certification | None = None,
        progress: ProgressLike = None,
    ) -> ComponentResults:
        """Test each connected component of the region by itself, with the rest of the region left out.

        The results' ``adjusted_pvalues()`` are Holm's. The adjustment is valid, because the components are fixed once
        the region is given, and the test conditions on the region.

        Parameters
        ----------
        image, reference, alpha, certification, progress
            As in calling the test.
        connectivity
            1: pixels that share an edge are connected; 2: those that share a corner too.
        """
        joined = as_connectivity(connectivity)
        return ComponentResults(self._tested(image, reference, joined, alpha, certification, progress))

    def _tested(
        self,
        image: ImageLike,
        reference: ImageLike | None,
        connectivity: int | None,
        alpha: float | None,
        certification: Certification | None,
        progress: ProgressLike,
    ) -> list[AttentionTestResult]:
        """Return the results of one image: of its region, or of the components of it."""
        chosen_level, chosen = optional_level(alpha), checked_certification(certification)
        given = [self._inputs.one(image, reference)]
        with progress_reports(progress, 1) as report:

            def share_done(share: float) -> None:
                if report is not None:
                    report(share, 1)

            found = self._pipeline.run(
                given, alpha=chosen_level, connectivity=connectivity, certification=chosen, report=share_done
            )
            share_done(1.0)
        return found[0]

    def margins(self, image: ImageLike, distances: ArrayLike, *, reference: ImageLike | None = None) -> MarginCurves:
        """Return the paper's functions f_i of an image along its line; :func:`attentest.plot_margins` draws them.

        Parameters
        ----------
        image, reference
            As in calling the test.
        distances : (m,)
            Points on the line, as distances from the observed z; each is a model evaluation.
        """
        return self._pipeline.margins(self._inputs.one(image, reference), float_array(distances, "distances"))

    def attention_region(self, image: ImageLike) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return the attention map (H, W) and the region (H, W) that would be tested; nothing is tested.

        Both are those of the result: with randomised selection, of the randomised image.

        Parameters
        ----------
        image
            As in calling the test.
        """
        given = self._inputs.one(image)
        pixels = given.image.pixels[None]
        if self._pipeline.randomisation is not None:
            pixels = pixels + self._pipeline.randomisation.added([given])
        observed = self._pipeline.observe(pixels, given.geometry)
        return observed.maps_on_images()[0], observed.regions_on_images()[0]

    def check(self, image: ImageLike, *, reference: ImageLike | None = None) -> None:
        """Refuse an image that the test cannot take; nothing is computed."""
        self._inputs.one(image, reference)

    def permutation_test(
        self, image: ImageLike, permutations: int = 1000, rng: np.random.Generator | int = 0
    ) -> PermutationResult:
        """Run the paper's permutation test, which is not valid for correlated noise, for comparison.

        Parameters
        ----------
        image
            As in calling the test.
        permutations
            Number B of permutations.
        rng
            A generator, or a seed for one.
        """
        if self._pipeline.contrast.reference is not None:
            raise InputError("pixels of an image with a reference cannot be permuted: use another contrast.")
        if self._pipeline.randomisation is not None:
            raise InputError(
                "the permutation test is that of the paper, without randomised selection: use randomise=0."
            )
        given = self._inputs.one(image)
        return permutation_test(
            given.image.pixels,
            lambda images: self._pipeline.statistics(images, given.geometry),
            permutations,
            self._pipeline.scores.batch_size,
            as_generator(rng),
            self._pipeline.alternative,
        )
