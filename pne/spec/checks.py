"""What composing a run's config needs: of the files under ``experiments``, and of what a row's ``config:`` changes.

Each message names the key and begins as it is told to: ``experiments/models/hrnet.py: `` or ``config.``.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pne.errors import UserError
from pne.spec.identity import ENVIRONMENT, NUMERICS
from pne.spec.reading import shown, suggest
from pne.spec.stock import apply_changes

Rules = Mapping[str, tuple[str, Callable[[Any], bool]]]
"""By dotted key: what is expected there, in words and as a test; a key that is not there is missing."""


def is_number(value: Any) -> bool:
    """Whether a value is a number, and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_count(value: Any) -> bool:
    """Whether a value is a whole number from 1 on."""
    return isinstance(value, int) and is_number(value) and value >= 1


def _is_typed(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("type"), str)


def _are_typed(value: Any) -> bool:
    return all(map(_is_typed, value)) if isinstance(value, list | tuple) else _is_typed(value)


def _is_size(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and all(map(is_count, value))


def _are_numerics(value: Any) -> bool:
    return isinstance(value, Mapping) and set(value) <= set(NUMERICS) and all(type(v) is bool for v in value.values())


def _count_iterations(value: Any) -> bool:
    parts = value if isinstance(value, list | tuple) else [None]
    return all(isinstance(part, Mapping) and part.get("by_epoch", True) is False for part in parts)


_PART, _COUNT = ("a dict with a type", _is_typed), ("a whole number >= 1", is_count)
_HEADS = ("a dict with a type, or a list of them", _are_typed)
LOADERS: Rules = {"train_dataloader.dataset": _PART, "val_dataloader.dataset": _PART}
MODEL: Rules = {"model": _PART, "model.backbone": _PART, "model.decode_head": _HEADS}
AUXILIARY: Rules = {"model.auxiliary_head": _HEADS}
DATASET: Rules = {"num_classes": _COUNT, "crop_size": ("(height, width) in pixels", _is_size), **LOADERS}
SCHEDULERS: Rules = {"param_scheduler": ("a list of dicts, each with by_epoch=False", _count_iterations)}
SCHEDULE: Rules = {
    "train_cfg.max_iters": _COUNT,
    "train_dataloader.batch_size": _COUNT,
    "optim_wrapper": ("a dict", lambda value: isinstance(value, Mapping)),
    **SCHEDULERS,
}
COMPUTATION: Rules = {"numerics": (f"true or false for some of {', '.join(NUMERICS)}", _are_numerics)}
OPTIMISER: Rules = {
    "optim_wrapper.optimizer": _PART,
    "optim_wrapper.optimizer.lr": ("a number", is_number),
    "optim_wrapper.optimizer.weight_decay": ("a number", is_number),
}
OPTIONAL = ("custom_hooks",)  # of a config: training reads it where it is given


def check(config: Mapping[str, Any], rules: Rules, prefix: str, *, optional: Rules | None = None) -> None:
    """Check a config against rules, and against optional ones where their keys are there.

    Raises
    ------
    UserError
        If something is missing, naming all of it, or is not what it should be.
    """
    missing = [key for key in rules if value_at(config, key) is None]
    if missing:
        raise UserError(f"{prefix}{', '.join(missing)}: missing; a training needs it")
    for key, (expected, fits) in {**rules, **(optional or {})}.items():
        value = value_at(config, key)
        if value is not None and not fits(value):
            raise UserError(f"{prefix}{key}: expected {expected}, got {shown(value)}")


def check_changes(base: Mapping[str, Any], changes: Mapping[str, Any]) -> None:
    """Refuse changes that would train something else than they say, or nothing else at all.

    Parameters
    ----------
    base : Mapping
        The composed config of a plain training; its top-level keys, and `OPTIONAL`, are all that may change.
    changes : Mapping
        Dotted keys and values, as `pne.spec.stock.apply_changes` takes them.

    Raises
    ------
    UserError
        If a key is not read by training, says where a run is executed and not what it is, puts text or a truth value
        in the place of a number, or leaves out what every training needs.
    """
    for key, value in changes.items():
        parts, known = str(key).split("."), (*base, *OPTIONAL)
        if parts[0] not in known:
            raise UserError(f"config.{key}: training reads no {parts[0]!r} of a row; {suggest(parts[0], known)}")
        for name in (*parts, *_names(value)):
            if name in ENVIRONMENT:
                raise UserError(
                    f"config.{key}: {name} says where a run is executed, not what it is; set it on the track"
                )
        _check_numbers(value_at(base, str(key)), value, f"config.{key}")
    changed = apply_changes(dict(base), changes)
    check(changed, {**MODEL, **LOADERS, **SCHEDULE, **OPTIMISER}, "config.", optional=AUXILIARY | COMPUTATION)


def value_at(place: Any, key: str) -> Any:
    """Return the value at a dotted key, None where there is none; digits address list elements."""
    for part in key.split("."):
        if isinstance(place, Mapping):
            place = place.get(part)
        elif isinstance(place, list | tuple) and part.isdigit() and int(part) < len(place):
            place = place[int(part)]
        else:
            return None
    return place


def _names(value: Any) -> Iterator[str]:
    """All keys of nested dicts and lists."""
    if isinstance(value, Mapping):
        yield from map(str, value)
    for item in value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ():
        yield from _names(item)


def _check_numbers(old: Any, new: Any, key: str) -> None:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name, item in new.items():
            _check_numbers(old.get(name), item, f"{key}.{name}")
    elif is_number(old) and isinstance(new, str | bool):
        spells_one = isinstance(new, str) and re.fullmatch(r"[-+]?[\d.]+(e[-+]?\d+)?", new, re.IGNORECASE)
        hint = "; YAML reads 1e-2 as text, write 1.0e-2 or 0.01" if spells_one else ""
        raise UserError(f"{key}: expected a number such as {old!r}, got {new!r}{hint}")
