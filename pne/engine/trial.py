"""Build every distinct network, pipeline and optimiser of a track once, so that a mistake costs no GPU hour.

The message is the toolbox's own; beside it stands the declaration that the part comes from.
"""

import copy
import inspect
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from mmengine.config import ConfigDict
from mmengine.dist import get_world_size
from mmengine.optim import build_optim_wrapper
from mmengine.registry import HOOKS, PARAM_SCHEDULERS
from mmseg.registry import DATASETS, MODELS
from torch import nn

from pne.engine.runner import prepare
from pne.errors import UserError
from pne.spec import ResolvedRow, ResolvedTable, ResolvedTrack
from pne.spec.catalogue import Catalogue
from pne.spec.compose import BaseConfigs

IMAGES = 2  # batch norm needs more than one where features shrink to a single position
FILES = {"model": "models", "train_dataloader": "datasets", "val_dataloader": "datasets"}


class Problem(Exception):
    """A part of a config cannot be built.

    Attributes
    ----------
    key : str
        Dotted key of the part.
    message : str
        What the toolbox says of it, on one line.
    """

    def __init__(self, key: str, error: Exception) -> None:
        text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
        kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
        self.key, self.message = key, kind + " ".join(text.split())
        super().__init__(f"{key}: {self.message}")


def check_buildable(config: Mapping[str, Any], where: str) -> None:
    """Build model, optimiser, schedules, pipelines and hooks of a run's config, and let them go again.

    Parameters
    ----------
    config : Mapping
        As the engine prepares it (`pne.engine.runner.prepare`); it is not altered. What it names must have been
        registered.
    where : str
        Begins the message: the file that the config comes from.

    Raises
    ------
    UserError
        If a part cannot be built, or batch norm would see a single value; names its key.
    """
    if problem := find_problem(config):
        raise UserError(f"{where}: {problem}; python -m pne.spec check --build names the declaration to mend")
    batch, parts = config["train_dataloader"]["batch_size"], config["train_cfg"].get("parts", 1)
    # Among several processes batch norm is synchronised.
    if batch == parts and get_world_size() == 1 and (problem := find_problem(config, images=1)):
        least = next((number for number in range(2, batch + 1) if batch % number == 0), "2 of a larger batch")
        raise UserError(f"{where}: one image per forward pass is too few: {problem}; use micro_batch={least} or more")


def find_problem(config: Mapping[str, Any], images: int = IMAGES) -> Problem | None:
    """Return the first part of a prepared config that cannot be built, None if all can.

    Networks are built without values (on the meta device) and see one batch of the crop size in shape alone, so that
    channels that do not fit are found, too. No random number is drawn from the caller's streams.
    """
    config = ConfigDict(copy.deepcopy(dict(config)))
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)  # what is said while building is said again when the run really builds
    try:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")
            _build_all(config, images)
    except Problem as problem:
        return problem
    finally:
        logging.disable(before)
    return None


def _build_all(config: ConfigDict, images: int) -> None:
    for loader in ("train_dataloader", "test_dataloader"):
        with _part(f"{loader}.dataset".replace("test", "val")):
            _build_dataset(config[loader]["dataset"])
    model = _build_model(config["model"])
    _pass_shapes(config["model"], model, images)
    with _part("optim_wrapper"):
        optimiser = build_optim_wrapper(model, config["optim_wrapper"])
    for key, registry, arguments in (
        ("param_scheduler", PARAM_SCHEDULERS, {"optimizer": optimiser}),
        ("custom_hooks", HOOKS, {}),
    ):
        for index, part in enumerate(config.get(key) or []):
            with _part(f"{key}.{index}"):
                registry.build(part, default_args=arguments)


@contextmanager
def _part(key: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # constructors raise what they like
        raise Problem(key, error) from error


def _build_dataset(dataset: Mapping[str, Any]) -> None:
    """Build a data set without listing its files; of wrappers, check the arguments."""
    if not isinstance(dataset.get("dataset"), Mapping):
        DATASETS.build(dataset | {"lazy_init": True})
        return
    _build_dataset(dataset["dataset"])
    inspect.signature(DATASETS.get(dataset["type"])).bind(**{k: v for k, v in dataset.items() if k != "type"})


def _build_model(config: Mapping[str, Any]) -> nn.Module:
    for device in ("meta", "cpu"):  # some constructors compute with values; these have to be there
        try:
            with torch.device(device):
                return MODELS.build(copy.deepcopy(config)).to("meta")
        except Exception as error:
            failure = error
    for key, part in _parts(config):
        with _part(f"model.{key}"):
            MODELS.build(part)
    raise Problem("model", failure) from failure


def _parts(model: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Backbone, neck and heads, one by one."""
    for key in ("backbone", "neck", "decode_head", "auxiliary_head"):
        value = model.get(key)
        if isinstance(value, list | tuple):
            yield from ((f"{key}.{index}", part) for index, part in enumerate(value))
        elif value is not None:
            yield key, value


def _pass_shapes(config: Mapping[str, Any], model: nn.Module, number: int) -> None:
    """Let a batch without values pass the network and its heads."""
    size = (config.get("data_preprocessor") or {}).get("size")
    if size is None or not hasattr(model, "extract_feat"):
        return
    images, part = torch.empty(number, 3, *size, device="meta"), "backbone"
    try:
        features = model.extract_feat(images)
        part, heads = "auxiliary_head", getattr(model, "auxiliary_head", None)
        for head in heads if isinstance(heads, nn.ModuleList) else [heads] if heads is not None else []:
            head(features)
        part = "decode_head"
        model(images, None, mode="tensor")
    except Exception as error:
        # An operation that needs values: nothing can be said without computing them.
        if not isinstance(error, NotImplementedError) and "meta" not in str(error).lower():
            raise Problem(f"model.{part}", ValueError(f"does not fit what comes before it: {error}")) from error


def find_mistakes(track: ResolvedTrack, catalogue: Catalogue) -> list[str]:
    """Build what the runs of a track consist of, each distinct config once, and say which declarations are wrong.

    Parameters
    ----------
    track : ResolvedTrack
    catalogue : Catalogue
        The declarations it comes from.

    Returns
    -------
    list of str
        One line per mistake: file, row, key and what the toolbox says.
    """
    found: dict[str, Problem | None] = {}
    mistakes = {}
    for table in track.tables.values():
        for row in table.rows.values():
            if not row.runs:
                continue
            spec = track.runs[next(iter(row.runs.values()))]
            contrast = dict(spec.contrast or {"loss": ""})
            if ":" not in contrast["loss"]:  # resolving has checked its options, and they change no part's form
                contrast = {"loss": contrast["loss"], "projection": contrast.get("projection")}
            kind = repr([spec.dataset, spec.model, spec.schedule, row.declaration.config, contrast])
            if kind not in found:
                found[kind] = find_problem(prepare(spec, track.config(spec.run), workers=0))
            if problem := found[kind]:
                mistakes[f"{_declared_at(problem, table, row, track, catalogue)}: {problem.message}"] = None
    return list(mistakes)


def _declared_at(
    problem: Problem, table: ResolvedTable, row: ResolvedRow, track: ResolvedTrack, catalogue: Catalogue
) -> str:
    """Name the declaration that a part of a run's config comes from: the row where it changes the part, or a file."""
    here, key = f"{catalogue.table_path(table.key)}: rows.{row.key}", problem.key
    if problem.message.startswith("contrast"):
        return here
    changes = [name for name in row.declaration.config or {} if f"{name}.".startswith(f"{key}.")]
    changes += [name for name in row.declaration.config or {} if f"{key}.".startswith(f"{name}.")]
    if changes:
        return f"{here}: config.{' and config.'.join(dict.fromkeys(changes))}"
    about, (dataset, model, schedule) = track.declaration, map(str, table.declaration.words_of(row.declaration))
    files = {
        "models": about.models[model],
        "datasets": about.datasets[dataset].config,
        "schedules": about.schedules[schedule],
    }
    bases, section = BaseConfigs(catalogue.folder, "random"), key.split(".")[0]
    recipe = "models" if section in bases.read("models", files["models"]) else "schedules"
    kind = FILES.get(section, recipe)
    return f"{bases.path(kind, files[kind])}: {key}"
