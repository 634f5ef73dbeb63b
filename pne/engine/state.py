"""The whole state of a training between two iterations: what a checkpoint holds, and how it is restored."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pne.console import say, utc_now, warn
from pne.engine import checkpoint
from pne.engine.checkpoint import random_state, restore_random_state, seed_streams
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
        Each has its own random states and loss memory; the first one writes.
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

    def save(self, runner: TrainingRunner) -> None:
        """Write the checkpoint of this iteration; keep the two newest."""
        memory = peak_memory_mib(self.processes.device)[0]
        self.peak_memory_mib = max(self.peak_memory_mib, memory)
        model = runner.plain_model
        own = {"random": random_state(self.processes.device), "branch": _branch_buffers(model)}
        each = self.processes.gather(own)
        if not self.processes.is_first:
            return
        content = {
            "run": self.run.run,
            "config_sha256": self.run.config_sha256,
            "code_sha256": self.code.sha256,
            "earlier_code": self.earlier_code,
            "iteration": runner.iter,
            "model": model.state_dict(),
            "optimizer": runner.optim_wrapper.state_dict(),
            "schedulers": [scheduler.state_dict() for scheduler in runner.param_schedulers or []],
            "processes": each,
            "record": self.record.state_dict(),
            "resumes": self.resumes,
            "started": self.started,
            "peak_memory_mib": self.peak_memory_mib,
        }
        checkpoint.save(checkpoint.path_of(self.work, runner.iter), content)
        checkpoint.prune(self.work)

    def newest(self) -> dict[str, Any] | None:
        """Read the newest whole checkpoint of this run, the same one in every process.

        Raises
        ------
        UserError
            If it belongs to another run.
        """
        content = checkpoint.load_newest(self.work) if self.processes.is_first else None
        iteration = self.processes.broadcast(content["iteration"] if content else None)
        if iteration is None:
            return None
        if content is None:
            content = checkpoint.load(checkpoint.path_of(self.work, iteration))
        for key, expected in (("run", self.run.run), ("config_sha256", self.run.config_sha256)):
            if content[key] != expected:
                raise UserError(
                    f"{self.work}: {key} {content[key]!r} in the checkpoint, expected {expected!r}; empty the folder"
                )
        return content

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
        each = content["processes"]
        if len(each) == processes.world_size:
            own = each[processes.rank]
            if processes.rank:
                model.load_state_dict(own["branch"], strict=False)
            restore_random_state(own["random"], processes.device)
        else:
            if processes.is_first:
                warn(f"saved by {len(each)} processes, resumed by {processes.world_size}: random streams start anew")
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
