"""Evaluating what a finished run kept."""

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mmseg.evaluation import IoUMetric
from PIL import Image
from tiny_runs import draw_images, scored, work_of, write_run

from pne import evaluate, train
from pne.counts import BINS, read_confusion, scores
from pne.engine import checkpoint, evaluation
from pne.engine.evaluation import count_boundary, count_confidence, count_pixels, near_boundary
from pne.errors import UserError

CLASSES = 5


def command(evaluation: str, *arguments: object) -> int:
    return evaluate.main(["--evaluation", evaluation, *map(str, arguments)])


def weights(spec: Path) -> Path:
    return work_of(spec) / "final.pth"


@pytest.fixture
def spec(copied: Path) -> Path:
    """A finished run that the test may change."""
    return copied


def test_another_evaluation_does_not_train(spec: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in spec.parent.iterdir()}
    assert command("multi_scale_flip", spec) == 0
    after = {path.name: path.stat().st_mtime_ns for path in spec.parent.iterdir()}
    assert set(after) - set(before) == {"multi_scale_flip.json", "multi_scale_flip.confusion.npz"}
    assert before.items() <= after.items()
    found = scored(spec, "multi_scale_flip")
    assert found.images == 5
    assert found.weights_sha256 == scored(spec, "single_scale").weights_sha256
    counts = read_confusion(spec.parent / "multi_scale_flip.confusion.npz").total()
    assert found.aacc == pytest.approx(100 * counts.diagonal().sum() / counts.sum())


def test_an_evaluation_of_these_weights_is_not_repeated(spec: Path, capsys: pytest.CaptureFixture) -> None:
    first = scored(spec, "single_scale")
    assert command("single_scale", spec) == 0
    assert "evaluated already" in capsys.readouterr().out
    path = spec.parent / "single_scale.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "weights_sha256": "of other weights", "miou": 99.0}))
    assert command("single_scale", spec) == 0
    again = scored(spec, "single_scale")
    assert (again.miou, again.aacc, again.class_iou) == (first.miou, first.aacc, first.class_iou)


def test_a_result_in_bfloat16_does_not_answer_for_float32(spec: Path, capsys: pytest.CaptureFixture) -> None:
    assert command("multi_scale_flip", "--bfloat16", spec) == 0
    assert scored(spec, "multi_scale_flip").images == 5
    assert scored(spec, "multi_scale_flip").bfloat16
    assert not scored(spec, "single_scale").bfloat16
    assert command("multi_scale_flip", spec) == 0
    assert not scored(spec, "multi_scale_flip").bfloat16
    assert "evaluated already" not in capsys.readouterr().out
    assert command("multi_scale_flip", "--bfloat16", spec) == 0
    assert "evaluated already" in capsys.readouterr().out
    assert not scored(spec, "multi_scale_flip").bfloat16


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
    data = draw_images(tmp_path / "camvid", test=2)
    Image.fromarray(np.full((40, 60), 40, np.uint8)).save(data / "ann_dir/test/001.png")
    spec = write_run(tmp_path, data, iterations=2)
    assert train.main([str(spec)]) == 2
    assert "001: label values 40 to 40, expected 0 to 10 and 255" in capsys.readouterr().err


def progress_of(spec: Path) -> dict:
    path = weights(spec).with_name("multi_scale_flip.progress.json")
    return json.loads(path.read_text())


def test_an_evaluation_leaves_how_it_ended(spec: Path, capsys: pytest.CaptureFixture) -> None:
    kept = weights(spec).rename(weights(spec).with_name("away.pth"))
    assert command("multi_scale_flip", spec) == 2
    error = capsys.readouterr().err
    assert f"{weights(spec)}: the final weights of pne are missing" in error
    assert f"python -m pne.train --retrain {spec}" in error
    assert not (spec.parent / "multi_scale_flip.json").exists()
    told = progress_of(spec)
    assert told["state"] == "failed"
    assert told["error"] in error
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


def test_labels_of_another_size_are_told() -> None:
    with pytest.raises(UserError, match=r"\(4, 4\) for a label of shape \(4, 5\)"):
        count_pixels(torch.zeros(4, 4, dtype=torch.long), torch.zeros(4, 5, dtype=torch.long), CLASSES)


def label_pair(seed: int, classes: int = CLASSES, used: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, used or classes, (13, 17), generator=generator)
    predicted = torch.where(torch.rand(13, 17, generator=generator) < 0.6, labels, labels.flip(0))
    labels[:2] = 255
    return predicted, labels


def test_counts_every_labelled_pixel_once() -> None:
    predicted, labels = label_pair(0)
    expected = np.zeros((CLASSES, CLASSES), dtype=np.int64)
    for true, guess in zip(labels.flatten().tolist(), predicted.flatten().tolist(), strict=True):
        if true != 255:
            expected[true, guess] += 1
    np.testing.assert_array_equal(count_pixels(predicted, labels, CLASSES).numpy(), expected)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), used=st.integers(1, CLASSES), images=st.integers(1, 4))
def test_metrics_agree_with_mmseg_after_its_rounding(seed: int, used: int, images: int) -> None:
    pairs = [label_pair(seed + i, used=used) for i in range(images)]
    metric = IoUMetric()
    metric.dataset_meta = {"classes": [str(c) for c in range(CLASSES)]}
    metric.process({}, [_sample(*pair) for pair in pairs])
    areas = [sum(parts) for parts in zip(*metric.results, strict=True)]
    theirs = metric.compute_metrics(metric.results)
    miou, aacc, iou = scores(sum(count_pixels(*pair, CLASSES).numpy() for pair in pairs))
    assert miou == pytest.approx(theirs["mIoU"], abs=0.00501)
    assert aacc == pytest.approx(theirs["aAcc"], abs=0.00501)
    expected = (100 * areas[0] / areas[1]).tolist()
    assert [value is None for value in iou] == [np.isnan(value) for value in expected]
    assert [v for v in iou if v is not None] == pytest.approx([v for v in expected if not np.isnan(v)], rel=1e-6)


def _sample(predicted: torch.Tensor, labels: torch.Tensor) -> dict:
    return {"pred_sem_seg": {"data": predicted[None]}, "gt_sem_seg": {"data": labels[None]}}


def reference_boundary(classes: np.ndarray, counted: np.ndarray, distance: int = 3) -> np.ndarray:
    """Pixels with another class within the square around them, one by one."""
    found = np.zeros(classes.shape, bool)
    for y, x in zip(*np.nonzero(counted), strict=True):
        window = np.s_[max(0, y - distance) : y + distance + 1, max(0, x - distance) : x + distance + 1]
        found[y, x] = (counted[window] & (classes[window] != classes[y, x])).any()
    return found


def test_the_boundary_counts_are_those_of_the_definition() -> None:
    generator = torch.Generator().manual_seed(0)
    coarse = torch.randint(0, CLASSES, (3, 4), generator=generator)
    labels = coarse.repeat_interleave(12, 0).repeat_interleave(11, 1)
    predicted = labels.roll((2, 1), (0, 1))
    labels[5:9, 20:30] = 255
    labels[:, :2] = 255
    counted = (labels != 255).numpy()
    true, guess = (reference_boundary(one.numpy(), counted) for one in (labels, predicted))
    assert np.array_equal(near_boundary(labels, labels != 255).numpy(), true)
    expected = np.zeros((CLASSES, 3), int)
    for c in range(CLASSES):
        t, g = true & (labels.numpy() == c), guess & (predicted.numpy() == c)
        expected[c] = (t & g).sum(), t.sum(), g.sum()
    assert expected[:, 0].any()
    assert count_boundary(predicted, labels, CLASSES).tolist() == expected.tolist()


def test_the_confidence_counts_are_those_of_the_definition() -> None:
    generator = torch.Generator().manual_seed(0)
    confidence = torch.cat([torch.rand(500, generator=generator), torch.tensor([1.0, 1 / BINS, 1e-9])])
    correct = torch.rand(503, generator=generator) < confidence
    expected = np.zeros((BINS, 3))
    for value, right in zip(confidence.tolist(), correct.tolist(), strict=True):
        lower = next(b for b in range(BINS) if value <= np.float32(b + 1) / np.float32(BINS) or b == BINS - 1)
        expected[lower] += (1, right, value)
    np.testing.assert_allclose(count_confidence(confidence, correct).numpy(), expected, rtol=1e-12)


def test_one_pass_counts_all_scores_of_both_evaluations(spec: Path) -> None:
    assert command("multi_scale_flip", spec) == 0
    for name in ("single_scale", "multi_scale_flip"):
        found = read_confusion(spec.parent / f"{name}.confusion.npz")
        assert found.boundary.shape == (5, 11, 3)
        assert found.calibration.shape == (5, BINS, 3)
        total = found.total()
        assert found.calibration[..., 0].sum() == total.sum()
        assert found.calibration[..., 1].sum() == total.trace()
        assert (found.boundary[..., 0] <= found.boundary[..., 1]).all()
        assert 1 / 11 <= found.calibration[..., 2].sum() / total.sum() <= 1


def test_cudnn_tries_no_algorithms_while_images_of_many_sizes_pass(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, single = [], evaluation.predict

    def look(*arguments: object, **options: object) -> object:
        seen.append(torch.backends.cudnn.benchmark)
        return single(*arguments, **options)

    monkeypatch.setattr(evaluation, "predict", look)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    assert command("single_scale", "--again", spec) == 0
    assert seen == [False]
    assert torch.backends.cudnn.benchmark is True
