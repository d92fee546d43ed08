"""Every part that can be chosen by name, on one page.

A new part is a new file and one line here. The command line, the noise files and the error messages read these
registries; no other file lists the names. A part is imported when it is first used, so that listing the names imports
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar

from attentest.errors import InputError, listed, shortened


@dataclass(frozen=True)
class Part:
    """A part that can be chosen by name."""

    location: str
    """Where it is defined, as "module:attribute"; the module is relative to attentest."""
    summary: str = ""
    """What it does, in a few words, for help texts."""
    argument: str = ""
    """What follows its name after a colon on the command line, such as "RADIUS"; empty if nothing does."""
    argument_type: type[int] | type[float] = float
    """Type of that argument."""

    def load(self) -> Any:
        """Import the part and return it."""
        module, attribute = self.location.split(":")
        return getattr(import_module(f"attentest.{module}"), attribute)


@dataclass(frozen=True)
class MapPart(Part):
    """A map; its location takes the parameters ``takes`` as well, which have options of their own."""

    takes: tuple[str, ...] = ("head_fusion",)
    transformers: bool = True
    """Whether vision transformers give it."""
    networks: str = ""
    """What a network whose attention is not read must return to give it: "classes", the scores of each, (m, K);
    "pixels", scores at each, (m, K, *grid); or an "image" (m, C, *axes). Empty for maps of attention."""


FOR_A_CLASS = ("target", "sign")
OF_A_LAYER = ("layer", *FOR_A_CLASS)
"""What maps for a class take, and those of a layer."""


@dataclass(frozen=True)
class ImageFormat(Part):
    """A format of image files; its location is a function from a path and a frame (int or None) to an array.

    In place of the array it may return a ``Scan``, with the spacing of the pixels.
    """

    suffixes: tuple[str, ...] = ()
    """Endings of file names, in lower case, that stand for this format."""
    signature: bytes = b""
    signature_offset: int = 0
    """Bytes by which a file of another suffix is recognised, and their place in it. A format with neither suffixes nor
    signature reads the files that no other format recognises."""
    is_folder: bool = False
    """Whether it is a folder of files that are one image."""
    has_window: bool = False
    """Whether its files may hold a display window; the function then also takes whether to apply it."""
    dimensions: tuple[int, ...] = (2,)
    """Numbers of axes with which its files can be read; where there are several, the function also takes which. That of
    a format of signals takes names or numbers of channels in place of the frame."""


AnyPart = TypeVar("AnyPart", bound=Part)


class Registry(dict[str, AnyPart]):
    """The parts of one kind, by name, in the order in which messages list them; they call a part by its ``kind``."""

    def __init__(self, kind: str, parts: Mapping[str, AnyPart]) -> None:
        super().__init__(parts)
        self.kind = kind

    def load(self, name: object) -> Any:
        """Import the part of a name and return it; raise an error that lists the names if it is not one of them."""
        if not isinstance(name, str) or name not in self:
            raise InputError(f"{self.kind} must be {self.choices()}, got {shortened(name)}.")
        return self[name].load()

    def create(self, text: str, called: str = "", *others: str, **keywords: Any) -> Any:
        """Call the part that a text chooses, as "name" or "name:ARGUMENT", with keywords, and return the outcome.

        Errors call the text ``called``, such as "--contrast", by default the kind of the parts, and list what
        ``others`` may be chosen there.
        """
        called = called or self.kind
        name, colon, argument = text.partition(":")
        if name not in self or bool(colon) != bool(self[name].argument):
            raise InputError(f"{called} must be {self.choices(*others)}, got {shortened(text)}.", called)
        part = self[name]
        if not colon:
            return part.load()(**keywords)
        try:
            value = part.argument_type(argument)
        except ValueError:
            number = "a whole number" if part.argument_type is int else "a number"
            raise InputError(
                f"{called} {name}:{part.argument} needs {number} after the colon, got {shortened(argument)}.", called
            ) from None
        return part.load()(value, **keywords)

    def choices(self, *others: str) -> str:
        """Return the names as a sentence lists them, with their arguments: "a, b:RADIUS or c"."""
        return listed((*self.spelled(), *others))

    def help(self) -> str:
        """Return the names with their summaries, for a help text."""
        summaries = (f" ({part.summary})" if part.summary else "" for part in self.values())
        return "; ".join(f"{name}{summary}" for name, summary in zip(self.spelled(), summaries, strict=True))

    def spelled(self) -> list[str]:
        """Return the names with their arguments: "b:RADIUS"."""
        return [f"{name}:{part.argument}" if part.argument else name for name, part in self.items()]


SEARCHES = Registry(
    "search",
    {
        "spectral": Part(
            "search.spectral.search:SpectralSearch",
            "attentest's own: fast, with an error bar on p; networks with kinks get piecewise in its place",
        ),
        "piecewise": Part(
            "search.piecewise:PiecewiseSearch",
            "for networks with kinks, exact where they are linear in pieces; chosen for these by itself",
        ),
        "adaptive": Part("search.grid:adaptive", "the paper's: steps that follow the derivative"),
        "fixed": Part("search.grid:fixed", "the paper's: steps of 1e-3"),
        "combination": Part(
            "search.grid:combination", "the paper's: steps of 1e-4 near the observed statistic, 1e-2 elsewhere"
        ),
    },
)
"""Searches for the truncation set; each location is called without arguments."""

ENGINES = Registry(
    "engine",
    {
        "local": Part("runs.engine:LocalEngine", "in this process"),
        "processes": Part("runs.process_engine:ProcessEngine", "by worker processes on this machine"),
        "ray": Part("runs.ray_engine:RayEngine", "by workers on one machine or on many"),
    },
)
"""Where many images are tested; each location is called without arguments."""

ATTENTION_MAPS = Registry(
    "attention",
    {
        "rollout": MapPart("attention.aggregation:Rollout", "attention rollout over all layers, as in the paper"),
        "last-layer": MapPart("attention.aggregation:LayerAttention", "attention of the class token in the last layer"),
        "layer": MapPart("attention.aggregation:LayerAttention", "the same in layer K, counted from 0", "K", int),
        "pooling": MapPart(
            "attention.aggregation:PoolingAttention", "attention of the query that pools tokens, as in SigLIP"
        ),
        "gradient-rollout": MapPart(
            "attention.relevance:GradientRollout",
            "attention weighted by the gradient of a class score, over all layers",
            takes=("target",),
        ),
        "grad-cam": MapPart(
            "attention.relevance:GradCAM",
            "Grad-CAM for a class, of the last layer or another",
            takes=OF_A_LAYER,
            networks="classes",
        ),
        "hires-cam": MapPart(
            "attention.relevance:HiResCAM", "HiResCAM for a class, likewise", takes=OF_A_LAYER, networks="classes"
        ),
        "cam": MapPart(
            "attention.network:CAM",
            "class activation map, of a network that ends in global average pooling and a linear layer",
            takes=FOR_A_CLASS,
            transformers=False,
            networks="classes",
        ),
        "input-gradient": MapPart(
            "attention.relevance:InputGradient",
            "gradient of a class score in the input",
            takes=FOR_A_CLASS,
            networks="classes",
        ),
        "integrated-gradients": MapPart(
            "attention.relevance:IntegratedGradients",
            "that gradient times the input, averaged on the way from zero to it",
            takes=FOR_A_CLASS,
            networks="classes",
        ),
        "segmentation": MapPart(
            "attention.network:Segmentation",
            "the score of a class at each pixel, of a network that segments",
            takes=("target",),
            transformers=False,
            networks="pixels",
        ),
        "residual": MapPart(
            "attention.network:Residual",
            "the image less its reconstruction, of a network that reconstructs",
            takes=(),
            transformers=False,
            networks="image",
        ),
    },
)
"""How the attention of layers and heads, the gradient of a class score, or an output becomes one score per patch."""

REGION_UNITS = Registry(
    "region_unit",
    {
        "pixels": Part(
            "region.patch_grid:interpolated_pixels",
            "with attention interpolated between the centres of patches, as in the paper",
        ),
        "patches": Part("region.patch_grid:whole_patches", "whole ones; a pixel belongs to the one its centre lies in"),
    },
)
"""What regions consist of; each location is an ``AxisUnits``."""

CONTRASTS = Registry(
    "contrast",
    {
        "background": Part("contrast.contrast:Background", "the rest of the image, as in the paper"),
        "neighbourhood": Part("contrast.contrast:Neighbourhood", "a ring of RADIUS pixels around it", "RADIUS"),
        "reference": Part("contrast.contrast:Reference", "the same pixels of another image"),
        "region-mean": Part("contrast.contrast:RegionMean", "zero, for filtered images"),
    },
)
"""What the mean of the region is compared with."""

FILTERS = Registry(
    "kernel",
    {
        "laplacian": Part("contrast.kernel:laplacian", "second derivatives"),
        "sobel-x": Part("contrast.kernel:sobel_x", "derivative along rows: vertical edges"),
        "sobel-y": Part("contrast.kernel:sobel_y", "derivative along columns: horizontal edges"),
        "gaussian": Part("contrast.kernel:gaussian", "blur of this standard deviation in pixels", "SIGMA"),
    },
)
"""Linear filters of the image before it is compared; each location is a function that returns the kernel."""

NOISE_MODELS = Registry(
    "noise model",
    {
        "isotropic": Part("noise.correlated:Isotropic"),
        "ar1": Part("noise.correlated:AR1"),
        "ar1 along an axis": Part("noise.correlated:ARAlong"),
        "diagonal": Part("noise.correlated:Diagonal"),
        "dense": Part("noise.correlated:Dense"),
        "stationary": Part("noise.stationary:Stationary"),
        "locally stationary": Part("noise.stationary:LocallyStationary"),
        "per channel": Part("noise.derived:PerChannel"),
        "averaged": Part("noise.derived:Averaged"),
        "scaled": Part("noise.derived:Scaled"),
        "estimated": Part("noise.derived:Estimated"),
    },
)
"""Noise models by their name in records and noise files."""

NOISE_FORMATS = Registry(
    "suffix",
    {
        ".json": Part("noise.noise_file:JsonFormat", "text to read and edit"),
        ".safetensors": Part("noise.noise_file:SafetensorsFormat", "for large models"),
    },
)
"""Formats of noise files by the suffix of their names."""

NOISE_ESTIMATORS = Registry(
    "estimator",
    {
        "auto": Part(
            "noise.estimators:AutomaticCovariance", "locally-stationary if the images ask for it, else stationary"
        ),
        "pooled": Part("noise.estimators:PooledVariance", "independent pixels with one variance"),
        "pixel": Part("noise.estimators:PixelVariance", "independent pixels, each with its own variance"),
        "ar1": Part("noise.estimators:AR1Covariance", "pixels correlated along rows"),
        "stationary": Part(
            "noise.estimators:StationaryCovariance", "a covariance that depends on the distance between pixels"
        ),
        "locally-stationary": Part(
            "noise.estimators:LocallyStationaryCovariance",
            "the same, with a variance that changes over the image",
        ),
        "shrunk": Part("noise.estimators:ShrunkCovariance", "any covariance, for small images"),
    },
)
"""Estimators of the noise from reference images."""

IMAGE_NOISE = Registry(
    "method",
    {
        "sample": Part("noise.tested_image:sample_covariance", "variance of the pixels"),
        "wavelet": Part("noise.tested_image:wavelet_covariance", "median difference of neighbours along all axes"),
    },
)
"""Estimates of the noise from the tested image itself; each location is a function of an image (C, *axes)."""

IMAGE_FORMATS = Registry(
    "image file",
    {
        ".npy": ImageFormat("images.image_source:read_npy", suffixes=(".npy", ".npz"), dimensions=(1, 2, 3)),
        "PNG, JPEG, TIFF": ImageFormat("images.pillow:read_picture", "BMP, GIF, WebP, PPM, JPEG 2000, AVIF"),
        "DICOM": ImageFormat(
            "images.dicom:read_dicom",
            suffixes=(".dcm", ".dicom"),
            signature=b"DICM",
            signature_offset=128,
            has_window=True,
            dimensions=(2, 3),
        ),
        "DICOM series": ImageFormat(
            "images.dicom_series:read_folder", is_folder=True, has_window=True, dimensions=(3,)
        ),
        "NIfTI": ImageFormat("images.nifti:read_nifti", suffixes=(".nii", ".nii.gz"), dimensions=(2, 3)),
        "EDF": ImageFormat("images.signal_file:read_edf", suffixes=(".edf", ".bdf"), dimensions=(1,)),
        "WFDB": ImageFormat("images.signal_file:read_wfdb", suffixes=(".hea",), dimensions=(1,)),
        "WAV": ImageFormat("images.signal_file:read_wav", suffixes=(".wav",), dimensions=(1,)),
        "CSV": ImageFormat("images.signal_file:read_csv", suffixes=(".csv",), dimensions=(1,)),
    },
)
"""Formats of image files, by the name that messages use."""

PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".gif", ".webp", ".pgm", ".ppm", ".pnm", ".jp2")
"""Suffixes of pictures in a folder; a picture with another suffix can be named itself."""

MODEL_LIBRARIES = Registry(
    "model library",
    {
        "Hugging Face": Part("attention.huggingface:LIBRARY"),
        "timm": Part("attention.other_libraries:TIMM"),
        "MONAI": Part("attention.other_libraries:MONAI"),
        "attentest.attention": Part("attention.other_libraries:TORCH"),
        "torchvision": Part("attention.other_libraries:TORCHVISION"),
    },
)
"""Libraries whose vision transformers are read; each location is a ``ModelLibrary``."""

COMPARISONS = Registry(
    "comparison",
    {
        "interval": Part("studies.benchmark.comparisons:interval", "p with its 95% interval over p alone"),
        "precision": Part("studies.benchmark.comparisons:precision", "mixed precision over float64"),
        "randomised": Part("studies.benchmark.comparisons:randomised", "randomised selection over the paper's"),
        "patches": Part("studies.benchmark.comparisons:patches", "regions of whole patches over pixels"),
        "far-out": Part("studies.benchmark.comparisons:far_out", "statistics of 20 to 40 over those of null images"),
        "model": Part("studies.benchmark.comparisons:forward_pass", "a forward pass over its matrix products"),
        "many-images": Part("studies.benchmark.comparisons:many_images", "images tested together over one by one"),
        "stages": Part("studies.benchmark.comparisons:stages", "each stage of the spectral search over all of it"),
        "paper": Part("studies.benchmark.comparisons:paper_searches", "spectral over the paper's searches"),
        "authors": Part("studies.benchmark.own_process:authors_package", "spectral over si4attention, if installed"),
        "large-images": Part("studies.benchmark.own_process:large_images", "memory over the image's bytes, and time"),
        "start-up": Part("studies.benchmark.own_process:start_up", "imports and --help over importing torch"),
        "scaling": Part("studies.benchmark.own_process:scaling", "growing sizes over the smallest, and exponents"),
    },
)
"""What can be measured; each location is a function from a ``Workload`` that yields a ``Ratio`` after the other."""
