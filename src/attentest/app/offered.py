"""The models and images of the page: offered, uploaded or drawn; nothing that a browser sends names another file."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial, wraps
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from attentest.attention import (
    Aggregation,
    GradCAM,
    NetworkScores,
    OutputScores,
    RelevanceScores,
    Rollout,
    TextRelevance,
    ViTScores,
    load_model,
)
from attentest.attention.device import usable_device
from attentest.attention.network import network_maps
from attentest.attention.relevance import OutputMap, Relevance
from attentest.attention.saved_model import SavedModel
from attentest.errors import AttentestError, InputError, ModelError, shortened, worded
from attentest.images.image_file import Spacing
from attentest.images.image_source import ImageSource
from attentest.images.sample import Sample, as_sample
from attentest.pipeline.inputs import preprocessing_and_size
from attentest.registry import ATTENTION_MAPS
from attentest.simulation.images import null_images, signal_images
from attentest.training.bundled import BUNDLED, FOLDER, bundled_model

MOST_REMEMBERED, MOST_MAPS = 8, 4
"""Number of images whose scores are remembered, and of maps, beside rollout, whose models are kept in memory."""

MOST_CLASSES = 20
"""Number of classes, those of greatest score, that the page lists; others can be written in the field."""

Map: TypeAlias = Relevance | Aggregation | OutputMap

TEXT = "text"  # what the menu of maps has for the map of a text, which no map of the registry is


def remembering(kind: type[ViTScores], *methods: str) -> type[ViTScores]:
    """Return scores of a kind that are not computed again for an image, (1, C, *axes), that was seen just before.

    While tau is moved, the region changes at once and the model is not evaluated. Not for searches that need
    derivatives.
    """

    def remembered(name: str) -> Callable[..., Tensor]:
        compute = getattr(kind, name)

        @wraps(compute)
        def once(scores: Any, *values: Tensor) -> Tensor:
            if len(values[0]) != 1:
                return cast(Tensor, compute(scores, *values))
            seen = b"".join(value.detach().cpu().numpy().tobytes() for value in values)
            memory, key = vars(scores).setdefault("_remembered", {}), hashlib.blake2b(name.encode() + seen).digest()
            known = memory.get(key)
            if known is None:
                known = memory[key] = compute(scores, *values)
                for oldest in list(memory)[:-MOST_REMEMBERED]:
                    memory.pop(oldest, None)
            return cast(Tensor, known.clone())

        return once

    return type(f"Remembered{kind.__name__}", (kind,), {name: remembered(name) for name in methods})


RememberedScores = remembering(ViTScores, "__call__")
RememberedRelevance = remembering(RelevanceScores, "given", "class_scores")


@dataclass(frozen=True, kw_only=True, eq=False)
class OfferedModel:
    """A model that is ready to be used."""

    name: str
    """Its name on the page."""
    attention: Map
    scores: ViTScores
    """The first of its maps, such as rollout, or Grad-CAM of a network without attention; and the scores of it."""
    preprocessing: Any
    """That of the image processor saved with it, if there is one."""
    usual_processor: str
    """Name of the image processor of its family, for photographs where none was saved."""
    maps: tuple[str, ...]
    """The maps that it can give: names of the registry without an argument, and that for texts."""
    new_scores: Callable[[Map], ViTScores]
    """Makes the scores of another map than the first."""

    @property
    def dimension(self) -> int:
        """Number of axes of what it takes: 1 of signals, 2 of images, 3 of volumes."""
        return len(self.scores.image_shape) - 1


class OfferedModels:
    """The bundled models and those saved in some directories, or ONNX files, on a device.

    The latter are all loaded here, so that a broken one is known before the page is; ``image_size``, if it is not None,
    is the size of their input.
    """

    def __init__(self, directories: Iterable[Path] = (), device: str = "cpu", image_size: Any = None) -> None:
        self._device, self._size = usable_device(device), image_size
        directories = [Path(directory) for directory in directories]
        for directory in directories:
            if not directory.exists() and (FOLDER / directory).is_dir():
                raise InputError(f"{directory} is a bundled model, which the page offers by itself: leave it out.")
        listed = _named(directories)
        bundled = {_bundled_name(*kind): bundled_model(kind[1], kind[0]) for kind in BUNDLED}
        bundled |= {name: bundled_model(axes=axes) for axes, name in OTHER_NAMES.items()}
        self._listed = listed
        self._directories = listed | bundled
        self._loaded: dict[str, OfferedModel] = {}
        self._of_maps: OrderedDict[tuple[str, Map], ViTScores] = OrderedDict()
        self._lock = Lock()
        for name in listed:
            self.model(name)

    @property
    def names(self) -> list[str]:
        """The names, those of given directories first."""
        return list(self._directories)

    @property
    def default(self) -> str:
        """The model that is chosen at first: the first one given, else the bundled one of the demonstration."""
        return self.names[0] if self._listed else _bundled_name("base", 16)

    def bundled(self, size: tuple[int, ...]) -> str:
        """Return the name of the bundled model for images of a size, or for signals or volumes."""
        return OTHER_NAMES.get(len(size)) or _bundled_name("base", size[0])

    def model(self, name: object) -> OfferedModel:
        """Return the model of a name; raise an error for anything that is not offered."""
        if not isinstance(name, str) or name not in self._directories:
            raise InputError(f"the model must be one of {', '.join(self.names)}, got {shortened(name)}.")
        with self._lock:
            if name not in self._loaded:
                try:
                    saved = self._saved(name, Rollout())
                except ModelError as error:
                    if "attention" not in error.parameters:
                        raise
                    saved = self._saved(name, GradCAM())
                asked = self._size if name in self._listed else None
                preprocessing, size = preprocessing_and_size(saved.processor, asked, saved_with=name)
                attention, scores = self._first(saved, size)
                scores.heads = saved.heads
                self._loaded[name] = OfferedModel(
                    name=name,
                    attention=attention,
                    scores=scores,
                    preprocessing=preprocessing,
                    usual_processor=saved.usual_processor,
                    maps=tuple(known for known in scores.maps if ":" not in known),  # without an argument
                    new_scores=partial(self._scores, name, size),
                )
            return self._loaded[name]

    def _saved(self, name: str, attention: Map) -> SavedModel:
        head = attention.head if isinstance(attention, Relevance) else ""
        return load_model(self._directories[name], local_files_only=True, head=head)

    def _first(self, saved: SavedModel, size: Any) -> tuple[Map, ViTScores]:
        """Return the first of the maps that a model can give, and the scores of it."""
        *others, last = network_maps() if saved.is_network else ["rollout"]
        for name in others:
            with suppress(ModelError):
                return (attention := ATTENTION_MAPS.create(name)), self._new_scores(saved, attention, size)
        return (attention := ATTENTION_MAPS.create(last)), self._new_scores(saved, attention, size)

    def _new_scores(self, saved: SavedModel, attention: Map, size: Any) -> ViTScores:
        shape = saved.shape_for(size)
        kind: Any = RememberedRelevance if isinstance(attention, Relevance) else RememberedScores
        if shape is not None:  # a network, which is searched with derivatives
            kind = OutputScores if isinstance(attention, OutputMap) else NetworkScores
        made = kind(saved.encoder, attention=attention, image_size=shape or size, device=self._device, owned=True)
        return cast(ViTScores, made)

    def _scores(self, name: str, size: Any, attention: Map) -> ViTScores:
        """Return the scores of a map of a model, which are kept for as long as few others were asked for since."""
        key = name, attention
        with self._lock:
            if key not in self._of_maps:
                saved = self._saved(name, attention)
                if isinstance(attention, TextRelevance) and saved.tokeniser is not None:
                    attention = attention.tokenised(saved.tokeniser)
                self._of_maps[key] = self._new_scores(saved, attention, size)
            self._of_maps.move_to_end(key)
            while len(self._of_maps) > MOST_MAPS:
                self._of_maps.popitem(last=False)
            return self._of_maps[key]


OTHER_NAMES = {1: "bundled, signals of 256 samples", 3: "bundled, volumes of 16 × 16 × 16"}
"""Names of the bundled models of signals and of volumes, by their number of axes."""


def _bundled_name(architecture: str, size: int) -> str:
    return f"bundled {size} × {size}" if architecture == "base" else f"bundled {size} × {size}, {architecture}"


def _named(directories: list[Path]) -> dict[str, Path]:
    """Return directories by their last names; the second of a name is followed by its number."""
    named: dict[str, Path] = {}
    for directory in directories:
        name = directory.resolve().name
        count = sum(other.resolve().name == name for other in named.values())
        named[f"{name} ({count + 1})" if count else name] = directory
    return named


FIELDS = {
    "pick it with frame= or --frame": "choose it in the field Frame",
    "leave frame (--frame) out": "leave the field Frame empty",
    "without frame=": "with the field Frame empty",
    "no frame=": "the field Frame must be empty",
    "--channel (channels=)": "the field Channels",
    "with --channel": "in the field Channels",
    "leave channels (--channel) out": "leave the field Channels empty",
    "which is not beside it: copy it there": "and the page takes one file: save it as EDF or CSV first",
    "leave window (--window) out": "switch the display window off",
    "intensity_range is for preprocessing that rescales, and there is none": (
        "black and white are for models that rescale images, and this one does not"
    ),
    "intensity_range=(black, white)": "the pixel values of black and white",
    "intensity_range": "the pixel values of black and white",
    "top_fraction (q)": "the top fraction",
    "top_fraction": "top fraction",
    "threshold (tau)": "the threshold",
    "randomise": "gamma",
    "use another target, or sign='signed'": "choose another class or map",
    "sigma (a standard deviation)": "the standard deviation of the noise",
    "resize it first, or say how it is to be done with resize='stretch' (--resize stretch)": (
        "resize it first, or let the page do it"
    ),
}
"""What the page calls that which messages say of the library, or what it is to be done there."""

NAMES = {
    "map_name": "the map",
    "target": "the class",
    "text": "the text",
    "alpha": "the significance level",
    "rho": "the correlation",
}
"""What the page calls parameters of the library, where messages say which they mention."""


@dataclass(frozen=True, kw_only=True, eq=False)
class UploadedImage:
    """An image, a signal or a volume with its name, as the library takes it."""

    name: str
    """The name of its file, which is text that anybody may have chosen."""
    pixels: NDArray[Any]
    """(H, W) or (H, W, C); a signal (T,) or (C, T), a volume (D, H, W) or (C, D, H, W). Values as stored."""
    dimension: int = 2
    """Number of axes."""
    spacing: Spacing | None = None
    """How far apart the pixels are, where the file tells."""
    affine: NDArray[np.float64] | None = None
    """(4, 4). Where a volume lies in space, where the file tells."""
    part: str = ""
    """Which channels of the file it has, in words; empty for all of them."""

    @property
    def shown_name(self) -> str:
        """Its name, and which part of the file it is."""
        return ", ".join(filter(None, (self.name, self.part)))

    @property
    def size(self) -> tuple[int, ...]:
        """Its sides: height and width of an image."""
        return self.pixels.shape[:2] if self.dimension == 2 else self.pixels.shape[-self.dimension :]

    @property
    def sample(self) -> Sample:
        """What is tested."""
        return replace(as_sample(self.pixels, self.dimension), spacing=self.spacing, affine=self.affine)

    def check(self, model: OfferedModel) -> None:
        """Raise an error if a model takes signals, images or volumes and this is none."""
        if self.dimension != model.dimension:
            this, others = (worded(noun, self.dimension) for noun in ("an image", "images"))
            takes = worded("images", model.dimension)
            raise InputError(f"{model.name} takes {takes}, and this is {this}: choose a model of {others}.")


def read_upload(source: ImageSource, dimension: int) -> UploadedImage:
    """Return the image of an uploaded file, with so many axes; messages name the file and not where it is kept."""
    # The name of a frame has its number; randomised noise follows from it, here as on the command line.
    name = source.identity
    with page_words({str(source.path): name.removesuffix(f"[frame {source.frame}]")}):
        pixels, spacing, affine = source.scan(dimension)
        channels = f"channels {', '.join(source.channels)}" if source.channels else ""
        return UploadedImage(
            name=name, pixels=pixels, dimension=dimension, spacing=spacing, affine=affine, part=channels
        )


@contextmanager
def page_words(words: dict[str, str]) -> Iterator[None]:
    """Let the errors of the library use other words, given by those that they take the place of."""
    try:
        yield
    except AttentestError as error:
        message = str(error.naming(NAMES))
        for theirs, ours in words.items():
            message = message.replace(theirs, ours)
        raise type(error)(message) from error


SEED = 0  # seed of the examples: the first two are those of ``attentest demo``

SIGNAL, OTHER_SIGNAL, SPOT = 3.0, 1.5, 4.0
"""Mean of the signal in images, in recordings and volumes, and brightness of the spot in the drawn scan, in standard
deviations of the noise."""


def examples() -> dict[str, UploadedImage]:
    """Return images to try the page with, by what it calls them: their noise has a standard deviation of 1.

    Their sizes are those of bundled models.
    """
    rng = np.random.default_rng(SEED)
    drawn = {
        "Pure noise": null_images(rng, 1, 16)[0],
        "Noise and a signal": signal_images(rng, 1, 16, SIGNAL)[0][0],
        "A drawn scan": drawn_scan(np.random.default_rng(SEED), 64),
        "A recording": signal_images(rng, 1, 256, OTHER_SIGNAL, axes=1)[0][0],
        "A volume": signal_images(rng, 1, 16, OTHER_SIGNAL, axes=3)[0][0],
    }
    return {
        label: UploadedImage(name=label.lower(), pixels=pixels, dimension=pixels.ndim)
        for label, pixels in drawn.items()
    }


def drawn_scan(rng: np.random.Generator, size: int) -> NDArray[np.float64]:
    """Return a grey image (size, size) like a slice of a head, with a bright spot and noise of standard deviation 1."""
    across = np.linspace(-1, 1, size)
    x, y = np.meshgrid(across, across)
    head = (x / 0.72) ** 2 + (y / 0.92) ** 2
    inside = 1 / (1 + np.exp((head - 0.85) / 0.02))
    skull = np.exp(-(((head - 0.92) / 0.05) ** 2))
    folds = 0.3 * np.cos(9 * x + 2 * np.sin(5 * y)) * np.cos(8 * y)
    spot = ((x - 0.25) ** 2 + (y + 0.3) ** 2) < 0.2**2
    return np.asarray(inside * (1 + folds) + 1.5 * skull + SPOT * spot + rng.normal(size=(size, size)))
