"""The readable part of a run's identifier, made from what is hashed alone: renaming a row renames no run."""

import re
from collections.abc import Mapping
from typing import Any

from pne.contrasts import ResolvedContrast
from pne.options import PRESETS, non_default_options

LOSS_NAMES = {"PNELoss": "pne", "AsymmetricContrastLoss": "asymmetric", "PixelContrastLoss": "cipc"}
USUAL_WEIGHT = 1.3  # the paper's alpha; other weights are spelled out
MOST_SPELLED = 3


def run_slug(dataset: str, model: str, contrast: ResolvedContrast | None, seed: int) -> str:
    """Describe a run in a few words, such as ``cityscapes-deeplabv3_r50-pne-temperature0.1-s0``.

    Parameters
    ----------
    dataset, model : str
        The paper's names.
    contrast : ResolvedContrast or None
    seed : int
    """
    parts = [dataset, model, *_contrast_words(contrast), f"s{seed}"]
    return re.sub(r"[^A-Za-z0-9_.-]", "_", "-".join(parts))


def _contrast_words(contrast: ResolvedContrast | None) -> list[str]:
    if contrast is None:
        return ["base"]
    name = LOSS_NAMES.get(contrast.loss, contrast.loss)
    words = [name, *_option_words(contrast.loss, contrast.options)]
    if contrast.weight != USUAL_WEIGHT:
        words.append(f"weight{contrast.weight:g}")
    return words


def _option_words(loss: str, options: Mapping[str, Any]) -> list[str]:
    for preset in PRESETS.get(loss, {}):
        if options and options == non_default_options(loss, {}, preset):
            return [preset]
    if len(options) > MOST_SPELLED:
        return [f"{len(options)}_options"]
    return [_word(key, value) for key, value in options.items()]


def _word(option: str, value: Any) -> str:
    if value is None or value is False:
        return f"no_{option}"
    if value is True:
        return option
    return f"{value}_{option}" if isinstance(value, str) else f"{option}{value:g}"
