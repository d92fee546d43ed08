"""The results page, as Markdown with figures beside it and as one HTML file, both from the summary."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import cycle, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from scipy.stats import norm

from attentest.presentation.figure import (
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    draw_grid,
    make_logarithmic,
    new_figure,
    png_of,
)
from attentest.presentation.number_texts import pvalue_text
from attentest.registry import REGION_UNITS
from attentest.search import CONVERGED
from attentest.simulation.images import FAMILIES, nearly_gaussian
from attentest.studies import document
from attentest.studies.document import Columns, Markdown, cell, table
from attentest.studies.measures import QUANTILES
from attentest.studies.paper_model import ALL_MODELS, MODELS, architecture_of, axes_of, model_name, size_of
from attentest.studies.reproduction import measures
from attentest.studies.reproduction.experiment import (
    COUNTS,
    DEFAULT_MODEL,
    DISTANCES,
    EXPERIMENTS,
    GAMMAS,
    NOISES,
    PRESETS,
    series_words,
)
from attentest.studies.reproduction.measures import PERMUTATION, POWER, Setting, chosen, label
from attentest.studies.reproduction.run import DERIVATIVE_COST
from attentest.studies.reproduction.statements import findings
from attentest.studies.reproduction.trial import TOL

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Summary: TypeAlias = Mapping[str, Any]

BY_SIZE = ("base8", "base16", "base32", "base64")
BY_ARCHITECTURE = ("small16", "base16", "large16", "huge16")
BY_LENGTH = tuple(f"series-base{length}" for length in (128, 256, 512, 1024))
BY_SERIES_ARCHITECTURE = tuple(f"series-{architecture}256" for architecture in ("small", "base", "large", "huge"))
MODEL_AXES = {
    BY_SIZE: ("pixels of the image (base architecture)", size_of),
    BY_ARCHITECTURE: ("architecture (images of 16x16 pixels)", architecture_of),
    BY_LENGTH: ("length of the series (base architecture)", size_of),
    BY_SERIES_ARCHITECTURE: ("architecture (series of 256 samples)", architecture_of),
}
"""Models along a horizontal axis, its label, and what of a model it names."""

NOISE_TITLES = [f"{noise} noise" for noise in NOISES]

TEST_STYLES = {
    "selective": (BLUE, "o"),
    "naive": (VERMILION, "s"),
    "permutation": (ORANGE, "^"),
    "bonferroni": (GREEN, "D"),
}
TEST_NAMES = {test: "Bonferroni" if test == "bonferroni" else test for test in TEST_STYLES}
LEVEL_STYLES = {"0.01": (GREEN, "D"), "0.05": (BLUE, "o"), "0.1": (ORANGE, "^")}
GAMMA_STYLES = dict(zip(GAMMAS, ((VERMILION, "s"), (ORANGE, "^"), (GREEN, "D"), (BLUE, "o")), strict=True))
FAMILY_STYLES = dict(
    zip(FAMILIES, ((GREEN, "D"), (VERMILION, "s"), (ORANGE, "^"), (BLUE, "o"), (PURPLE, "v")), strict=True)
)
SEARCH_COLOURS = {"spectral": BLUE, "adaptive": GREEN, "combination": ORANGE, "fixed": VERMILION}
MODEL_STYLES = dict(
    zip(MODELS, zip((BLUE, GREEN, ORANGE, VERMILION, PURPLE, SKY, "0.4"), cycle(("-", "--"))), strict=True)
)
LINE_STYLES = ("-", (0, (5, 1.5)), "-.", (0, (1, 1)), (0, (3, 1, 1, 1, 1, 1)))
"""Of the families of noise, which colour alone would not tell apart in print."""

REJECTED = "share of null images rejected\n(bars: 95% intervals)"
FOUND = "share of images with p at most 0.05\n(bars: 95% intervals)"
SIGNAL = "height of the signal, Delta (in standard deviations of the noise)"
BAND = "band: range of the rates of a valid test"


def _model_axis(axes: Axes, models: tuple[str, ...]) -> None:
    """Label the horizontal axis with models: sizes or lengths, or architectures."""
    label, name = MODEL_AXES[models]
    axes.set_xticks(range(len(models)), [name(model) for model in models])
    axes.set(xlim=(-0.6, len(models) - 0.4), xlabel=label)


def _from_zero(figure: Figure) -> Figure:
    """Return a figure whose rates start at zero, with space for a point there, now that all is drawn."""
    for axes in figure.axes:
        top = axes.get_ylim()[1]
        axes.set_ylim(-0.02 * top, top)
    return figure


def type_i_error_figure(settings: Sequence[Setting], models: tuple[str, ...]) -> Figure:
    """Draw the type I error of four tests, with attentest's models and the authors'."""
    figure, panels = document.titled_panels(11.0, 4.8, NOISE_TITLES)
    whose = (False, True) if chosen(settings, published=True) else (False,)
    groups = [(test, authors) for test in TEST_STYLES for authors in whose]
    for axes, noise in zip(panels, NOISES, strict=True):
        for offset, (test, authors) in zip(np.linspace(-0.32, 0.32, len(groups)), groups, strict=True):
            rates = [
                (models.index(setting["model"]) + offset, setting["tests"][test])
                for setting in chosen(settings, noise=noise, published=authors)
                if test in setting["tests"]
            ]
            name = TEST_NAMES[test] + ", authors' models" * authors
            document.draw_rates(axes, rates, TEST_STYLES[test], name, hollow=authors)
        document.draw_level(axes, 0.05, "level 0.05")
        axes.set_ylim(-0.03, 1.05)
        draw_grid(axes)
        _model_axis(axes, models)
    return document.legend_below(figure, 5, series_words(REJECTED, axes_of(models[0]) == 1))


def levels_figure(settings: Sequence[Setting], models: tuple[str, ...] = ()) -> Figure:
    """Draw rates of the selective test with bands: of some models by covariance, or of all by size and architecture."""
    panels = [(f"{noise} noise", models, [noise]) for noise in NOISES]
    if not models:
        panels = [("image size", BY_SIZE, [*NOISES]), ("architecture", BY_ARCHITECTURE, [*NOISES])]
    figure, all_axes = document.titled_panels(11.0, 4.6, [title for title, *_ in panels])
    for axes, (_, models, noises) in zip(all_axes, panels, strict=True):
        shown = [setting for setting in settings if setting["model"] in models and setting["noise"] in noises]
        for offset, (alpha, style) in zip((-0.2, 0.0, 0.2), LEVEL_STYLES.items(), strict=True):
            axes.axhline(float(alpha), color=style[0], lw=1, ls="--")
            rates = [(models.index(setting["model"]) + offset, setting["levels"][alpha]) for setting in shown]
            for place, rate in rates:
                axes.fill_between([place - 0.08, place + 0.08], *rate["band"], color=style[0], **document.SHADE)
            document.draw_rates(axes, rates, style, f"rejected at {float(alpha):.2f}")
        axes.plot([], [], **document.DASHED, label="the level")  # of all colours
        document.name_bands(axes, BAND)
        _model_axis(axes, models)
    return document.legend_below(_from_zero(figure), 5, REJECTED)


def power_figure(settings: Sequence[Setting]) -> Figure:
    """Draw the power of the selective test and of Bonferroni, and the published values."""
    figure, panels = document.titled_panels(11.0, 4.6, NOISE_TITLES)
    first, offsets = settings[0]["model"], {"selective": 0.06, "bonferroni": 0.16}
    for axes, (noise, published) in zip(panels, POWER.items(), strict=True):
        for test, authors in product(offsets, (False, True)):
            offset = offsets[test] if authors else -offsets[test]
            shown = chosen(settings, model=first, noise=noise, published=authors)
            rates = [(setting["delta"] + offset, setting["tests"][test]) for setting in shown]
            name = TEST_NAMES[test] + (", authors' models" if authors else ", attentest's models")
            document.draw_rates(axes, rates, TEST_STYLES[test], name, hollow=authors)
        if axes_of(first) == 2:
            axes.plot(list(published), list(published.values()), "x", color="0.4", ms=7, label="selective, published")
        axes.set(xlabel=SIGNAL, ylim=(-0.03, 1.05), xlim=(0.6, 4.4), xticks=list(published))
        draw_grid(axes)
    return document.legend_below(figure, 3, series_words(FOUND, axes_of(first) == 1))


def our_levels_figure(settings: Sequence[Setting]) -> Figure:
    """Draw the type I error of our tests and the paper's with their bands, hollow for whole patches."""
    figure, panels = document.titled_panels(11.0, 5.0, NOISE_TITLES)
    models = [model for model in ALL_MODELS if chosen(settings, model=model)]
    for axes, noise in zip(panels, NOISES, strict=True):
        shown = chosen(settings, noise=noise)
        for place, model in enumerate(models):
            for setting in chosen(shown, model=model)[:1]:  # all tests have the same band
                axes.fill_between(
                    [place - 0.4, place + 0.4], *setting["rejected"]["band"], color="0.4", **document.SHADE
                )
        document.draw_level(axes, 0.05, "level 0.05")
        document.name_bands(axes, BAND)
        _draw_our_tests(axes, shown, lambda setting: models.index(setting["model"]))
        axes.set_xticks(range(len(models)), [model_name(model, "\n") for model in models])
        axes.set_xlabel(f"architecture, and {'length' if axes_of(models[0]) == 1 else 'pixels of the image'}")
        draw_grid(axes)
    return document.legend_below(_from_zero(figure), 4, series_words(REJECTED, axes_of(models[0]) == 1))


def our_power_figure(settings: Sequence[Setting]) -> Figure:
    """Draw the power of our tests and the paper's above the length of their intervals, hollow for whole patches."""
    figure = new_figure(11.0, 8.0)
    ours = chosen(settings, model=DEFAULT_MODEL, published=False) or chosen(settings, model=settings[0]["model"])
    panels = figure.subplots(2, 2, sharex=True, sharey="row")
    for (above, below), noise in zip(panels.T, NOISES, strict=True):
        shown = chosen(ours, noise=noise)
        lengths = [
            {**setting, "rejected": dict.fromkeys(("value", "low", "high"), setting["length"]["median"])}
            for setting in shown
            if setting["length"] and setting["length"]["median"] is not None
        ]
        _draw_our_tests(above, shown, lambda setting: setting["delta"])
        _draw_our_tests(below, lengths, lambda setting: setting["delta"])
        above.set(title=f"{noise} noise", ylim=(-0.03, 1.05))
        below.set(xlabel=SIGNAL, xticks=list(POWER[noise]))
        make_logarithmic(below, "y")
    for axes in panels.flat:
        draw_grid(axes)
    panels[1, 0].set_ylabel("median length of the 95% interval,\nas a multiple of the naive one")
    return document.legend_below(figure, 4, series_words(FOUND, axes_of(ours[0]["model"]) == 1))


def _draw_our_tests(axes: Axes, settings: Sequence[Setting], place: Callable[[Setting], float]) -> None:
    """Draw the shares rejected by each test side by side at the place of their setting."""
    tests = [(gamma, region) for gamma in GAMMAS for region in REGION_UNITS]
    present = [test for test in tests if chosen(settings, randomise=test[0], region=test[1])]
    for offset, (gamma, region) in zip(np.linspace(-0.3, 0.3, len(present)), present, strict=True):
        shown = chosen(settings, region=region, randomise=gamma)
        rates = [(place(setting) + offset, setting["rejected"]) for setting in shown]
        document.draw_rates(axes, rates, GAMMA_STYLES[gamma], shown[0]["test"], hollow=region == "patches")


def non_gaussian_figure(settings: Sequence[Setting]) -> Figure:
    """Draw the rates by family and distance, with one panel per level."""
    levels = ("0.05", "0.01")
    figure, panels = document.titled_panels(11.0, 4.6, [f"level {alpha}" for alpha in levels], sharey=False)
    offsets = np.linspace(-0.0025, 0.0025, len(FAMILY_STYLES))
    for axes, alpha in zip(panels, levels, strict=True):
        document.draw_level(axes, float(alpha), "the level")
        for offset, (family, style) in zip(offsets, FAMILY_STYLES.items(), strict=True):
            shown = chosen(settings, family=family)
            rates = [(setting["distance"] + offset, setting["levels"][alpha]) for setting in shown]
            document.draw_rates(axes, rates, style, family)
        axes.set(xlabel="1-Wasserstein distance from the Gaussian", xticks=DISTANCES)
        draw_grid(axes)
    return document.legend_below(_from_zero(figure), 6, REJECTED)


def uniformity_figure(settings: Sequence[Setting]) -> Figure:
    """Draw quantiles of null p-values against those of the uniform distribution."""
    figure, panels = document.titled_panels(11.0, 6.3, NOISE_TITLES)
    for axes, noise in zip(panels, NOISES, strict=True):
        document.draw_diagonal(axes, "uniform distribution")
        for setting in chosen(settings, noise=noise):
            colour, line = MODEL_STYLES[setting["model"]]
            name = f"{model_name(setting['model'])} ({setting['images']:,} images)"
            axes.plot(QUANTILES, setting["quantiles"], color=colour, ls=line, lw=1.5, label=name)
        axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="quantile of the uniform distribution")
    return document.legend_below(figure, 4, "quantile of the selective p-values")


def time_figure(settings: Sequence[Setting]) -> Figure:
    """Draw seconds per image of each search on a logarithmic axis, by image size and by architecture."""
    timed = {setting["model"] for setting in settings}
    groups = [models for models in (BY_SIZE, BY_ARCHITECTURE) if timed & set(models)]
    figure, panels = document.titled_panels(11.0, 5.0, [""] * len(groups))
    for axes, models in zip(panels, groups, strict=True):
        for search, colour in SEARCH_COLOURS.items():
            for noise, marker, style, offset in zip(NOISES, "os", "-:", (-0.04, 0.04), strict=True):
                points = sorted(
                    (models.index(setting["model"]) + offset, setting["seconds"])
                    for setting in chosen(settings, search=search, noise=noise)
                    if setting["model"] in models and setting["seconds"]
                )
                if points:
                    look: dict[str, Any] = {"marker": marker, "ls": style, "color": colour, "ms": 5, "lw": 1.4}
                    axes.plot(*zip(*points, strict=True), label=f"{search}, {noise} noise", **look)
        make_logarithmic(axes, "y")
        draw_grid(axes)
        _model_axis(axes, models)
    devices = ", ".join(dict.fromkeys(device for setting in settings for device in setting["devices"]))
    figure.suptitle(f"time of a test on {devices}", fontsize=11)
    return document.legend_below(figure, 4, "seconds per image")


def densities_figure(settings: Sequence[Setting]) -> Figure:
    """Draw the five families at the greatest distance with the Gaussian, whatever the settings."""
    figure = new_figure(7.5, 4.4)
    axes = figure.subplots()
    x = np.linspace(-4.0, 4.0, 801)
    axes.plot(x, norm.pdf(x), color="0.4", lw=3.5, alpha=0.45, label="Gaussian")
    for (family, (colour, _)), line in zip(FAMILY_STYLES.items(), LINE_STYLES, strict=True):
        density = nearly_gaussian(family, DISTANCES[-1]).pdf(x)
        axes.plot(x, density, color=colour, ls=line, lw=1.5, label=family)
    axes.set(xlim=(-4, 4), xlabel="noise of a pixel, in standard deviations", ylabel="density")
    axes.set_ylim(bottom=0.0)
    axes.legend(fontsize=9, frameon=False)
    return figure


def demonstration_figure(settings: Sequence[Setting]) -> Figure:
    """Draw f_i of each image, far out and close to the statistic."""
    figure = new_figure(11.0, 3.0 * len(settings) + 0.6)
    panels = figure.subplots(len(settings), 2, squeeze=False, sharex="col", sharey="row")
    for row, setting in zip(panels, settings, strict=True):
        for axes, part, origin in zip(row, ("far", "close"), (0.0, setting["statistic"]), strict=True):
            z = np.array(setting[part]["z"]) - origin
            for group, colour in (("outside", ORANGE), ("inside", BLUE)):
                for number, curve in enumerate(setting[part][group]):
                    name = None if number else f"pixels {group} the region"
                    axes.plot(z, curve, color=colour, lw=0.9, alpha=0.75, label=name)
            document.draw_level(axes, 0.0, "zero: above it a pixel is on the other side")
            axes.axvline(setting["statistic"] - origin, color=VERMILION, lw=1.6, label="observed statistic")
            axes.margins(x=0)
            axes.locator_params(axis="x", nbins=5)
        row[0].set_ylabel(f"image {setting['image']}: f_i\n(in units of attention, 0 to 1)")
    panels[0, 0].set_title("the whole line")
    panels[0, 1].set_title("close to the observed statistic")
    panels[-1, 0].set_xlabel("z (the statistic, in standard errors)")
    panels[-1, 1].set_xlabel("z minus the observed statistic")
    return document.legend_below(figure, 4)


def precision_figure(settings: Sequence[Setting]) -> Figure:
    """Draw p-values in float32 against those in float64."""
    titles = [model_name(setting["model"]) + ", authors' model" * setting["published"] for setting in settings]
    figure, panels = document.titled_panels(5.6 * len(settings), 5.9, titles, sharey=False)
    styles = ((False, "same region", BLUE, "o"), (True, "another region", VERMILION, "s"))
    for axes, setting in zip(panels, settings, strict=True):
        document.draw_diagonal(axes, "equal p")
        for changed, name, colour, marker in styles:
            pairs = np.array([(p, single) for p, single, other in setting["pairs"] if other == changed]).reshape(-1, 2)
            axes.plot(*pairs.T, marker, ms=3.8, alpha=0.7, mew=0, color=colour, label=name)
        axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
        axes.set(xlabel="p in float64, spectral search", ylabel="p in float32, combination search")
    return document.legend_below(figure, 3)


class PageFigure(NamedTuple):
    """A figure of the page, whose caption is in its template."""

    name: str
    experiment: str  # whose settings are drawn
    draw: Callable[..., Figure]  # from settings, and the models if there is a choice of them
    models: tuple[str, ...] = ()  # whose settings are drawn; those of all by default
    part: str = "settings"  # of the experiment; or "ours", our tests

    def settings(self, summary: Mapping[str, Any]) -> list[Setting]:
        """Return the settings that it shows."""
        settings = summary["experiments"].get(self.experiment, {}).get(self.part, [])
        return [setting for setting in settings if not self.models or setting["model"] in self.models]


FIGURES = (
    PageFigure("type-i-error-size", "type-i-error", type_i_error_figure, BY_SIZE),
    PageFigure("type-i-error-architecture", "type-i-error", type_i_error_figure, BY_ARCHITECTURE),
    PageFigure("series-type-i-error-length", "series-type-i-error", type_i_error_figure, BY_LENGTH),
    PageFigure("series-type-i-error-architecture", "series-type-i-error", type_i_error_figure, BY_SERIES_ARCHITECTURE),
    PageFigure("additional-trials-size", "additional-trials", levels_figure, BY_SIZE),
    PageFigure("additional-trials-architecture", "additional-trials", levels_figure, BY_ARCHITECTURE),
    PageFigure("uniformity", "additional-trials", uniformity_figure),
    PageFigure("power", "power", power_figure),
    PageFigure("series-power", "series-power", power_figure),
    PageFigure("type-i-error-ours", "type-i-error", our_levels_figure, part="ours"),
    PageFigure("power-ours", "power", our_power_figure, part="ours"),
    PageFigure("series-type-i-error-ours", "series-type-i-error", our_levels_figure, part="ours"),
    PageFigure("series-power-ours", "series-power", our_power_figure, part="ours"),
    PageFigure("computation-time", "computation-time", time_figure),
    PageFigure("estimated-variance", "estimated-variance", levels_figure),
    PageFigure("non-gaussian", "non-gaussian", non_gaussian_figure),
    PageFigure("densities", "non-gaussian", densities_figure),
    PageFigure("demonstration", "demonstration", demonstration_figure),
    PageFigure("precision", "precision", precision_figure),
)


FINDINGS: Columns = {
    **document.FINDINGS,
    "statement": lambda finding: Markdown(
        f"[{document.markdown(finding['statement'])}]"
        f"(#{document.anchor(EXPERIMENTS[finding['experiment']].title + ': our tests' * finding['ours'])})"
    ),
}


def _worst(setting: Setting) -> str:
    """Return the image on which float32 differs most; the recorded summary has neither bounds nor status of its p."""
    row = setting["worst"]
    p = pvalue_text(row["p"], (row.get("p_low", 0.0), row.get("p_high", 1.0)), row.get("status", CONVERGED), 4)
    return f"{row['image']}: {p}, {row['p_float64']:.4g}, {row['p_float32']:.4g}"


def _coverage(setting: Setting) -> str:
    missed = setting["missed"]
    outside = ", below" if missed["above_band"] else "" if missed["within_band"] else ", above"
    return f"{1 - missed['value']:.3f}{outside}"


def _longest(setting: Setting) -> str:
    known = (setting["length"] or {}).get("longest") is not None
    return cell(setting, "{length[bound]}: {length[longest]}") if known else "-"


def write_report(summary: Summary, target: Path) -> Path:
    """Write the page of a summary to a directory, and return the path of its HTML."""
    document.check_can_report()
    shown = {figure: settings for figure in FIGURES if (settings := figure.settings(summary))}
    drawn = {figure.name: figure.draw(of, *filter(None, [figure.models])) for figure, of in shown.items()}
    figures, page = {name: png_of(figure, document.DPI) for name, figure in drawn.items()}, render_markdown(summary)
    return document.write_report(target, "reproduction", summary, page, figures, document.to_html(page, figures))


def render_markdown(summary: Summary) -> str:
    """Return the page as Markdown, which depends on the summary alone."""
    experiments = summary["experiments"]
    shown, without_data = document.split_by_data(findings(summary))
    drawn = [figure for figure in FIGURES if figure.settings(summary)]
    content = {
        **summary,
        "absent": [experiment.title for name, experiment in EXPERIMENTS.items() if name not in experiments],
        "papers": [finding for finding in shown if not finding["ours"]],
        "ours": [finding for finding in shown if finding["ours"]],
        "findings": table(shown, FINDINGS),
        "without_data": without_data,
        "trials": summary["time"]["each_series_once"]["trials"],
        "failed": sum(series["failed"] for series in summary["failures"]),
        "experiments": [
            {
                **data,
                "name": name,
                "kind": EXPERIMENTS[name].kind,
                "on_series": EXPERIMENTS[name].on_series,
                "figures": [figure for figure in drawn if figure.experiment == name],
                "ours": data.get("ours", []),
                "command": document.code(command_of(name, summary)),
            }
            for name, data in experiments.items()
        ],
        "derivative_cost": DERIVATIVE_COST,
        "wall_seconds": _wall_seconds(summary["runs"]),
        "times": {
            **{experiment["title"]: experiment["time"] for experiment in experiments.values()},
            "All, each series once": summary["time"]["each_series_once"],
        },
        "classifiers": MODELS,
        "paper_counts": measures.COUNTS,
        "published_permutation": PERMUTATION,
        "tol": f"{TOL:g}",
        **{"worst": _worst, "coverage": _coverage, "longest": _longest, "label": label, "series_words": series_words},
        "published_power": lambda setting: f"{POWER[setting['noise']][setting['delta']]:.3f}",
    }
    return document.render("attentest.studies.reproduction", content)


def command_of(name: str, summary: Summary) -> str:
    """Return the command that computes the data of an experiment again."""
    experiment, data = EXPERIMENTS[name], summary["experiments"][name]
    made = data["made"]
    field = "series_models" if experiment.on_series else "models"
    runs = [run for run in summary["runs"] if name in (run.get("experiments") or ())]
    words = ["attentest", "reproduce", "--experiment", name]
    if runs:
        names = [count for count in COUNTS if all(count in run["counts"] for run in runs)]  # earlier ones know fewer
        largest = max(runs, key=lambda run: sum(run["counts"][count] for count in names))
        preset, counts = PRESETS[largest["preset"]], largest["counts"]
        words += ["--preset", largest["preset"]]
        if any(counts[count] < getattr(preset, count) for count in names):
            words += ["--images", str(max(counts[count] for count in names))]
        tests = {run.get("tests", "all") for run in runs}
        words += ["--tests", *tests] if len(tests) == 1 and tests != {"all"} else []
        if experiment.kind == "type-i-error" and counts["permutations"] < preset.permutations:
            words += ["--permutations", str(counts["permutations"])]
        used = {model for run in runs for model in run["counts"][field]}
        seed, device = largest["seed"], largest["device_type"]
    else:
        # Another experiment's run, or one that was not recorded: counts and models are those of the data.
        images = max((setting.get("images", 0) for setting in data["settings"]), default=0)
        words += ["--preset", "full", *(["--images", str(images)] if images else [])]
        used, preset = set(made["models"]) & set(ALL_MODELS), PRESETS["full"]
        seed, device = made["seeds"][0], made["device_types"][0]
    if experiment.uses_several_models and used != set(getattr(preset, field)):
        words += [word for model in ALL_MODELS if model in used for word in ("--model", model)]
    authors = any(model.startswith("published") for model in made["models"])
    words += ["--seed", str(seed), "--device", str(device), *(["--published", "DIR"] if authors else [])]
    return " ".join(shlex.quote(str(word)) for word in words)


def _wall_seconds(runs: Sequence[Summary]) -> dict[str, float]:
    """Return the seconds of runs by device, each moment once: several runs may share a device."""
    covered: dict[str, float] = {}
    until: dict[str, float] = {}
    for run in sorted(runs, key=lambda run: datetime.fromisoformat(run["began"])):
        start, device = datetime.fromisoformat(run["began"]).timestamp(), str(run["device"])
        end = max(until.get(device, start), start + run["seconds"])
        covered[device] = covered.get(device, 0.0) + end - max(start, until.get(device, start))
        until[device] = end
    return {str(run["device"]): covered[str(run["device"])] for run in runs}
