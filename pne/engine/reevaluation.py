"""Evaluate the weights that a finished run kept."""

from pathlib import Path

from mmengine.config import Config

from pne.datasets.doctor import fingerprint
from pne.engine.code import running_code
from pne.engine.command import is_of
from pne.engine.console import duration, say
from pne.engine.interruption import Interrupted, StopRequest
from pne.engine.processes import Processes
from pne.engine.progress import Progress, evaluation_path
from pne.engine.provenance import describe, utc_now
from pne.engine.publication import verified_weights
from pne.engine.scoring import confusion_path, evaluate, result_of, write_evaluation
from pne.engine.weights import load_trained
from pne.errors import UserError
from pne.results import EvaluationResult, TrainResult, read_result
from pne.spec import Run, read_config, read_spec


def evaluate_spec(
    path: Path,
    evaluation: str,
    processes: Processes,
    request: StopRequest,
    *,
    bfloat16: bool = False,
    again: bool = False,
) -> None:
    """Write one evaluation of a finished run, unless one of the same weights is there.

    Parameters
    ----------
    path : Path
        ``spec.yaml`` of the run.
    evaluation : str
        ``single_scale`` or ``multi_scale_flip``.
    processes : Processes
        Share the images; the first one writes.
    request : StopRequest
        A signal stops between two images; nothing is written then.
    bfloat16 : bool
        Run the network under bfloat16 autocast.
    again : bool
        Evaluate even if the result is there.

    Raises
    ------
    UserError
        If the run has not finished, or its weights are missing or others than its results were measured with.
    """
    run, config = read_spec(path), read_config(path)
    is_of(run, path)
    if processes.broadcast(is_evaluated(run, evaluation, bfloat16)) and not again:
        if processes.is_first:
            say(f"{run.run}: {evaluation}: evaluated already")
        return
    path_of_progress = evaluation_path(run.work_directory, evaluation)
    progress = Progress(path_of_progress, run.run, run.iterations, enabled=processes.is_first)
    try:
        progress.update("evaluating", iteration=run.iterations)
        _evaluate(run, config, path, evaluation, processes, request, bfloat16)
    except Interrupted:
        progress.update("interrupted")
        raise
    except BaseException as error:
        progress.fail(error)
        raise
    progress.update("finished")


def _evaluate(
    run: Run,
    config: Config,
    path: Path,
    evaluation: str,
    processes: Processes,
    request: StopRequest,
    bfloat16: bool,
) -> None:
    started, code = utc_now(), running_code()
    weights, weights_sha256 = verified_weights(run, path)
    files = processes.broadcast(fingerprint(run.layout, run.data_directory) if processes.is_first else "")
    model, prepared = load_trained(run, config, weights, processes.device)
    score = evaluate(model, prepared, evaluation, processes, bfloat16=bfloat16, between=request.check)
    provenance = describe(
        device=processes.device,
        world_size=processes.world_size,
        micro_batch=1,
        dataset_fingerprint=files,
        seed=run.seed,
        started=started,
        code=code,
    )
    result = result_of(score, run=run.run, evaluation=evaluation, weights_sha256=weights_sha256, provenance=provenance)
    if processes.is_first:
        write_evaluation(run.directory, score, result)
        say(f"{run.run}: {evaluation}: mIoU {result.miou:.2f} % on {result.images} images in {duration(score.time_s)}")


def is_evaluated(run: Run, evaluation: str, bfloat16: bool = False) -> bool:
    """Whether the evaluation of the run's present weights is there and whole; bfloat16 is no answer to float32."""
    try:
        trained = read_result(run.directory / "train.json", TrainResult)
        found = read_result(run.directory / f"{evaluation}.json", EvaluationResult)
    except UserError:
        return False
    same = found.weights_sha256 == trained.weights_sha256 and (bfloat16 or not found.bfloat16)
    return same and confusion_path(run.directory, evaluation).is_file()
