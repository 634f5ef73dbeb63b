"""Made-up arrays as the extraction stores them, and the files that training and extraction leave for the figures."""

import json
from pathlib import Path

import numpy as np

from analysis.figures import SELECTION, ResolvedFigure, data_folder, features_file
from pne.extract.archives import Features, ImageSelection, Pairs, Predictions, read_selection
from pne.results import finished_result
from pne.spec import ResolvedTrack, Run

CLASSES = ("sky", "building", "pole", "tree")
PALETTE = np.array([(128, 128, 128), (128, 0, 0), (250, 250, 220), (128, 128, 0)], np.uint8)


def made_up_features(run: str = "run", seed: int = 0, per_class: int = 12, projection: bool = False) -> Features:
    """Clusters by class; the first pixels of each class are in the sample by label, the correct ones in both."""
    random = np.random.default_rng(seed)
    label = np.repeat(np.arange(4), per_class).astype(np.int16)
    number = len(label)
    prediction = label.copy()
    prediction[::5] = (label[::5] + 1) % 4
    by_label = np.tile(np.arange(per_class) < per_class - 3, 4)
    return Features(
        about={"run": run, "per_class": per_class, "weights_sha256": "0" * 64},
        penultimate=(np.eye(4)[label] * 3 + random.normal(size=(number, 4))).astype(np.float32),
        projection=random.normal(size=(number, 6)).astype(np.float32) if projection else None,
        label=label,
        prediction=prediction,
        confidence=random.random(number).astype(np.float32),
        image=(np.arange(number) % 6).astype(np.int32),
        position=np.stack([np.arange(number) // 8, np.arange(number) % 8], 1).astype(np.int32),
        grid=np.full((number, 2), 8, np.int32),
        by_label=by_label,
        by_correct=prediction == label,
        names=np.array([f"{i}" for i in range(6)]),
        classes=np.array(CLASSES),
        palette=PALETTE,
    )


def made_up_predictions(run: str, seed: int) -> Predictions:
    """Two images of different sizes."""
    random = np.random.default_rng(seed)
    label = np.random.default_rng(9).integers(0, 4, (2, 12, 20)).astype(np.uint8)
    label[:, :1] = 255
    prediction = np.where(random.random(label.shape) < 0.7, np.minimum(label, 3), 0).astype(np.uint8)
    return Predictions(
        about={"run": run},
        image=random.integers(0, 255, (2, 12, 20, 3)).astype(np.uint8),
        label=label,
        prediction=prediction,
        size=np.array([(12, 20), (10, 16)], np.int32),
        index=np.array([4, 1], np.int32),
        names=np.array(["four", "one"]),
        classes=np.array(CLASSES),
        palette=PALETTE,
    )


def made_up_pairs() -> Pairs:
    """One confusion of tree with building, on a feature map of 4 x 6 cells whose last column is padding."""
    predictions = made_up_predictions("run", 0)
    image, label, _ = predictions.panel(0)
    return Pairs(
        about={"name": "four", "true_class": 3, "predicted_class": 1, "choice": "The first of them."},
        image=image,
        label=label,
        prediction=np.arange(24, dtype=np.uint8).reshape(4, 6) % 4,
        extent=np.array([12, 25], np.int32),
        candidates=np.array([(0, 0), (1, 1), (3, 4)], np.int32),
        anchors=np.array([(0, 0), (3, 4)], np.int32),
        positives=np.array([(2, 2)], np.int32),
        negatives=np.array([(1, 0), (1, 2)], np.int32),
        classes=np.array(CLASSES),
        palette=PALETTE,
    )


def run_of(track: ResolvedTrack, table: str, row: str, seed: int = 0) -> Run:
    """Return the run behind a row of a table."""
    return track.runs[track.tables[table].rows[row].runs[seed]]


def change(path: Path, **values: object) -> None:
    """Change keys of a result, wherever they stand."""
    content = json.loads(path.read_text())
    for key, value in values.items():
        (content["provenance"] if key in content["provenance"] else content)[key] = value
    path.write_text(json.dumps(content))


def write_history(run: Run, contrast: float = 0.5) -> None:
    """Write two lines of the curves of a training."""
    lines = [{"iter": i, "decode.loss_ce": 1 / i, "loss_contrast": contrast} for i in (10, 20)]
    (run.directory / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_progress(run: Run, name: str = "progress.json", **content: object) -> None:
    """Write what a training, or an evaluation, reports of itself."""
    run.work_directory.mkdir(parents=True, exist_ok=True)
    (run.work_directory / name).write_text(json.dumps(content))


def write_features(track: ResolvedTrack) -> None:
    """Write features of every run of table embedding; cross entropy has no projection."""
    for row in track.tables["embedding"].rows.values():
        for seed, run in row.runs.items():
            features = made_up_features(run, seed=seed + len(run), projection=row.key != "base")
            if trained := finished_result(track.runs[run], "train"):
                features.about["weights_sha256"] = trained.weights_sha256
            features.write(features_file(track.runs[run]))


def write_predictions(figure: ResolvedFigure, track: ResolvedTrack) -> ImageSelection:
    """Write predictions of the images that were selected for a figure, and return the selection."""
    folder = data_folder(figure, track)
    selection = read_selection(folder / SELECTION, ImageSelection)
    rows = np.arange(len(selection.images)) % 2
    for seed, run in enumerate(figure.first_seed_runs):
        predictions = made_up_predictions(run, seed)
        for name in ("image", "label", "prediction", "size"):
            setattr(predictions, name, getattr(predictions, name)[rows])
        predictions.index = np.array([image.index for image in selection.images], np.int32)
        predictions.names = np.array([image.name for image in selection.images])
        predictions.write(folder / f"{run}.npz")
    return selection
