"""Evaluating what a finished run kept."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mmseg.evaluation import IoUMetric
from PIL import Image
from tiny_runs import draw_images, progress_of, scored, work_of, write_run

from pne import evaluate, train
from pne.counts import BINS, read_confusion, scores
from pne.engine import evaluation
from pne.engine.evaluation import count_boundary, count_confidence, count_pixels, near_boundary
from pne.errors import UserError

CLASSES = 5


def command(evaluation: str, *arguments: object) -> int:
    return evaluate.main(["--evaluation", evaluation, *map(str, arguments)])


def test_another_evaluation_does_not_train_and_one_pass_counts_all_scores(copied: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in copied.parent.iterdir()}
    assert command("multi_scale_flip", copied) == 0
    after = {path.name: path.stat().st_mtime_ns for path in copied.parent.iterdir()}
    assert set(after) - set(before) == {"multi_scale_flip.json", "multi_scale_flip.confusion.npz"}
    assert before.items() <= after.items()
    found, other = scored(copied, "multi_scale_flip"), scored(copied)
    assert (found.images, found.weights_sha256) == (5, other.weights_sha256)
    for score in (found, other):
        counts = read_confusion(copied.parent / f"{score.evaluation}.confusion.npz")
        assert (counts.boundary.shape, counts.calibration.shape) == ((5, 11, 3), (5, BINS, 3))
        pixels, correct, confidence = counts.calibration.sum((0, 1))
        assert (pixels, correct) == (counts.total().sum(), counts.total().trace())
        assert score.aacc == pytest.approx(100 * correct / pixels)
        assert (counts.boundary[..., 0] <= counts.boundary[..., 1]).all()
        assert 1 / 11 <= confidence / pixels <= 1


def test_an_evaluation_of_these_weights_is_not_repeated(copied: Path, capsys: pytest.CaptureFixture) -> None:
    path = copied.parent / "single_scale.json"
    first = scored(copied).model_dump(include={"miou", "class_iou", "weights_sha256"})
    assert command("single_scale", copied) == 0
    assert "evaluated already" in capsys.readouterr().out
    for spoilt in ({"weights_sha256": "of other weights"}, {"miou": 99.0}):
        path.write_text(json.dumps({**json.loads(path.read_text()), **spoilt}))
        assert command("single_scale", copied) == 0
        assert first.items() <= scored(copied).model_dump().items()


def test_a_result_in_bfloat16_does_not_answer_for_float32(copied: Path, capsys: pytest.CaptureFixture) -> None:
    for options, bfloat16, repeated in (
        (["--bfloat16"], True, False),
        ([], False, False),
        (["--bfloat16"], False, True),
    ):
        assert command("multi_scale_flip", *options, copied) == 0
        assert scored(copied, "multi_scale_flip").bfloat16 == bfloat16
        assert ("evaluated already" in capsys.readouterr().out) == repeated
    assert not scored(copied).bfloat16


def test_a_run_that_has_not_finished_is_told(tmp_path: Path, data: Path, error_of: Callable) -> None:
    error = error_of(evaluate.main, "--evaluation", "single_scale", write_run(tmp_path, data))
    assert "train.json: no such result; the run has not finished" in error


def test_labels_that_do_not_fit_are_told_with_the_image(tmp_path: Path, error_of: Callable) -> None:
    data = draw_images(tmp_path / "camvid", test=2)
    Image.fromarray(np.full((40, 60), 40, np.uint8)).save(data / "ann_dir/test/001.png")
    error = error_of(train.main, write_run(tmp_path, data, iterations=2))
    assert "001: label values 40 to 40, expected 0 to 10 and 255" in error


PROGRESS = "multi_scale_flip.progress.json"


def test_an_evaluation_leaves_how_it_ended(copied: Path, error_of: Callable) -> None:
    weights = work_of(copied) / "final.pth"
    kept = weights.rename(weights.with_name("away.pth"))
    for message in (f"{weights}: the final weights of pne are missing", "was measured with weights of"):
        error = error_of(evaluate.main, "--evaluation", "multi_scale_flip", copied)
        told = progress_of(copied, PROGRESS)
        assert told["state"] == "failed"
        assert message in told["error"]
        assert told["error"].endswith(f"python -m pne.train --retrain {copied}")
        assert told["error"] in error
        assert not (copied.parent / "multi_scale_flip.json").exists()
        weights.write_bytes(b"of another training")
    kept.rename(weights)
    assert command("multi_scale_flip", copied) == 0
    told = progress_of(copied, PROGRESS)
    assert (told["state"], told["error"]) == ("finished", None)


def test_an_interrupted_evaluation_says_so(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*arguments: object, **options: object) -> None:
        assert progress_of(copied, PROGRESS)["state"] == "evaluating"
        os.kill(os.getpid(), signal.SIGTERM)
        options["between"]()

    monkeypatch.setattr(evaluation, "evaluate", stop)
    assert command("multi_scale_flip", copied) == 75
    assert progress_of(copied, PROGRESS)["state"] == "interrupted"
    assert not (copied.parent / "multi_scale_flip.json").exists()


def test_labels_of_another_size_are_told() -> None:
    with pytest.raises(UserError, match=r"\(4, 4\) for a label of shape \(4, 5\)"):
        count_pixels(torch.zeros(4, 4, dtype=torch.long), torch.zeros(4, 5, dtype=torch.long), CLASSES)


def label_pair(seed: int, used: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, used, (13, 17), generator=generator)
    predicted = torch.where(torch.rand(13, 17, generator=generator) < 0.6, labels, labels.flip(0))
    labels[:2] = 255
    return predicted, labels


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), used=st.integers(1, CLASSES), images=st.integers(1, 4))
def test_metrics_agree_with_mmseg_after_its_rounding(seed: int, used: int, images: int) -> None:
    pairs = [label_pair(seed + i, used) for i in range(images)]
    metric = IoUMetric()
    metric.dataset_meta = {"classes": [str(c) for c in range(CLASSES)]}
    metric.process({}, [{"pred_sem_seg": {"data": p[None]}, "gt_sem_seg": {"data": t[None]}} for p, t in pairs])
    areas = [sum(parts) for parts in zip(*metric.results, strict=True)]
    theirs = metric.compute_metrics(metric.results)
    counts = sum(count_pixels(*pair, CLASSES) for pair in pairs)
    for true, guess in np.ndindex(CLASSES, CLASSES):
        assert counts[true, guess] == sum(((labels == true) & (found == guess)).sum() for found, labels in pairs)
    miou, aacc, iou = scores(counts.numpy())
    assert miou == pytest.approx(theirs["mIoU"], abs=0.00501)
    assert aacc == pytest.approx(theirs["aAcc"], abs=0.00501)
    expected = (100 * areas[0] / areas[1]).tolist()
    assert [value is None for value in iou] == [np.isnan(value) for value in expected]
    assert [v for v in iou if v is not None] == pytest.approx([v for v in expected if not np.isnan(v)], rel=1e-6)


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
    of_class = [(true & (labels.numpy() == c), guess & (predicted.numpy() == c)) for c in range(CLASSES)]
    expected = [[(t & g).sum(), t.sum(), g.sum()] for t, g in of_class]
    assert any(both for both, _, _ in expected)
    assert count_boundary(predicted, labels, CLASSES).tolist() == expected


def test_the_confidence_counts_are_those_of_the_definition() -> None:
    generator = torch.Generator().manual_seed(0)
    confidence = torch.cat([torch.rand(500, generator=generator), torch.tensor([1.0, 1 / BINS, 1e-9])])
    correct = torch.rand(503, generator=generator) < confidence
    expected = np.zeros((BINS, 3))
    for value, right in zip(confidence.tolist(), correct.tolist(), strict=True):
        lower = next(b for b in range(BINS) if value <= np.float32(b + 1) / np.float32(BINS) or b == BINS - 1)
        expected[lower] += (1, right, value)
    np.testing.assert_allclose(count_confidence(confidence, correct).numpy(), expected, rtol=1e-12)


def test_cudnn_tries_no_algorithms_while_images_of_many_sizes_pass(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, single, cudnn = [], evaluation.predict, torch.backends.cudnn
    monkeypatch.setattr(evaluation, "predict", lambda *a, **k: seen.append(cudnn.benchmark) or single(*a, **k))
    monkeypatch.setattr(cudnn, "benchmark", True)
    assert command("single_scale", "--again", copied) == 0
    assert (seen, cudnn.benchmark) == ([False], True)
