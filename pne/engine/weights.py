"""``final.pth``: the weights that a training ends with, and the model for inference that loads them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config, ConfigDict
from mmengine.model import revert_sync_batchnorm
from mmseg.registry import MODELS
from torch import Tensor, nn

from pne.engine import checkpoint
from pne.engine.preparation import plain_model, prepare
from pne.engine.registration import register
from pne.errors import UserError
from pne.spec import Run

BRANCH = ".contrast."


def final_state(model: nn.Module) -> dict[str, Tensor]:
    """Return what is worth keeping of a trained model, on the CPU.

    The contrast branch's projection is kept (its embeddings can be looked at), a memory of the loss is not: it is as
    large as the model and serves training alone.
    """
    memory = {name for name, _ in model.named_buffers() if f"{BRANCH}loss." in f".{name}"}
    return {name: value.detach().cpu().clone() for name, value in model.state_dict().items() if name not in memory}


def save_final(path: Path, model: nn.Module, iteration: int) -> None:
    """Write the final weights. Equal weights give equal files, whatever the run: their hashes can be compared."""
    checkpoint.save(path, {"meta": {"iteration": iteration}, "state_dict": final_state(model)})


def inference_parameters(model: nn.Module) -> int:
    """Number of parameters at inference: without the contrast branch and auxiliary heads."""
    return sum(
        parameter.numel()
        for name, parameter in model.named_parameters()
        if BRANCH not in f".{name}" and not name.startswith("auxiliary_head")
    )


def build_plain(config: Mapping[str, Any], device: torch.device) -> nn.Module:
    """Build a model for inference: no contrast branch, arbitrary weights, in evaluation mode."""
    model = revert_sync_batchnorm(MODELS.build(plain_model(config)))
    return model.to(device).eval()


def load_trained(run: Run, config: Config, path: Path, device: torch.device) -> tuple[nn.Module, ConfigDict]:
    """Return a run's plain model with its final weights, and the run's config as prepared for looking at images.

    Raises
    ------
    UserError
        If the file does not fit the model.
    """
    torch.set_num_threads(run.runtime.threads)
    register(config)
    prepared = prepare(
        config.to_dict(),
        seed=run.seed,
        iterations=run.iterations,
        precision=run.precision,
        per_process=run.batch_size,
        parts=1,
        workers=run.runtime.workers,
    )
    model = build_plain(prepared["model"], device)
    load_final(model, path)
    return model, prepared


def load_final(model: nn.Module, path: Path) -> None:
    """Load final weights into a plain model.

    Raises
    ------
    UserError
        If the file does not fit the model.
    """
    state = checkpoint.load(path)["state_dict"]
    state = {name: value for name, value in state.items() if BRANCH not in f".{name}"}
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise UserError(f"{path}: the weights do not fit the model of this run: {error}") from error
