"""Checks of what a row's ``config:`` changes in the composed mmengine config, before it becomes part of a run."""

from collections.abc import Iterator, Mapping
from typing import Any

from pne.declaration.base_checks import check_loaders, check_model, check_optimiser, check_schedule
from pne.declaration.build import apply_changes
from pne.declaration.canonical import ENVIRONMENT
from pne.declaration.reading import suggest
from pne.errors import UserError

OPTIONAL = ("custom_hooks",)  # training reads it where it is given


def check_changes(base: Mapping[str, Any], changes: Mapping[str, Any]) -> None:
    """Refuse changes that would train something else than they say, or nothing else at all.

    Parameters
    ----------
    base : Mapping
        The composed config of a plain training; its top-level keys, and `OPTIONAL`, are all that may change.
    changes : Mapping
        Dotted keys and values, as `pne.declaration.build.apply_changes` takes them.

    Raises
    ------
    UserError
        If a key is not read by training, says where a run is executed and not what it is, puts text or a truth value
        in the place of a number, or leaves out what every training needs.
    """
    for key, value in changes.items():
        parts = str(key).split(".")
        known = (*base, *OPTIONAL)
        if parts[0] not in known:
            raise UserError(f"config.{key}: training reads no {parts[0]!r} of a row; {suggest(parts[0], known)}")
        for name in (*parts, *_names(value)):
            if name in ENVIRONMENT:
                raise UserError(
                    f"config.{key}: {name} says where a run is executed, not what it is; set it on the track"
                )
        _check_numbers(_value_at(base, parts), value, f"config.{key}")
    changed = apply_changes(dict(base), changes)
    for check in (check_model, check_loaders, check_schedule, check_optimiser):
        check(changed, "config.")


def _names(value: Any) -> Iterator[str]:
    """All keys of nested dicts and lists."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield str(name)
            yield from _names(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _names(item)


def _value_at(place: Any, parts: list[str]) -> Any:
    for part in parts:
        if isinstance(place, Mapping):
            place = place.get(part)
        elif isinstance(place, list | tuple) and part.isdigit() and int(part) < len(place):
            place = place[int(part)]
        else:
            return None
    return place


def _check_numbers(old: Any, new: Any, key: str) -> None:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name, item in new.items():
            _check_numbers(old.get(name), item, f"{key}.{name}")
    elif _is_number(old) and isinstance(new, str | bool):
        hint = "; YAML reads 1e-2 as text, write 1.0e-2 or 0.01" if _spells_a_number(new) else ""
        raise UserError(f"{key}: expected a number such as {old!r}, got {new!r}{hint}")


def _spells_a_number(value: Any) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
