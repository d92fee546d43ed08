"""The fields of the page, in the words of somebody who knows the images and not the method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from attentest.app.actions import Actions
from attentest.app.form import CONTROLS, IMAGE, NO_FILTER, NUMBER, THRESHOLD, TOP_FRACTION, Form, offered_contrasts
from attentest.registry import FILTERS, IMAGE_NOISE, NOISE_ESTIMATORS

CONTRAST_LABELS = {
    "background": "the rest of the image",
    "neighbourhood": "a ring around it",
    "region-mean": "zero, for filtered images",
}
"""What the page calls a contrast."""

FILTER_LABELS = {
    NO_FILTER: "brightness",
    "laplacian": "second derivatives",
    "sobel-x": "vertical edges",
    "sobel-y": "horizontal edges",
    "gaussian": "blurred brightness",
}
"""What the page calls that which is compared, by the filter that makes it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Fields:
    """The fields of the page.

    Parameters
    ----------
    file, frame, window
        The uploaded image, and which part of its file is meant.
    examples
        Buttons by the labels of the examples.
    problem, preview
        What is wrong with the uploaded file, and the image with its region.
    model, form
        The model, and the other fields that define a test, by their names in ``Form``.
    test
        The button that starts a test.
    """

    file: gr.File
    frame: gr.Textbox
    window: gr.Checkbox
    examples: dict[str, gr.Button]
    problem: gr.HTML
    preview: gr.HTML
    model: gr.Dropdown
    form: dict[str, Any]
    test: gr.Button

    @property
    def sliders(self) -> list[gr.Slider]:
        """Sliders that start a test when they are let go."""
        return [self.form["threshold"], self.form["top_fraction"]]

    @property
    def of_region(self) -> list[Any]:
        """Fields that the region depends on."""
        names = ("rule", "region", "randomise", "resize", "black", "white")
        return [*self.sliders, self.model, *(self.form[name] for name in names)]

    @property
    def set_by_examples(self) -> list[Any]:
        """Fields that an example sets: the model, and the noise as a number."""
        return [self.model, *(self.form[name] for name in ("noise", "sigma", "rho"))]


def new_fields(actions: Actions) -> Fields:
    """Add the fields to the page and return them."""
    usual = Form()
    file = gr.File(label="Image", height=140, elem_id="upload")
    gr.HTML('<p class="hint">PNG, JPEG, TIFF, .npy, DICOM or NIfTI; or an example:</p>', padding=False)
    with gr.Row(elem_id="examples"):
        examples = {label: gr.Button(label, size="sm", min_width=80) for label in actions.examples}
    problem = gr.HTML(elem_id="problem", padding=False)
    preview = gr.HTML(elem_id="preview", padding=False)
    form: dict[str, Any] = {}
    with gr.Group():
        form["threshold"] = gr.Slider(
            0.02,
            0.98,
            usual.threshold,
            step=0.01,
            label="Threshold τ",
            info="The region is where the attention, from 0 to 1, exceeds it. Choose it before looking at p.",
            elem_id="threshold",
        )
        form["top_fraction"] = gr.Slider(
            0.01,
            0.5,
            usual.top_fraction,
            step=0.01,
            label="Top fraction",
            info="The region is this part of the image, that of greatest attention. Choose it before looking at p.",
            visible=False,
            elem_id="top-fraction",
        )
    with gr.Group():
        model = gr.Dropdown(actions.models.names, value=actions.models.default, label="Model", elem_id="model")
    form |= _noise(usual)
    test = gr.Button("Test", variant="primary", elem_id="test")
    with gr.Accordion("Region", open=False):
        form |= _region(usual)
    _shown_for(form["rule"], {THRESHOLD: form["threshold"], TOP_FRACTION: form["top_fraction"]})
    with gr.Accordion("What is compared", open=False):
        form |= _compared(usual)
    with gr.Accordion("Image", open=False):
        # Fields that may stay empty are texts, because an empty number becomes 0 when it is first shown.
        frame = gr.Textbox(
            label="Frame", info="Slice or page of a volume, from 0.", placeholder="the only one", elem_id="frame"
        )
        window = gr.Checkbox(False, label="Apply the display window of a DICOM file")
        with gr.Row():
            form["black"] = gr.Textbox(label="Black", placeholder="by file type", min_width=100, elem_id="black")
            form["white"] = gr.Textbox(label="White", placeholder="by file type", min_width=100, elem_id="white")
        gr.HTML(
            '<p class="hint">The pixel values of black and white, which images of real numbers and scans do not say, '
            "if the model expects 0 to 255.</p>"
        )
        form["resize"] = gr.Checkbox(
            usual.resize, label="Resize an image of another size for a model that does not say how"
        )
    return Fields(
        file=file,
        frame=frame,
        window=window,
        examples=examples,
        problem=problem,
        preview=preview,
        model=model,
        form=form,
        test=test,
    )


def _noise(usual: Form) -> dict[str, Any]:
    """Add the fields of the noise."""
    with gr.Group():
        source = gr.Radio(
            [("a number", NUMBER), ("from control images", CONTROLS), ("from this image, approximate", IMAGE)],
            value=usual.noise,
            label="Noise of the pixels",
            info="What would differ if the same image were taken again. How to choose it: docs/choosing-noise.md.",
            elem_id="noise",
        )
        with gr.Row() as number:
            sigma = gr.Number(
                usual.sigma, label="Standard deviation", info="In pixel values", min_width=120, elem_id="sigma"
            )
            rho = gr.Number(usual.rho, label="Correlation", info="Of neighbours in a row", min_width=120, elem_id="rho")
        with gr.Column(visible=False) as controls:
            files = gr.File(
                label="Images of the same size that differ by noise alone",
                file_count="multiple",
                height=120,
                elem_id="controls",
            )
            estimator = gr.Dropdown(
                [(f"{name}: {part.summary}", name) for name, part in NOISE_ESTIMATORS.items()],
                value=usual.estimator,
                label="Estimator",
            )
        with gr.Column(visible=False) as image:
            method = gr.Radio(
                [(f"{name}: {part.summary}", name) for name, part in IMAGE_NOISE.items()],
                value=usual.method,
                label="Method",
            )
    _shown_for(source, {NUMBER: number, CONTROLS: controls, IMAGE: image})
    return {
        "noise": source,
        "sigma": sigma,
        "rho": rho,
        "controls": files,
        "estimator": estimator,
        "method": method,
    }


def _region(usual: Form) -> dict[str, Any]:
    """Add the fields of the region; its sliders are elsewhere."""
    return {
        "rule": gr.Radio(
            [("attention above a threshold", THRESHOLD), ("the part of greatest attention", TOP_FRACTION)],
            value=usual.rule,
            label="Chosen by",
            elem_id="rule",
        ),
        "region": gr.Radio(
            [("pixels, as in the paper", "pixels"), ("whole patches", "patches")],
            value=usual.region,
            label="Made of",
        ),
        "randomise": gr.Slider(
            0,
            2,
            usual.randomise,
            step=0.1,
            label="Randomised selection γ",
            info="The model chooses the region on the image plus noise, γ times its own. 0 is the paper's test; 0.5 or "
            "1 finds far more.",
            elem_id="randomise",
        ),
    }


def _compared(usual: Form) -> dict[str, Any]:
    """Add the fields of the hypothesis."""
    contrast = gr.Dropdown(
        [(CONTRAST_LABELS.get(name, name), name) for name in offered_contrasts()],
        value=usual.contrast,
        label="The region is compared with",
        elem_id="contrast",
    )
    radius = gr.Number(usual.radius, label="Width of the ring in pixels", visible=False, elem_id="radius")
    filtered = gr.Dropdown(
        [(FILTER_LABELS.get(name, name), name) for name in (NO_FILTER, *FILTERS)],
        value=usual.filtered,
        label="in its mean",
    )
    blur = gr.Number(usual.blur, label="Standard deviation of the blur in pixels", visible=False)
    _shown_for(contrast, {"neighbourhood": radius})
    _shown_for(filtered, {"gaussian": blur})
    alternative = gr.Radio(
        [
            ("different", "two-sided"),
            ("different, p as twice the smaller tail", "equal-tailed"),
            ("brighter", "greater"),
            ("darker", "less"),
        ],
        value=usual.alternative,
        label="Is the region",
        info="Twice the smaller tail is below 0.05 exactly when the 95% interval excludes 0.",
        elem_id="alternative",
    )
    alpha = gr.Number(usual.alpha, label="Significance level α", elem_id="alpha")
    return {
        "contrast": contrast,
        "radius": radius,
        "filtered": filtered,
        "blur": blur,
        "alternative": alternative,
        "alpha": alpha,
    }


def _shown_for(choice: Any, parts: dict[str, Any]) -> None:
    """Show each part of the page only while a choice has its value."""
    choice.change(
        lambda value: [gr.update(visible=value == name) for name in parts],
        choice,
        list(parts.values()),
        queue=False,
        show_progress="hidden",
        api_visibility="private",
    )
