"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from attentest import registry
from attentest.definition import image_option, option
from attentest.errors import AttentestError, InputError

OUTPUT, SEARCH, CERTIFICATE, WORKERS = "Output", "More on the search", "A certificate", "Workers"
"""Panels of the help beside those of the definition of a test."""

output_option = partial(option, panel=OUTPUT)  # makes the options under this heading

OUTPUT_PATHS = {"--out", "--csv", "--parquet", "--figure", "--sensitivity-figure", "--report", "--history", "--record"}
"""Options that name what a command writes."""

REGISTRIES: dict[str, registry.Registry[Any]] = {
    "--noise": registry.IMAGE_NOISE,
    "--map": registry.ATTENTION_MAPS,
    "--region-unit": registry.REGION_UNITS,
    "--contrast": registry.CONTRASTS,
    "--filter": registry.FILTERS,
    "--search": registry.SEARCHES,
    "--estimator": registry.NOISE_ESTIMATORS,
    "--engine": registry.ENGINES,
    "--only": registry.COMPARISONS,
}
"""Registries of the names that options take; what each stands for is said at the end of the help."""

OTHER_NAMES = {
    "attention": "--map",
    "certification": "--certify",
    "decide_at": "--decide",
    "deltas": "--delta",
    "drawn_noise": "--true-noise",
    "effect": "--plan",
    "head_fusion": "--heads",
    "image_shape": "--size",
    "mean_sha256": "--mean",
    "model_sha256": "--model",
    "n": "--images",
    "power": "--power",
    "radius": "--contrast neighbourhood:RADIUS",
    "sigma": "--noise",
    "target": "--class",
    "the file name of the figure": "--out",
    "the file name of the noise file": "--out",
    "the file name of the report": "--out",
}
"""Options that set a parameter of the library of another name than the command's own parameter, or a part of it; a file
that has an option of its own, such as --figure, is named by that."""


def names_of_options(parameters: Iterable[Any]) -> dict[str, str]:
    """Return the options of a command by the names of the library's parameters that they set."""
    options = {
        parameter.name: max(parameter.opts, key=len)
        for parameter in parameters
        if parameter.param_type_name == "option"
    }
    others = {name: option for name, option in OTHER_NAMES.items() if option.split()[0] in options.values()}
    files = {
        f"the file name of the {option.removeprefix('--')}": option for option in OUTPUT_PATHS & {*options.values()}
    }
    return {**others, **files, **options}


@contextmanager
def named_by_options(names: Mapping[str, str]) -> Iterator[None]:
    """Let the errors of the library name options, given by parameter, in place of the parameters that they set."""
    try:
        yield
    except AttentestError as error:
        raise error.naming(names) from error


SPECTRAL = "spectral"  # the default search

search_option = partial(
    option,
    f"How to search the z axis: {registry.SEARCHES.choices()}.",
    default=SPECTRAL,
    choices=registry.SEARCHES,
    panel=SEARCH,
)
"""Makes the option that chooses a search."""

DEFAULT_TOL = 1e-6  # default width of the error bar of p, that of SpectralSearch
DEFAULT_MAX_EVALUATIONS = 10_000  # default of the most evaluations per image, that of SpectralSearch

alpha_option = partial(option, "Significance level of the verdict, between 0 and 1.", default=0.05, metavar="<float>")
seed_option = partial(option, "Seed of the images.", default=0, limits=(0, None))
device_option = partial(option, "Device to compute on: cpu, cuda, cuda:1, ...", default="cpu")
json_option = partial(output_option, "Print everything as one JSON object.", default=False, flag="--json")
image_json_option = partial(
    output_option,
    "Print one JSON object per image, with its verdict, as soon as its batch is done.",
    default=False,
    flag="--json",
)
retry_option = partial(
    output_option, "For --out: try the images again that could not be tested.", default=False, needs="--out"
)
frame_option = partial(
    image_option,
    "Frame, page or slice of each file, from 0, or from the end if negative.",
    shown_default="the only one",
)
window_option = partial(image_option, "Apply the display window of DICOM files.", default=False)
channel_option = partial(
    image_option,
    "Channel of a signal's file, by its name or its number from 0; repeat it for several.",
    shown_default="all",
)
"""Make the options that several commands have."""


def check_level(level: float, option: str = "--alpha") -> None:
    """Raise an error for a significance level, or another probability, outside (0, 1)."""
    if not 0 < level < 1:
        raise InputError(f"{option} must lie strictly between 0 and 1, got {level}.")


if TYPE_CHECKING:
    from attentest.runs.engine import Engine

MOST = 10_000  # largest number of workers, or of cores of one
LOCAL, RAY = "local", "ray"  # the default engine, and the one that may be on other machines

WITH_WORKERS = " or ".join(name for name in registry.ENGINES if name != LOCAL)


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Options that say where the work of a command is done."""

    panel: ClassVar[str] = WORKERS

    engine: str = option(
        f"Where the work is done: {registry.ENGINES.choices()}.", default=LOCAL, choices=registry.ENGINES
    )
    address: str | None = option(
        "For --engine ray: address of a running cluster, such as auto.", shown_default="one on this machine"
    )
    workers: int | None = option(
        f"For --engine {WITH_WORKERS}: number of workers; by default one for each group of cores, or for each GPU four "
        "processes or one worker of ray.",
        limits=(1, MOST),
    )
    cores: int | None = option(
        f"For --engine {WITH_WORKERS}: cores of each worker; by default one, or for processes on a GPU an even share "
        "of all.",
        limits=(1, MOST),
    )
    worker_timeout: float | None = option(
        f"For --engine {WITH_WORKERS}: seconds after which a worker that gives no sign of life is ended, and its work "
        "given to another.",
        shown_default="60",
    )

    def check(self) -> None:
        """Raise an error for options that the engine does not have; nothing is imported."""
        for name in self._parameters() if self.engine == LOCAL else ():
            engines = RAY if name == "address" else WITH_WORKERS
            raise InputError(f"--{name.replace('_', '-')} is for --engine {engines}, which is not there: add it.")
        if self.address is not None and self.engine != RAY:
            raise InputError(f"--address is for --engine {RAY}, not for --engine {self.engine}: leave it out.")

    def chosen(self) -> Engine:
        """Return the engine that the options choose."""
        self.check()
        engine: Engine = registry.ENGINES.load(self.engine)(**self._parameters())
        return engine

    def _parameters(self) -> dict[str, Any]:
        """Return the parameters of the engine that were given."""
        return {name: value for name, value in vars(self).items() if name != "engine" and value is not None}
