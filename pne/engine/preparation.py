"""From the config of a run to what the runner needs here: batch per process, precision, device, number of workers."""

import copy
from collections.abc import Mapping
from typing import Any

from mmengine.config import ConfigDict

from pne.engine.loop import ResumableTrainLoop
from pne.engine.precision import Bfloat16OptimWrapper
from pne.errors import UserError


def per_process_batch(batch_size: int, world_size: int) -> int:
    """Images per process and iteration.

    Raises
    ------
    UserError
        If the global batch cannot be split evenly.
    """
    if batch_size % world_size:
        raise UserError(
            f"batch_size: {batch_size} images cannot be split evenly over {world_size} processes; "
            f"use one of {', '.join(str(n) for n in range(1, batch_size + 1) if batch_size % n == 0)}"
        )
    return batch_size // world_size


def micro_batches(per_process: int, micro_batch: int | None) -> int:
    """Forward passes per iteration and process, for at most ``micro_batch`` images each (None: all at once).

    Raises
    ------
    UserError
        If the images of a process cannot be split evenly.
    """
    size = min(micro_batch or per_process, per_process)
    if per_process % size:
        raise UserError(
            f"micro_batch: {per_process} images of a process cannot be split into equal parts of {size}; "
            f"use one of {', '.join(str(n) for n in range(1, per_process + 1) if per_process % n == 0)}"
        )
    return per_process // size


def prepare(
    config: Mapping[str, Any], *, seed: int, iterations: int, precision: str, per_process: int, parts: int, workers: int
) -> ConfigDict:
    """Adapt a run's config to the machine; what was hashed keeps its meaning.

    Parameters
    ----------
    config : mapping
        The run's config.
    seed, iterations, precision
        Of the run.
    per_process : int
        Images per process and iteration.
    parts : int
        Micro-batches per iteration.
    workers : int
        Data-loading processes.

    Returns
    -------
    ConfigDict
        A copy with a resumable loop, the right optimiser wrapper and data loaders.

    Raises
    ------
    UserError
        If the config trains another number of iterations than the spec says.
    """
    prepared = copy.deepcopy(dict(config))
    declared = prepared["train_cfg"].get("max_iters")
    if declared != iterations:
        raise UserError(f"config: train_cfg.max_iters is {declared}, but the spec says {iterations} iterations")
    prepared["seed"] = seed
    prepared["train_cfg"] = {"type": ResumableTrainLoop, "max_iters": iterations, "parts": parts}
    prepared["optim_wrapper"] = _optim_wrapper(prepared["optim_wrapper"], precision, parts)
    prepared["train_dataloader"]["batch_size"] = per_process
    for loader in ("train_dataloader", "test_dataloader"):
        prepared[loader].update(num_workers=workers, persistent_workers=False)
    environment = dict(prepared.get("env_cfg") or {})
    environment.pop("dist_cfg", None)
    prepared["env_cfg"] = environment
    _scale_contrast_start(prepared["model"], parts)
    return ConfigDict(prepared)


def _optim_wrapper(wrapper: dict[str, Any], precision: str, parts: int) -> dict[str, Any]:
    wrapper = dict(wrapper, accumulative_counts=parts)
    if wrapper.get("type") == "AmpOptimWrapper":
        for key in ("dtype", "loss_scale", "use_fsdp"):
            wrapper.pop(key, None)
        wrapper["type"] = "OptimWrapper"
    if precision == "bf16":
        wrapper["type"] = Bfloat16OptimWrapper
    return wrapper


def heads_of(model: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the configs of all decode and auxiliary heads."""
    found = []
    for key in ("decode_head", "auxiliary_head"):
        heads = model.get(key) or []
        found += heads if isinstance(heads, list | tuple) else [heads]
    return found


def _scale_contrast_start(model: dict[str, Any], parts: int) -> None:
    """The branch counts forward passes, of which there are ``parts`` in an iteration."""
    for head in heads_of(model):
        contrast = head.get("contrast")
        if contrast and contrast.get("start"):
            contrast["start"] *= parts


def plain_model(model: Mapping[str, Any]) -> ConfigDict:
    """Return the config of the same model for inference: no contrast branch, no initial weights to fetch."""
    plain = ConfigDict(model).to_dict()
    for head in heads_of(plain):
        if head.get("type") == "ContrastHead":
            head["type"] = head.pop("base")
            head.pop("contrast", None)
    return ConfigDict(_without_pretrained(plain))


def _without_pretrained(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: None
            if key == "pretrained" or (key == "init_cfg" and _is_pretrained(item))
            else _without_pretrained(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return type(value)(_without_pretrained(item) for item in value)
    return value


def _is_pretrained(init: Any) -> bool:
    entries = init if isinstance(init, list | tuple) else [init]
    return any(isinstance(entry, Mapping) and entry.get("type") == "Pretrained" for entry in entries)
