"""The engine's hooks: record scalars, write progress, checkpoints, and stop when asked to."""

import json
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from mmengine.hooks import Hook
from mmengine.runner import Runner

from pne.console import duration, say, utc_now
from pne.engine.command import DivergenceError, Interrupted, RunFailure, StopRequest
from pne.engine.record import History, Record, StepClock
from pne.errors import UserError
from pne.files import write_text

ATTEMPT = "PNE_ATTEMPT"
"""Where a scheduler that repeats what failed says the number of the attempt, from 1."""


class Progress:
    """``progress.json``: what a training, or an evaluation, is doing, for those who watch; written atomically.

    As a context it notes how its block ends by an error; the block itself says "finished". What failed in a way that it
    would fail in again is not repeated by a scheduler's second attempt, and its error stays.

    Parameters
    ----------
    path : Path
        The file.
    run : str
        Run id.
    iterations : int
        Iterations of the whole training.
    enabled : bool
        False in all but the first of several processes: nothing is written.

    Notes
    -----
    Keys: ``run``, ``state`` (``running``, ``evaluating``, ``interrupted``, ``failed``, ``finished``), ``iteration``,
    ``iterations``, ``time_s`` (seconds per iteration, lately; null at first), ``eta_s`` (seconds to the last one),
    ``error`` (one line; null unless failed; in ``iteration`` or after it), ``lasting`` (whether it would fail again),
    ``updated`` (ISO 8601, UTC), ``host``, ``pid``.
    """

    def __init__(self, path: Path, run: str, iterations: int, enabled: bool = True) -> None:
        self.path = path
        self.enabled = enabled
        self.content: dict[str, Any] = {
            "run": run,
            "state": "running",
            "iteration": 0,
            "iterations": iterations,
            "time_s": None,
            "eta_s": None,
            "error": None,
            "lasting": False,
        }

    def update(self, state: str = "running", **changes: Any) -> None:
        """Write the file with a new state and changed values."""
        self.content.update(state=state, **changes)
        if self.content["time_s"] is not None:
            self.content["eta_s"] = self.content["time_s"] * (self.content["iterations"] - self.content["iteration"])
        if self.enabled:
            about = {"updated": utc_now(), "host": socket.gethostname(), "pid": os.getpid()}
            write_text(self.path, json.dumps(self.content | about, indent=1) + "\n")

    def __enter__(self) -> "Progress":
        if int(os.environ.get(ATTEMPT, 1)) > 1 and self.path.exists():
            before = json.loads(self.path.read_text(encoding="utf-8"))
            if before["state"] == "failed" and before.get("lasting"):
                raise RunFailure(f"{before['error']} (the first attempt's; another one does not mend it)")
        self.update()  # an earlier failure is not this attempt's
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType) -> None:
        if isinstance(error, Interrupted):
            self.update("interrupted")
        elif error is not None:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Note a failure by its first line; a full disk does not hide the failure itself."""
        where = {"iteration": error.iteration} if isinstance(error, DivergenceError) else {}
        text = error.what if isinstance(error, DivergenceError) else str(error) or type(error).__name__
        with suppress(UserError):
            lasting = isinstance(error, RunFailure | UserError)
            self.update("failed", error=text.strip().splitlines()[0], lasting=lasting, **where)


def evaluation_path(work: Path, evaluation: str) -> Path:
    """File of the progress of an evaluation that is not part of a training."""
    return work / f"{evaluation}.progress.json"


class RecordHook(Hook):
    """Note scalars and time of every iteration; at log intervals read them, write history, progress and one line."""

    priority = "VERY_HIGH"

    def __init__(
        self, record: Record, history: History, progress: Progress, clock: StepClock, log_interval: int
    ) -> None:
        self.record, self.history, self.progress, self.clock = record, history, progress, clock
        self.log_interval = log_interval
        self.rate = 0.0
        self._read = 0

    def before_train(self, runner: Runner) -> None:
        """Let progress and history stand where the run goes on."""
        self.history.rewind(runner.iter)
        self.progress.update(iteration=runner.iter)

    def before_fetch(self, runner: Runner) -> None:
        """Start the clock."""
        self.clock.start()

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        """Note that the data have come."""
        self.clock.fetched()

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        """Stop the clock and keep the scalars and the learning rate."""
        self.clock.stop()
        self.record.note(runner.iter, outputs)
        self.rate = runner.optim_wrapper.optimizer.param_groups[0]["lr"]  # before the schedule steps

    def read(self) -> None:
        """Fetch what was noted; raises if a loss is not finite."""
        times, waits = self.clock.take()
        self.record.read(times, waits, self._read)
        self._read += len(times)

    def at_boundary(self, runner: Runner) -> None:
        """Read, write and tell at log intervals and in the end."""
        done, total = runner.iter, runner.max_iters
        if done % self.log_interval and done != total:
            return
        self.read()
        rate = self.rate
        means = self.record.take_window()
        self.history.append({"iter": done, "lr": rate, **means})
        self.progress.update(iteration=done, time_s=means["time_s"])
        losses = ", ".join(f"{name} {value:.4g}" for name, value in means.items() if "loss" in name)
        if self.progress.enabled:
            left = duration(means["time_s"] * (total - done))
            say(f"iteration {done}/{total}, {means['time_s']:.3g} s/iter, {left} left, lr {rate:.3g}, {losses}")


class CheckpointHook(Hook):
    """Save at intervals, at the last iteration, and when a signal asks the run to stop.

    Parameters
    ----------
    save : callable
        Writes the checkpoint of the runner it is given.
    interval : int
        Iterations between checkpoints.
    request : StopRequest
        Signals to this process; a signal to any process stops all at the same boundary, of several processes at the
        one after, so that none waits for the others in every iteration.
    recorder : RecordHook
        Is told to read first: no checkpoint is written after a loss that is not finite.
    """

    priority = "LOWEST"

    def __init__(
        self, save: Callable[[Runner], None], interval: int, request: StopRequest, recorder: RecordHook
    ) -> None:
        self.save, self.interval, self.request, self.recorder = save, interval, request, recorder
        self._asked: Callable[[], int] = lambda: 0

    def before_fetch(self, runner: Runner) -> None:
        """A signal ends a wait for data that never come; among several processes, the others may have gone on."""
        self.request.waits(runner.processes.world_size == 1)

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        """The data have come."""
        self.request.waits(False)

    def gave_up(self, runner: Runner) -> None:
        """Save what was trained before."""
        if runner.iter:
            self._save(runner)

    def at_boundary(self, runner: Runner) -> None:
        """Save if it is time to."""
        before, self._asked = self._asked, runner.processes.begin_largest(self.request.signum)
        stop = (before if runner.processes.world_size > 1 else self._asked)()
        done, total = runner.iter, runner.max_iters
        if not stop and done % self.interval and done != total:
            return
        self._save(runner)
        if stop and done != total:
            raise Interrupted(stop)

    def _save(self, runner: Runner) -> None:
        self.recorder.read()
        check_weights(runner)
        self.save(runner)


def check_weights(runner: Runner) -> None:
    """Refuse weights that are not finite: a checkpoint of them could never be used.

    Raises
    ------
    DivergenceError
        Naming the iteration and the first such parameter.
    """
    parameters = [(name, value) for name, value in runner.model.named_parameters() if value.numel()]
    finite = torch.stack([value.detach().isfinite().all() for _, value in parameters]).tolist()
    broken = [name for (name, _), whole in zip(parameters, finite, strict=True) if not whole]
    if runner.processes.largest(len(broken)):
        first = broken[0] if broken else "one of another process"
        raise DivergenceError(
            runner.iter,
            f"the optimiser step left weights that are not finite (first: {first}); lower the learning rate",
        )
