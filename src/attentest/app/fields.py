"""The fields of the page, in the words of somebody who knows the images and not the method."""

from __future__ import annotations

from typing import Any

import gradio as gr

from attentest.app.actions import MAP_LABELS, Actions
from attentest.app.form import (
    CONTROLS,
    COUNTS,
    IMAGE,
    LEVEL,
    NO_FILTER,
    NUMBER,
    THRESHOLD,
    TOP_FRACTION,
    questions,
    takes_class,
)
from attentest.app.offered import TEXT
from attentest.definition import COMPARED, REGION_RULES, Option
from attentest.registry import IMAGE_NOISE, NOISE_ESTIMATORS

CHOICE_LABELS = {
    NUMBER: "a number",
    CONTROLS: "from control images",
    IMAGE: "from this image, approximate",
    COUNTS: "counts (Poisson)",
    THRESHOLD: "attention above a threshold",
    TOP_FRACTION: "the part of greatest attention",
    LEVEL: "a map above a level, not scaled",
    "pixels": "pixels, as in the paper",
    "patches": "whole patches",
    "background": "the rest of the image",
    "neighbourhood": "a ring around it",
    "region-mean": "zero, for filtered images",
    NO_FILTER: "brightness",
    "laplacian": "second derivatives",
    "sobel-x": "vertical edges",
    "sobel-y": "horizontal edges",
    "gaussian": "blurred brightness",
    "map": "choosing the region",
    "contrast": "the comparison",
    "both": "both",
    "two-sided": "different",
    "equal-tailed": "different, p as twice the smaller tail",
    "greater": "brighter",
    "less": "darker",
    **{name: f"{name}: {part.summary}" for name, part in (*NOISE_ESTIMATORS.items(), *IMAGE_NOISE.items())},
}
"""What the page calls that which can be chosen."""

MOST_BUTTONS = 4  # more choices than this are a list to open


def new_fields(actions: Actions) -> tuple[dict[str, Any], dict[str, Any], dict[str, gr.Button]]:
    """Add the fields to the page, and return those of the page itself, those of a test, and the buttons of examples.

    Those of the page itself are ``file``, the uploaded image, and which part of it is meant, ``frame``, ``window`` and
    ``channels``; what is wrong with it, ``problem``, and the image with its region, ``preview``; the ``model``; and
    ``test``, the button that starts a test. The others are by their names in ``questions()``, and by the labels of the
    examples.
    """
    form: dict[str, Any] = {}

    def add(*names: str, visible: bool = True) -> None:
        form.update({name: _field(name, *asked[name], visible=visible) for name in names})

    def add_options(panel: str | None) -> None:
        """Add the options of a test under a heading, as far as they are not on the page yet."""
        add(*(name for name, (option, _) in asked.items() if option.panel == panel and name not in form))

    asked = questions()
    file = gr.File(label="Image", height=140, elem_id="upload")
    gr.HTML(
        '<p class="hint">PNG, JPEG, TIFF, .npy, DICOM or NIfTI; signals as EDF, WAV or CSV; or an example:</p>',
        padding=False,
    )
    with gr.Row(elem_id="examples"):
        examples = {label: gr.Button(label, size="sm", min_width=100) for label in actions.examples}
    problem = gr.HTML(elem_id="problem", padding=False)
    preview = gr.HTML(elem_id="preview", padding=False)
    with gr.Group():
        add(THRESHOLD)
        add(TOP_FRACTION, LEVEL, visible=False)
    with gr.Group():
        model = gr.Dropdown(actions.models.names, value=actions.models.default, label="Model", elem_id="model")
        add("map_name")
        with gr.Column(visible=False) as of_class:
            add("target", "other_class")
        add("text", visible=False)
    _shown_for(form["map_name"], {tuple(filter(takes_class, MAP_LABELS)): of_class, TEXT: form["text"]})
    with gr.Group():
        add("noise")
        with gr.Column() as image:
            add("method")
        with gr.Column(visible=False) as controls:
            add("controls", "estimator")
        with gr.Row(visible=False) as number:
            add("sigma", "rho")
    _shown_for(form["noise"], {IMAGE: image, CONTROLS: controls, NUMBER: number})
    test = gr.Button("Test", variant="primary", elem_id="test")
    with gr.Accordion("Region", open=False):
        add("rule", "region_unit")
    _shown_for(form["rule"], {rule: form[rule] for rule in REGION_RULES})
    with gr.Accordion(COMPARED, open=False):
        add("contrast")
        add("radius", visible=False)
        add("filtered")
        add("blur", visible=False)
        add_options(COMPARED)
        add("alpha")
    _shown_for(form["contrast"], {"neighbourhood": form["radius"]})
    _shown_for(form["filtered"], {"gaussian": form["blur"]})
    with gr.Accordion("Image", open=False):
        # Fields that may stay empty are texts, because an empty number becomes 0 when it is first shown.
        frame = gr.Textbox(
            label="Frame", info="Slice or page of a volume, from 0.", placeholder="the only one", elem_id="frame"
        )
        channels = gr.Textbox(
            label="Channels",
            info="Of a recording: names, or numbers from 0, separated by commas.",
            placeholder="all",
            elem_id="recorded-channels",
        )
        window = gr.Checkbox(False, label="Apply the display window of a DICOM file")
        with gr.Row():
            add("black", "white")
        gr.HTML(
            '<p class="hint">The pixel values of black and white, which images of real numbers and scans do not say, '
            "if the model expects 0 to 255.</p>"
        )
        add("resize")
    for panel in dict.fromkeys(option.panel for name, (option, _) in asked.items() if name not in form):
        with gr.Accordion(panel or "More", open=False):
            add_options(panel)
    fields = {"file": file, "frame": frame, "window": window, "channels": channels, "problem": problem}
    return fields | {"preview": preview, "model": model, "test": test}, form, examples


def _field(name: str, option: Option, proposed: Any, visible: bool) -> Any:
    """Return the field of a question, by what can be answered."""
    known: dict[str, Any] = {
        "label": option.label,
        "elem_id": name.replace("_", "-"),
        "visible": visible,
    }
    if name in ("controls", "mask"):
        return gr.File(file_count="multiple" if name == "controls" else "single", height=120, **known)
    advice = " Choose it before looking at p." if name in REGION_RULES else ""
    known |= {"info": f"{option.help}{advice}" or None, "value": proposed}
    if name == "map_name":  # of which the page then shows those that the model can give
        return gr.Dropdown([(label, value) for value, label in MAP_LABELS.items()], **known | {"info": None})
    if name == "target":
        # What is typed to filter a list would choose another class that has it in its label or score.
        menu = gr.Dropdown([proposed], filterable=False, **known | {"info": None})
        menu.lists_follow_the_image = True
        return menu
    if option.slider is not None:
        least, most, step = option.slider
        return gr.Slider(least, most, step=step, **known)
    if option.choices is not None:
        choices = [(CHOICE_LABELS.get(choice, choice), choice) for choice in option.choices()]
        return (gr.Dropdown if len(choices) > MOST_BUTTONS else gr.Radio)(choices, **known)
    if isinstance(proposed, bool):
        return gr.Checkbox(**known)
    if isinstance(proposed, (int, float)):
        return gr.Number(precision=0 if isinstance(proposed, int) else None, min_width=120, **known)
    return gr.Textbox(placeholder=option.shown_default or None, min_width=100, **known)


def _shown_for(choice: Any, parts: dict[str | tuple[str, ...], Any]) -> None:
    """Show each part of the page only while a choice has its value, or one of its values."""
    shown = [(names,) if isinstance(names, str) else names for names in parts]
    choice.change(
        lambda value: [gr.update(visible=value in names) for names in shown],
        choice,
        list(parts.values()),
        queue=False,
        show_progress="hidden",
        api_visibility="private",
    )
