"""The losses in mmsegmentation's registry, and building one from its config."""

import inspect
from collections.abc import Mapping
from typing import Any

import torch.nn as nn
from mmseg.registry import MODELS

from pne.errors import UserError
from pne.heads.checks import suggest
from pne.losses import AsymmetricContrastLoss, PixelContrastLoss, PNELoss
from pne.options import resolve_options

LOSSES = (PNELoss, AsymmetricContrastLoss, PixelContrastLoss)
CALL = ("embeddings", "logits", "labels", "ignore_index", "generator")

for _loss in LOSSES:
    MODELS.register_module(module=_loss)


def build_loss(config: Mapping[str, Any] | nn.Module, **known: Any) -> nn.Module:
    """Build a contrast loss.

    Parameters
    ----------
    config : mapping or nn.Module
        ``type`` (name or class) and options of the loss; ``preset`` selects a named set of options that the others
        override (see ``pne.options``). A module is taken as it is.
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
        return _check_call(loss_class(**options, **given))
    except (TypeError, ValueError) as error:
        raise UserError(f"contrast.loss: {error}") from error


def _find_class(config: object) -> type[nn.Module]:
    names = [loss.__name__ for loss in LOSSES]
    if not isinstance(config, Mapping) or "type" not in config:
        raise UserError(f"contrast.loss: expected a dict with a type of {', '.join(names)}, got {config!r}")
    name = config["type"]
    if isinstance(name, type) and issubclass(name, nn.Module):
        return name
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
