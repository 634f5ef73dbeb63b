"""The engine's hooks: record scalars, write progress, checkpoints, and stop when asked to."""

from collections.abc import Callable
from typing import Any

import torch
from mmengine.hooks import Hook
from mmengine.runner import Runner

from pne.engine.clock import StepClock
from pne.engine.console import duration, say
from pne.engine.failures import DivergenceError
from pne.engine.interruption import Interrupted, StopRequest
from pne.engine.progress import Progress
from pne.engine.record import History, Record


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

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        """Stop the clock and keep the scalars and the learning rate."""
        self.clock.stop()
        self.record.note(runner.iter, outputs)
        self.rate = runner.optim_wrapper.optimizer.param_groups[0]["lr"]  # before the schedule steps

    def read(self) -> None:
        """Fetch what was noted; raises if a loss is not finite."""
        times = self.clock.take()
        self.record.read(times, self._read)
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
        Signals to this process; a signal to any process stops all at the same boundary.
    recorder : RecordHook
        Is told to read first: no checkpoint is written after a loss that is not finite.
    """

    priority = "LOWEST"

    def __init__(
        self, save: Callable[[Runner], None], interval: int, request: StopRequest, recorder: RecordHook
    ) -> None:
        self.save, self.interval, self.request, self.recorder = save, interval, request, recorder

    def at_boundary(self, runner: Runner) -> None:
        """Save if it is time to."""
        stop = runner.processes.largest(self.request.signum)
        done, total = runner.iter, runner.max_iters
        if not stop and done % self.interval and done != total:
            return
        self.recorder.read()
        check_weights(runner)
        self.save(runner)
        if stop and done != total:
            raise Interrupted(stop)


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
