"""Checks of config dicts, with errors that name the place, the wrong key or value and what is allowed."""

import difflib
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pne.errors import UserError


def option_names(function: Callable[..., Any], but: Iterable[str] = ()) -> list[str]:
    """List the named parameters of a function or class, but those given."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [p.name for p in inspect.signature(function).parameters.values() if p.kind in kinds and p.name not in but]


def suggest(name: object, allowed: Iterable[str]) -> str:
    """Return "; did you mean ...?" where a name is close to an allowed one, else an empty string."""
    close = difflib.get_close_matches(str(name), list(allowed), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def check_keys(where: str, given: object, allowed: Iterable[str]) -> None:
    """Check that ``given`` is a dict whose keys are allowed.

    Raises
    ------
    UserError
        If it is no dict or has another key.
    """
    allowed = list(allowed)
    if not isinstance(given, Mapping):
        raise UserError(f"{where}: expected a dict with keys of {', '.join(allowed)}, got {given!r}")
    for key in given:
        if key not in allowed:
            raise UserError(f"{where}: no option {key!r}{suggest(key, allowed)}; allowed: {', '.join(allowed)}")


def check_integer(where: str, value: object, minimum: int) -> None:
    """Check that ``value`` is an integer of at least ``minimum``; raise ``UserError`` if not."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise UserError(f"{where}: expected an integer >= {minimum}, got {value!r}")


def check_weight(where: str, value: object) -> None:
    """Check that ``value`` is a finite number >= 0; raise ``UserError`` if not."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise UserError(f"{where}: expected a finite number >= 0, got {value!r}")
