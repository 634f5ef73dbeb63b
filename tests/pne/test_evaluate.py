"""Evaluating what a finished run kept."""

import json
import os
import signal
from pathlib import Path

import pytest
from tiny_runs import PNE, draw_images, write_run

from pne import evaluate, train
from pne.counts import read_confusion
from pne.engine import checkpoint, evaluation
from pne.results import EvaluationResult, read_result

CONTRAST = {"loss": PNE, "weight": 1.3, "start": 0, "projection": {"channels": 16}}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_images(tmp_path_factory.mktemp("data") / "camvid")


@pytest.fixture
def spec(tmp_path: Path, data: Path) -> Path:
    spec = write_run(tmp_path, data, iterations=8, contrast=CONTRAST)
    assert train.main([str(spec)]) == 0
    return spec


def command(evaluation: str, *arguments: object) -> int:
    return evaluate.main(["--evaluation", evaluation, *map(str, arguments)])


def result(spec: Path, evaluation: str) -> EvaluationResult:
    return read_result(spec.parent / f"{evaluation}.json", EvaluationResult)


def weights(spec: Path) -> Path:
    return spec.parents[2] / "work" / spec.parent.name / "final.pth"


def test_another_evaluation_does_not_train(spec: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in spec.parent.iterdir()}
    assert command("multi_scale_flip", spec) == 0
    after = {path.name: path.stat().st_mtime_ns for path in spec.parent.iterdir()}
    assert set(after) - set(before) == {"multi_scale_flip.json", "multi_scale_flip.confusion.npz"}
    assert before.items() <= after.items()
    found = result(spec, "multi_scale_flip")
    assert found.images == 4
    assert found.weights_sha256 == result(spec, "single_scale").weights_sha256
    counts = read_confusion(spec.parent / "multi_scale_flip.confusion.npz").total()
    assert found.aacc == pytest.approx(100 * counts.diagonal().sum() / counts.sum())


def test_the_weights_on_disk_score_as_they_did_after_training(spec: Path) -> None:
    first = result(spec, "single_scale")
    (spec.parent / "single_scale.json").unlink()
    assert command("single_scale", spec) == 0
    again = result(spec, "single_scale")
    assert (again.miou, again.aacc, again.class_iou) == (first.miou, first.aacc, first.class_iou)


def test_an_evaluation_of_these_weights_is_not_repeated(spec: Path, capsys: pytest.CaptureFixture) -> None:
    assert command("single_scale", spec) == 0
    assert "evaluated already" in capsys.readouterr().out
    path = spec.parent / "single_scale.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "weights_sha256": "of other weights", "miou": 99.0}))
    assert command("single_scale", spec) == 0
    assert result(spec, "single_scale").miou < 99.0


def test_bfloat16_is_an_option_that_the_result_tells(spec: Path) -> None:
    assert command("multi_scale_flip", "--bfloat16", spec) == 0
    assert result(spec, "multi_scale_flip").images == 4
    assert result(spec, "multi_scale_flip").bfloat16
    assert not result(spec, "single_scale").bfloat16


def test_a_result_in_bfloat16_does_not_answer_for_float32(spec: Path, capsys: pytest.CaptureFixture) -> None:
    assert command("multi_scale_flip", "--bfloat16", spec) == 0
    assert command("multi_scale_flip", spec) == 0
    assert not result(spec, "multi_scale_flip").bfloat16
    assert "evaluated already" not in capsys.readouterr().out
    assert command("multi_scale_flip", "--bfloat16", spec) == 0
    assert "evaluated already" in capsys.readouterr().out
    assert not result(spec, "multi_scale_flip").bfloat16


def test_missing_weights_name_the_command_that_restores_them(spec: Path, capsys: pytest.CaptureFixture) -> None:
    weights(spec).unlink()
    assert command("multi_scale_flip", spec) == 2
    error = capsys.readouterr().err
    assert f"{weights(spec)}: the final weights of tiny are missing" in error
    assert f"python -m pne.train --retrain {spec}" in error
    assert not (spec.parent / "multi_scale_flip.json").exists()


def test_other_weights_are_refused(spec: Path, capsys: pytest.CaptureFixture) -> None:
    content = checkpoint.load(weights(spec))
    content["state_dict"]["decode_head.conv_seg.bias"] += 1
    checkpoint.save(weights(spec), content)
    assert command("multi_scale_flip", spec) == 2
    error = capsys.readouterr().err
    assert "was measured with weights of" in error
    assert f"python -m pne.train --retrain {spec}" in error


def test_a_run_that_has_not_finished_is_told(tmp_path: Path, data: Path, capsys: pytest.CaptureFixture) -> None:
    spec = write_run(tmp_path, data)
    assert command("single_scale", spec) == 2
    assert "train.json: no such result; the run has not finished" in capsys.readouterr().err


def test_labels_that_do_not_fit_are_told_with_the_image(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    import numpy as np
    from PIL import Image

    data = draw_images(tmp_path / "camvid", test=2)
    Image.fromarray(np.full((40, 60), 40, np.uint8)).save(data / "ann_dir/test/001.png")
    spec = write_run(tmp_path, data, iterations=2)
    assert train.main([str(spec)]) == 2
    assert "001: label values 40 to 40, expected 0 to 10 and 255" in capsys.readouterr().err


def progress_of(spec: Path) -> dict:
    path = weights(spec).with_name("multi_scale_flip.progress.json")
    return json.loads(path.read_text())


def test_an_evaluation_leaves_how_it_ended(spec: Path) -> None:
    kept = weights(spec).rename(weights(spec).with_name("away.pth"))
    assert command("multi_scale_flip", spec) == 2
    told = progress_of(spec)
    assert told["state"] == "failed"
    assert "the final weights of tiny are missing" in told["error"]
    kept.rename(weights(spec))
    assert command("multi_scale_flip", spec) == 0
    assert (progress_of(spec)["state"], progress_of(spec)["error"]) == ("finished", None)


def test_an_interrupted_evaluation_says_so(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def stop(*arguments: object, **options: object) -> None:
        seen.append(progress_of(spec)["state"])
        os.kill(os.getpid(), signal.SIGTERM)
        options["between"]()

    monkeypatch.setattr(evaluation, "evaluate", stop)
    assert command("multi_scale_flip", spec) == 75
    assert seen == ["evaluating"]
    assert progress_of(spec)["state"] == "interrupted"
    assert not (spec.parent / "multi_scale_flip.json").exists()
