"""Score a model on a test set: predictions to confusion counts to one evaluation result."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pne.engine.confusion import Confusion, count_pixels, join_images, scores, sparse_counts, write_confusion
from pne.engine.data import build_dataset, check_folder, image_loader, share_of
from pne.engine.inference import Views, predict_multi_scale_flip, predict_single_scale
from pne.engine.processes import Processes
from pne.errors import UserError
from pne.results import EvaluationResult, Provenance, write_result


@dataclass(frozen=True)
class Score:
    """Outcome of one evaluation."""

    confusion: Confusion
    classes: tuple[str, ...]
    time_s: float
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
    images, start = [], time.perf_counter()
    options = {} if predict is predict_single_scale else {"bfloat16": bfloat16}
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=bfloat16)
    with torch.inference_mode(), autocast:
        for prediction in predict(model, image_loader(share, loader["num_workers"], device, batch_size), **options):
            try:
                matrix = count_pixels(prediction.predicted, prediction.labels, len(classes), about.ignore_index)
            except UserError as error:
                raise UserError(f"{prediction.name}: {error}") from error
            images.append(sparse_counts(prediction.name, matrix))
            between()
    shares = processes.gather(images)
    ordered = [shares[i % len(shares)][i // len(shares)] for i in range(sum(map(len, shares)))]
    return Score(join_images(ordered, len(classes)), classes, time.perf_counter() - start, bfloat16)


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
        bfloat16=score.bfloat16,
        weights_sha256=weights_sha256,
        provenance=provenance,
    )


def confusion_path(directory: Path, evaluation: str) -> Path:
    """File of the confusion counts of one evaluation."""
    return directory / f"{evaluation}.confusion.npz"


def write_evaluation(directory: Path, score: Score, result: EvaluationResult) -> None:
    """Write the counts, then the result, each atomically."""
    write_confusion(confusion_path(directory, result.evaluation), score.confusion)
    write_result(directory / f"{result.evaluation}.json", result)
