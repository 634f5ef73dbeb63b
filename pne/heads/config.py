"""The config of a contrast head: what it may name and say, with errors that give the place and what is allowed."""

import difflib
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any

import torch.nn as nn
from mmseg.models.decode_heads.decode_head import BaseDecodeHead
from mmseg.registry import MODELS

import pne.losses
from pne.errors import UserError
from pne.options import LOSSES as OPTIONS
from pne.options import resolve_options

LOSSES = tuple(getattr(pne.losses, name) for name in OPTIONS)
CALL = ("embeddings", "logits", "labels", "ignore_index", "generator")

for _loss in LOSSES:
    MODELS.register_module(module=_loss)


def find_base(base: str | type | None) -> type[BaseDecodeHead]:
    """Find a decode head by its registered name, with or without scope, or take a class as it is.

    Raises
    ------
    UserError
        If there is no such head or it is no ``BaseDecodeHead``.
    """
    found = MODELS.get(base) if isinstance(base, str) else base
    if not inspect.isclass(found):
        got = "it is missing" if base is None else f"no head {base!r} is registered{suggest(base, classifying_heads())}"
        raise UserError(f"ContrastHead: base must name a decode head, {got}; allowed: {', '.join(classifying_heads())}")
    if not issubclass(found, BaseDecodeHead) or inspect.isabstract(found):
        raise UserError(
            f"ContrastHead: base {found.__name__} is no decode head that derives from BaseDecodeHead and classifies "
            f"pixels; allowed: {', '.join(classifying_heads())}"
        )
    return found


def classifying_heads() -> list[str]:
    """List the registered decode heads that classify a feature map with the inherited ``self.cls_seg``."""
    return sorted(name for name, head in MODELS.module_dict.items() if _classifies(head))


def _classifies(head: object) -> bool:
    if not inspect.isclass(head) or not issubclass(head, BaseDecodeHead) or inspect.isabstract(head):
        return False
    own = [c for c in head.__mro__ if issubclass(c, BaseDecodeHead) and c is not BaseDecodeHead]
    return head.cls_seg is BaseDecodeHead.cls_seg and any("self.cls_seg" in _source(c) for c in own)


def _source(head: type) -> str:
    try:
        return inspect.getsource(head)
    except (OSError, TypeError):  # defined interactively
        return ""


def build_loss(config: Mapping[str, Any] | nn.Module, **known: Any) -> nn.Module:
    """Build a contrast loss.

    Parameters
    ----------
    config : mapping or nn.Module
        ``type`` (name, ``module:Class`` or class) and options of the loss; ``preset`` selects a named set of options
        that the others override (see ``pne.options``). A module is taken as it is.
    **known
        What the head knows, such as ``num_classes``; a loss whose constructor takes it gets it unless its config names
        it.

    Raises
    ------
    UserError
        If the loss is unknown or cannot be called as a contrast loss, or if an option, its value or the preset is
        wrong.
    """
    if isinstance(config, nn.Module):
        return _check_call(config)
    loss_class, options = _find_class(config), {key: value for key, value in config.items() if key != "type"}
    parameters = inspect.signature(loss_class).parameters
    given = {name: options.pop(name, value) for name, value in known.items() if name in parameters}
    try:
        if loss_class in LOSSES:
            options = resolve_options(loss_class.__name__, options, options.pop("preset", None))
        loss = loss_class(**options, **given)
    except (TypeError, ValueError) as error:
        raise UserError(f"contrast.loss: {error}") from error
    return _check_call(loss)


def _find_class(config: object) -> type[nn.Module]:
    names = [loss.__name__ for loss in LOSSES]
    if not isinstance(config, Mapping) or "type" not in config:
        raise UserError(f"contrast.loss: expected a dict with a type of {', '.join(names)}, got {config!r}")
    name = config["type"]
    if isinstance(name, type) and issubclass(name, nn.Module):
        return name
    if isinstance(name, str) and ":" in name:
        module, _, word = name.partition(":")
        try:
            return getattr(import_module(module), word)
        except (ImportError, AttributeError) as error:
            raise UserError(f"contrast.loss.type: {name} cannot be imported: {error}") from error
    loss_class = MODELS.get(name) if isinstance(name, str) else None
    if loss_class is None:
        raise UserError(
            f"contrast.loss.type: no loss {name!r}{suggest(name, names)}; allowed: {', '.join(names)} and own losses "
            "registered in mmseg's MODELS"
        )
    return loss_class


def _check_call(loss: nn.Module) -> nn.Module:
    parameters = inspect.signature(loss.forward).parameters
    if not all(name in parameters for name in CALL):
        raise UserError(
            f"contrast.loss: {type(loss).__name__} is no contrast loss: its forward must take {', '.join(CALL)}; "
            f"allowed: {', '.join(own.__name__ for own in LOSSES)} and own losses with that forward"
        )
    return loss


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
