"""Composing one run's mmengine config from a model, a data set and a schedule, as plain dicts and without torch.

A model file says which stock config it stands for, a data set file what is read and how, a schedule file how long and
with which optimiser. What a model file says about the optimiser takes precedence: it is the recipe of its family.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from pne.spec.checks import AUXILIARY, COMPUTATION, DATASET, MODEL, OPTIMISER, SCHEDULE, SCHEDULERS, Rules, check
from pne.spec.contrast import ResolvedContrast
from pne.spec.identity import NUMERICS
from pne.spec.stock import apply_changes, copied, merged, pretrained_url, read_inherited

HEADS = ("decode_head", "auxiliary_head")
OPTIMISATION = ("optim_wrapper", "param_scheduler")
INHERITED = {
    "models": ("model",),
    "datasets": ("crop_size", "train_dataloader", "val_dataloader"),
    "schedules": (*OPTIMISATION, "train_cfg"),
}


class BaseConfigs:
    """The composed configs of one folder of declarations, each made once.

    Parameters
    ----------
    experiments : Path
        Folder with ``models``, ``datasets`` and ``schedules``.
    initial_weights : {'random', 'imagenet'}
        Whether backbones start from the files that the model configs name.

    Attributes
    ----------
    read, compose : callable
        Give the file ``<kind>/<name>.py``, and the config of a plain training (cross entropy alone) by data set, model
        and schedule. What they return is shared: copy it before changing it.
    """

    def __init__(self, experiments: Path, initial_weights: str) -> None:
        self.experiments = experiments
        self.initial_weights = initial_weights
        self.read = cache(self._read)
        self.compose = cache(self._compose)

    def _read(self, kind: str, name: str) -> dict[str, Any]:
        return read_inherited(self.path(kind, name), INHERITED[kind])

    def path(self, kind: str, name: str) -> Path:
        """Path of a config file, for messages."""
        return self.experiments / kind / f"{name}.py"

    def _compose(self, dataset: str, model: str, schedule: str) -> dict[str, Any]:
        data = self._checked("datasets", dataset, DATASET)
        time = self._checked("schedules", schedule, SCHEDULE, optional=COMPUTATION)
        network = self._checked("models", model, MODEL, optional={**AUXILIARY, **SCHEDULERS})
        config = {key: copied(data[key]) for key in ("train_dataloader", "val_dataloader")}
        config["train_dataloader"]["batch_size"] = time["train_dataloader"]["batch_size"]
        config["train_cfg"] = {"type": "IterBasedTrainLoop", "max_iters": time["train_cfg"]["max_iters"]}
        config["numerics"] = NUMERICS | time.get("numerics", {})
        for key in OPTIMISATION:
            config[key] = merged(time[key], network[key]) if key in network else copied(time[key])
        recipe = self.path("models", model) if "optim_wrapper" in network else self.path("schedules", schedule)
        check(config, OPTIMISER, f"{recipe}: ")
        config["model"] = _network(network["model"], data, self.initial_weights)
        return config

    def _checked(self, kind: str, name: str, rules: Rules, *, optional: Rules | None = None) -> dict[str, Any]:
        config = self.read(kind, name)
        check(config, rules, f"{self.path(kind, name)}: ", optional=optional)
        return config


def _network(model: dict[str, Any], data: Mapping[str, Any], initial_weights: str) -> dict[str, Any]:
    """Fit a model to a data set: number of classes, training size, initial weights, norm of one process."""
    model = _plain_norm(merged(None, model))
    for key in HEADS:
        heads = model.get(key)
        for head in heads if isinstance(heads, list | tuple) else [heads] if heads else []:
            head["num_classes"] = data["num_classes"]
    model["data_preprocessor"] = model.get("data_preprocessor", {}) | {"size": tuple(data["crop_size"])}
    pretrained = model.pop("pretrained", None)
    if pretrained is not None:
        model["backbone"].setdefault("init_cfg", {"type": "Pretrained", "checkpoint": pretrained})
    source = model["backbone"].get("init_cfg")
    if isinstance(source, dict) and source.get("type") == "Pretrained":
        if initial_weights == "random":
            del model["backbone"]["init_cfg"]
        else:
            model["backbone"]["init_cfg"] = source | {"checkpoint": pretrained_url(source["checkpoint"])}
    return model


def _plain_norm(value: Any) -> Any:
    """Write BN for SyncBN everywhere: what one process trains with. Training on several turns BN into SyncBN."""
    if isinstance(value, dict):
        return {key: "BN" if (key, item) == ("type", "SyncBN") else _plain_norm(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_plain_norm(item) for item in value)
    return value


class RunConfig:
    """The config of one run, in the making; `plain` is what is hashed and, with an environment, written.

    `changed` is the composed config with the row's changes, before anything else is done to it.

    Parameters
    ----------
    base : dict
        From `BaseConfigs.compose`.
    changes : Mapping
        The row's ``config:``, dotted keys allowed. They see the plain model, before the head is wrapped.
    contrast : ResolvedContrast or None
    seed : int
    precision : {'fp32', 'bf16'}
    iterations, limit : int, optional
        For rehearsals: shorten the run (schedule and start of the contrast shrink in proportion) and use only the first
        ``limit`` images of each split.
    """

    def __init__(
        self,
        base: dict[str, Any],
        *,
        changes: Mapping[str, Any] | None,
        contrast: ResolvedContrast | None,
        seed: int,
        precision: str,
        iterations: int | None = None,
        limit: int | None = None,
    ) -> None:
        self.seed, self.precision, self._limit = seed, precision, limit
        self.changed = apply_changes(base, changes or {})
        self._declared = self.changed["train_cfg"]["max_iters"]
        self.iterations = iterations or self._declared
        if contrast is not None and contrast.start:
            contrast = replace(contrast, start=round(contrast.start * self.iterations / self._declared))
        self.contrast = contrast

    @cached_property
    def plain(self) -> dict[str, Any]:
        """The config as plain data; data paths are still relative to the data set's folder."""
        config = copied(self.changed)
        config["train_cfg"] |= {"max_iters": self.iterations, "val_interval": self.iterations}
        config["param_scheduler"] = _scaled(config["param_scheduler"], self._declared, self.iterations)
        if self._limit is not None:
            for loader in ("train_dataloader", "val_dataloader"):
                config[loader]["dataset"]["indices"] = self._limit
        # Order and augmentation hang on the seed and the position in the stream, whatever the workers or restarts.
        training, metric = config["train_dataloader"], {"type": "IoUMetric", "iou_metrics": ["mIoU"]}
        training["sampler"] = {"type": "PositionedInfiniteSampler", "shuffle": True, "seed": self.seed}
        training["dataset"] = {"type": "PositionSeeded", "dataset": training["dataset"]}
        if self.contrast is not None:
            _wrap_last_head(config["model"], self.contrast.branch_config(self.seed))
        if self.precision == "bf16":
            config["optim_wrapper"] |= {"type": "AmpOptimWrapper", "dtype": "bfloat16"}
        numerics = config.pop("numerics")
        if changed := {key: value for key, value in numerics.items() if value != NUMERICS[key]}:
            config["numerics"] = changed
        config["randomness"] = {"seed": self.seed}
        return config | {
            "val_cfg": {"type": "ValLoop"},
            "val_evaluator": metric,
            "test_cfg": {"type": "TestLoop"},
            "test_dataloader": copied(config["val_dataloader"]),
            "test_evaluator": dict(metric),
        }


def sized(changes: Any, crop: Sequence[int]) -> Any:
    """Write for ``{of_crop: share}``, wherever it stands, the number of pixels: that share of a training crop."""
    if not isinstance(changes, Mapping):
        return changes
    if set(changes) == {"of_crop"}:
        return round(changes["of_crop"] * math.prod(crop))
    return {key: sized(value, crop) for key, value in changes.items()}


def _scaled(schedulers: list[dict[str, Any]], declared: int, iterations: int) -> list[dict[str, Any]]:
    """Let schedulers without an ``end`` run to the last iteration; scale all when the run is shortened."""
    factor = iterations / declared
    scaled = []
    for scheduler in schedulers:
        begin = round(scheduler.get("begin", 0) * factor)
        end = max(begin + 1, round(scheduler.get("end", declared) * factor))
        scaled.append(scheduler | {"begin": begin, "end": end})
    return scaled


def _wrap_last_head(model: dict[str, Any], branch: dict[str, Any]) -> None:
    heads = model["decode_head"]
    head = heads[-1] if isinstance(heads, list | tuple) else heads
    wrapped = {**head, "type": "ContrastHead", "base": head["type"], "contrast": branch}
    model["decode_head"] = [*heads[:-1], wrapped] if isinstance(heads, list | tuple) else wrapped


LOADERS = ("train_dataloader", "val_dataloader", "test_dataloader")


def place(
    config: Mapping[str, Any], *, data: Path, workers: int, cache_data: bool, weights_dir: Path | None
) -> dict[str, Any]:
    """Return a copy of a run's config with its environment: paths, workers, imports. Nothing of it is hashed.

    Parameters
    ----------
    config : Mapping
        `RunConfig.plain`.
    data : Path
        Folder of the data set.
    workers : int
        Loader processes per training process.
    cache_data : bool
        Keep decoded images in memory, where the data set's config has a key ``cache_data``.
    weights_dir : Path or None
        Folder with the files of initial weights; None keeps their URLs.
    """
    result = copied(dict(config))
    for key in LOADERS:
        loader = result[key]
        loader |= {"num_workers": workers, "persistent_workers": workers > 0}
        dataset = loader["dataset"].get("dataset", loader["dataset"])
        dataset["data_root"] = str(data)
        if "cache_data" in dataset:
            dataset["cache_data"] = cache_data
    source = result["model"]["backbone"].get("init_cfg")
    if weights_dir is not None and isinstance(source, dict) and "checkpoint" in source:
        source["checkpoint"] = str(weights_dir / Path(source["checkpoint"]).name)
    return result | {
        "default_scope": "mmseg",
        "custom_imports": {"imports": ["pne.heads", "pne.datasets.registered"], "allow_failed_imports": False},
        "env_cfg": {"cudnn_benchmark": True, "mp_cfg": {"mp_start_method": "fork", "opencv_num_threads": 0}},
        "log_processor": {"by_epoch": False},
        "log_level": "INFO",
        "load_from": None,
        "resume": False,
    }
