"""The losses in mmsegmentation's registry, and building one from its config."""

import inspect
from collections.abc import Mapping
from typing import Any

import torch.nn as nn
from mmseg.registry import MODELS

from pne.errors import UserError
from pne.heads.checks import suggest
from pne.losses import AsymmetricContrastLoss, PixelContrastLoss, PNELoss

LOSSES = (PNELoss, AsymmetricContrastLoss, PixelContrastLoss)
CALL = ("embeddings", "logits", "labels", "ignore_index", "generator")

for _loss in LOSSES:
    MODELS.register_module(module=_loss)


def build_loss(config: Mapping[str, Any] | nn.Module, num_classes: int, channels: int) -> nn.Module:
    """Build a contrast loss.

    Parameters
    ----------
    config : mapping or nn.Module
        ``type`` (name or class) and options of the loss; ``preset`` selects a named set of options that the others
        override. A module is taken as it is.
    num_classes : int
        C of the head; given to losses that take ``num_classes`` and whose config leaves it out.
    channels : int
        D of the embeddings; given to losses that take ``channels`` in the same way.

    Raises
    ------
    UserError
        If the loss is unknown or cannot be called as a contrast loss, or if an option, its value or the preset is
        wrong.
    """
    if isinstance(config, nn.Module):
        return _check_call(config)
    loss_class, options = _find_class(config), {key: value for key, value in config.items() if key != "type"}
    for name, value in (("num_classes", num_classes), ("channels", channels)):
        if name in inspect.signature(loss_class).parameters:
            options.setdefault(name, value)
    preset = options.pop("preset", None)
    make = loss_class
    if preset is not None:
        if not hasattr(loss_class, "from_preset"):
            raise UserError(f"contrast.loss: {loss_class.__name__} has no presets, got preset={preset!r}; leave it out")
        make = lambda **rest: loss_class.from_preset(preset, **rest)  # noqa: E731
    try:
        return _check_call(make(**options))
    except (TypeError, ValueError) as error:
        raise UserError(f"contrast.loss: {error}") from error


def _find_class(config: object) -> type[nn.Module]:
    known = [loss.__name__ for loss in LOSSES]
    if not isinstance(config, Mapping) or "type" not in config:
        raise UserError(f"contrast.loss: expected a dict with a type of {', '.join(known)}, got {config!r}")
    name = config["type"]
    if isinstance(name, type) and issubclass(name, nn.Module):
        return name
    loss_class = MODELS.get(name) if isinstance(name, str) else None
    if loss_class is None:
        raise UserError(
            f"contrast.loss.type: no loss {name!r}{suggest(name, known)}; allowed: {', '.join(known)} and own losses "
            "registered in mmseg's MODELS"
        )
    return loss_class


def _check_call(loss: nn.Module) -> nn.Module:
    parameters = inspect.signature(loss.forward).parameters
    if not all(name in parameters for name in CALL):
        raise UserError(
            f"contrast.loss: {type(loss).__name__} is no contrast loss: its forward must take {', '.join(CALL)}; "
            f"allowed: {', '.join(known.__name__ for known in LOSSES)} and own losses with that forward"
        )
    return loss
