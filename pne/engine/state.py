"""The whole state of a training between two iterations, random streams included: kept, restored, begun anew."""

import random
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pne.console import say, utc_now, warn
from pne.engine import checkpoint
from pne.engine.processes import Processes
from pne.engine.provenance import Code
from pne.engine.record import Record, peak_memory_mib
from pne.engine.runner import TrainingRunner
from pne.engine.weights import BRANCH
from pne.errors import UserError
from pne.spec import Run


@dataclass
class TrainingState:
    """Save and restore one training.

    Attributes
    ----------
    run : Run
        What is trained.
    work : Path
        Folder of the checkpoints.
    processes : Processes
        Each has its own random states and loss memory, and writes them itself.
    record : Record
        Travels with the checkpoint.
    code : Code
        What trains now.
    earlier_code : list of str
        Hashes of other code that trained before a resume.
    resumes : int
        How often the training went on from a checkpoint.
    started : str
        When it began first.
    peak_memory_mib : float
        Most memory of earlier processes of this training.
    attempt : str
        Marks the files that these processes write: those of others are no part of their checkpoints.
    """

    run: Run
    work: Path
    processes: Processes
    record: Record
    code: Code
    earlier_code: list[str] = field(default_factory=list)
    resumes: int = 0
    started: str = field(default_factory=utc_now)
    peak_memory_mib: float = 0.0
    attempt: str = ""

    def __post_init__(self) -> None:
        self.attempt = self.processes.broadcast(uuid.uuid4().hex)

    def save(self, runner: TrainingRunner) -> None:
        """Write this process's file of the checkpoint of this iteration; keep the two newest checkpoints.

        The memory of a loss may be as large as the model: no process sends its own to another.
        """
        processes = self.processes
        memory = peak_memory_mib(self.processes.device)[0]
        self.peak_memory_mib = max(self.peak_memory_mib, memory)
        model = runner.plain_model
        own = {"random": random_state(processes.device)}
        if not processes.is_first:
            own["branch"] = _branch_buffers(model)
        content = {"attempt": self.attempt, "processes": [own]}
        if processes.is_first:
            content |= self._common(runner)
        checkpoint.save(checkpoint.path_of(self.work, runner.iter, processes.rank), content)
        processes.wait()  # until all have written, the checkpoint before is the newest
        if processes.is_first:
            checkpoint.prune(self.work)

    def _common(self, runner: TrainingRunner) -> dict[str, Any]:
        return {
            "world_size": self.processes.world_size,
            "run": self.run.run,
            "config_sha256": self.run.config_sha256,
            "code_sha256": self.code.sha256,
            "earlier_code": self.earlier_code,
            "iteration": runner.iter,
            "model": runner.plain_model.state_dict(),
            "optimizer": runner.optim_wrapper.state_dict(),
            "schedulers": [scheduler.state_dict() for scheduler in runner.param_schedulers or []],
            "record": self.record.state_dict(),
            "resumes": self.resumes,
            "started": self.started,
            "peak_memory_mib": self.peak_memory_mib,
        }

    def newest(self) -> dict[str, Any] | None:
        """Read the newest checkpoint of this run that is whole for every process; one that is not is named.

        Raises
        ------
        UserError
            If it belongs to another run.
        """
        for iteration in self.processes.broadcast(checkpoint.iterations(self.work)):
            content = self._read(iteration)
            if not self.processes.largest(content is None):
                break
        else:
            return None
        for key, expected in (("run", self.run.run), ("config_sha256", self.run.config_sha256)):
            if content[key] != expected:
                raise UserError(
                    f"{self.work}: {key} {content[key]!r} in the checkpoint, expected {expected!r}; empty the folder"
                )
        return content

    def _read(self, iteration: int) -> dict[str, Any] | None:
        rank = self.processes.rank
        try:
            content = checkpoint.load(checkpoint.path_of(self.work, iteration))
            if rank and content.get("world_size") == self.processes.world_size:
                own = checkpoint.load(path := checkpoint.path_of(self.work, iteration, rank))
                if own["attempt"] != content["attempt"]:
                    raise UserError(f"{path}: not of the checkpoint of the first process, which was written later")
                content["processes"] = own["processes"]
            return content
        except UserError as error:
            warn(f"{error}; using the checkpoint before it")
            return None

    def start(self, runner: TrainingRunner, content: dict[str, Any] | None) -> None:
        """Bring an initialised runner to a checkpoint's state, or to that of a fresh start (``content`` None)."""
        processes = self.processes
        if content is None:
            seed_streams(self.run.seed, processes.rank)
            return
        iteration = content["iteration"]
        model = runner.plain_model
        model.load_state_dict(_with_passes(content["model"], iteration * runner.train_loop.parts))
        runner.optim_wrapper.load_state_dict(content["optimizer"])
        for scheduler, state in zip(runner.param_schedulers or [], content["schedulers"], strict=True):
            scheduler.load_state_dict(state)
        runner.train_loop._iter = iteration
        self.record.load_state_dict(content["record"])
        self.resumes = content["resumes"] + 1
        self.started, self.peak_memory_mib = content["started"], content["peak_memory_mib"]
        (own, *_), wrote = content["processes"], content.get("world_size", 1)
        if wrote == processes.world_size:
            if processes.rank:
                model.load_state_dict(own["branch"], strict=False)
            restore_random_state(own["random"], processes.device)
        else:
            if processes.is_first:
                warn(f"saved by {wrote} processes, resumed by {processes.world_size}: random streams start anew")
            seed_streams(self.run.seed + iteration, processes.rank)
        written_by = [*content.get("earlier_code", ()), content["code_sha256"]]
        self.earlier_code = [code for code in dict.fromkeys(written_by) if code != self.code.sha256]
        if processes.is_first:
            if not is_from(self.code, content):
                warn("the training code has changed since the checkpoint was written; the result will say so")
            say(f"resumed at iteration {iteration}, resume {self.resumes}")


def _branch_buffers(model: nn.Module) -> dict[str, Tensor]:
    """Buffers of the contrast branch, such as a memory: each process has its own."""
    kept = set(model.state_dict())
    return {
        name: value.detach().cpu()
        for name, value in model.named_buffers()
        if name in kept and f"{BRANCH}loss." in f".{name}"
    }


def _with_passes(state: dict[str, Tensor], passes: int) -> dict[str, Tensor]:
    """Let the contrast branch count the forward passes as if an iteration always had as many as it has now."""
    counters = [name for name in state if f".{name}".endswith(f"{BRANCH}calls")]
    return {**state, **{name: torch.full_like(state[name], passes) for name in counters}}


def is_from(code: Code, content: dict[str, Any]) -> bool:
    """Whether nothing but the given training code has worked on a checkpoint."""
    return {content["code_sha256"], *content.get("earlier_code", ())} == {code.sha256}


def seed_streams(seed: int, rank: int) -> None:
    """Start every global random stream of this process anew.

    Called between building the model and the first iteration, so that the streams of training do not depend on how many
    numbers the initialisation drew. Processes differ by ``rank``.
    """
    mixed = int(np.random.SeedSequence([seed, rank]).generate_state(1)[0])
    random.seed(mixed)
    np.random.seed(mixed)  # noqa: NPY002 -- the transforms of mmcv and mmseg draw from the global stream
    torch.manual_seed(mixed)


def random_state(device: torch.device) -> dict[str, Any]:
    """Return the states of all global random streams as tensors and plain numbers (safe to load with weights only)."""
    kind, words, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state()  # noqa: NPY002
    state = {
        "python": {"version": kind, "words": torch.tensor(words, dtype=torch.int64), "gauss": gauss},
        "numpy": {
            "name": str(name),
            "keys": torch.from_numpy(np.asarray(keys).astype(np.int64)),
            "position": int(position),
            "has_gauss": int(has_gauss),
            "cached": float(cached),
        },
        "torch": torch.get_rng_state(),
    }
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def restore_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Restore what `random_state` returned; a CUDA state is left out where the run goes on without CUDA."""
    python, numpy_state = state["python"], state["numpy"]
    random.setstate((python["version"], tuple(python["words"].tolist()), python["gauss"]))
    np.random.set_state(  # noqa: NPY002
        (
            numpy_state["name"],
            numpy_state["keys"].numpy().astype(np.uint32),
            numpy_state["position"],
            numpy_state["has_gauss"],
            numpy_state["cached"],
        )
    )
    torch.set_rng_state(state["torch"].cpu())
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"].cpu(), device)


@contextmanager
def deterministic_on_cpu(device: torch.device) -> Iterator[None]:
    """Use deterministic algorithms inside the block where that costs nothing: on the CPU.

    Operations without such an algorithm warn and go on. On CUDA nothing changes, since speed would suffer.
    """
    before = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    fill = torch.utils.deterministic.fill_uninitialized_memory
    if device.type == "cpu":
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warn_only)
        torch.utils.deterministic.fill_uninitialized_memory = fill
