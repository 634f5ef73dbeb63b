"""The contract of result files: what a finished run says about itself, checked on writing and on reading.

One run leaves ``train.json`` and one ``<evaluation>.json`` per evaluation in ``results/<track>/runs/<run id>/``, each
written atomically after everything it speaks of. mIoU and IoU are in percent, from confusion counts, unrounded.
"""

from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from pne.counts import boundary_iou, calibration_error, read_confusion, scores
from pne.errors import UserError
from pne.files import sha256, write_text
from pne.spec import Run
from pne.spec.reading import read_model

EVALUATIONS = ("single_scale", "multi_scale_flip")


class _Strict(BaseModel):
    # NaN and infinity are no JSON; a loss that diverged never becomes a result.
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Provenance(_Strict):
    """Where a number comes from."""

    git_commit: str | None = Field(description="Commit of the checkout, null outside of git.")
    git_dirty: bool | None = Field(description="Whether tracked files differed from the commit.")
    code_sha256: str = Field(
        description="Hash of the training-relevant code (named in pne.engine.provenance) when the process began; "
        "of a resumed training, of its last process."
    )
    versions: dict[str, str] = Field(
        description="Python and the packages that compute: torch, mmengine, mmcv, mmseg, numpy."
    )
    device: str = Field(description="Name of the device, such as 'cpu: AMD EPYC' or 'NVIDIA H100 80GB HBM3'.")
    hostname: str
    world_size: int = Field(ge=1, description="Number of training processes.")
    micro_batch: int = Field(ge=1, description="Images per process and forward pass; batch norm sees this many.")
    cpu: str | None = Field(default=None, description="Model of the processor; null in older results.")
    threads: int | None = Field(default=None, ge=1, description="CPU threads of each process; null in older results.")
    numerics: dict[str, bool] | None = Field(
        default=None, description="How products are computed (pne.spec.identity.NUMERICS); null in older results."
    )
    dataset_fingerprint: str = Field(description="Hash of the data set's files.")
    seed: int
    started: str = Field(description="ISO 8601, UTC.")
    ended: str = Field(description="ISO 8601, UTC.")


class ContrastSummary(_Strict):
    """What the contrastive term did during training; the iterations before its start are left out."""

    iterations: int = Field(ge=0, description="Iterations that are summarised.")
    active_fraction: float = Field(ge=0, le=1, description="Share of them with a loss above 0 and at least one anchor.")
    healthy: bool = Field(description="Whether active_fraction is at least 0.9.")
    final_statistics: dict[str, float] = Field(
        description="Means over the last 10 % of the iterations: loss_contrast, anchors, sets, positive_similarity, "
        "negative_similarity, weight_mean, weight_std."
    )


class TrainResult(_Strict):
    """``train.json``."""

    schema_version: Literal[1] = 1
    run: str
    iterations: int = Field(ge=1)
    time_s: float = Field(gt=0, description="Median seconds per iteration after warm-up, data loading included.")
    data_s: float | None = Field(
        default=None,
        ge=0,
        description="The same of the part of them in which the process waited for data; null in older results.",
    )
    peak_memory_mib: float = Field(ge=0, description="CUDA: most memory allocated; CPU: peak resident set.")
    memory_kind: Literal["cuda_allocated", "resident_set"]
    resumes: int = Field(ge=0)
    earlier_code_sha256: list[str] = Field(
        default=[],
        description="Hashes of other training code that worked on this training before a resume; usually none.",
    )
    losses: dict[str, float] = Field(description="Mean of each logged loss over the last 10 % of the iterations.")
    contrast: ContrastSummary | None
    parameters: int = Field(
        ge=1, description="Trained parameters of the model at inference (without the contrast branch)."
    )
    weights_sha256: str = Field(description="SHA-256 of the file final.pth.")
    config_sha256: str | None = Field(default=None, description="That of the spec; null in older results.")
    spec_sha256: str | None = Field(
        default=None,
        description="Digest of config, seed and precision, whose first eight digits name the run; null "
        "in older results.",
    )
    dataset_complete: bool | None = Field(
        default=None,
        description="Whether every split with labels has the official number of images; null where the data set has "
        "no official counts, and in results of before this was recorded.",
    )
    provenance: Provenance

    def is_from(self, code_sha256: str) -> bool:
        """Whether the given training code made the whole result."""
        return self.provenance.code_sha256 == code_sha256 and not self.earlier_code_sha256


class EvaluationResult(_Strict):
    """``single_scale.json`` and ``multi_scale_flip.json``."""

    schema_version: Literal[1] = 1
    run: str
    evaluation: Literal["single_scale", "multi_scale_flip"]
    miou: float = Field(ge=0, le=100, description="Mean IoU over the classes that occur, percent, unrounded.")
    aacc: float = Field(ge=0, le=100, description="Share of labelled pixels predicted correctly, percent.")
    class_iou: dict[str, float | None] = Field(description="Percent; null for a class neither labelled nor predicted.")
    boundary_iou: float | None = Field(
        default=None,
        ge=0,
        le=100,
        description="Mean IoU of the pixels near a boundary, percent; null in older results, or where there are none.",
    )
    calibration_error: float | None = Field(
        default=None, ge=0, le=100, description="Expected calibration error, percent; null in older results."
    )
    images: int = Field(ge=1)
    time_s: float = Field(gt=0, description="Seconds for the whole evaluation.")
    bfloat16: bool = Field(
        default=False, description="Whether the network ran under bfloat16 autocast instead of in float32."
    )
    peak_memory_mib: float | None = Field(
        default=None, ge=0, description="Of the evaluation, as of the training; null in older results."
    )
    weights_sha256: str
    config_sha256: str | None = Field(default=None, description="As in train.json.")
    spec_sha256: str | None = Field(default=None, description="As in train.json.")
    counts_sha256: str | None = Field(
        default=None, description="SHA-256 of the file <evaluation>.confusion.npz; null in older results."
    )
    provenance: Provenance


Result = TypeVar("Result", TrainResult, EvaluationResult)


def write_result(path: Path | str, result: TrainResult | EvaluationResult) -> None:
    """Write a result as JSON, atomically; the model has checked its values already."""
    write_text(path, result.model_dump_json(indent=1) + "\n")


def read_result(path: Path | str, kind: type[Result]) -> Result:
    """Read and check one result file.

    Raises
    ------
    UserError
        If the file is missing, truncated or does not hold what its kind promises.
    """
    remedy = f"the file holds no {kind.__name__}: delete it and run the workflow again"
    if kind is TrainResult:
        remedy = f"the file holds no {kind.__name__}: put a copy of it back; without one, delete it to train anew"
    return read_model(Path(path), kind, missing="no such result; the run has not finished", remedy=remedy)


def read_result_of(run: Run, name: str, kind: type[Result]) -> Result:
    """Read a result of a run and check it against what lies beside it.

    Parameters
    ----------
    run : Run
    name : str
        ``train``, or an evaluation.
    kind : type
        `TrainResult` or `EvaluationResult`.

    Raises
    ------
    UserError
        If it is missing, damaged, of another run or of other settings, or if its counts are missing, others, or give
        other scores. Results of before digests were recorded are taken as they are.
    """
    path = run.directory / f"{name}.json"
    result, again = read_result(path, kind), "delete it and run the workflow again"
    if result.run != run.run:
        raise UserError(f"{path}: holds a result of run {result.run}; {again}")
    digests = {"config_sha256": run.config_sha256, "spec_sha256": run.identity_sha256}
    for key, expected in digests.items():
        if getattr(result, key) not in (None, expected):
            raise UserError(
                f"{path}: {key} {getattr(result, key)[:12]}, expected {expected[:12]} of the run as described: it was "
                f"measured with other settings; {again}"
            )
    if isinstance(result, EvaluationResult) and result.counts_sha256 is not None:
        _check_counts(path, result, confusion_path(run.directory, name))
    return result


def finished_result(run: Run, name: str) -> TrainResult | EvaluationResult | None:
    """Return the result of a run's training, or of an evaluation of its present weights; None where none is whole."""
    try:
        trained = read_result_of(run, "train", TrainResult)
        found = trained if name == "train" else read_result_of(run, name, EvaluationResult)
    except UserError:
        return None
    return found if found.weights_sha256 == trained.weights_sha256 else None


def _check_counts(path: Path, result: EvaluationResult, counts: Path) -> None:
    again = f"delete both and evaluate again: python -m pne.evaluate --evaluation {result.evaluation} SPEC"
    if not counts.is_file():
        raise UserError(f"{path}: its counts {counts.name} are missing; {again}")
    if (found := sha256(counts)) != result.counts_sha256:
        raise UserError(
            f"{counts}: SHA-256 {found[:12]}, but {path.name} was computed from counts of {result.counts_sha256[:12]}; "
            f"{again}"
        )
    confusion = read_confusion(counts)
    miou, aacc, iou = scores(confusion.total())
    given = [result.miou, result.aacc, *result.class_iou.values(), result.boundary_iou, result.calibration_error]
    computed = [miou, aacc, *iou, boundary_iou(confusion), calibration_error(confusion)]
    if [value and round(value, 6) for value in given] != [value and round(value, 6) for value in computed]:
        raise UserError(f"{path}: its scores are not those of its counts, which give an mIoU of {miou:.4f}; {again}")


def confusion_path(directory: Path, evaluation: str) -> Path:
    """File of the confusion counts of one evaluation."""
    return directory / f"{evaluation}.confusion.npz"
