"""Every result of a track as one data frame, one row per run and evaluation."""

from collections.abc import Iterable
from typing import Any, TypeVar

import pandas as pd

from analysis.progress import Progress, read_progress
from pne.errors import UserError
from pne.results import EvaluationResult, TrainResult, read_result
from pne.spec import Run

COLUMNS = (
    "run",
    "dataset",
    "dataset_title",
    "model",
    "loss",
    "seed",
    "evaluation",
    "state",
    "error",
    "iteration",
    "eta_s",
    "miou",
    "aacc",
    "class_iou",
    "images",
    "time_s",
    "peak_memory_mib",
    "memory_kind",
    "weight_std",
    "healthy",
    "active_fraction",
    "stale",
    "mixed_code",
    "outdated",
    "dataset_complete",
    "dataset_fingerprint",
    "bfloat16",
    "precision",
    "world_size",
    "micro_batch",
    "device",
    "git_commit",
    "ended",
    "confusion",
)
Result = TypeVar("Result", TrainResult, EvaluationResult)


def collect_runs(runs: Iterable[Run], code_sha256: str | None = None) -> pd.DataFrame:
    """Read all results of the given runs.

    Parameters
    ----------
    runs : iterable of Run
    code_sha256 : str, optional
        Hash of today's training code; results of other code are stale. None: nothing is called stale.

    Returns
    -------
    DataFrame
        Columns `COLUMNS`, one row per run and evaluation the run is asked for, whatever its state: *finished*,
        *running*, *stopped*, *failed* or *missing*. ``miou`` and ``aacc`` in percent, ``class_iou`` a dict of percent,
        ``time_s`` the seconds of one training iteration, ``weight_std`` and ``healthy`` of runs with a contrast,
        ``dataset_complete`` whether the data set had its official number of images (None: it has none),
        ``bfloat16`` whether it was evaluated so, ``stale`` whether other training code than today's made any part of
        the result, ``mixed_code`` whether different code trained before and after a resume, ``outdated`` whether the
        evaluation belongs to other weights than the training result. A result file that cannot be read counts as
        failed, with the reason in ``error``.
    """
    records = [record for run in runs for record in _records(run, code_sha256)]
    return pd.DataFrame(records, columns=list(COLUMNS))


def _records(run: Run, code_sha256: str | None) -> list[dict[str, Any]]:
    train, train_error = _read(run, "train.json", TrainResult)
    evaluations = {name: _read(run, f"{name}.json", EvaluationResult) for name in run.evaluations}
    common: dict[str, Any] = {
        "run": run.run,
        "dataset": run.dataset,
        "dataset_title": run.dataset_title,
        "model": run.model,
        "loss": None if run.contrast is None else run.contrast["loss"],
        "seed": run.seed,
        "precision": run.precision,
    }
    if train is not None:
        common |= _of_training(train, code_sha256)
    records = []
    for name, (result, error) in evaluations.items():
        record = common | {"evaluation": name}
        if result is not None and train is not None:
            record |= {
                "state": "finished",
                "miou": result.miou,
                "aacc": result.aacc,
                "class_iou": result.class_iou,
                "images": result.images,
                "bfloat16": result.bfloat16,
                "outdated": result.weights_sha256 != train.weights_sha256,
                "confusion": run.directory / f"{name}.confusion.npz",
            }
        else:
            unfinished = read_progress(run, None if train is None else name)
            record |= _of_unfinished(unfinished, train_error or error)
        records.append(record)
    return records


def _of_training(train: TrainResult, code_sha256: str | None) -> dict[str, Any]:
    provenance, contrast = train.provenance, train.contrast
    return {
        "time_s": train.time_s,
        "peak_memory_mib": train.peak_memory_mib,
        "memory_kind": train.memory_kind,
        "weight_std": None if contrast is None else contrast.final_statistics.get("weight_std"),
        "healthy": None if contrast is None else contrast.healthy,
        "active_fraction": None if contrast is None else contrast.active_fraction,
        "stale": code_sha256 is not None and not train.is_from(code_sha256),
        "mixed_code": bool(train.earlier_code_sha256),
        "dataset_complete": train.dataset_complete,
        "dataset_fingerprint": provenance.dataset_fingerprint,
        "world_size": provenance.world_size,
        "micro_batch": provenance.micro_batch,
        "device": provenance.device,
        "git_commit": provenance.git_commit,
        "ended": provenance.ended,
    }


def _of_unfinished(progress: Progress, error: str | None) -> dict[str, Any]:
    if error is not None:
        return {"state": "failed", "error": error}
    return {
        "state": progress.state,
        "error": progress.error,
        "iteration": progress.iteration,
        "eta_s": progress.eta_s,
    }


def _read(run: Run, name: str, kind: type[Result]) -> tuple[Result | None, str | None]:
    """Return the result, or None with the reason when a file is there but is no result of this run."""
    path = run.directory / name
    if not path.exists():
        return None, None
    try:
        result = read_result(path, kind)
    except UserError as error:
        return None, str(error)
    if result.run != run.run:
        return None, f"{path}: holds a result of run {result.run}; delete it and run the workflow again"
    return result, None
