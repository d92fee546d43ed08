"""Whether the weights of a saved model are those that its configuration asks for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attentest.attention.stored_vit import module_name
from attentest.errors import ModelError, counted

UNUSED_WEIGHTS = re.compile(
    r"(^|\.)(classifier|cls_classifier|distillation_classifier|pooler|head|lm_head|decoder|mask_token|text_model|"
    r"logit_scale|logit_bias|visual_projection|text_projection|layernorm|norm|post_layernorm|position_ids|"
    r"relative_position_index)(\.|$)"
)
"""Names of weights that do not affect the attention: a saved model may have them or lack them."""

LAYER = re.compile(r"(^|\.)(layers?|blocks)\.\d+\.")
"""Names of weights of a layer, all of which affect the attention."""

ADVICE = "weights and configuration do not belong together: give those that save_pretrained wrote at one time."
"""End of the messages about weights that are not those of the configuration."""


def check_matching(info: Mapping[str, Any], where: str, stored: Sequence[str]) -> None:
    """Refuse a model with weights of another shape than its configuration asks for, with other weights or with fewer.

    Parameters
    ----------
    info
        What the library says of loading the model, which names the weights as its modules do.
    where
        What a message says of where the weights are.
    stored
        Names of the weights in the files, in their order there; none if it is not known.
    """
    mismatched = {key: (tuple(found), tuple(wanted)) for key, found, wanted in info["mismatched_keys"]}
    if mismatched:
        named = _in_file_order(mismatched, stored)
        key, name = next(iter(named.items()))
        found, wanted = mismatched[key]
        others = len(named) - 1
        more = f", and {counted(others, 'more tensor')} {'do' if others > 1 else 'does'} not fit" if others else ""
        raise ModelError(
            f"the weights {where} have {name} of shape {found}, but config.json asks for {wanted}{more}; {ADVICE}"
        )
    if missing := _used(info["missing_keys"]):
        raise ModelError(
            f"the weights {where} lack {counted(len(missing), 'tensor')} that config.json asks for, "
            f"{missing[0]} first; {ADVICE}"
        )
    if unknown := _used(info["unexpected_keys"]):
        raise ModelError(
            f"the weights {where} have {counted(len(unknown), 'tensor')} that config.json does not ask for, "
            f"{unknown[0]} first; {ADVICE}"
        )


def _in_file_order(keys: Iterable[str], stored: Sequence[str]) -> dict[str, str]:
    """Return the names in the files of weights that the modules call by these keys, in the order of the files.

    Models with a head prefix the names of their encoder, and the library has renamed modules since older files were
    written. A key that no name of the files fits stays as it is, and comes last.
    """
    places: dict[str, int] = {}
    for place, name in enumerate(stored):
        for own in (name, _without_prefix(name)):
            places.setdefault(own, place)
            places.setdefault(module_name(own), place)

    def place_of(key: str) -> int:
        return places.get(key, places.get(_without_prefix(key), len(stored)))

    ordered = sorted(keys, key=lambda key: (place_of(key), key))
    return {key: stored[place_of(key)] if place_of(key) < len(stored) else key for key in ordered}


def _without_prefix(name: str) -> str:
    return name.partition(".")[2]


def _used(keys: Iterable[str]) -> list[str]:
    """Return those that affect the attention, sorted: no classification heads, poolers, decoders or text."""
    return sorted(
        key
        for key in keys
        if not key.startswith(("decoder.", "text_model."))
        and (LAYER.search(key) is not None or UNUSED_WEIGHTS.search(key) is None)
    )
