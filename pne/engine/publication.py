"""From finished work to published results: everything is complete aside first, then moved, ``train.json`` last."""

import errno
import shutil
from pathlib import Path

from pne.engine import checkpoint
from pne.errors import UserError
from pne.files import written_aside
from pne.results import EVALUATIONS, EvaluationResult, TrainResult, confusion_path, read_result
from pne.spec import Run

FINAL = "final.pth"
TRAIN = "train.json"
HISTORY = "history.jsonl"


def staging(work: Path) -> Path:
    """Folder in which the results of a training are completed."""
    return work / "complete"


def is_finished(run: Run) -> bool:
    """Whether the run's training and single-scale results are there and whole."""
    try:
        trained = read_result(run.directory / TRAIN, TrainResult)
        scored = read_result(run.directory / "single_scale.json", EvaluationResult)
    except UserError:
        return False
    whole = confusion_path(run.directory, "single_scale").is_file()
    return whole and trained.run == run.run and scored.weights_sha256 == trained.weights_sha256


def lacks_score_alone(run: Run) -> bool:
    """Whether training is finished and its weights are there, but the single-scale result is not."""
    try:
        trained = read_result(run.directory / TRAIN, TrainResult)
    except UserError:
        return False
    weights = run.work_directory / FINAL
    whole = trained.run == run.run and weights.is_file() and checkpoint.sha256(weights) == trained.weights_sha256
    return whole and not is_finished(run)


def is_complete(stage: Path) -> bool:
    """Whether everything stands ready to be moved: ``train.json`` is written last."""
    return (stage / TRAIN).is_file()


def publish(run: Run, stage: Path) -> None:
    """Move what is complete to where it belongs; repeated after an interruption, it goes on.

    Results of other evaluations of an earlier training of this run are removed: their weights are gone.
    """
    if (stage / FINAL).is_file():
        move(stage / FINAL, run.work_directory / FINAL)
    trained = read_result(stage / TRAIN, TrainResult)
    for path in sorted(stage.iterdir()):
        if path.name != TRAIN:
            move(path, run.directory / path.name)
    move(stage / TRAIN, run.directory / TRAIN)
    for evaluation in EVALUATIONS:
        path = run.directory / f"{evaluation}.json"
        if path.is_file() and _weights_of(path) != trained.weights_sha256:
            path.unlink()
            confusion_path(run.directory, evaluation).unlink(missing_ok=True)
    if not run.runtime.save_work:
        (run.work_directory / FINAL).unlink(missing_ok=True)
    stage.rmdir()


def _weights_of(path: Path) -> str | None:
    try:
        return read_result(path, EvaluationResult).weights_sha256
    except UserError:
        return None


def move(source: Path, target: Path) -> None:
    """Move a file so that the target is never half written, across file systems too."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        source.replace(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise UserError(
                f"{target}: cannot be written ({error.strerror}); free space or mend permissions"
            ) from error
        with written_aside(target) as aside:
            shutil.copyfile(source, aside)
        source.unlink()


def verified_weights(run: Run, spec: Path) -> tuple[Path, str]:
    """Return the final weights of a finished run and their SHA-256.

    Raises
    ------
    UserError
        If the run has not finished, or its weights are missing or not those that were trained; names the command that
        makes them again.
    """
    trained = read_result(run.directory / TRAIN, TrainResult)
    path = run.work_directory / FINAL
    restore = f"train the run again to restore them: python -m pne.train --retrain {spec}"
    if not path.is_file():
        raise UserError(f"{path}: the final weights of {run.run} are missing; {restore}")
    found = checkpoint.sha256(path)
    if found != trained.weights_sha256:
        raise UserError(
            f"{path}: SHA-256 {found[:12]}, but {run.directory / TRAIN} was measured with weights of "
            f"{trained.weights_sha256[:12]}; {restore}"
        )
    return path, found


def discard_work(work: Path) -> None:
    """Delete the checkpoints and partial state of a training that is published."""
    checkpoint.prune(work, kept=0)
    (work / HISTORY).unlink(missing_ok=True)
