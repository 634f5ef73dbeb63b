"""The readable part of a run's identifier, made from what is hashed alone: renaming a row renames no run."""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from pne.declaration.canonical import canonical
from pne.declaration.contrasts import ResolvedContrast
from pne.options import PRESETS, non_default_options

LOSS_NAMES = {"PNELoss": "pne", "AsymmetricContrastLoss": "asymmetric", "PixelContrastLoss": "cipc"}
USUAL_WEIGHT = 1.3  # the paper's alpha; other weights are spelled out
MOST_SPELLED = 3
LONGEST_TEXT = 20
EMPTY: Mapping[str, Any] = MappingProxyType({})


def run_slug(
    dataset: str,
    model: str,
    contrast: ResolvedContrast | None,
    seed: int,
    *,
    schedule: str | None = None,
    base: Mapping[str, Any] = EMPTY,
    changed: Mapping[str, Any] = EMPTY,
) -> str:
    """Describe a run in a few words, such as ``cityscapes-deeplabv3_r50-pne-temperature0.1-lr0.02-s0``.

    Parameters
    ----------
    dataset, model : str
        The paper's names.
    contrast : ResolvedContrast or None
    seed : int
    schedule : str, optional
        Where it is not the data set's own.
    base, changed : Mapping
        The composed config, and as the row's ``config:`` leaves it; where their values differ is spelled out.
    """
    words = [*_contrast_words(contrast), *([schedule] if schedule else ()), *_change_words(base, changed)]
    return re.sub(r"[^A-Za-z0-9_.-]", "_", "-".join([dataset, model, *words, f"s{seed}"]))


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


def _change_words(base: Mapping[str, Any], changed: Mapping[str, Any]) -> list[str]:
    words = list(dict.fromkeys(_change_word(path, value) for path, value in _differences(base, changed, ())))
    return [f"{len(words)}_changes"] if len(words) > MOST_SPELLED else words


def _differences(old: Any, new: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Paths where two configs differ, down to the smallest part, and what the second holds there (None: nothing)."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in {**old, **new}:
            yield from _differences(old.get(key), new.get(key), (*path, str(key)))
    elif _are_dicts(old) and _are_dicts(new) and len(old) == len(new):
        for index, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _differences(one, other, (*path, str(index)))
    elif canonical({"value": old}) != canonical({"value": new}):
        yield path, new


def _are_dicts(value: Any) -> bool:
    return isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value)


def _change_word(path: tuple[str, ...], value: Any) -> str:
    name = next((key for key in reversed(path) if not key.isdigit()), "")
    if isinstance(value, list | tuple) and all(isinstance(item, int | float) for item in value):
        text = f"{name}{'x'.join(f'{item:g}' for item in value)}"
    elif value is None or isinstance(value, bool | int | float | str):
        text = _word(name, value)
    else:
        return name
    return text if len(text) <= len(name) + LONGEST_TEXT else name


def _word(option: str, value: Any) -> str:
    if value is None or value is False:
        return f"no_{option}"
    if value is True:
        return option
    return f"{value}_{option}" if isinstance(value, str) else f"{option}{value:g}"
