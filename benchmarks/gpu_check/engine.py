"""A training that is stopped and goes on: the restored state is that of the checkpoint, and so are the losses.

Twice whole, once stopped by SIGTERM and resumed, all with ``pne.train`` and the same seed. On a GPU two trainings
differ by the order of additions: the resumed one may differ from a whole one by three times as much.
"""

import copy
import json
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest import mock

import torch

from benchmarks.gpu_check.report import Report
from benchmarks.gpu_check.runs import street_images, street_spec
from pne.engine.command import EXIT_STATUS
from pne.engine.hooks import CheckpointHook
from pne.engine.publication import HISTORY
from pne.engine.state import TrainingState, random_state
from pne.results import TrainResult, read_result
from pne.train import main as train

SPREADS = 3


def state_of(training: TrainingState, runner: Any) -> dict[str, Any]:
    """Copy all that an iteration depends on."""
    return copy.deepcopy(
        {
            "iteration": runner.iter,
            "model": runner.plain_model.state_dict(),
            "optimizer": runner.optim_wrapper.state_dict(),
            "schedulers": [scheduler.state_dict() for scheduler in runner.param_schedulers],
            "random": random_state(training.processes.device),
            "record": training.record.state_dict(),
        }
    )


def differences(one: Any, other: Any, place: str = "") -> list[str]:
    """Places where two nested states differ, in a bit or in form."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return [] if one.dtype == other.dtype and torch.equal(one.cpu(), other.cpu()) else [place]
    if isinstance(one, Mapping) and isinstance(other, Mapping) and one.keys() == other.keys():
        return [found for key in one for found in differences(one[key], other[key], f"{place}/{key}")]
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [found for index, pair in pairs for found in differences(*pair, f"{place}/{index}")]
    return [] if type(one) is type(other) and one == other else [place]


@contextmanager
def watched(stop_at: int | None = None) -> Iterator[dict[str, Any]]:
    """Keep the state at each save and after each start inside the block, and send SIGTERM at an iteration."""
    kept: dict[str, Any] = {}
    save, start, boundary = TrainingState.save, TrainingState.start, CheckpointHook.at_boundary

    def saving(training: TrainingState, runner: Any) -> None:
        kept["saved"] = state_of(training, runner)
        save(training, runner)

    def starting(training: TrainingState, runner: Any, content: Any) -> None:
        start(training, runner, content)
        kept["started"] = state_of(training, runner)

    def at_boundary(hook: CheckpointHook, runner: Any) -> None:
        if runner.iter == stop_at:
            os.kill(os.getpid(), signal.SIGTERM)
        boundary(hook, runner)

    with (
        mock.patch.object(TrainingState, "save", saving),
        mock.patch.object(TrainingState, "start", starting),
        mock.patch.object(CheckpointHook, "at_boundary", at_boundary),
    ):
        yield kept


def losses(spec: str, after: int) -> list[float]:
    """Total loss of every iteration after the given one."""
    lines = map(json.loads, (Path(spec).parent / HISTORY).read_text().splitlines())
    return [line["loss"] for line in lines if line["iter"] > after]


def run(report: Report) -> None:
    """Train, stop, resume, compare."""
    stop, iterations = (2, 4) if report.tiny else (20, 40)
    street_images(report)
    names = ("whole", "whole_again", "resumed")
    settings = {"iterations": iterations, "log_interval": 1, "checkpoint_interval": 10 * iterations}
    specs = {name: street_spec(report, name, **settings) for name in names}
    report.check("training ends", train([specs["whole"]]), equal=0)
    result = read_result(Path(specs["whole"]).parent / "train.json", TrainResult)
    report.tell("training", time_s=result.time_s, data_s=result.data_s, peak_memory_mib=result.peak_memory_mib)
    with watched(stop) as before:
        report.check("exit status after SIGTERM", train([specs["resumed"]]), equal=EXIT_STATUS[signal.SIGTERM])
    report.check("second training ends", train([specs["whole_again"]]), equal=0)  # moves every random stream
    with watched() as after:
        report.check("resumed training ends", train([specs["resumed"]]), equal=0)
    changed = differences(before["saved"], after["started"])
    report.check("restored state: differences", len(changed), equal=0, places=changed[:10], iteration=stop)
    one, two, resumed = (losses(specs[name], stop) for name in names)
    spread, off = (fmean(abs(a - b) for a, b in zip(one, other, strict=True)) for other in (two, resumed))
    about = {"spread": spread, "spreads_allowed": SPREADS, "last_losses": [one[-1], two[-1], resumed[-1]]}
    report.check("mean difference of losses after the resume", off, at_most=SPREADS * spread, **about)
