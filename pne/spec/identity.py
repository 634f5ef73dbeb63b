"""What makes two trainings the same, and how a run is called: the canonical form of a config, its hash, its words.

Comments, formatting, the order of keys, paths of the data, devices and worker counts are not in it. Two configs with
one canonical form train the same network on the same batches.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

from pne.errors import UserError
from pne.options import PRESETS, non_default_options
from pne.spec.contrast import ResolvedContrast

SPEC_VERSION = 1  # raised when a default changes its meaning, so that old results are not taken for new ones

NUMERICS = {"tf32_products": False, "tf32_convolutions": True, "channels_last": False, "cudnn_benchmark": True}
"""How a training computes unless its schedule or row says otherwise under ``numerics``; only what differs is hashed."""

# Keys that say where and how to run, at the top of a config and at any depth.
TOP_LEVEL_ENVIRONMENT = frozenset(
    {
        "custom_imports",
        "default_hooks",
        "default_scope",
        "env_cfg",
        "launcher",
        "load_from",
        "log_level",
        "log_processor",
        "resume",
        "vis_backends",
        "visualizer",
        "work_dir",
    }
)
ENVIRONMENT = frozenset(
    {"cache_data", "cache_limit_mib", "data_root", "num_workers", "persistent_workers", "pin_memory"}
)


def canonical(config: Mapping[str, Any]) -> dict[str, Any]:
    """Reduce a config to the JSON values that are hashed.

    Tuples become lists, whole floats become integers (``1.`` and ``1`` are one value), a checkpoint is known by its
    file name alone (a URL and a local copy are one file).

    Raises
    ------
    UserError
        If a value is no plain data (a function, a module, NaN), naming its key.
    """
    return {str(key): _plain(value, str(key)) for key, value in config.items() if str(key) not in TOP_LEVEL_ENVIRONMENT}


def _plain(value: Any, key: str) -> Any:
    if isinstance(value, Mapping):
        return {
            str(name): _file_name(item) if name == "checkpoint" else _plain(item, f"{key}.{name}")
            for name, item in value.items()
            if name not in ENVIRONMENT
        }
    if isinstance(value, list | tuple):
        return [_plain(item, f"{key}.{index}") for index, item in enumerate(value)]
    if isinstance(value, float) and math.isfinite(value):
        return int(value) if value.is_integer() else value
    if value is None or isinstance(value, str | bool | int):
        return value
    raise UserError(f"config: {key}: expected numbers, texts, lists and dicts, got {value!r}")


def _file_name(checkpoint: Any) -> Any:
    return PurePosixPath(str(checkpoint)).name if checkpoint is not None else None


def digest(value: Any) -> str:
    """SHA-256, in hexadecimal, of a canonical value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


# The readable part of a run's identifier, made from what is hashed alone: renaming a row renames no run.


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
    name = LOSS_NAMES.get(contrast.loss, contrast.loss.rpartition(":")[2])
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
    return [_change_word((key,), value) for key, value in options.items()]


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
