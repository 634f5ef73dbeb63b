"""Building the parts of one run's config: pipelines, model, optimiser, schedules, hooks."""

import copy
import inspect
import logging
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from mmengine.config import ConfigDict
from mmengine.optim import build_optim_wrapper
from mmengine.registry import HOOKS, PARAM_SCHEDULERS
from mmseg.registry import DATASETS, MODELS
from torch import nn

from pne.declaration.build_check.blame import KeyPath, Problem, blame
from pne.errors import UserError

LOADERS = ("train_dataloader", "test_dataloader")
IMAGES = 2  # batch norm needs more than one where features shrink to a single position


class _Stop(Exception):
    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.key)
        self.problem = problem


def check_buildable(config: Mapping[str, Any], where: str) -> None:
    """Build model, optimiser, schedules, pipelines and hooks of a run's config, and let them go again.

    Parameters
    ----------
    config : Mapping
        As the engine prepares it (`pne.engine.preparation.prepare`); it is not altered. What it names must have been
        registered.
    where : str
        Begins the message: the file that the config comes from.

    Raises
    ------
    UserError
        If a part cannot be built; names its key, and for an unknown key what is allowed.
    """
    problem = find_problem(config)
    if problem is not None:
        raise UserError(
            f"{where}: {problem.key}: {problem.message}; python -m pne.spec check --build names the declaration to mend"
        )


def find_problem(config: Mapping[str, Any]) -> Problem | None:
    """Return the first part of a prepared config that cannot be built, None if all can.

    Networks are built without values (on the meta device) and see one batch of the crop size in shape alone, so that
    channels that do not fit are found, too. No random number is drawn from the caller's streams.
    """
    config = ConfigDict(copy.deepcopy(dict(config)))
    with _quiet(), torch.random.fork_rng(devices=[]):
        return _first_problem(config)


def _first_problem(config: ConfigDict) -> Problem | None:
    try:
        for loader in LOADERS:
            _build_dataset(config, config[loader]["dataset"], (loader, "dataset"))
        model = _build_model(config)
        _pass_shapes(config, model)
        optimiser = _attempt(config, ("optim_wrapper",), lambda: build_optim_wrapper(model, config["optim_wrapper"]))
        for key, registry, arguments in (
            ("param_scheduler", PARAM_SCHEDULERS, {"optimizer": optimiser}),
            ("custom_hooks", HOOKS, {}),
        ):
            for index, part in enumerate(config.get(key) or []):
                _attempt(config, (key, str(index)), lambda p=part, r=registry, a=arguments: r.build(p, default_args=a))
    except _Stop as stop:
        return stop.problem
    return None


@contextmanager
def _quiet() -> Iterator[None]:
    """What is said while building is said again when the run really builds."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _attempt(config: Mapping[str, Any], section: KeyPath, build: Callable[[], Any]) -> Any:
    try:
        return build()
    except Exception as error:  # constructors raise what they like
        raise _Stop(blame(error, config, section)) from error


def _build_dataset(config: Mapping[str, Any], dataset: Mapping[str, Any], path: KeyPath) -> None:
    """Build a data set without listing its files; of wrappers, check the arguments."""
    if isinstance(dataset.get("dataset"), Mapping):
        _build_dataset(config, dataset["dataset"], (*path, "dataset"))
        _attempt(config, path, lambda: _bind(dataset))
        return
    dataset["lazy_init"] = True
    _attempt(config, path, lambda: DATASETS.build(dataset))


def _bind(wrapper: Mapping[str, Any]) -> None:
    found = DATASETS.get(wrapper["type"])
    if found is None:
        raise KeyError(f"{wrapper['type']} is not in the dataset registry")
    inspect.signature(found).bind(**{key: value for key, value in wrapper.items() if key != "type"})


def _build_model(config: Mapping[str, Any]) -> nn.Module:
    try:
        with torch.device("meta"):
            return MODELS.build(copy.deepcopy(config["model"]))
    except Exception:  # some constructors compute with values; these have to be there
        return _attempt(config, ("model",), lambda: MODELS.build(config["model"])).to("meta")


def _pass_shapes(config: Mapping[str, Any], model: nn.Module) -> None:
    """Let a batch without values pass the network and its heads."""
    size = (config["model"].get("data_preprocessor") or {}).get("size")
    if size is None or not hasattr(model, "extract_feat"):
        return
    images = torch.empty(IMAGES, 3, *size, device="meta")
    try:
        features = model.extract_feat(images)
        heads = getattr(model, "auxiliary_head", None)
        for head in heads if isinstance(heads, nn.ModuleList) else [heads] if heads is not None else []:
            head(features)
        model(images, None, mode="tensor")
    except NotImplementedError:
        return  # an operation that needs values: nothing can be said without computing them
    except Exception as error:
        if "meta" in str(error).lower():
            return
        name = _part_of(error, model)
        raise _Stop(
            Problem(".".join(_known(config["model"], name)), f"does not fit what comes before it: {error}")
        ) from error


def _part_of(error: Exception, model: nn.Module) -> str:
    names = {id(module): name for name, module in model.named_modules()}
    found = (names.get(id(frame.f_locals.get("self"))) for frame, _ in traceback.walk_tb(error.__traceback__))
    return [name or "" for name in found if name is not None][-1]


def _known(model: Mapping[str, Any], name: str) -> Iterator[str]:
    """Keys of the config that lead to a module, as far as they go."""
    yield "model"
    place: Any = model
    for part in filter(None, name.split(".")):
        if isinstance(place, list | tuple) and part.isdigit() and int(part) < len(place):
            place = place[int(part)]
        elif isinstance(place, Mapping) and isinstance(place.get(part), Mapping | list | tuple):
            place = place[part]
        else:
            return
        yield part
