"""Results vouch for themselves: edited, exchanged and missing files are refused; those of before digests are read."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.results import collect_runs
from pne.counts import read_confusion, scores
from pne.engine.publication import is_evaluated
from pne.errors import UserError
from pne.files import sha256
from pne.results import EvaluationResult, TrainResult, read_result_of
from pne.spec import read_config, read_spec

OLD = Path(__file__).with_name("results_of_4dbb644") / "runs/tiny"


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_a_result_names_the_digests_of_what_lies_beside_it(copied: Path) -> None:
    run = read_spec(copied)
    trained = read_result_of(run, "train", TrainResult)
    scored = read_result_of(run, "single_scale", EvaluationResult)
    for result in (trained, scored):
        assert (result.config_sha256, result.spec_sha256) == (run.config_sha256, run.identity_sha256)
    assert scored.counts_sha256 == sha256(copied.parent / "single_scale.confusion.npz")
    assert 0 < scored.boundary_iou < 100
    assert 0 < scored.calibration_error < 100


def other_counts(folder: Path) -> None:
    with np.load(folder / "single_scale.confusion.npz") as data:
        arrays = dict(data)
    np.savez(folder / "single_scale.confusion.npz", **arrays | {"count": arrays["count"] + 1})


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: change(folder / "single_scale.json", miou=99.9), "its scores are not those of its counts"),
        (lambda folder: change(folder / "single_scale.json", calibration_error=0.1), "scores are not those of its cou"),
        (lambda folder: change(folder / "single_scale.json", boundary_iou=0.1), "its scores are not those of its coun"),
        (other_counts, "was computed from counts of"),
        (lambda folder: (folder / "single_scale.confusion.npz").unlink(), "its counts single_scale.confusion.npz are"),
        (lambda folder: change(folder / "single_scale.json", run="other"), "holds a result of run other"),
        (lambda folder: change(folder / "single_scale.json", config_sha256="0" * 64), "measured with other settings"),
        (lambda folder: change(folder / "train.json", spec_sha256="0" * 64), "it was measured with other settings"),
    ],
)
def test_what_does_not_belong_together_is_refused(copied: Path, spoil: Callable[[Path], None], message: str) -> None:
    run = read_spec(copied)
    assert is_evaluated(run, "single_scale")
    spoil(copied.parent)
    assert not is_evaluated(run, "single_scale")
    (record,) = collect_runs([run]).to_dict("records")
    assert record["state"] == "failed"
    assert message in record["error"]


def test_results_of_before_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "results/runs/tiny"
    shutil.copytree(OLD, folder)
    spec = folder / "spec.yaml"
    spec.write_text(spec.read_text().replace("results: results", f"results: {tmp_path / 'results'}"))
    run = read_spec(spec)
    assert read_config(spec)["train_cfg"]["max_iters"] == 4
    trained = read_result_of(run, "train", TrainResult)
    scored = read_result_of(run, "single_scale", EvaluationResult)
    assert (trained.spec_sha256, trained.provenance.cpu, scored.counts_sha256, scored.boundary_iou) == (None,) * 4
    confusion = read_confusion(folder / "single_scale.confusion.npz")
    assert (confusion.boundary, confusion.calibration) == (None, None)
    assert scored.miou == scores(confusion.total())[0]
    assert is_evaluated(run, "single_scale")
    assert collect_runs([run])["state"].tolist() == ["finished"]
    with pytest.raises(UserError, match="no such result"):
        read_result_of(run, "multi_scale_flip", EvaluationResult)
