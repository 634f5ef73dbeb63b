"""Confusion counts: the file as the evaluation writes it, and the IoU of each class."""

from pathlib import Path

import numpy as np
import pytest

from pne.counts import (
    BINS,
    Confusion,
    boundary_iou,
    calibration_error,
    class_iou,
    mean_of_known,
    read_confusion,
    scores,
    sparse_counts,
    write_confusion,
)
from pne.errors import UserError


@pytest.fixture
def matrices() -> np.ndarray:
    """Counts of five images, true class by row; the last of four classes never occurs in the first image."""
    found = np.random.default_rng(0).poisson(2, size=(5, 4, 4))
    found[0, 3], found[0, :, 3] = 0, 0
    return found


@pytest.fixture
def path(tmp_path: Path, matrices: np.ndarray) -> Path:
    """The file that an evaluation leaves."""
    images = [sparse_counts(name, matrix) for name, matrix in zip("abcde", matrices, strict=True)]
    write_confusion(tmp_path / "single_scale.confusion.npz", Confusion.of(images, 4))
    return tmp_path / "single_scale.confusion.npz"


def test_counts_of_images_and_classes_are_those_of_the_matrices(path, matrices):
    found = read_confusion(path)
    assert (found.names, found.num_classes) == (tuple("abcde"), 4)
    assert (boundary_iou(found), calibration_error(found)) == (None, None)  # as in files of before
    dense = np.zeros(matrices.shape, int)
    dense[found.image, found.true, found.predicted] = found.count
    hits = np.einsum("icc->ic", matrices)
    wrong = found.per_image(found.true != found.predicted)
    for one, other in (
        (dense, matrices),
        (found.total(), matrices.sum(0)),
        (np.stack(found.per_class()), np.stack([hits, matrices.sum(2), matrices.sum(1)])),
        (wrong, matrices.sum((1, 2)) - hits.sum(1)),
    ):
        np.testing.assert_array_equal(one, other)


def test_iou_is_the_ratio_of_sums_and_the_mean_leaves_out_what_never_occurs(path, matrices):
    iou, hits = class_iou(*read_confusion(path).per_class()), np.einsum("icc->ic", matrices)
    union = matrices.sum(2) + matrices.sum(1) - hits
    np.testing.assert_allclose(iou, 100 * hits / np.where(union, union, np.nan))
    assert np.isnan(iou[0]).tolist() == [False, False, False, True]
    np.testing.assert_allclose(mean_of_known(iou)[0], iou[0, :3].mean())
    assert np.isnan(mean_of_known(np.full((1, 3), np.nan))).all()


@pytest.mark.parametrize("damage", ["missing", "no archive", "half", "no end", "spoilt", "no names"])
def test_missing_and_damaged_files_are_one_clear_error(path, damage):
    whole = path.read_bytes()
    spoilt = whole[:60] + bytes(60) + whole[120:]
    contents = {"no archive": b"PK", "half": whole[: len(whole) // 2], "no end": whole[:-30], "spoilt": spoilt}
    path.unlink()
    if damage == "no names":
        np.savez(path, image=np.zeros(1, int))
    elif damage != "missing":
        path.write_bytes(contents[damage])
    with pytest.raises(
        UserError, match=r"single_scale\.confusion\.npz: no readable confusion counts .* evaluation again"
    ):
        read_confusion(path)


def test_names_that_do_not_fit_the_images_are_refused(path):
    with np.load(path) as data:
        arrays = dict(data)
    np.savez(path, **arrays | {"names": np.array(["a"])})
    with pytest.raises(UserError, match="1 names for 5 images; run the evaluation again"):
        read_confusion(path)


def test_a_class_that_is_predicted_but_never_labelled_counts_as_zero() -> None:
    matrix = np.array([[6, 2, 0], [0, 0, 0], [0, 0, 0]])
    miou, aacc, iou = scores(matrix)
    assert (miou, aacc, iou) == (37.5, 75.0, [75.0, 0.0, None])


def test_nothing_but_ignored_pixels_is_an_error() -> None:
    with pytest.raises(UserError, match="every pixel is ignored"):
        scores(np.zeros((3, 3), dtype=np.int64))


def test_boundary_iou_and_calibration_error_are_ratios_of_sums(path, matrices):
    boundary = np.zeros((5, 4, 3), int)
    boundary[:, 0], boundary[0, 1], boundary[:, 2] = (2, 4, 3), (0, 5, 0), (0, 0, 0)
    calibration = np.zeros((5, BINS, 3))
    calibration[:, 3], calibration[:, 9] = (10, 5, 2.5), (30, 15, 18)
    images = [
        sparse_counts(name, *parts[:1], boundary=parts[1], calibration=parts[2])
        for name, *parts in zip("abcde", matrices, boundary, calibration, strict=True)
    ]
    write_confusion(path, Confusion.of(images, 4))
    found = read_confusion(path)
    assert boundary_iou(found) == pytest.approx((100 * 2 / 5 + 0) / 2)
    assert calibration_error(found) == pytest.approx(100 * (2.5 + 3) / 40)
