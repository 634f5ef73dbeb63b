"""Score a model on a test set: predictions to confusion counts to one evaluation result."""

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pne.console import duration, say, utc_now
from pne.counts import (
    BINS,
    Confusion,
    ImageCounts,
    boundary_iou,
    calibration_error,
    scores,
    sparse_counts,
    write_confusion,
)
from pne.datasets.fingerprint import fingerprint
from pne.engine.command import StopRequest, is_of
from pne.engine.hooks import Progress, evaluation_path
from pne.engine.inference import Prediction, Views, open_images, predict, predicting
from pne.engine.processes import Processes
from pne.engine.provenance import describe, running_code
from pne.engine.publication import is_evaluated
from pne.engine.record import peak_memory_mib, reset_peak_memory
from pne.engine.weights import load_trained
from pne.errors import UserError
from pne.files import sha256
from pne.results import EvaluationResult, Provenance, confusion_path, write_result
from pne.spec import Run, read_spec

BOUNDARY = 3  # pixels, at the size of the labels


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
        started, code = utc_now(), running_code(run)
        model, config, trained = load_trained(run, path, processes.device)
        files = processes.broadcast(fingerprint(run.layout, run.data_directory) if processes.is_first else "")
        about = describe(run, config, processes, dataset_fingerprint=files, started=started, code=code)
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
    if not processes.is_first:
        return
    counts = confusion_path(folder, evaluation)
    write_confusion(counts, score.confusion)
    miou, aacc, iou = scores(score.confusion.total())
    result = EvaluationResult(
        run=run.run,
        evaluation=evaluation,
        miou=miou,
        aacc=aacc,
        class_iou=dict(zip(score.classes, iou, strict=True)),
        boundary_iou=boundary_iou(score.confusion),
        calibration_error=calibration_error(score.confusion),
        images=len(score.confusion.names),
        time_s=score.time_s,
        bfloat16=bfloat16,
        peak_memory_mib=score.peak_memory_mib,
        weights_sha256=weights_sha256,
        config_sha256=run.config_sha256,
        spec_sha256=run.identity_sha256,
        counts_sha256=sha256(counts),
        provenance=provenance.model_copy(update={"ended": utc_now()}),
    )
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
            f"config: model with {model.num_classes} classes, data set with {len(classes)}; make them equal"
        )
    share = range(processes.rank, len(images), processes.world_size)
    reset_peak_memory(device)
    counted, start = [], time.perf_counter()
    with predicting(device, bfloat16), closing(predict(model, images, share, loader, bfloat16=bfloat16)) as predicted:
        between()
        for prediction in predicted:
            counted.append(count(prediction, len(classes), about.ignore_index))
            between()
    shares = processes.gather(counted)
    ordered = [shares[i % len(shares)][i // len(shares)] for i in range(len(images))]
    memory = max(processes.gather(peak_memory_mib(device)[0]))
    return Score(Confusion.of(ordered, len(classes)), classes, time.perf_counter() - start, memory)


def count(prediction: Prediction, num_classes: int, ignore_index: int) -> ImageCounts:
    """Count what the scores of one image are computed from; a `UserError` that names the image if labels do not fit."""
    predicted, labels = prediction.predicted, prediction.labels
    try:
        matrix = count_pixels(predicted, labels, num_classes, ignore_index)
    except UserError as error:
        raise UserError(f"{prediction.name}: {error}") from error
    boundary = count_boundary(predicted, labels, num_classes, ignore_index)
    counted = labels != ignore_index
    calibration = count_confidence(prediction.confidence[counted], (predicted == labels)[counted])
    others = {"boundary": boundary, "calibration": calibration}
    return sparse_counts(prediction.name, matrix.cpu().numpy(), **{k: v.cpu().numpy() for k, v in others.items()})


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


def count_boundary(predicted: Tensor, labels: Tensor, num_classes: int, ignore_index: int = 255) -> Tensor:
    """Count the pixels near boundaries of one image, of which the boundary IoU is the ratio [Cheng et al. 2021].

    Parameters
    ----------
    predicted, labels : Tensor, shape (H, W), integer, same device

    Returns
    -------
    Tensor, shape (C, 3), int64
        By class: near a boundary in both label and prediction and of this class in both; labelled and near a boundary
        of the label; predicted and near a boundary of the prediction. Ignored pixels are nowhere.
    """
    counted = labels != ignore_index
    true, guess = near_boundary(labels, counted), near_boundary(predicted, counted)
    chosen = labels[true & guess & (labels == predicted)], labels[true], predicted[guess]
    return torch.stack([torch.bincount(one.long(), minlength=num_classes) for one in chosen], 1)


def near_boundary(classes: Tensor, counted: Tensor, distance: int = BOUNDARY) -> Tensor:
    """Mark the counted pixels that have a counted pixel of another class within ``distance`` rows and columns.

    In a mask of one class these are the pixels of its inner boundary region. Unlike in the paper, the edge of the image
    is no boundary, and the distance is the same for every size of images.

    Parameters
    ----------
    classes : Tensor, shape (H, W), integer
    counted : Tensor, shape (H, W), bool
    distance : int
        Pixels.

    Returns
    -------
    Tensor, shape (H, W), bool
    """
    values = classes.float()
    outside = torch.full_like(values, -torch.inf)
    largest, smallest = (
        nn.functional.max_pool2d(torch.where(counted, one, outside)[None], 2 * distance + 1, 1, distance)[0]
        for one in (values, -values)
    )
    return counted & (largest != -smallest)


def count_confidence(confidence: Tensor, correct: Tensor) -> Tensor:
    """Count pixels by the probability of their predicted class, for the calibration error [Guo et al. 2017].

    Parameters
    ----------
    confidence : Tensor, shape (N,), floating, in (0, 1]
    correct : Tensor, shape (N,), bool

    Returns
    -------
    Tensor, shape (BINS, 3), float64
        By bin ((b - 1) / BINS, b / BINS]: pixels, correct ones, sum of the confidences.
    """
    bins = (confidence * BINS).ceil().long().clamp(1, BINS) - 1
    weights = (torch.ones_like(confidence), correct, confidence)
    return torch.stack([torch.bincount(bins, weight.double(), minlength=BINS) for weight in weights], 1)
