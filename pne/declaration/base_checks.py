"""Checks of what composing a run's config needs: of the files under ``experiments``, and of what a row changes in them.

Each function takes the config to look at and how messages begin: ``experiments/models/hrnet.py: `` or ``config.``.
Each raises a `UserError` that names the key.
"""

from collections.abc import Mapping
from typing import Any

from pne.errors import UserError

HEADS = ("decode_head", "auxiliary_head")
LOADERS = ("train_dataloader", "val_dataloader")
OPTIMISATION = ("optim_wrapper", "param_scheduler")


def check_model(config: Mapping[str, Any], prefix: str) -> None:
    """Check that there is a segmentor with a typed backbone and typed heads."""
    _require(config, prefix, "model")
    _require(config, prefix, "model.backbone", "model.decode_head")
    model = config["model"]
    parts = [("model", model), ("model.backbone", model["backbone"])]
    for name in HEADS:
        head = model.get(name)
        listed = isinstance(head, list | tuple)
        heads = [(f".{index}", item) for index, item in enumerate(head)] if listed else [("", head)] if head else []
        parts += [(f"model.{name}{suffix}", item) for suffix, item in heads]
    _check_typed(parts, prefix)


def check_dataset(config: Mapping[str, Any], prefix: str) -> None:
    """Check that a data set file says how many classes there are, what is cropped and what is read."""
    _require(config, prefix, "num_classes", "crop_size", *LOADERS)
    _check_count(config, prefix, "num_classes")
    size = config["crop_size"]
    if not (isinstance(size, list | tuple) and len(size) == 2 and all(map(_is_count, size))):
        raise UserError(f"{prefix}crop_size: expected (height, width) in pixels, got {_shown(size)}")
    check_loaders(config, prefix)


def check_loaders(config: Mapping[str, Any], prefix: str) -> None:
    """Check that training and evaluation read typed data sets."""
    _check_typed([(f"{loader}.dataset", get(config, f"{loader}.dataset")) for loader in LOADERS], prefix)


def check_schedule(config: Mapping[str, Any], prefix: str) -> None:
    """Check that there is said how long to train, with how many images a step and with which optimiser."""
    _require(config, prefix, "train_dataloader", "train_cfg", *OPTIMISATION)
    for key in ("train_cfg.max_iters", "train_dataloader.batch_size"):
        _require(config, prefix, key)
        _check_count(config, prefix, key)
    check_schedulers(config, prefix)


def check_schedulers(config: Mapping[str, Any], prefix: str) -> None:
    """Check the ``param_scheduler``, where there is one: a list, counted in iterations."""
    schedulers = config.get("param_scheduler", [])
    if not isinstance(schedulers, list | tuple) or not all(isinstance(item, Mapping) for item in schedulers):
        raise UserError(f"{prefix}param_scheduler: expected a list of dicts, got {_shown(schedulers)}")
    for index, item in enumerate(schedulers):
        if item.get("by_epoch", True) is not False:
            raise UserError(
                f"{prefix}param_scheduler.{index}.by_epoch: expected False, got {item.get('by_epoch', 'nothing')!r}; "
                "training counts iterations, no epochs"
            )


def check_optimiser(config: Mapping[str, Any], prefix: str) -> None:
    """Check that the optimiser that a run ends up with has a type and a learning rate."""
    _require(config, prefix, *(f"optim_wrapper.optimizer.{key}" for key in ("type", "lr", "weight_decay")))


def get(config: Any, key: str) -> Any:
    """Return the value at a dotted key, None where there is none."""
    for part in key.split("."):
        config = config.get(part) if isinstance(config, Mapping) else None
    return config


def _require(config: Mapping[str, Any], prefix: str, *keys: str) -> None:
    missing = [key for key in keys if get(config, key) is None]
    if missing:
        raise UserError(f"{prefix}{', '.join(missing)}: missing; a training needs it")


def _check_typed(parts: list[tuple[str, Any]], prefix: str) -> None:
    for key, part in parts:
        if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
            raise UserError(f"{prefix}{key}: expected a dict with a type, got {_shown(part)}")


def _check_count(config: Mapping[str, Any], prefix: str, key: str) -> None:
    if not _is_count(get(config, key)):
        raise UserError(f"{prefix}{key}: expected a whole number >= 1, got {get(config, key)!r}")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
