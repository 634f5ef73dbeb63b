"""Carry out one rehearsal with the parts that a training is made of."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from pne.engine.clock import StepClock, peak_memory_mib, reset_peak_memory, typical_time
from pne.engine.command import is_of
from pne.engine.data import end_workers, train_loader
from pne.engine.failures import OutOfMemoryFailure
from pne.engine.hooks import CheckpointHook, RecordHook
from pne.engine.initial_weights import check_initial_weights
from pne.engine.interruption import StopRequest
from pne.engine.preparation import micro_batches, per_process_batch, prepare
from pne.engine.processes import Processes
from pne.engine.progress import Progress
from pne.engine.provenance import describe, utc_now
from pne.engine.publication import FINAL
from pne.engine.randomness import deterministic_on_cpu, seed_streams
from pne.engine.record import History, Record
from pne.engine.registration import register
from pne.engine.runner import make_runner
from pne.engine.scoring import evaluate
from pne.engine.weights import build_plain, load_final, save_final
from pne.rehearsal.largest import largest_images, restricted
from pne.rehearsal.record import (
    NOT_EXAMINED,
    RECORD,
    REQUEST,
    EvaluationCost,
    Rehearsal,
    Request,
    read_content,
    write_content,
)
from pne.rehearsal.reduction import crop_size
from pne.spec import Run, read_config, read_spec


def rehearse_spec(path: Path, processes: Processes, request: StopRequest) -> None:
    """Rehearse the run that a spec describes, and write the record beside it.

    Parameters
    ----------
    path : Path
        ``spec.yaml`` of a rehearsal, with ``config.py`` and ``request.json`` beside it.
    processes : Processes
        This process among those that train together.
    request : StopRequest
        A signal ends the rehearsal at its next iteration.

    Raises
    ------
    UserError
        If something the user can mend is in the way.
    DivergenceError
        If the loss is not finite.
    OutOfMemoryFailure
        If the device's memory does not suffice.
    """
    run, config = read_spec(path), read_config(path)
    is_of(run, path)
    wanted = read_content(path.parent / REQUEST, Request)
    began, started = time.perf_counter(), utc_now()
    torch.set_num_threads(run.runtime.threads)
    register(config)
    per_process = per_process_batch(run.batch_size, processes.world_size)
    parts = micro_batches(per_process, run.runtime.micro_batch)
    prepared = prepare(
        config.to_dict(),
        seed=run.seed,
        iterations=run.iterations,
        precision=run.precision,
        per_process=per_process,
        parts=parts,
        workers=run.runtime.workers,
    )
    if processes.is_first:
        run.work_directory.mkdir(parents=True, exist_ok=True)
        check_initial_weights(prepared["model"])
    processes.wait()
    try:
        trained = _train(run, prepared, processes, request)
        scored = _score(run, prepared, wanted.images, processes, request)
    except torch.OutOfMemoryError as error:
        size = per_process // parts
        raise OutOfMemoryFailure(
            f"out of memory with {size} images per forward pass; a GPU with more memory, more GPUs or --micro-batch "
            f"{max(1, size // 2)} may do ({str(error).splitlines()[0]})"
        ) from error
    if processes.is_first:
        rehearsal = Rehearsal(
            run=run.run,
            runs=wanted.runs,
            iterations=run.iterations,
            batch_size=run.batch_size,
            crop_size=crop_size(prepared),
            **trained,
            evaluations=scored,
            wall_s=time.perf_counter() - began,
            request=wanted,
            provenance=describe(
                device=processes.device,
                world_size=processes.world_size,
                micro_batch=per_process // parts,
                dataset_fingerprint=NOT_EXAMINED,
                seed=run.seed,
                started=started,
            ),
        )
        write_content(path.parent / RECORD, rehearsal)
    processes.wait()


def _train(run: Run, config: Mapping[str, Any], processes: Processes, request: StopRequest) -> dict[str, Any]:
    """Train, leave the final weights in the work directory, and return times, memory and losses."""
    work = run.work_directory
    record = Record(run.iterations, None if run.contrast is None else 0, processes)
    recorder = RecordHook(
        record,
        History(work / "history.jsonl", enabled=False),
        Progress(work / "progress.json", run.run, run.iterations, enabled=False),
        StepClock(processes.device),
        run.iterations,
    )
    # No state is worth saving; the hook still stops on signals and refuses weights that are not finite.
    stopper = CheckpointHook(lambda runner: None, run.iterations, request, recorder)
    reset_peak_memory(processes.device)
    loader = train_loader(config["train_dataloader"], run.seed, processes)
    try:
        with deterministic_on_cpu(processes.device):
            runner = make_runner(
                config,
                processes,
                work,
                [recorder, stopper],
                loader,
                run.run,
                resume_state=lambda runner: seed_streams(run.seed, processes.rank),
            )
            runner.train()
    finally:
        end_workers(loader)
    memory, kind = peak_memory_mib(processes.device)
    if processes.is_first:
        save_final(work / FINAL, runner.plain_model, run.iterations)
    processes.wait()
    return {
        "time_s": typical_time(record.times, record.ages),
        "peak_memory_mib": max(processes.gather(memory)),
        "memory_kind": kind,
        "losses": record.final_losses(),
    }


def _score(
    run: Run, config: Mapping[str, Any], images: int, processes: Processes, request: StopRequest
) -> dict[str, EvaluationCost]:
    """Score the largest images with the weights just trained, in every way that a run asks for."""
    loader = config["test_dataloader"]
    positions = processes.broadcast(largest_images(loader["dataset"], images) if processes.is_first else [])
    config = {**config, "test_dataloader": {**loader, "dataset": restricted(loader["dataset"], positions)}}
    model = build_plain(config["model"], processes.device)
    load_final(model, run.work_directory / FINAL)
    costs = {}
    for name in run.evaluations:
        reset_peak_memory(processes.device)
        score = evaluate(model, config, name, processes, limit=images, between=request.check)
        number = len(score.confusion.names)
        memory = max(processes.gather(peak_memory_mib(processes.device)[0]))
        costs[name] = EvaluationCost(images=number, time_s=score.time_s / number, peak_memory_mib=memory)
    return costs
