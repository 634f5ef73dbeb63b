"""From a declared run to its rehearsal: fewer iterations and, where asked for, a smaller batch and smaller images."""

from collections.abc import Iterator, Mapping
from typing import Any

from pne.declaration.canonical import canonical, digest
from pne.declaration.stock import copied
from pne.errors import UserError
from pne.rehearsal.groups import contrasts
from pne.spec import Run

LOADERS = ("train_dataloader", "val_dataloader", "test_dataloader")


def rehearsal_of(
    run: Run,
    config: Mapping[str, Any],
    *,
    results: str,
    iterations: int,
    evaluations: tuple[str, ...],
    crop: int | None = None,
    batch_size: int | None = None,
    random_weights: bool = True,
) -> tuple[Run, dict[str, Any]]:
    """Describe the rehearsal of a run.

    The contrast begins at once whatever its declared start, because it is its cost that is wanted.

    Parameters
    ----------
    run : Run
        The declared run.
    config : mapping
        Its whole config.
    results : str
        Folder in place of the track's results, so that nothing of the run itself is touched.
    iterations : int
        Optimiser steps.
    evaluations : tuple of str
        How it is scored in the end.
    crop : int, optional
        Shorter side of the training crop in pixels. Every other size of images is scaled by the same factor: what
        training and test images are resized to, and sliding windows.
    batch_size : int, optional
        Images per step.
    random_weights : bool
        Leave out the files that the config starts from.

    Returns
    -------
    Run, dict
        Description and config; the description bears the name of the declared run.

    Raises
    ------
    UserError
        If ``crop`` is given but the config names no crop.
    """
    plain = copied(dict(config))
    plain["train_cfg"] = plain["train_cfg"] | {"max_iters": iterations, "val_interval": iterations}
    if batch_size is not None:
        plain["train_dataloader"]["batch_size"] = batch_size
    for contrast in contrasts(plain["model"]):
        if contrast.get("start"):
            contrast["start"] = 0
    if random_weights:
        _drop_initial_weights(plain["model"])
    if crop is not None:
        _scale_images(plain, crop)
    contrast = None if run.contrast is None else run.contrast | {"start": 0}
    runtime = run.runtime.model_copy(update={"results": results})
    changes = {
        "iterations": iterations,
        "batch_size": plain["train_dataloader"]["batch_size"],
        "config_sha256": digest(canonical(plain)),
        "evaluations": list(evaluations),
        "contrast": contrast,
        "runtime": runtime,
    }
    return run.model_copy(update=changes), plain


def crop_size(config: Mapping[str, Any]) -> tuple[int, int]:
    """Return (height, width) of the training crop, which is the size of the network's input.

    Raises
    ------
    UserError
        If the config names none.
    """
    size = config["model"].get("data_preprocessor", {}).get("size")
    if not size:
        raise UserError("config: model.data_preprocessor.size: missing; the size of the crop is taken from there")
    height, width = size
    return int(height), int(width)


def _scale_images(config: dict[str, Any], crop: int) -> None:
    height, width = crop_size(config)
    factor = crop / min(height, width)

    def scaled(size: Any) -> tuple[int, ...]:
        return tuple(max(1, round(side * factor)) for side in size)

    config["model"]["data_preprocessor"]["size"] = scaled((height, width))
    test = config["model"].get("test_cfg") or {}
    for key in ("crop_size", "stride"):
        if test.get(key) is not None:
            test[key] = scaled(test[key])
    for step in _steps(config):
        for key in ("crop_size", "scale"):
            if step.get(key) is not None:
                step[key] = scaled(step[key])


def _steps(config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name in LOADERS:
        dataset = config[name]["dataset"]
        while isinstance(dataset.get("dataset"), Mapping):
            dataset = dataset["dataset"]
        yield from dataset["pipeline"]


def _drop_initial_weights(value: Any) -> None:
    if isinstance(value, dict):
        value.pop("pretrained", None)
        init = value.get("init_cfg")
        if isinstance(init, Mapping) and init.get("type") == "Pretrained":
            del value["init_cfg"]
        for item in value.values():
            _drop_initial_weights(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _drop_initial_weights(item)
