"""What a test is: one definition, which the constructor, the command line, the page, records and resumed runs all read.

An option of a test is one field of :class:`Definition` with its default, its help text and the check of its value.
Everything that lists, describes or compares options goes through the fields, so nothing else changes with a new one
but the code that uses it. Importing this file imports neither NumPy nor torch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from functools import partial, wraps
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, cast

from attentest.errors import NOISE_GUIDE, InputError, listed, shortened
from attentest.registry import ATTENTION_MAPS, REGION_UNITS, MapPart, Part
from attentest.statistics.alternative import Alternative, alternatives, as_alternative

if TYPE_CHECKING:
    import torch

    from attentest.attention import Aggregation, AggregationLike
    from attentest.attention.relevance import Relevance
    from attentest.contrast import Channels, ContrastLike
    from attentest.noise import ImageNoise, NoiseLike
    from attentest.search import Search

Parameters = ParamSpec("Parameters")
Owner = TypeVar("Owner")
Source = TypeVar("Source")
Value = TypeVar("Value")
Made = TypeVar("Made")

LEAST_GAMMA, MOST_GAMMA = 0.01, 10.0
"""Range of gamma. Below, the test is that of the paper; above, the model hardly sees the image."""

IMAGE, MODEL, COMPARED, RANDOMISED = (
    "More on the images",
    "More on the model",
    "More on what is compared",
    "Randomised selection",
)
"""Headings under which help texts list options that are not needed most often."""

MOST_DRAWS = 999  # most draws of the noise that randomised selection adds: more change p by less than its error bar

WITHOUT_RANDOMISATION = {"draws": 1, "randomise_seed": 0}
"""Options of randomised selection, with the values that they have without it."""

LONGEST_SIDE = 10  # most digits of the side of an image, as a text

RESIZES, SCALES = ("processor", "stretch", "crop", "none"), ("processor", "unit", "none")
"""How images get the size of the model's input, and how pixel values are scaled for it."""

USUAL_THRESHOLD = 0.6  # tau, as in the paper

REGION_RULES = ("threshold", "top_fraction", "level")
"""Options that say how a map becomes a region; a test has one of them."""

MASK_USES = ("map", "contrast", "both")  # what a mask can be for
LINE = 116  # width of the lines of a docstring


@dataclass(frozen=True, kw_only=True)
class Option:
    """What is known of an option besides its name, its type and its default."""

    help: str
    """What it does, in a sentence or two, for every help text."""
    details: str = ""
    """More about it, for the documentation of the library."""
    check: Callable[[Any], Any] | None = None
    """Returns the value as the test uses it, or raises an error; None if any value will do."""
    text: Callable[[str], Any] | None = None
    """Makes the value of a text on the command line; None if a command has no such option, or takes it by its type."""
    choices: Collection[str] = ()
    """The texts that are allowed, such as the names in a registry; empty for any."""
    needs: str = ""
    """The option of the command line without which it does nothing, such as "--out"; empty if there is none."""
    flag: str = ""
    metavar: str = ""
    """How the command line spells it, and what it calls its value."""
    limits: str | tuple[int, int | None] = ""
    """The range of the value, as the help shows it: a text where ``check`` checks it, or the least and the greatest
    number that the command line takes, None for any."""
    panel: str | None = None
    shown_default: str | bool = True
    """Under which heading its help shows it, and with which default."""
    label: str = ""
    slider: tuple[float, float, float] | None = None
    """What the page asks, empty if it does not offer the option; and the least value, the greatest one and the step of
    a slider there."""
    recorded: bool = True
    """Whether the record of a test has it: without it, another test may have the same record."""
    of_model: bool = False
    """Whether it is a fact of the model, which tests made by :meth:`AttentionTest.replace` share."""


REQUIRED = MISSING  # the default of an option that must be given


def option(help: str, *, default: Any = None, **facts: Any) -> Any:
    """Return a field of a definition with its default. Facts are those of :class:`Option`."""
    return field(default=default, metadata={"option": Option(help=help, **facts)})


image_option = partial(option, panel=IMAGE)
model_option = partial(option, panel=MODEL, recorded=False, of_model=True)  # the record has a description of the model
compared_option = partial(option, panel=COMPARED)
randomised_option = partial(option, panel=RANDOMISED)
"""Make the options under these headings."""


def option_of(defined: Field[Any]) -> Option:
    """Return what is known of the option that is a field."""
    return cast(Option, defined.metadata["option"])


def as_choice(value: Any, name: str, choices: Collection[str]) -> str:
    """Return a text that must be one of some texts."""
    if not isinstance(value, str) or value not in choices:
        raise InputError(f"{name} must be {listed(choices)}, got {shortened(value)}.", name)
    return value


def _convert(location: str) -> Callable[[Any], Any]:
    """Return a function of a package that takes long to import, which is imported when a value is checked."""
    return lambda value: Part(location).load()(value)


def _gamma(value: Any) -> float:
    from attentest.checks import real_number

    gamma = real_number(value, "randomise")
    if gamma != 0 and not LEAST_GAMMA <= gamma <= MOST_GAMMA:
        raise InputError(
            f"randomise must be 0, for the paper's test, or a number from {LEAST_GAMMA:g} to {MOST_GAMMA:g}, got "
            f"{gamma:g}.",
            "randomise",
        )
    return gamma


def _whole(value: Any, name: str, least: int, most: int) -> int:
    from attentest.checks import whole_number

    return whole_number(value, name, least, most)


def _size(text: str) -> tuple[int, int]:
    """Return the height and the width that a text such as "224" or "224x192" says."""
    sides = text.lower().split("x")
    if len(sides) > 2 or not all(side.strip().isdecimal() and len(side) < LONGEST_SIDE for side in sides):
        problem = f"image_size must be a side (224) or HEIGHTxWIDTH (224x192), got {shortened(text)}."
        raise InputError(problem, "image_size")
    return int(sides[0]), int(sides[-1])


def _numbers(text: str) -> list[float]:
    return [float(number) for number in text.split(",")]


def _range(text: str) -> tuple[float, ...]:
    try:
        low, high = _numbers(text)
    except ValueError:
        problem = f"intensity_range must be two numbers, such as 0,1, got {shortened(text)}."
        raise InputError(problem, "intensity_range") from None
    return low, high


def _channels(text: str) -> Any:
    if text == "mean":
        return text
    try:
        return int(text) if text.lstrip("+-").isdecimal() and len(text) < LONGEST_SIDE else _numbers(text)
    except ValueError:
        raise InputError(
            f"channels must be mean, the number of a channel, or weights (0.3,0.59,0.11), got {shortened(text)}.",
            "channels",
        ) from None


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A test, apart from its model; each option is a field, checked and converted when the definition is made."""

    noise: NoiseLike | ImageNoise | Literal["poisson"] = option(
        "Standard deviation of the pixel noise, in the units of the image; or a model or a fitted estimator from "
        '``attentest.noise``; or, approximately, ``FromImage()``; or "poisson" for images of counts.',
        default=REQUIRED,
        check=_convert("noise.tested_image:as_test_noise"),
    )
    threshold: float | None = option(
        "The region is where the attention map, scaled from 0 to 1, exceeds this.",
        details="tau of the paper; by default 0.6.",
        text=float,
        metavar="TAU",
        limits="0<x<1",
        shown_default="0.6",
        label="Threshold τ",
        slider=(0.02, 0.98, 0.01),
    )
    top_fraction: float | None = option(
        "Instead of a threshold: the region is this fraction of the pixels, or patches.",
        details="They are those of greatest attention.",
        text=float,
        metavar="Q",
        limits="0<x<1",
        shown_default=False,
        label="Top fraction",
        slider=(0.01, 0.5, 0.01),
    )
    level: float | None = option(
        "Instead of a threshold: the region is where the map, in its own units and not scaled, exceeds this number.",
        details="For maps whose values mean something, such as residuals in the units of the pixels; of absolute maps, "
        "the region is where the absolute value does. It must be fixed before looking at the data.",
        text=float,
        metavar="VALUE",
        shown_default=False,
        label="Level of the map",
    )
    mask: Any = compared_option(
        "Pixels of the image, fixed beforehand, within which the map is looked at and the contrast is made: an array "
        "of truth values with the axes of the image, or a file of one, of which values other than 0 are within; or a "
        "folder, or a quoted pattern with an asterisk, of a mask for each image, by its name.",
        details='Such as "brain only"; it must not depend on the image that is tested. In a pattern such as '
        "``masks/*_mask.png`` the asterisk stands for the name of an image without its ending. A mapping has a mask "
        "for each image, by its name, or by its number among many.",
        check=_convert("images.mask:as_mask"),
        text=str,
        metavar="FILE",
        shown_default="all pixels",
        label="Mask: only pixels of it that are not 0 count",
    )
    mask_use: str = compared_option(
        "What the mask is for: the region is chosen within it (map), both sides of the contrast are taken within it "
        "(contrast), or both.",
        default="both",
        text=str,
        choices=MASK_USES,
        label="The mask is for",
    )
    region_unit: str = compared_option(
        "What the region consists of: pixels, with attention interpolated between patch centres, or whole patches.",
        details='"pixels" is the paper\'s. With "patches", threshold and top fraction refer to the scores of the '
        "patches, and a pixel belongs to the patch that its centre lies in.",
        default="pixels",
        text=str,
        choices=REGION_UNITS,
        label="It consists of",
    )
    attention: AggregationLike | Relevance = option(
        'How the map is made: "rollout" (the paper\'s), "last-layer", or ``Rollout(...)``, ``LayerAttention(...)``, '
        "``GradientRollout(target)`` and other maps for a class from ``attentest.attention``.",
        default="rollout",
        recorded=False,  # the description of the model has it
        of_model=True,
    )
    preprocessing: Any = option(
        "What happens to an image before the model sees it: ``Preprocessing(...)``, or the model's own image processor "
        "or its configuration. It becomes part of the map: noise, region and contrast live on the image as given. "
        "None: images must have the size the model takes.",
        of_model=True,
    )
    image_size: int | tuple[int, int] | None = model_option(
        "Side (224), or height and width (224x192), of the model's input, to which images are resized.",
        details="For a model run at another size than it was trained at.",
        text=_size,
        metavar="SIZE",
        shown_default="the model's own",
    )
    resize: str = model_option(
        "How an image gets the size of the model's input: as its image processor does it, stretched, as the middle of "
        "it (crop), or not at all (none).",
        details="The image processor is the one saved with the model; without one, the defaults of its family hold.",
        default="processor",
        text=str,
        choices=RESIZES,
    )
    scale: str = model_option(
        "How pixel values are scaled for the model: as its image processor does it, from black 0 to white 1 (unit), or "
        "not at all (none).",
        default="processor",
        text=str,
        choices=SCALES,
    )
    intensity_range: tuple[float, float] | None = image_option(
        "The pixel values of black and white (0,1), where preprocessing rescales floating-point images or scans.",
        details="By default those of the dtype: 0 and 255 for 8 bits, 0 and 65535 for 16, 0 and 1 for booleans, none "
        "for floats.",
        text=_range,
        flag="--range",
        metavar="LOW,HIGH",
        shown_default="by dtype",
    )
    channels: Channels = image_option(
        "What is compared in colour images: their mean, one channel by number, or a weight for each (0.3,0.59,0.11).",
        default="mean",
        check=_convert("contrast.contrast:as_channels"),
        text=_channels,
    )
    contrast: ContrastLike = option(
        "What the region is compared with: its background, as in the paper, or ``Neighbourhood(radius=5)``, "
        '``Reference(image)``, ``Filtered("laplacian")`` and others from ``attentest.contrast``; a name, such as '
        '"neighbourhood:5"; or a function from a region (H, W) to weights (H, W).',
        default="background",
        check=_convert("contrast.contrast:as_contrast"),
    )
    randomise: float = randomised_option(
        "gamma: let the model choose the region on the image plus this many times its noise, and test the image "
        "itself. 0 is the paper's test; 0.3 to 1 finds far more. Choose it before looking at the data.",
        details="With randomised selection intervals are bounded.",
        default=0.0,
        check=_gamma,
        text=float,
        metavar="GAMMA",
        limits=f"0<=x<={MOST_GAMMA:g}",
        label="Randomised selection γ",
        slider=(0.0, 2.0, 0.1),
    )
    draws: int = randomised_option(
        "With randomise: how often noise is drawn, a region chosen and tested; one valid p combines them all. With one "
        "draw p depends on chance, with 21 hardly. Choose it before looking at the data.",
        details="P is the number of draws over half of it, rounded up, times the median of their p-values, of an even "
        "number the lower one in the middle.",
        default=1,
        check=lambda value: _whole(value, "draws", 1, MOST_DRAWS),
        text=int,
        limits=f"1<=x<={MOST_DRAWS}",
        label="Draws of that noise",
        slider=(1, 41, 2),
    )
    randomise_seed: int = randomised_option(
        "Seed of the noise that randomised selection adds. It comes from this and the image's name: the file's own, "
        "without its folder, or the image's number.",
        details="It does not depend on the pixels, so that p changes no more than they do. It is recorded.",
        default=0,
        check=lambda value: _whole(value, "randomise_seed", 0, 2**63 - 1),
        text=int,
        limits="x>=0",
    )
    search: str | Search = option(
        '"spectral" (attentest\'s own), "adaptive", "fixed" or "combination" (the paper\'s), or a configured search, '
        "such as ``SpectralSearch(tol=1e-4)`` from ``attentest.search``.",
        details='In the place of "spectral", networks that are linear in pieces are searched exactly: "piecewise".',
        default="spectral",
        check=_convert("search:as_search"),
    )
    alternative: Alternative = compared_option(
        "The mean of the region differs (two-sided, the paper's p; equal-tailed: twice the smaller tail, below 0.05 "
        "exactly when the 95% interval excludes 0), is greater, or is less.",
        details='"two-sided" is P(abs(T) >= abs(t)), "equal-tailed" twice the smaller of P(T >= t) and P(T <= t).',
        default="two-sided",
        check=as_alternative,
        text=str,
        choices=alternatives(),
        label="Is the region",
    )
    confidence_level: float | None = option(
        "The spectral search goes as far as a confidence interval at this level needs; None for p alone, which is "
        "faster. The grid searches have a fixed range, and what lies beyond it makes the interval wider.",
        default=0.95,
        check=_convert("checks:optional_confidence"),
    )
    device: torch.device | str | None = option(
        'Where to compute, for example "cuda"; by default where the model is.', recorded=False, of_model=True
    )
    batch_size: int | None = option(
        "Images per model call; by default as many as memory allows.", recorded=False, of_model=True
    )
    memory_budget: int | None = option(
        "Bytes that a model call and the search may use together; by default a quarter of the free memory, and no more "
        "than 2 GiB on the CPU.",
        check=_convert("attention.device:as_memory_budget"),
        recorded=False,
    )

    def __post_init__(self) -> None:
        for defined in fields(self):
            known, value = option_of(defined), getattr(self, defined.name)
            if known.check is not None:
                object.__setattr__(self, defined.name, known.check(value))
            elif known.choices:
                object.__setattr__(self, defined.name, as_choice(value, defined.name, known.choices))
        if all(getattr(self, rule) is None for rule in REGION_RULES):
            object.__setattr__(self, "threshold", USUAL_THRESHOLD)
        if self.mask is None and self.mask_use != "both":
            raise InputError(
                f"mask_use {self.mask_use} does nothing without mask: give both, or neither.", "mask_use", "mask"
            )
        if self.randomise == 0 and getattr(self.noise, "name", "") == "poisson":
            object.__setattr__(self, "randomise", 1.0)  # counts are always divided; 1 is half and half
        for name, usual in WITHOUT_RANDOMISATION.items():
            if self.randomise == 0 and (value := getattr(self, name)) != usual:
                raise InputError(
                    f"{name} {value} does nothing without randomise: give both, or neither.", name, "randomise"
                )

    def replaced(self, **changes: Any) -> Definition:
        """Return the definition with other values of some options; draws and seed go with randomised selection."""
        known = check_names(type(self), changes)
        for name in changes:
            if known[name].of_model:
                raise InputError(
                    f"{name} is a fact of the model, which is shared: make a new test with another {name}."
                )
        if changes.get("randomise") == 0:
            changes = WITHOUT_RANDOMISATION | changes
        if any(changes.get(rule) is not None for rule in REGION_RULES):
            changes = dict.fromkeys(REGION_RULES) | changes
        return replace(self, **changes)

    def describe(self) -> dict[str, Any]:
        """Return the recorded options as JSON-ready values, by name."""
        return {
            defined.name: _described(getattr(self, defined.name))
            for defined in fields(self)
            if option_of(defined).recorded
        }


@dataclass(frozen=True, kw_only=True)
class ModelDefinition(Definition):
    """A test of a model or a function that is there already."""

    image_shape: tuple[int, ...] | None = option(
        "The (C, H, W) of the images a NumPy or torch function takes.", recorded=False, of_model=True
    )


@dataclass(frozen=True, kw_only=True)
class PretrainedDefinition(Definition):
    """A test of a saved model: how it is loaded, too."""

    preprocessing: Any = option(
        '"saved": that of the image processor saved with the model; if there is none, the defaults of its family for '
        "images that the model cannot take as they are. Otherwise as in the class.",
        default="saved",
        of_model=True,
    )
    allow_pickle: bool = model_option(
        "Read pickled weights if there are no safetensors; only for models you trust.",
        default=False,
        text=bool,
        flag="--allow-pickle",
    )
    local_files_only: bool = model_option(
        "Use only models that are on disk; download nothing.", default=False, text=bool, flag="--offline"
    )
    revision: str | None = option("Branch, tag or commit on the hub.", recorded=False, of_model=True)


LONGEST_NUMBER = 18  # largest number of digits, so that the number fits in 64 bits


@dataclass(frozen=True, kw_only=True)
class MapDefinition:
    """How the map of a test is made, in the texts that the command line and the page take."""

    map_name: str = option(
        f"How the map is made: {ATTENTION_MAPS.choices()}.",
        default="rollout",
        text=str,
        flag="--map",
        metavar="MAP",
        label="Map",
    )
    target: str | None = option(
        "Of a map for a class: its number, its label (label:7 if that is a number), or predicted.",
        text=str,
        flag="--class",
        metavar="CLASS",
        shown_default="predicted",
        label="Class",
    )
    layer: str | None = model_option(
        "Of grad-cam and hires-cam: the layer, by its name in a network (layer4), or its number in a transformer.",
        text=str,
        metavar="MODULE",
        shown_default="the last",
    )
    text: str | None = model_option(
        "A map for a text, such as 'a photo of a tumour', of a model of images and texts (CLIP, SigLIP).",
        text=str,
        shown_default=False,
        label="Text",
    )
    sign: str | None = model_option(
        "Of a map for a class: what makes the region, positive, absolute or signed values.",
        text=str,
        shown_default="the map's own",
    )
    heads: str = model_option(
        "How heads are combined: mean, max, min, or the number of a single head.", default="mean", text=str
    )

    def attention(self) -> Aggregation | Relevance:
        """Return the map of "rollout" or "layer:3" with its heads, of "grad-cam" with its class, or that of a text."""
        options = {
            "head_fusion": ("heads", None if self.heads == "mean" else _number_or_text(self.heads, "heads")),
            "target": ("target", None if self.target is None else _number_or_text(self.target, "target")),
            "sign": ("sign", self.sign),
            "layer": ("layer", None if self.layer is None else _number_or_text(self.layer, "layer")),
        }
        given = {parameter: value for parameter, (_, value) in options.items() if value is not None}
        part = ATTENTION_MAPS.get(self.map_name.partition(":")[0])
        chosen, takes = ("map_name", f" {self.map_name}"), part.takes if isinstance(part, MapPart) else tuple(options)
        if self.text is not None:
            chosen, takes = ("text", ""), ()
            given |= {"map": self.map_name} if self.map_name != "rollout" else {}
        if unused := next((parameter for parameter in given if parameter not in takes), None):
            name = options.get(unused, ("map_name",))[0]
            if chosen == ("map_name", " rollout") and unused != "head_fusion":
                raise InputError(f"{name} is for maps for a class: choose one too, such as grad-cam.", name)
            raise InputError(f"{name} does not go with {''.join(chosen)}: leave one of them out.", name, chosen[0])
        made: Aggregation | Relevance = (
            ATTENTION_MAPS.create(self.map_name, "map_name", **given)
            if self.text is None
            else Part("attention.class_scores:TextRelevance").load()(self.text)
        )
        return made


def _number_or_text(text: str, name: str) -> int | str:
    if not text.removeprefix("-").isdecimal():
        return text
    if len(text) > LONGEST_NUMBER:
        raise InputError(f"{name} must have at most {LONGEST_NUMBER} digits, got {len(text)}.", name)
    return int(text)


def check_names(definition: Any, names: Iterable[str]) -> dict[str, Option]:
    """Return the options of a definition by name; raise an error if one of the names is not among them."""
    known = {defined.name: option_of(defined) for defined in fields(definition)}
    for name in names:
        if name not in known:
            raise TypeError(f"a test has no option {name}: it has {', '.join(known)}.")
    return known


def _described(value: Any) -> Any:
    describe = getattr(value, "describe", None)
    if describe is None:
        return list(value) if isinstance(value, tuple) else value
    described = describe()
    return dict(described) if isinstance(described, Mapping) else described


def options_of(
    definition: Callable[Parameters, Value],
) -> Callable[[Callable[[Owner, Source, Value], Made]], Callable[Concatenate[Owner, Source, Parameters], Made]]:
    """Let a method take the options of a definition as keyword arguments, in place of its parameter for it.

    Type checkers, ``help`` and editors see the fields of the definition. An owner with an attribute
    ``definition_class`` takes the options of that class instead.
    """

    def decorate(
        method: Callable[[Owner, Source, Value], Made],
    ) -> Callable[Concatenate[Owner, Source, Parameters], Made]:
        signature = inspect.signature(method)
        *first, _ = signature.parameters.values()
        listed = inspect.signature(definition).parameters.values()

        @wraps(method)
        def call(self: Owner, *arguments: Any, **options: Any) -> Made:
            if first[1].name in options and not arguments:
                arguments = (options.pop(first[1].name),)
            made_by: Any = (
                getattr(self, "definition_class", definition) if definition is ModelDefinition else definition
            )
            check_names(made_by, options)
            if len(arguments) != 1:
                raise TypeError(
                    f"{method.__qualname__} got {len(arguments)} positional arguments: {first[1].name} first, then "
                    "options by name."
                )
            if "noise" not in options:
                raise TypeError(
                    f"{method.__qualname__} needs noise=, the standard deviation of the pixels' random error or a "
                    f"model of it. How to choose it: {NOISE_GUIDE}."
                )
            return method(self, arguments[0], made_by(**options))

        call.__signature__ = signature.replace(parameters=[*first, *listed])  # type: ignore[attr-defined]
        call.__doc__ = (method.__doc__ or "").replace("{options}", documentation(definition, 8))
        return cast(Callable[Concatenate[Owner, Source, Parameters], Made], call)

    return decorate


def documentation(definition: Any, indent: int) -> str:
    """Return the options of a definition as the parameters of a docstring, the lines after the first indented."""
    lines: list[str] = []
    for defined in fields(definition):
        known = option_of(defined)
        lines += [
            defined.name,
            *(f"    {line}" for line in wrap(f"{known.help} {known.details}".strip(), LINE - indent)),
        ]
    return f"\n{' ' * indent}".join(lines)
