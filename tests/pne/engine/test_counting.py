"""Counts, and the metrics computed from them, against loops and against mmseg's own metric."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mmseg.evaluation import IoUMetric

from pne.counts import Confusion, read_confusion, scores, sparse_counts, write_confusion
from pne.engine.evaluation import count_pixels
from pne.errors import UserError

CLASSES = 5


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


def test_a_class_that_is_predicted_but_never_labelled_counts_as_zero() -> None:
    matrix = np.array([[6, 2, 0], [0, 0, 0], [0, 0, 0]])
    miou, aacc, iou = scores(matrix)
    assert (miou, aacc, iou) == (37.5, 75.0, [75.0, 0.0, None])


def test_nothing_but_ignored_pixels_is_an_error() -> None:
    with pytest.raises(UserError, match="every pixel is ignored"):
        scores(np.zeros((3, 3), dtype=np.int64))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.full((4, 4), 7), r"label values 7 to 7, expected 0 to 4 and 255"),
        (torch.zeros(4, 5, dtype=torch.long), r"\(4, 4\) for a label of shape \(4, 5\)"),
    ],
)
def test_unfit_labels_are_named(labels: torch.Tensor, message: str) -> None:
    with pytest.raises(UserError, match=message):
        count_pixels(torch.zeros(4, 4, dtype=torch.long), labels, CLASSES)


def test_the_file_holds_each_images_counts(tmp_path: Path) -> None:
    matrices = [count_pixels(*label_pair(seed), CLASSES) for seed in range(3)]
    images = [sparse_counts(f"image {index}", matrix.numpy()) for index, matrix in enumerate(matrices)]
    write_confusion(tmp_path / "counts.npz", Confusion.of(images, CLASSES))
    with np.load(tmp_path / "counts.npz", allow_pickle=False) as data:
        assert data["shape"].tolist() == [3, CLASSES, CLASSES]
        assert data["names"].tolist() == ["image 0", "image 1", "image 2"]
        dense = np.zeros(data["shape"], dtype=np.int64)
        dense[data["image"], data["true"], data["predicted"]] = data["count"]
    np.testing.assert_array_equal(dense, np.stack([matrix.numpy() for matrix in matrices]))
    np.testing.assert_array_equal(read_confusion(tmp_path / "counts.npz").total(), dense.sum(0))
