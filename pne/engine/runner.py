"""mmengine's runner, its loop and its config as a run needs them here.

The runner has no side effects: own device, no dumps of environment and config, no visualiser files. An iteration of the
loop is one optimiser step, cut into micro-batches where memory asks for it. `prepare` makes, of the config of a run,
what the runner is built from: batch per process, precision, number of workers.
"""

import copy
import itertools
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mmseg.datasets
import mmseg.engine  # noqa: F401 -- importing registers
import torch
from mmengine.config import Config, ConfigDict
from mmengine.logging import MMLogger
from mmengine.model import MMDistributedDataParallel, revert_sync_batchnorm
from mmengine.optim import OptimWrapper
from mmengine.registry import LOOPS, OPTIM_WRAPPERS, DefaultScope
from mmengine.runner import IterBasedTrainLoop, Runner
from mmengine.utils import import_modules_from_strings
from mmseg.models import SegDataPreProcessor
from torch import Tensor, nn

import pne.backbones
import pne.datasets.registered
import pne.heads  # noqa: F401 -- importing registers
from pne.engine.command import Interrupted
from pne.engine.processes import Processes
from pne.errors import UserError
from pne.spec import Run
from pne.spec.identity import NUMERICS
from pne.spec.stock import without_pretrained

_serial = itertools.count()


class TrainingRunner(Runner):
    """Train as mmengine does, on the device and among the processes that are given, and nothing but train.

    Parameters
    ----------
    config : mapping
        As `prepare` returned it.
    processes : Processes
        Device, rank and number of processes.
    work : Path
        Work directory.
    hooks : list of Hook
        The engine's; the schedule is stepped by mmengine's own.
    train_dataloader : DataLoader
    name : str
        Of the run.
    resume_state : callable
        Called with the runner once model, optimiser and schedules exist and are initialised; restores a checkpoint.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        processes: Processes,
        work: Path,
        hooks: list[Any],
        train_dataloader: torch.utils.data.DataLoader,
        name: str,
        resume_state: Callable[[Runner], None],
    ) -> None:
        self.processes = processes
        self._channels_last = config["numerics"]["channels_last"]
        set_precision(config["numerics"])
        self._resume_state = resume_state
        name = f"{name}-{next(_serial)}"  # mmengine keeps loggers, scopes and visualisers by name as long as it lives
        super().__init__(
            model=config["model"],
            work_dir=str(work),
            train_dataloader=train_dataloader,
            train_cfg=config["train_cfg"],
            optim_wrapper=config["optim_wrapper"],
            param_scheduler=config.get("param_scheduler"),
            default_hooks={
                **dict.fromkeys(("runtime_info", "timer", "sampler_seed", "logger", "checkpoint")),
                "param_scheduler": {"type": "ParamSchedulerHook"},
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
        shutil.rmtree(self.log_dir, ignore_errors=True)

    def build_logger(self, log_level: int | str = "WARNING", **settings: Any) -> MMLogger:
        """Log warnings to the console alone."""
        name = self._experiment_name
        logger = MMLogger.get_instance(name=name, logger_name="mmengine", log_level=log_level)
        logger.setLevel(logging.WARNING)
        return logger

    def wrap_model(self, model_wrapper_cfg: dict | None, model: nn.Module) -> nn.Module:
        """Draw the weights on the CPU, so that they are the same for every device, and move the model to its own.

        With several processes, synchronise batch norm (CUDA) and gradients.
        """
        model.init_weights()
        preprocessor = getattr(model, "data_preprocessor", None)
        if type(preprocessor) is SegDataPreProcessor:
            PreProcessor.take_over(preprocessor)
        device = self.processes.device
        model = model.to(device, memory_format=torch.channels_last if self._channels_last else torch.preserve_format)
        if self.processes.world_size == 1:
            return revert_sync_batchnorm(model)
        # Synchronised batch norm exists on CUDA only.
        model = (nn.SyncBatchNorm.convert_sync_batchnorm if device.type == "cuda" else revert_sync_batchnorm)(model)
        devices = [device.index] if device.type == "cuda" else None
        return MMDistributedDataParallel(module=model, device_ids=devices, broadcast_buffers=False)

    @property
    def plain_model(self) -> nn.Module:
        """The segmentor, without the wrapper of several processes."""
        return self.model.module if isinstance(self.model, MMDistributedDataParallel) else self.model

    def _init_model_weights(self) -> None:
        """Draw nothing: `wrap_model` has done it."""

    def load_or_resume(self) -> None:
        """Load what the config asks for, then restore the checkpoint of this run, if there is one."""
        super().load_or_resume()
        self._resume_state(self)

    def dump_config(self) -> None:
        """Write nothing: the config lies beside the spec."""

    def _log_env(self, env_cfg: dict) -> None:
        """Write nothing: provenance holds versions and device, and collecting more starts compilers."""


class PreProcessor(SegDataPreProcessor):
    """Prepare batches as `SegDataPreProcessor`, bit by bit, without waiting for the device once.

    Colours are reversed by a flip in place of an index, since a list of indices waits when it is copied to the device.
    """

    @classmethod
    def take_over(cls, preprocessor: SegDataPreProcessor) -> None:
        """Let a preprocessor that is there work in this way."""
        preprocessor.__class__ = cls
        preprocessor._reverses, preprocessor._channel_conversion = preprocessor._channel_conversion, False
        preprocessor._non_blocking = True

    def cast_data(self, data: Any) -> Any:
        """Copy data to the device, images with their colours in the order of the network's."""
        data = super().cast_data(data)
        if isinstance(data, dict) and self._reverses and data["inputs"][0].size(0) == 3:
            data["inputs"] = [image.flip(0) for image in data["inputs"]]
        return data


@LOOPS.register_module()
class ResumableTrainLoop(IterBasedTrainLoop):
    """Iterate from wherever the runner was resumed, and give hooks a moment between two iterations.

    Besides mmengine's stages, hooks may have ``before_fetch(runner)``, called before the data of an iteration are
    waited for, ``gave_up(runner)``, called when a signal has ended that wait, and ``at_boundary(runner)``, called when
    an iteration is complete in every respect: ``runner.iter`` counts it, and schedules have stepped. In the last two
    the state can be saved.

    Parameters
    ----------
    parts : int
        Number of micro-batches of one iteration.
    **settings
        Those of mmengine's loop.
    """

    def __init__(self, *args: Any, parts: int = 1, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.parts = parts

    def run(self) -> None:
        """Train to the last iteration."""
        runner = self.runner
        runner.optim_wrapper.initialize_count_status(
            runner.model, self._iter * self.parts, self._max_iters * self.parts
        )
        runner.call_hook("before_train")
        runner.call_hook("before_train_epoch")
        self.dataloader_iterator.skip_iter(self._iter)
        while self._iter < self._max_iters:
            if not runner.model.training:  # going through all its modules takes milliseconds
                runner.model.train()
            runner.call_hook("before_fetch")
            try:
                batch = next(self.dataloader_iterator)
            except Interrupted:
                runner.call_hook("gave_up")
                raise
            self.run_iter(batch)
            runner.call_hook("at_boundary")
        runner.call_hook("after_train_epoch")
        runner.call_hook("after_train")

    def run_iter(self, data_batch: dict[str, list[Any]]) -> None:
        """Make one optimiser step from one batch."""
        runner = self.runner
        runner.call_hook("before_train_iter", batch_idx=self._iter, data_batch=data_batch)
        outputs = [runner.model.train_step(part, runner.optim_wrapper) for part in split(data_batch, self.parts)]
        runner.call_hook(
            "after_train_iter", batch_idx=self._iter, data_batch=data_batch, outputs=mean_of_scalars(outputs)
        )
        self._iter += 1


def split(batch: dict[str, list[Any]], parts: int) -> list[dict[str, list[Any]]]:
    """Cut a batch (lists of equal length by key) into equal parts."""
    if parts == 1:
        return [batch]
    size = len(next(iter(batch.values()))) // parts
    return [{key: values[i * size : (i + 1) * size] for key, values in batch.items()} for i in range(parts)]


def mean_of_scalars(outputs: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Average the scalars of micro-batches, detached, on their device."""
    if len(outputs) == 1:
        return {name: value.detach() for name, value in outputs[0].items()}
    return {name: torch.stack([output[name].detach() for output in outputs]).mean(0) for name in outputs[0]}


@OPTIM_WRAPPERS.register_module()
class Bfloat16OptimWrapper(OptimWrapper):
    """Run the forward pass under bfloat16 autocast, on CUDA or CPU; parameters and their gradients stay float32.

    The range of bfloat16 is that of float32, so that nothing needs scaling. mmengine's ``AmpOptimWrapper`` needs CUDA
    and reads a scaler back in every iteration; this one does neither.
    """

    @contextmanager
    def optim_context(self, model: nn.Module) -> Iterator[None]:
        """Enter autocast, and leave gradients unsynchronised until the update."""
        device = next(model.parameters()).device
        with super().optim_context(model), torch.autocast(device.type, torch.bfloat16):
            yield


def register(config: Mapping[str, Any]) -> None:
    """Make mmseg the scope in which names of a config are looked up, and do the imports that the config asks for."""
    current = DefaultScope.get_current_instance()
    if current is None or current.scope_name != "mmseg":
        DefaultScope.get_instance("pne_mmseg", scope_name="mmseg")
    if wanted := config.get("custom_imports"):
        import_modules_from_strings(**wanted)


def set_precision(numerics: Mapping[str, bool]) -> None:
    """Let CUDA round products and convolutions to TF32, or not, as a run's config says."""
    torch.set_float32_matmul_precision("high" if numerics["tf32_products"] else "highest")
    torch.backends.cudnn.allow_tf32 = numerics["tf32_convolutions"]


def per_process_batch(batch_size: int, world_size: int) -> int:
    """Images per process and iteration.

    Raises
    ------
    UserError
        If the global batch cannot be split evenly.
    """
    return _divided(f"batch_size: {batch_size} images cannot be split evenly over", batch_size, world_size, "processes")


def micro_batches(per_process: int, micro_batch: int | None) -> int:
    """Forward passes per iteration and process, for at most ``micro_batch`` images each (None: all at once).

    A `UserError` if the images of a process cannot be split evenly.
    """
    size = min(micro_batch or per_process, per_process)
    return _divided(f"micro_batch: {per_process} images of a process cannot be split into parts of", per_process, size)


def _divided(problem: str, total: int, by: int, what: str = "images") -> int:
    if total % by:
        fitting = ", ".join(str(number) for number in range(1, total + 1) if total % number == 0)
        raise UserError(f"{problem} {by} {what}; use one of {fitting}")
    return total // by


def prepare(
    run: Run, config: Mapping[str, Any], *, per_process: int | None = None, parts: int = 1, workers: int | None = None
) -> ConfigDict:
    """Adapt a run's config to the machine, after the imports that it asks for; what was hashed keeps its meaning.

    Parameters
    ----------
    run : Run
    config : Config or mapping
        The run's config.
    per_process : int, optional
        Images per process and iteration. Default: the whole batch.
    parts : int
        Micro-batches per iteration.
    workers : int, optional
        Data-loading processes. Default: the run's.

    Returns
    -------
    ConfigDict
        A copy with a resumable loop, the right optimiser wrapper and data loaders.

    Raises
    ------
    UserError
        If the config trains another number of iterations than the spec says.
    """
    register(config)
    prepared = copy.deepcopy(config.to_dict() if isinstance(config, Config) else dict(config))
    declared = prepared["train_cfg"].get("max_iters")
    if declared != run.iterations:
        raise UserError(f"config: train_cfg.max_iters is {declared}, but the spec says {run.iterations} iterations")
    prepared["seed"] = run.seed
    prepared["train_cfg"] = {"type": ResumableTrainLoop, "max_iters": run.iterations, "parts": parts}
    prepared["optim_wrapper"] = _optim_wrapper(prepared["optim_wrapper"], run.precision, parts)
    prepared["train_dataloader"]["batch_size"] = per_process or run.batch_size
    for loader in ("train_dataloader", "test_dataloader"):
        prepared[loader].update(
            num_workers=run.runtime.workers if workers is None else workers, persistent_workers=False
        )
    prepared["numerics"] = NUMERICS | (prepared.get("numerics") or {})
    prepared["env_cfg"] = {key: value for key, value in (prepared.get("env_cfg") or {}).items() if key != "dist_cfg"}
    prepared["env_cfg"]["cudnn_benchmark"] = prepared["numerics"]["cudnn_benchmark"]
    for contrast in (head.get("contrast") or {} for head in heads_of(prepared["model"])):
        if contrast.get("start"):
            contrast["start"] *= parts  # the branch counts forward passes
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


def plain_model(model: Mapping[str, Any]) -> ConfigDict:
    """Return the config of the same model for inference: no contrast branch, no initial weights to fetch."""
    plain = ConfigDict(model).to_dict()
    for head in heads_of(plain):
        if head.get("type") == "ContrastHead":
            head["type"] = head.pop("base")
            head.pop("contrast", None)
    return ConfigDict(without_pretrained(plain))
