"""The test itself: made from a model, a noise model and a search; maps images to results."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Self, cast, overload

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from attentest.attention import ScoreFunction, ViTScores, as_score_function, check_needs_shape, load_model
from attentest.attention.class_scores import TextRelevance
from attentest.attention.network import NetworkScores, OutputScores
from attentest.attention.onnx_model import load_onnx
from attentest.attention.relevance import OutputMap, Relevance, as_attention_map
from attentest.attention.relevance_scores import RelevanceScores
from attentest.attention.score_function import NumpyFunction, TorchFunction
from attentest.checks import as_generator, float_array, level
from attentest.contrast.contrast import Contrast, as_connectivity
from attentest.definition import (
    REGION_RULES,
    Definition,
    ModelDefinition,
    PretrainedDefinition,
    documentation,
    options_of,
)
from attentest.errors import InputError
from attentest.images.preprocessing import Preprocessing
from attentest.images.sample import ImageLike
from attentest.markup import definition_table
from attentest.noise import ImageNoise, NoiseModel
from attentest.noise.model import described
from attentest.pipeline.inputs import Input, batches, numbered_images, preprocessing_and_size
from attentest.pipeline.many_images import sensitivity_of, stream_batches
from attentest.pipeline.model_check import ModelCheck, check_model, with_parameters
from attentest.pipeline.run import MarginCurves, Pipeline, Request
from attentest.presentation.sensitivity import Sensitivity
from attentest.progress import ProgressLike, progress_reports
from attentest.record import region_words
from attentest.results.batch import Results
from attentest.results.components import ComponentResults
from attentest.results.result import AttentionTestResult
from attentest.runs.engine import Engine, FailedImage, OnError
from attentest.search import Certification
from attentest.statistics.noise_factor import FACTORS
from attentest.statistics.pvalue import PermutationResult, permutation_test

SHOWN = (*REGION_RULES, "region_unit", "contrast", "randomise", "alternative", "channels", "search")
"""Options that the short representation shows where they are not the default ones."""


class AttentionTest:
    """A statistical test of the region a Vision Transformer attends to.

    Parameters
    ----------
    model
        A transformer of Hugging Face transformers, timm, torchvision, MONAI or torch (the documentation lists which), a
        ``ScoreFunction``, or, with ``image_shape``, a plain NumPy or torch function from images (m, C, H, W) to smooth
        scores (m, gh, gw). A model is copied to float64 and never modified.
    {options}

    Examples
    --------
    >>> import numpy as np
    >>> from attentest import AttentionTest, bundled_model
    >>> test = AttentionTest.from_pretrained(bundled_model(), noise=1.0)
    >>> image = np.random.default_rng(0).normal(size=(16, 16))
    >>> result = test(image)
    >>> result.naive_pvalue < 0.05 < result.pvalue
    True
    """

    @options_of(ModelDefinition)
    def __init__(
        self, model: torch.nn.Module | ScoreFunction | NumpyFunction | TorchFunction, definition: ModelDefinition
    ) -> None:
        preprocessing, image_size = preprocessing_and_size(definition.preprocessing, definition.image_size)
        attention = as_attention_map(definition.attention)
        is_default = attention == as_attention_map(ModelDefinition.attention)
        module = model if isinstance(model, torch.nn.Module) else None
        has_shape = definition.image_shape is not None
        if module is not None and has_shape:
            check_needs_shape(module, attention)
        if definition.image_size is not None and preprocessing is None and (has_shape or module is None):
            raise InputError(
                "image_size is for vision transformers and preprocessing: a score function has a size of its own, and "
                "a network that of image_shape.",
                "image_size",
            )
        if module is not None and not (has_shape and is_default):
            scores: ScoreFunction = _scores(module, definition, image_size)
        else:
            if not is_default:
                raise InputError("attention is for models: a score function computes its own scores.", "attention")
            scores = as_score_function(
                model, definition.device, definition.batch_size, definition.memory_budget, definition.image_shape
            )
        if (definition.resize, definition.scale) != ("processor", "processor"):
            kept = Preprocessing() if preprocessing is None else preprocessing
            preprocessing = kept.chosen(definition.resize, definition.scale, scores.image_shape[1:])
        self.pipeline = Pipeline(replace(definition, preprocessing=preprocessing), scores)

    @classmethod
    @options_of(PretrainedDefinition)
    def from_pretrained(cls, source: str | Path, definition: PretrainedDefinition) -> AttentionTest:  # noqa: D417
        """Make a test of a saved model of Hugging Face transformers or timm.

        Parameters
        ----------
        source
            Local directory, an ONNX file, or the id of a model on the hub, such as "google/vit-base-patch16-224", which
            is looked up over the network unless ``local_files_only``. Nothing a model brings is ever run.
        {options}
        """
        attention = as_attention_map(definition.attention)
        saved = load_model(
            source,
            head=attention.head if isinstance(attention, Relevance) else "",
            allow_pickle=definition.allow_pickle,
            local_files_only=definition.local_files_only,
            revision=definition.revision,
        )
        if isinstance(attention, TextRelevance) and saved.tokeniser is not None:
            definition = replace(definition, attention=attention.tokenised(saved.tokeniser))
        as_saved = isinstance(definition.preprocessing, str) and definition.preprocessing == "saved"
        processor = saved.processor if as_saved else definition.preprocessing
        preprocessing, image_size = preprocessing_and_size(
            processor, definition.image_size, saved_with=source if as_saved else None
        )
        shape = saved.shape_for(image_size)
        scores = _scores(saved.encoder, definition, image_size, owned=True, shape=shape)
        scores.heads = saved.heads
        if as_saved and preprocessing is None and saved.usual_processor and len(scores.image_shape) == 3:
            preprocessing = Preprocessing.usual(saved.usual_processor, scores.image_shape)
        return cls(scores, **_of_scores(definition, preprocessing))

    @classmethod
    @options_of(ModelDefinition)
    def from_onnx(cls, source: str | Path, definition: ModelDefinition) -> AttentionTest:  # noqa: D417
        """Make a test of a network in an ONNX file, computed in float64; needs ``pip install 'attentest[onnx]'``.

        Parameters
        ----------
        source
            Path of the file: one input of images (m, C, *axes), whose shape need be given only where the file leaves
            it open. Its first output is used. Layers have the names of the outputs of nodes, as in
            ``attention=GradCAM("/layer4/Relu_output_0", target=1)``.
        {options}
        """
        network = load_onnx(source)
        preprocessing, image_size = preprocessing_and_size(definition.preprocessing, definition.image_size)
        shape = network.shape_for(definition.image_shape, image_size)
        network.check(shape)
        scores = _scores(network, replace(definition, image_shape=shape), None, owned=True)
        return cls(scores, **_of_scores(definition, preprocessing))

    def replace(self, **changes: Any) -> Self:
        """Return the same test with other values of some options; the model is shared.

        Parameters
        ----------
        changes
            Options of the class by name, such as ``noise=2.0``, ``search="fixed"`` or ``confidence_level=None``; not
            those of the model (attention, preprocessing, image_size, device, batch_size).
        """
        other = copy.copy(self)
        other.pipeline = Pipeline(self.definition.replaced(**changes), self.pipeline.scores)
        return other

    @property
    def definition(self) -> Definition:
        """What the test is: its options, checked."""
        return self.pipeline.definition

    @property
    def image_shape(self) -> tuple[int, ...]:
        """The (C, H, W) of the model's input; without preprocessing, that of the images."""
        return self.pipeline.scores.image_shape

    @property
    def device(self) -> torch.device:
        """The device the model computes on."""
        return self.pipeline.scores.device

    @property
    def noise(self) -> NoiseModel | ImageNoise:
        """The noise model, or the estimator that makes one from each image."""
        return self.pipeline.inputs.noise

    @property
    def contrast(self) -> Contrast:
        """What regions are compared with."""
        return self.pipeline.contrast

    @property
    def preprocessing(self) -> Preprocessing | None:
        """What happens to an image before the model sees it."""
        return cast("Preprocessing | None", self.definition.preprocessing)

    @property
    def settings(self) -> dict[str, Any]:
        """A record of how the test is made, JSON-ready."""
        return copy.deepcopy(self.pipeline.settings)

    @property
    def identity(self) -> dict[str, Any]:
        """What tells the test from others, beside its settings and the model's weights, JSON-ready."""
        reference = self.contrast.reference
        return {
            "noise": described(self.noise),
            "reference_noise": None if reference is None or reference.noise is None else described(reference.noise),
        }

    @property
    def model_sha256(self) -> str | None:
        """SHA-256 of the weights of the model; None for functions other than vision transformers."""
        scores = self.pipeline.scores
        return scores.sha256() if isinstance(scores, ViTScores) else None

    def __call__(
        self,
        image: ImageLike,
        *,
        reference: ImageLike | None = None,
        name: str | int | None = None,
        decide_at: float | None = None,
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
        name
            Name or number of the image, from which with the seed the noise of randomised selection comes; by default
            the name of its file, or 0. Images that are analysed together must have different ones.
        decide_at
            Decide at this level: the spectral search stops as soon as its error bar excludes it (the grid searches run
            to their end), and the result's ``reject`` says on which side p lies. Confidence intervals may then be
            wider, because less was searched.
        certification
            ``Certification(draws=99)`` adds a certificate: a second p-value that does not depend on the search. It is
            exactly valid in finite samples, whatever the model does between two evaluations, and an independent check
            of the error bar: ``result.certificate.agrees``. Where the scores change too abruptly for the search (status
            "sharp"), it is the p-value to report. It takes thousands of evaluations.
        progress
            True for a progress bar, in terminals and notebooks; or a function, which is called with (share done, 1).
        """
        request = Request(decide_at=decide_at, certification=certification)
        return self._tested(image, reference, name, request, progress)[0]

    def components(
        self,
        image: ImageLike,
        *,
        reference: ImageLike | None = None,
        name: str | int | None = None,
        connectivity: int = 1,
        decide_at: float | None = None,
        certification: Certification | None = None,
        progress: ProgressLike = None,
    ) -> ComponentResults:
        """Test each connected component of the region by itself, with the rest of the region left out.

        The results' ``adjusted_pvalues()`` are Holm's. The adjustment is valid, because the components are fixed once
        the region is given, and the test conditions on the region.

        Parameters
        ----------
        image, reference, name, decide_at, certification, progress
            As in calling the test.
        connectivity
            1: pixels that share an edge are connected; 2: those that share a corner too.
        """
        request = Request(decide_at=decide_at, certification=certification, connectivity=connectivity)
        return ComponentResults(self._tested(image, reference, name, request, progress))

    def _tested(
        self,
        image: ImageLike,
        reference: ImageLike | None,
        name: str | int | None,
        request: Request,
        progress: ProgressLike,
    ) -> list[AttentionTestResult]:
        """Return the results of one image: of its region, or of the components of it."""
        self.pipeline.check(request)
        tested = self.pipeline.inputs.one(image, reference, name)
        with progress_reports(progress, 1) as report:
            results = self.pipeline.run([tested], request, lambda share: report(share, 1))
            report(1.0, 1)
        return results[0]

    @overload
    def map(
        self,
        images: Iterable[ImageLike],
        progress: ProgressLike = None,
        *,
        components: None = None,
        references: Iterable[ImageLike] | None = None,
        names: Sequence[str | int] | None = None,
        on_error: OnError = "raise",
        decide_at: float | None = None,
        certification: Certification | None = None,
        engine: str | Engine = "local",
    ) -> Results: ...
    @overload
    def map(
        self,
        images: Iterable[ImageLike],
        progress: ProgressLike = None,
        *,
        components: int,
        references: Iterable[ImageLike] | None = None,
        names: Sequence[str | int] | None = None,
        on_error: OnError = "raise",
        decide_at: float | None = None,
        certification: Certification | None = None,
        engine: str | Engine = "local",
    ) -> list[ComponentResults]: ...
    def map(
        self,
        images: Iterable[ImageLike],
        progress: ProgressLike = None,
        *,
        components: int | None = None,
        references: Iterable[ImageLike] | None = None,
        names: Sequence[str | int] | None = None,
        on_error: OnError = "raise",
        decide_at: float | None = None,
        certification: Certification | None = None,
        engine: str | Engine = "local",
    ) -> Results | list[ComponentResults]:
        """Test many images and return their results in order; they equal those of one by one to within the error bars.

        With randomised selection they do if images have the same names: the added noise comes from the name of an
        image, by default its number in the batch, and that of an image by itself is 0.

        Parameters
        ----------
        images
            Any iterable of images, or of paths of image files; only one batch of them is held at a time.
        progress
            True for a progress bar, in terminals and notebooks; or a function, which is called with (images done,
            images in all or None).
        components
            1 or 2 (3 for volumes) to test each connected component of the regions, as :meth:`components` does with
            this connectivity; the results of an image are then :class:`ComponentResults`.
        references
            Each image's own reference, for the contrast ``Reference()``.
        names
            A name or number for each image, for tables and as in calling the test; by default their numbers from 0,
            and for the noise of randomised selection the names of files.
        on_error
            What to do with an image that cannot be read or tested: "raise", stop with an error; "row", go on with the
            others. It is then a :class:`FailedImage` in its place, NaN among the p-values, and a row with its reason in
            ``results.table()``; ``results.tested`` has the others.
        decide_at, certification
            As in calling the test.
        engine
            Where the images are tested: "local", in this process; "processes", by processes on this machine, one for
            each core or four for each GPU; "ray", on workers, one for each core or GPU; or ``ProcessEngine(...)`` or
            ``RayEngine(...)``.
        """
        results = self.stream(
            images,
            progress,
            components=components,
            references=references,
            names=names,
            on_error=on_error,
            decide_at=decide_at,
            certification=certification,
            engine=engine,
        )
        return Results(results, names) if components is None else list(results)

    def stream(
        self,
        images: Iterable[ImageLike],
        progress: ProgressLike = None,
        *,
        components: int | None = None,
        references: Iterable[ImageLike] | None = None,
        names: Sequence[str | int] | None = None,
        on_error: OnError = "raise",
        decide_at: float | None = None,
        certification: Certification | None = None,
        engine: str | Engine = "local",
    ) -> Iterator[Any]:
        """Yield the results of :meth:`map` one by one, batch by batch, so that an interruption loses no finished batch.

        They are :class:`AttentionTestResult`, or with ``components`` :class:`ComponentResults`. With ``on_error="row"``
        an image that cannot be tested is a :class:`FailedImage` in its place.
        """
        connectivity = (
            None if components is None else as_connectivity(components, "components", self.pipeline.inputs.dimension)
        )
        request = Request(decide_at=decide_at, certification=certification, connectivity=connectivity)
        batches_of_results = stream_batches(
            self.pipeline,
            images,
            request,
            progress,
            references=references,
            names=names,
            on_error=on_error,
            engine=engine,
        )
        with closing(batches_of_results):  # bar and workers end when a stream is left, not when memory is freed
            for batch in batches_of_results:
                for tested in batch:
                    if isinstance(tested, FailedImage):
                        yield tested
                    else:
                        yield tested[0] if components is None else ComponentResults(tested)

    def attention_region(
        self, image: ImageLike, *, name: str | int | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return the attention map (H, W) and the region (H, W) that would be tested; nothing is tested.

        Both are those of the result: with randomised selection, of the randomised image, of its first draw. Image and
        name are as in calling the test.
        """
        observation = self.pipeline.observe([self.pipeline.inputs.one(image, identity=name)])
        return observation.maps_on_images()[0], observation.regions_on_images()[0]

    def attention_maps(self, images: Iterable[ImageLike]) -> NDArray[np.float64]:
        """Return the attention maps (k, H, W), from 0 to 1, of images of one size; nothing is tested.

        They are those of the results of :meth:`map`: with randomised selection, of the randomised images.
        """
        maps, pipeline = [], self.pipeline
        inputs = pipeline.inputs.each(numbered_images(images, None))
        for batch in batches(inputs, pipeline.scores.batch_size, pipeline.memory // 2):
            maps.append(pipeline.observe([item for item in batch if isinstance(item, Input)]).maps_on_images())
        if not maps:
            raise InputError("there are no images to look at: the iterable is empty.")
        return np.concatenate(maps)

    def sensitivity(
        self,
        image: ImageLike,
        *,
        reference: ImageLike | None = None,
        name: str | int | None = None,
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
        image, reference, name, progress
            As in calling the test; by default the name is that of the result.
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
        if name is None and result is not None:
            name = result.settings.get("randomise_name")
        tested = self.pipeline.inputs.one(image, reference, name)
        with progress_reports(progress, 1) as report:
            return sensitivity_of(
                self.pipeline, tested, result, lengths=lengths, factors=factors, alpha=level(alpha), report=report
            )

    def margins(
        self,
        image: ImageLike,
        distances: ArrayLike,
        *,
        reference: ImageLike | None = None,
        name: str | int | None = None,
    ) -> MarginCurves:
        """Return the paper's functions f_i of an image along its line; :func:`attentest.plot_margins` draws them.

        Parameters
        ----------
        image, reference, name
            As in calling the test; of several draws, the first.
        distances : (m,)
            Points on the line, as distances from the observed z; each is a model evaluation.
        """
        tested = self.pipeline.inputs.one(image, reference, name)
        return self.pipeline.margins(tested, float_array(distances, "distances"))

    def validate(self, image: ImageLike, *, reference: ImageLike | None = None) -> None:
        """Raise an error if the test cannot take an image; nothing is computed."""
        self.pipeline.inputs.one(image, reference)

    def check(self, progress: ProgressLike = None) -> ModelCheck:
        """Return how the model is searched and what that costs, in a few seconds; it prints well.

        Images are of noise of standard deviation 1, as the model sees them after preprocessing. Progress is as in
        calling the test.
        """
        with progress_reports(progress, 1, doing="checking") as report:
            return check_model(self.definition, self.pipeline.scores, lambda share: report(share, 1))

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
        if self.contrast.reference is not None:
            raise InputError("pixels of an image with a reference cannot be permuted: use another contrast.")
        if self.definition.randomise != 0:
            raise InputError(
                "the permutation test is that of the paper, without randomised selection: use randomise=0."
            )
        tested = self.pipeline.inputs.one(image)

        def statistics(images: NDArray[np.float64]) -> NDArray[np.float64]:
            return self.pipeline.statistics([self.pipeline.inputs.like(tested, pixels) for pixels in images])

        return permutation_test(
            tested.image.pixels,
            statistics,
            permutations,
            self.pipeline.scores.batch_size,
            as_generator(rng),
            self.definition.alternative,
        )

    def __repr__(self) -> str:
        settings, usual = self.pipeline.settings, {field.name: field.default for field in fields(Definition)}
        values = {name: getattr(self.definition, name) for name in SHOWN}
        values |= {"contrast": None if settings["contrast"]["name"] == "background" else self.contrast}
        values |= {"search": settings["search"]["name"]}
        unusual = {name: value for name, value in values.items() if value is not None and value != usual[name]}
        listed = {"image_shape": self.image_shape, **unusual, "noise": self.noise}
        shown = ", ".join(f"{name}={value!r}" for name, value in listed.items())
        return f"AttentionTest(<{_type(settings['model'])}>, {shown})"

    def _repr_html_(self) -> str:
        return definition_table("AttentionTest", self._in_words())

    def _in_words(self) -> dict[str, object]:
        """Return the parts and options of the test in words, by name."""
        definition, model = self.definition, self.pipeline.settings["model"]
        preprocessing, level = definition.preprocessing, definition.confidence_level
        randomised = f"randomised, gamma = {definition.randomise:g}" if definition.randomise else "not randomised"
        equal_tails = definition.alternative == "equal-tailed"
        return {
            "model": f"{_type(model)} on {self.device}",
            **({"attention": with_parameters(model["attention"])} if "attention" in model else {}),
            "model input": f"{' x '.join(map(str, self.image_shape))} (channels x height x width)",
            **({} if preprocessing is None else {"preprocessing": preprocessing}),
            "region": region_words(self.pipeline.settings),
            "selection": randomised,
            "contrast": self.contrast,
            **({} if definition.channels == "mean" else {"channels": definition.channels}),
            "alternative": "two-sided, equal tails" if equal_tails else definition.alternative,
            "noise": self.noise,
            "search": self.pipeline.search,
            "confidence level": "p alone, no interval" if level is None else f"{level:g}",
        }


AttentionTest.__doc__ = (AttentionTest.__doc__ or "").replace("{options}", documentation(ModelDefinition, indent=4))


def _scores(
    model: torch.nn.Module,
    definition: Definition,
    image_size: int | tuple[int, ...] | None,
    owned: bool = False,
    shape: tuple[int, ...] | None = None,
) -> ViTScores:
    """Return the score function of a model; ``owned`` if nobody else uses it, with the shape of a network's images."""
    attention: Any = as_attention_map(definition.attention)
    of_network = OutputScores if isinstance(attention, OutputMap) else NetworkScores
    kind = RelevanceScores if isinstance(attention, Relevance) else ViTScores
    shape = getattr(definition, "image_shape", shape)
    if shape is None and isinstance(attention, OutputMap):
        raise InputError(f"{attention.name} is a map of a network: give image_shape, or an ONNX file.")
    return (kind if shape is None else of_network)(
        model,
        attention=attention,
        image_size=image_size if shape is None else shape,
        device=definition.device,
        batch_size=definition.batch_size,
        memory_budget=definition.memory_budget,
        owned=owned,
    )


def _of_scores(definition: Definition, preprocessing: Preprocessing | None) -> dict[str, Any]:
    """Return the options of a test of scores, which have those of the model."""
    options = {field.name: getattr(definition, field.name) for field in fields(Definition)}
    of_model = {"attention": "rollout", "image_size": None, "device": None, "batch_size": None}
    return {**options, "preprocessing": preprocessing, **of_model}


def _type(model: Mapping[str, Any]) -> str:
    """Return the type of a model; a score function of the user's describes itself as it likes."""
    return str(model.get("type", "score function"))
