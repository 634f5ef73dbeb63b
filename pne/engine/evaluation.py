"""Score a model on a test set: predictions to confusion counts to one evaluation result."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config
from torch import Tensor, nn

from pne.console import duration, say, utc_now
from pne.counts import Confusion, scores, sparse_counts, write_confusion
from pne.datasets.fingerprint import fingerprint
from pne.engine.command import Interrupted, StopRequest, is_of
from pne.engine.hooks import Progress, evaluation_path
from pne.engine.inference import Views, predict_multi_scale_flip, predict_single_scale
from pne.engine.loaders import build_dataset, check_folder, image_loader, share_of
from pne.engine.processes import Processes
from pne.engine.provenance import describe, running_code
from pne.engine.publication import verified_weights
from pne.engine.record import peak_memory_mib, reset_peak_memory
from pne.engine.weights import load_trained
from pne.errors import UserError
from pne.results import EvaluationResult, Provenance, TrainResult, confusion_path, read_result, write_result
from pne.spec import Run, read_config, read_spec


@dataclass(frozen=True)
class Score:
    """Outcome of one evaluation."""

    confusion: Confusion
    classes: tuple[str, ...]
    time_s: float
    peak_memory_mib: float
    bfloat16: bool


def evaluate(
    model: nn.Module,
    config: Mapping[str, Any],
    evaluation: str,
    processes: Processes,
    *,
    bfloat16: bool = False,
    limit: int | None = None,
    between: Callable[[], None] = lambda: None,
) -> Score:
    """Predict the test set and count.

    Parameters
    ----------
    model : BaseSegmentor
        On the device of ``processes``; the same weights in all of them. Left in evaluation mode.
    config : mapping
        Prepared config; its ``test_dataloader`` names the images.
    evaluation : str
        ``single_scale`` or ``multi_scale_flip``.
    processes : Processes
        Share the images.
    bfloat16 : bool
        Autocast of the network.
    limit : int, optional
        Only the first so many images.
    between : callable
        Called between images; may raise to stop.

    Returns
    -------
    Score
        Of all images, in every process.
    """
    model.eval()
    loader, device = config["test_dataloader"], processes.device
    if evaluation == "single_scale":
        dataset, batch_size = build_dataset(loader["dataset"]), loader.get("batch_size", 1)
        predict = predict_single_scale
        about = dataset
    else:
        check_folder(loader["dataset"])
        dataset, batch_size = Views(loader["dataset"]), 1
        predict = predict_multi_scale_flip
        about = dataset.dataset
    classes = tuple(about.metainfo["classes"])
    if model.num_classes != len(classes):
        raise UserError(
            f"config: the model has {model.num_classes} classes, the data set {len(classes)}; make them equal"
        )
    share = share_of(dataset, processes, limit)
    reset_peak_memory(device)
    images, start = [], time.perf_counter()
    options = {} if predict is predict_single_scale else {"bfloat16": bfloat16}
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=bfloat16)
    with torch.inference_mode(), autocast:
        for prediction in predict(model, image_loader(share, loader["num_workers"], device, batch_size), **options):
            try:
                matrix = count_pixels(prediction.predicted, prediction.labels, len(classes), about.ignore_index)
            except UserError as error:
                raise UserError(f"{prediction.name}: {error}") from error
            images.append(sparse_counts(prediction.name, matrix.cpu().numpy()))
            between()
    shares = processes.gather(images)
    ordered = [shares[i % len(shares)][i // len(shares)] for i in range(sum(map(len, shares)))]
    memory = max(processes.gather(peak_memory_mib(device)[0]))
    return Score(Confusion.of(ordered, len(classes)), classes, time.perf_counter() - start, memory, bfloat16)


def count_pixels(predicted: Tensor, labels: Tensor, num_classes: int, ignore_index: int = 255) -> Tensor:
    """Count the pairs of labelled and predicted class of one image.

    Parameters
    ----------
    predicted, labels : Tensor, shape (H, W), integer, same device
        Pixels labelled ``ignore_index`` are left out.
    num_classes : int
        C.
    ignore_index : int
        Label that does not count.

    Returns
    -------
    Tensor, shape (C, C), int64
        True class by row, predicted class by column.

    Raises
    ------
    UserError
        If the shapes differ or a label is neither a class nor ``ignore_index``.
    """
    if predicted.shape != labels.shape:
        raise UserError(
            f"prediction of shape {tuple(predicted.shape)} for a label of shape {tuple(labels.shape)}; "
            "load annotations after the resizing in the test pipeline, so that they keep their size"
        )
    counted = labels != ignore_index
    true = labels[counted].long()
    if true.numel() and (int(true.max()) >= num_classes or int(true.min()) < 0):
        raise UserError(
            f"label values {int(true.min())} to {int(true.max())}, expected 0 to {num_classes - 1} and {ignore_index}; "
            "check how the labels were converted"
        )
    pairs = true * num_classes + predicted[counted].long()
    return torch.bincount(pairs, minlength=num_classes**2).reshape(num_classes, num_classes)


def result_of(
    score: Score, *, run: str, evaluation: str, weights_sha256: str, provenance: Provenance
) -> EvaluationResult:
    """Compute the metrics of a score."""
    miou, aacc, iou = scores(score.confusion.total())
    return EvaluationResult(
        run=run,
        evaluation=evaluation,
        miou=miou,
        aacc=aacc,
        class_iou=dict(zip(score.classes, iou, strict=True)),
        images=len(score.confusion.names),
        time_s=score.time_s,
        peak_memory_mib=score.peak_memory_mib,
        bfloat16=score.bfloat16,
        weights_sha256=weights_sha256,
        provenance=provenance,
    )


def write_evaluation(directory: Path, score: Score, result: EvaluationResult) -> None:
    """Write the counts, then the result, each atomically."""
    write_confusion(confusion_path(directory, result.evaluation), score.confusion)
    write_result(directory / f"{result.evaluation}.json", result)


# Evaluate the weights that a finished run kept.


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
