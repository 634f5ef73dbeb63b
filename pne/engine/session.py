"""Train one run from its spec to its published results."""

import gc
import shutil
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config

from pne.console import say
from pne.datasets.files import is_complete
from pne.datasets.fingerprint import fingerprint
from pne.engine import publication
from pne.engine.command import StopRequest, is_of, told_out_of_memory
from pne.engine.evaluation import evaluate_spec, score_into
from pne.engine.hooks import CheckpointHook, Progress, RecordHook
from pne.engine.loaders import end_workers, train_loader
from pne.engine.locks import held
from pne.engine.processes import Processes
from pne.engine.provenance import describe, running_code
from pne.engine.record import History, Record, StepClock, peak_memory_mib, reset_peak_memory, typical_time
from pne.engine.runner import TrainingRunner, micro_batches, per_process_batch, prepare
from pne.engine.state import TrainingState, deterministic_on_cpu, is_from
from pne.engine.trial import check_buildable
from pne.engine.weights import build_plain, check_initial_weights, inference_parameters, load_final, save_final
from pne.files import sha256
from pne.results import TrainResult, write_result
from pne.spec import Run, read_config, read_spec
from pne.spec.run import CONFIG_FILE


@dataclass(frozen=True)
class Settings:
    """What the command line adds to a spec.

    Attributes
    ----------
    retrain : bool
        Train a finished run again; its results stay until the new ones are complete.
    micro_batch : int or None
        Most images per forward pass and process, instead of the spec's; gradients of an iteration are accumulated.
    """

    retrain: bool = False
    micro_batch: int | None = None


def train_spec(path: Path, settings: Settings, processes: Processes, request: StopRequest) -> None:
    """Train the run of a spec unless it is finished, resuming from its work directory, and evaluate it as it asks for.

    Training is published before any evaluation but the single-scale one begins.

    Parameters
    ----------
    path : Path
        ``spec.yaml`` with ``config.py`` beside it.
    settings : Settings
        From the command line.
    processes : Processes
        This process among those that train together.
    request : StopRequest
        A signal makes the run stop at its next iteration with a checkpoint.

    Raises
    ------
    UserError
        If something the user can mend is in the way.
    DivergenceError
        If the loss is not finite.
    Interrupted
        If a signal came; a checkpoint is written.
    """
    run, config = read_spec(path), read_config(path)
    is_of(run, path)
    trained = publication.is_evaluated(run, "single_scale") or publication.lacks_score_alone(run)
    if not processes.broadcast(trained and not settings.retrain):
        with held(run.work_directory) if processes.is_first else nullcontext():
            processes.wait()
            Session(run, config, settings, processes, request).carry_out()
    # A run that is trained anew is whole again now: were an evaluation to fail, it would be trained once more.
    names = () if settings.retrain else dict.fromkeys(["single_scale", *run.evaluations])
    for name in processes.broadcast([name for name in names if not publication.is_evaluated(run, name)]):
        evaluate_spec(path, name, processes, request)


class Session:
    """One training, from the data check to the published results."""

    def __init__(
        self, run: Run, config: Config, settings: Settings, processes: Processes, request: StopRequest
    ) -> None:
        self.run, self.settings, self.processes, self.request = run, settings, processes, request
        self.code = running_code(run)
        self.work = run.work_directory / "retrain" if settings.retrain else run.work_directory
        self.stage = publication.staging(self.work)
        self.per_process = per_process_batch(run.batch_size, processes.world_size)
        self.parts = micro_batches(self.per_process, settings.micro_batch or run.runtime.micro_batch)
        self.config = prepare(run, config, per_process=self.per_process, parts=self.parts)
        self.progress = Progress(self.work / "progress.json", run.run, run.iterations, enabled=processes.is_first)

    def carry_out(self) -> None:
        """Train, evaluate, publish; progress says how it ends."""
        size = self.per_process // self.parts
        fewer = next((n for n in range(size // 2, 1, -1) if self.per_process % n == 0), None)  # one suits no batch norm
        less = "" if fewer is None else f"fewer (--micro-batch {fewer}, or micro_batch={fewer} in --config), "
        advice = f"{less}more GPUs, or GPUs with more memory"
        with self.progress, told_out_of_memory(f"with {size} images per forward pass", advice):
            if not self.processes.broadcast(publication.is_complete(self.stage)):
                self.work_until_complete()
            if self.processes.is_first:
                publication.publish(self.run, self.stage)
                publication.discard_work(self.work)
                self.progress.update("finished", iteration=self.run.iterations)
                if self.settings.retrain:
                    publication.move(self.progress.path, self.run.work_directory / "progress.json")
                    shutil.rmtree(self.work, ignore_errors=True)
            self.processes.wait()

    def work_until_complete(self) -> None:
        """Train and evaluate, and leave every result file in the staging folder."""
        run, processes = self.run, self.processes
        torch.set_num_threads(run.runtime.threads)
        check_buildable(self.config, str(run.directory / CONFIG_FILE))
        where, first = (run.layout, run.data_directory), processes.is_first
        self.fingerprint = processes.broadcast(fingerprint(*where) if first else "")
        self.dataset_complete = processes.broadcast(is_complete(*where) if first else None)
        if processes.is_first:
            check_initial_weights(self.config["model"])
        start = None if run.contrast is None else int(run.contrast.get("start") or 0)
        record = Record(run.iterations, start, processes)
        state = TrainingState(run, self.work, processes, record, self.code)
        content = state.newest()
        if self.settings.retrain and content is not None and not is_from(self.code, content):
            content = None
        if content is None and processes.is_first:
            publication.discard_work(self.work)
            say(f"{run.run}: {run.iterations} iterations, batch {run.batch_size}, {processes.world_size} process(es)")
        reset_peak_memory(processes.device)
        with deterministic_on_cpu(processes.device):
            runner = self.train(state, content)
        result = self.train_result(runner, state)
        del runner
        gc.collect()  # it refers to itself; its model and optimiser are not needed any more
        self.evaluate_all(result)
        if processes.is_first:
            shutil.copyfile(self.work / publication.HISTORY, self.stage / publication.HISTORY)
            write_result(self.stage / publication.TRAIN, result)
        processes.wait()

    def train(self, state: TrainingState, content: dict[str, Any] | None) -> TrainingRunner:
        """Run the training loop to its end."""
        run, processes = self.run, self.processes
        history = History(self.work / publication.HISTORY, enabled=processes.is_first)
        recorder = RecordHook(
            state.record, history, self.progress, StepClock(processes.device), run.runtime.log_interval
        )
        saver = CheckpointHook(state.save, run.runtime.checkpoint_interval, self.request, recorder)
        loader = train_loader(self.config["train_dataloader"], run.seed, processes)
        try:
            runner = TrainingRunner(
                self.config,
                processes,
                self.work,
                [recorder, saver],
                loader,
                run.run,
                resume_state=lambda runner: state.start(runner, content),
            )
            runner.train()
        finally:
            end_workers(loader)
        return runner

    def train_result(self, runner: TrainingRunner, state: TrainingState) -> TrainResult:
        """Write the final weights aside and describe the training."""
        run, processes, record = self.run, self.processes, state.record
        weights = self.stage / publication.FINAL
        if processes.is_first:
            save_final(weights, runner.plain_model, run.iterations, runner.train_dataloader.dataset.metainfo)
        processes.wait()
        memory, kind = peak_memory_mib(processes.device)
        memory = max(memory, state.peak_memory_mib)
        return TrainResult(
            run=run.run,
            iterations=run.iterations,
            time_s=typical_time(record.times, record.ages),
            data_s=record.data_s,
            peak_memory_mib=max(processes.gather(memory)),
            memory_kind=kind,
            resumes=state.resumes,
            earlier_code_sha256=state.earlier_code,
            losses=record.final_losses(),
            contrast=record.contrast_summary(),
            parameters=inference_parameters(runner.plain_model),
            weights_sha256=sha256(weights),
            dataset_complete=self.dataset_complete,
            config_sha256=run.config_sha256,
            spec_sha256=run.identity_sha256,
            provenance=describe(
                run,
                self.config,
                processes,
                dataset_fingerprint=self.fingerprint,
                started=state.started,
                code=self.code,
                micro_batch=self.per_process // self.parts,
            ),
        )

    def evaluate_all(self, result: TrainResult) -> None:
        """Score the final weights: single-scale, and all that tables ask for where weights are not kept."""
        run, processes = self.run, self.processes
        model = build_plain(self.config["model"], processes.device)
        load_final(model, self.stage / publication.FINAL)
        if result.contrast is not None and not result.contrast.healthy and processes.is_first:
            share = result.contrast.active_fraction
            say(f"{run.run}: the contrastive term worked in {share:.0%} of the iterations only; its result says so")
        for name in dict.fromkeys(["single_scale", *(() if run.runtime.save_work else run.evaluations)]):
            self.progress.update("evaluating", iteration=run.iterations)
            weights, about = result.weights_sha256, result.provenance
            score_into(self.stage, run, model, self.config, name, weights, about, processes, self.request.check)
