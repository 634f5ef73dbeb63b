"""Score a model on a test set: predictions to confusion counts to one evaluation result."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pne.console import duration, say, utc_now
from pne.counts import Confusion, scores, sparse_counts, write_confusion
from pne.datasets.fingerprint import fingerprint
from pne.engine.command import StopRequest, is_of
from pne.engine.hooks import Progress, evaluation_path
from pne.engine.inference import Views, open_images, predict, predicting
from pne.engine.processes import Processes
from pne.engine.provenance import describe, running_code
from pne.engine.publication import is_evaluated
from pne.engine.record import peak_memory_mib, reset_peak_memory
from pne.engine.weights import load_trained
from pne.errors import UserError
from pne.results import EvaluationResult, Provenance, confusion_path, write_result
from pne.spec import Run, read_spec


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
        Evaluate even if the result is there. One in bfloat16 is no answer to float32.

    Raises
    ------
    UserError
        If the run has not finished, or its weights are missing or others than its results were measured with.
    """
    run = read_spec(path)
    is_of(run, path)
    if processes.broadcast(is_evaluated(run, evaluation, bfloat16=bfloat16)) and not again:
        if processes.is_first:
            say(f"{run.run}: {evaluation}: evaluated already")
        return
    path_of_progress = evaluation_path(run.work_directory, evaluation)
    with Progress(path_of_progress, run.run, run.iterations, enabled=processes.is_first) as progress:
        progress.update("evaluating", iteration=run.iterations)
        started, code = utc_now(), running_code()
        model, config, trained = load_trained(run, path, processes.device)
        files = processes.broadcast(fingerprint(run.layout, run.data_directory) if processes.is_first else "")
        about = describe(processes, seed=run.seed, dataset_fingerprint=files, started=started, code=code)
        weights = trained.weights_sha256
        score_into(
            run.directory, run, model, config, evaluation, weights, about, processes, request.check, bfloat16=bfloat16
        )
        progress.update("finished")


def score_into(
    folder: Path,
    run: Run,
    model: nn.Module,
    config: Mapping[str, Any],
    evaluation: str,
    weights_sha256: str,
    provenance: Provenance,
    processes: Processes,
    between: Callable[[], None],
    *,
    bfloat16: bool = False,
) -> None:
    """Evaluate a model of a run, see `evaluate`, and write the counts and then the result into a folder."""
    score = evaluate(model, config, evaluation, processes, bfloat16=bfloat16, between=between)
    miou, aacc, iou = scores(score.confusion.total())
    result = EvaluationResult(
        run=run.run,
        evaluation=evaluation,
        miou=miou,
        aacc=aacc,
        class_iou=dict(zip(score.classes, iou, strict=True)),
        images=len(score.confusion.names),
        time_s=score.time_s,
        bfloat16=bfloat16,
        peak_memory_mib=score.peak_memory_mib,
        weights_sha256=weights_sha256,
        provenance=provenance.model_copy(update={"ended": utc_now()}),
    )
    if processes.is_first:
        write_confusion(confusion_path(folder, evaluation), score.confusion)
        write_result(folder / f"{evaluation}.json", result)
        say(f"{run.run}: {evaluation}: mIoU {miou:.2f} % on {result.images} images in {duration(score.time_s)}")


@dataclass(frozen=True)
class Score:
    """Outcome of one evaluation."""

    confusion: Confusion
    classes: tuple[str, ...]
    time_s: float
    peak_memory_mib: float


def evaluate(
    model: nn.Module,
    config: Mapping[str, Any],
    evaluation: str,
    processes: Processes,
    *,
    bfloat16: bool = False,
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
    between : callable
        Called between images; may raise to stop.

    Returns
    -------
    Score
        Of all images, in every process.
    """
    model.eval()
    loader, device = config["test_dataloader"], processes.device
    images = open_images(loader["dataset"], evaluation)
    about = images.dataset if isinstance(images, Views) else images
    classes = tuple(about.metainfo["classes"])
    if model.num_classes != len(classes):
        raise UserError(
            f"config: the model has {model.num_classes} classes, the data set {len(classes)}; make them equal"
        )
    share = range(processes.rank, len(images), processes.world_size)
    reset_peak_memory(device)
    counted, start = [], time.perf_counter()
    with predicting(device, bfloat16):
        for prediction in predict(model, images, share, loader, bfloat16=bfloat16):
            try:
                matrix = count_pixels(prediction.predicted, prediction.labels, len(classes), about.ignore_index)
            except UserError as error:
                raise UserError(f"{prediction.name}: {error}") from error
            counted.append(sparse_counts(prediction.name, matrix.cpu().numpy()))
            between()
    shares = processes.gather(counted)
    ordered = [shares[i % len(shares)][i // len(shares)] for i in range(len(images))]
    memory = max(processes.gather(peak_memory_mib(device)[0]))
    return Score(Confusion.of(ordered, len(classes)), classes, time.perf_counter() - start, memory)


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
