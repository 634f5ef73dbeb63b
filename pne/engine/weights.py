"""The weights that a training ends with (``final.pth``) and the model that loads them; those that it starts from."""

import json
import logging
import pickle
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlparse

import torch
from mmengine.config import ConfigDict
from mmengine.logging import MMLogger
from mmengine.model import BaseModule, initialize, revert_sync_batchnorm
from mmengine.runner.checkpoint import CheckpointLoader, get_torch_safe_globals
from mmseg.registry import MODELS
from torch import Tensor, nn

from pne.engine import checkpoint
from pne.engine.publication import FINAL, TRAIN
from pne.engine.runner import plain_model, prepare, set_precision
from pne.errors import UserError
from pne.files import sha256
from pne.results import TrainResult, read_result_of
from pne.spec import Run, read_config
from pne.spec.stock import package_folder, parts, problem_of, stock_folder, without_pretrained

BRANCH = ".contrast."
MEMORY = f"{BRANCH}loss."
ENOUGH = 0.9
"""Share of a backbone's parameters that its file must fill. The files that mmsegmentation's configs name fill all but
a few norms; those of another depth or width fill about half, or nothing."""


def final_state(model: nn.Module) -> dict[str, Tensor]:
    """Return what is worth keeping of a trained model, on the CPU.

    The contrast branch's projection is kept (its embeddings can be looked at), a memory of the loss is not: it is as
    large as the model and serves training alone.
    """
    memory = {name for name, _ in model.named_buffers() if MEMORY in f".{name}"}
    return {name: value.cpu().clone() for name, value in model.state_dict().items() if name not in memory}


def save_final(path: Path, model: nn.Module, iteration: int, names: Mapping[str, Any]) -> None:
    """Write the final weights, with ``classes`` and ``palette`` among the names as mmsegmentation expects them.

    Equal weights of a data set give equal files, whatever the run: their hashes can be compared.
    """
    meta = {"iteration": iteration, "dataset_meta": {key: list(names[key]) for key in ("classes", "palette")}}
    checkpoint.save(path, {"meta": meta, "state_dict": final_state(model)})


def inference_parameters(model: nn.Module) -> int:
    """Number of parameters at inference: without the contrast branch and auxiliary heads."""
    return sum(
        parameter.numel()
        for name, parameter in model.named_parameters()
        if BRANCH not in f".{name}" and not name.startswith("auxiliary_head")
    )


def build_plain(config: Mapping[str, Any], device: torch.device) -> nn.Module:
    """Build a model for inference: no contrast branch, arbitrary weights, in evaluation mode."""
    return _build(plain_model(config), device)


def _build(config: Mapping[str, Any], device: torch.device) -> nn.Module:
    return revert_sync_batchnorm(MODELS.build(ConfigDict(config))).to(device).eval()


class Trained(NamedTuple):
    """A finished run's model in evaluation mode, the run's prepared config, and what its training published."""

    model: nn.Module
    config: ConfigDict
    result: TrainResult


def load_trained(run: Run, spec: Path, device: torch.device, *, branch: bool = False) -> Trained:
    """Build the model of a finished run and load its final weights.

    Parameters
    ----------
    run : Run
    spec : Path
        Its ``spec.yaml``.
    device : torch.device
    branch : bool
        Keep the contrast branch.

    Raises
    ------
    UserError
        If the run has not finished, or its weights are missing or not those that were trained; names the command that
        makes them again.
    """
    trained = read_result_of(run, "train", TrainResult)
    path = run.work_directory / FINAL
    restore = f"train the run again to restore them: python -m pne.train --retrain {spec}"
    if not path.is_file():
        raise UserError(f"{path}: the final weights of {run.run} are missing; {restore}")
    if (found := sha256(path)) != trained.weights_sha256:
        raise UserError(
            f"{path}: SHA-256 {found[:12]}, but {run.directory / TRAIN} was measured with weights of "
            f"{trained.weights_sha256[:12]}; {restore}"
        )
    torch.set_num_threads(run.runtime.threads)
    config = prepare(run, read_config(spec))
    set_precision(config["numerics"])
    plain = without_pretrained(config["model"]) if branch else plain_model(config["model"])
    model = _build(plain, device)
    load_final(model, path)
    return Trained(model, config, trained)


def load_final(model: nn.Module, path: Path) -> None:
    """Load final weights into a model with or without its contrast branch, whose loss starts without a memory.

    Raises
    ------
    UserError
        If the file does not fit the model.
    """
    own, state = model.state_dict(), checkpoint.load(path)["state_dict"]
    state = {name: value for name, value in state.items() if name in own or BRANCH not in f".{name}"}
    memory = {name: value for name, value in own.items() if MEMORY in f".{name}"}
    try:
        model.load_state_dict(memory | state)
    except RuntimeError as error:
        raise UserError(f"{path}: the weights do not fit the model of this run: {error}") from error


def check_initial_weights(model: Mapping[str, Any]) -> None:
    """See that the initial weights are at hand, whole, and those of the backbone, before a training begins.

    Every file that is named is loaded, by URL into the cache, and tried on the backbone. mmengine
    loads such files leniently: what does not fit is left at random values, with a warning.

    Parameters
    ----------
    model : mapping
        Config of the model.

    Raises
    ------
    UserError
        If a file is missing, cannot be fetched or loaded, or fills less than nine tenths of the backbone's parameters;
        names the file, where it comes from and what to do.
    """
    for source in dict.fromkeys(_sources(model)):
        _check_content(source, _fetched(source) if "://" in source else _read(Path(source)))
    backbone = dict(model.get("backbone") or {})
    if model.get("pretrained"):
        backbone["pretrained"] = model["pretrained"]
    if any(True for _ in _sources(backbone)):
        _check_fit(backbone)


def filled_parameters(config: Mapping[str, Any]) -> tuple[int, int]:
    """Count what the initial weights of a backbone fill.

    The backbone is built, its parameters are overwritten with NaN, and its own initialisation loads the file.

    Parameters
    ----------
    config : mapping
        Config of the backbone, with initial weights.

    Returns
    -------
    (int, int)
        Numbers that came from the file, and numbers in all.
    """
    with torch.random.fork_rng(devices=[]), _quiet():
        backbone = MODELS.build(dict(config))
        with torch.no_grad():
            for parameter in backbone.parameters():
                parameter.fill_(torch.nan)
        _load(backbone)
        parameters = list(backbone.parameters())
    filled = sum(int((~parameter.isnan()).sum()) for parameter in parameters)
    return filled, sum(parameter.numel() for parameter in parameters)


def _load(backbone: nn.Module) -> None:
    if type(backbone).init_weights is not BaseModule.init_weights:
        backbone.init_weights()  # its own way to read files; it draws nothing when there is one
        return
    settings = [backbone.init_cfg] if isinstance(backbone.init_cfg, Mapping) else backbone.init_cfg or []
    initialize(backbone, [dict(entry) for entry in settings if entry["type"] == "Pretrained"])


def _check_fit(backbone: Mapping[str, Any]) -> None:
    source = next(_sources(backbone))
    kind = backbone.get("type")
    try:
        filled, total = filled_parameters(backbone)
    except Exception as error:  # how a backbone reads its file is up to the backbone
        first = str(error).strip().splitlines()
        raise UserError(
            f"{source}: does not fit the backbone {kind} ({type(error).__name__}: {first[0] if first else ''}); "
            f"{_remedy(source)}"
        ) from error
    if filled < ENOUGH * total:
        raise UserError(
            f"{source}: fills {filled} of {total} parameters of the backbone {kind}, the others would start at random; "
            f"{_remedy(source)}"
        )


def _read(path: Path) -> Any:
    if not path.is_file():
        raise UserError(f"{path}: no such file of initial weights; {_remedy(str(path))}")
    if problem := problem_of(path):
        raise UserError(f"{path}: {problem}; {_remedy(str(path))}")
    try:
        with torch.serialization.safe_globals(get_torch_safe_globals()):
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # what a broken file makes torch.load raise is not documented
        raise UserError(f"{path}: cannot be loaded ({_first_line(error)}); {_remedy(str(path))}") from error


def _fetched(source: str) -> Any:
    cached = Path(torch.hub.get_dir()) / "checkpoints" / Path(urlparse(source).path).name
    try:
        with torch.serialization.safe_globals(get_torch_safe_globals()):
            if not source.startswith(("http://", "https://")):  # a name that mmengine or another package looks up
                return CheckpointLoader.load_checkpoint(source, map_location="cpu", logger="silent")
            return torch.hub.load_state_dict_from_url(
                source, map_location="cpu", progress=sys.stderr.isatty(), weights_only=True
            )
    except UserError:
        raise
    except OSError as error:  # URLError is one
        raise UserError(
            f"{source}: cannot be fetched ({_first_line(error)}); where there is no network, {_remedy(source)}"
        ) from error
    except Exception as error:
        problem = (cached.is_file() and problem_of(cached)) or f"cannot be loaded ({_first_line(error)})"
        raise UserError(
            f"{source}: {problem}; delete {cached}, where it was kept, and start again, or {_remedy(source)}"
        ) from error


def _check_content(source: str, content: Any) -> None:
    weights = content
    for key in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            weights = content[key]
            break
    if not isinstance(weights, Mapping) or not any(isinstance(value, Tensor) for value in weights.values()):
        raise UserError(f"{source}: holds no weights but a {type(content).__name__}; {_remedy(source)}")


def _remedy(source: str) -> str:
    if "://" in source:
        return "put the file into a folder and name it as weights_dir"
    address = address_of(Path(source).name)
    origin = f"from {address} " if address else ""
    return f"download the file {origin}into this folder, or correct weights_dir"


def address_of(name: str) -> str | None:
    """Return the address from which mmsegmentation's shipped configs take a file of weights, None if they do not."""
    pattern = re.compile(rf"https?://[^\s'\"]*/{re.escape(name)}")
    table = package_folder("mmengine") / "hub" / "openmmlab.json"
    for address in json.loads(table.read_text(encoding="utf-8")).values():
        if pattern.fullmatch(address):
            return address
    for path in sorted(stock_folder().rglob("*.py")):
        if found := pattern.search(path.read_text(encoding="utf-8")):
            return found[0]
    return None


def _first_line(error: Exception) -> str:
    if isinstance(error, pickle.UnpicklingError):
        return "it holds more than weights, or is damaged"
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep mmengine from telling of keys that do not match: the same is told when the training's model is built."""
    logger = MMLogger.get_current_instance()
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _sources(model: Mapping[str, Any]) -> Iterator[str]:
    for part in parts(model):
        named = [part.get("pretrained"), part.get("checkpoint") if part.get("type") == "Pretrained" else None]
        yield from map(str, filter(None, named))
