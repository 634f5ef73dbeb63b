"""From finished work to published results: everything is complete aside first, then moved, ``train.json`` last."""

import errno
import shutil
from pathlib import Path

from pne.engine import checkpoint
from pne.errors import UserError
from pne.files import sha256, written_aside
from pne.results import EVALUATIONS, TrainResult, confusion_path, finished_result, read_result_of
from pne.spec import Run

FINAL = "final.pth"
TRAIN = "train.json"
HISTORY = "history.jsonl"


def staging(work: Path) -> Path:
    """Folder in which the results of a training are completed."""
    return work / "complete"


def is_evaluated(run: Run, evaluation: str, *, bfloat16: bool = True) -> bool:
    """Whether an evaluation of the run's present weights is there and whole; without ``bfloat16``, in float32."""
    found = finished_result(run, evaluation)
    return found is not None and (bfloat16 or not found.bfloat16)


def lacks_score_alone(run: Run) -> bool:
    """Whether training is finished and its weights are there, but the single-scale result is not.

    Raises
    ------
    UserError
        If there is a result of training that cannot be read: what took days is not trained anew without a word.
    """
    if not (run.directory / TRAIN).exists():
        return False
    trained, weights = read_result_of(run, "train", TrainResult), run.work_directory / FINAL
    whole = weights.is_file() and sha256(weights) == trained.weights_sha256
    return whole and not is_evaluated(run, "single_scale")


def is_complete(stage: Path) -> bool:
    """Whether everything stands ready to be moved: ``train.json`` is written last."""
    return (stage / TRAIN).is_file()


def publish(run: Run, stage: Path) -> None:
    """Move what is complete to where it belongs; repeated after an interruption, it goes on.

    Results of other evaluations of an earlier training of this run are removed: their weights are gone.
    """
    if (stage / FINAL).is_file():
        move(stage / FINAL, run.work_directory / FINAL)
    for path in sorted(stage.iterdir()):
        if path.name != TRAIN:
            move(path, run.directory / path.name)
    move(stage / TRAIN, run.directory / TRAIN)
    for evaluation in EVALUATIONS:
        if not is_evaluated(run, evaluation):
            (run.directory / f"{evaluation}.json").unlink(missing_ok=True)
            confusion_path(run.directory, evaluation).unlink(missing_ok=True)
    if not run.runtime.save_work:
        (run.work_directory / FINAL).unlink(missing_ok=True)
    stage.rmdir()


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


def discard_work(work: Path) -> None:
    """Delete the checkpoints and partial state of a training that is published."""
    checkpoint.prune(work, kept=0)
    (work / HISTORY).unlink(missing_ok=True)
