"""mmengine's runner without its side effects: own device, no dumps of environment and config, no visualiser files."""

import itertools
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from mmengine.logging import MMLogger
from mmengine.model import MMDistributedDataParallel, revert_sync_batchnorm
from mmengine.runner import Runner
from torch import nn

from pne.engine.processes import Processes

_serial = itertools.count()


class TrainingRunner(Runner):
    """Train as mmengine does, on the device and among the processes that are given.

    Parameters
    ----------
    processes : Processes
        Device, rank and number of processes.
    resume_state : callable, optional
        Called with the runner once model, optimiser and schedules exist and are initialised; restores a checkpoint.
    **settings
        Those of mmengine's runner.
    """

    def __init__(
        self, *, processes: Processes, resume_state: Callable[[Runner], None] | None = None, **settings: Any
    ) -> None:
        self.processes = processes
        self._resume_state = resume_state
        super().__init__(**settings)
        shutil.rmtree(self.log_dir, ignore_errors=True)

    def build_logger(self, log_level: int | str = "WARNING", **settings: Any) -> MMLogger:
        """Log warnings to the console alone."""
        name = self._experiment_name
        logger = MMLogger.get_instance(name=name, logger_name="mmengine", log_level=log_level)
        logger.setLevel(logging.WARNING)
        return logger

    def wrap_model(self, model_wrapper_cfg: dict | None, model: nn.Module) -> nn.Module:
        """Move the model to its device; with several processes, synchronise batch norm (CUDA) and gradients."""
        device = self.processes.device
        model = model.to(device)
        if self.processes.world_size == 1:
            return revert_sync_batchnorm(model)
        if device.type == "cuda":
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
        else:
            model = revert_sync_batchnorm(model)  # synchronised batch norm exists on CUDA only
        devices = [device.index] if device.type == "cuda" else None
        return MMDistributedDataParallel(module=model, device_ids=devices, broadcast_buffers=False)

    @property
    def plain_model(self) -> nn.Module:
        """The segmentor, without the wrapper of several processes."""
        return self.model.module if isinstance(self.model, MMDistributedDataParallel) else self.model

    def load_or_resume(self) -> None:
        """Load what the config asks for, then restore the checkpoint of this run, if there is one."""
        super().load_or_resume()
        if self._resume_state is not None:
            self._resume_state(self)

    def dump_config(self) -> None:
        """Write nothing: the config lies beside the spec."""

    def _log_env(self, env_cfg: dict) -> None:
        """Write nothing: provenance holds versions and device, and collecting more starts compilers."""


def make_runner(
    config: dict[str, Any],
    processes: Processes,
    work: Path,
    hooks: list[Any],
    train_dataloader: torch.utils.data.DataLoader,
    name: str,
    resume_state: Callable[[Runner], None] | None = None,
) -> TrainingRunner:
    """Build a runner that only trains.

    Parameters
    ----------
    config : dict
        Prepared config, see `pne.engine.preparation`.
    processes : Processes
        Device and processes.
    work : Path
        Work directory.
    hooks : list of Hook
        The engine's hooks; the schedule is stepped by mmengine's own.
    train_dataloader : DataLoader
        Data.
    name : str
        Of the run.
    resume_state : callable, optional
        See `TrainingRunner`.
    """
    # mmengine keeps loggers, scopes and visualisers by name for the life of the process.
    name = f"{name}-{next(_serial)}"
    return TrainingRunner(
        processes=processes,
        resume_state=resume_state,
        model=config["model"],
        work_dir=str(work),
        train_dataloader=train_dataloader,
        train_cfg=config["train_cfg"],
        optim_wrapper=config["optim_wrapper"],
        param_scheduler=config.get("param_scheduler"),
        default_hooks={
            "runtime_info": None,
            "timer": None,
            "sampler_seed": None,
            "logger": None,
            "param_scheduler": {"type": "ParamSchedulerHook"},
            "checkpoint": None,
        },
        custom_hooks=[*hooks, *config.get("custom_hooks", [])],
        load_from=config.get("load_from"),
        launcher="none" if processes.world_size == 1 else "pytorch",
        env_cfg=config["env_cfg"],
        visualizer={"type": "SegLocalVisualizer", "vis_backends": [], "name": name},
        default_scope="mmseg",
        randomness={"seed": config["seed"]},
        experiment_name=name,
    )
