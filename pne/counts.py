"""Counts of an evaluation, per image: their file, and the scores computed from them; numpy alone."""

import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pne.errors import UserError
from pne.files import written_aside

BINS = 15
"""Equal bins of the confidence, for the calibration error [Guo et al. 2017]."""
OTHERS = ("boundary", "calibration")  # not in files of before they were counted


class ImageCounts(NamedTuple):
    """The counts of one image: the non-zero ones of its confusion, shape (E,); the others as in `Confusion`."""

    name: str
    true: NDArray[np.integer]
    predicted: NDArray[np.integer]
    count: NDArray[np.int64]
    boundary: NDArray[np.int64] | None = None
    calibration: NDArray[np.float64] | None = None


def sparse_counts(name: str, matrix: NDArray[np.int64], **others: NDArray) -> ImageCounts:
    """Keep the non-zero entries of one image's (C, C) counts, true class by row, and its other counts."""
    true, predicted = np.nonzero(matrix)
    return ImageCounts(name, true.astype(np.int32), predicted.astype(np.int32), matrix[true, predicted], **others)


@dataclass(frozen=True)
class Confusion:
    """Sparse confusion counts of a set of images; entry k says how often what was taken for what in which image.

    Attributes
    ----------
    image, true, predicted : ndarray, shape (E,), integer
        Index of the image in ``names``, labelled class, predicted class.
    count : ndarray, shape (E,), int64
        Pixels, > 0.
    names : tuple of str
        One per image, in order.
    num_classes : int
        C.
    boundary : ndarray, shape (I, C, 3), int64, optional
        Per image and class, among pixels near a boundary: true positives, labelled and predicted pixels.
    calibration : ndarray, shape (I, BINS, 3), float64, optional
        Per image and bin of the confidence: pixels, correct ones, sum of the confidences.
    """

    image: NDArray[np.integer]
    true: NDArray[np.integer]
    predicted: NDArray[np.integer]
    count: NDArray[np.int64]
    names: tuple[str, ...]
    num_classes: int
    boundary: NDArray[np.int64] | None = None
    calibration: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, images: Sequence[ImageCounts], num_classes: int) -> "Confusion":
        """Join the counts of images, in the order given."""
        return cls(
            image=np.concatenate([np.full(len(one.count), index, np.int32) for index, one in enumerate(images)]),
            true=np.concatenate([one.true for one in images]),
            predicted=np.concatenate([one.predicted for one in images]),
            count=np.concatenate([one.count for one in images]),
            names=tuple(one.name for one in images),
            num_classes=num_classes,
            **{
                name: np.stack([getattr(one, name) for one in images])
                for name in OTHERS
                if all(getattr(one, name) is not None for one in images)
            },
        )

    def total(self) -> NDArray[np.int64]:
        """Sum over the images; shape (C, C), true class by row, predicted class by column."""
        matrix = np.zeros((self.num_classes, self.num_classes), dtype=np.int64)
        np.add.at(matrix, (self.true, self.predicted), self.count)
        return matrix

    def per_image(self, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Sum chosen entries by image, shape (I,)."""
        return np.bincount(self.image[chosen], self.count[chosen], len(self.names)).astype(np.int64)

    def per_class(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Count true positives, labelled and predicted pixels of each image and class, shape (I, C) each."""
        shape = (len(self.names), self.num_classes)

        def summed(of: NDArray[np.integer], weights: NDArray[np.int64]) -> NDArray[np.int64]:
            place = self.image.astype(np.int64) * self.num_classes + of
            return np.bincount(place, weights, shape[0] * shape[1]).reshape(shape).astype(np.int64)

        hits = summed(self.true, self.count * (self.true == self.predicted))
        return hits, summed(self.true, self.count), summed(self.predicted, self.count)


def write_confusion(path: Path, confusion: Confusion) -> None:
    """Write ``image``, ``true``, ``predicted``, ``count``, ``names`` and ``shape`` (images, C, C), atomically.

    ``boundary`` and ``calibration`` are written where they were counted.
    """
    shape = (len(confusion.names), confusion.num_classes, confusion.num_classes)
    others = {name: array for name in OTHERS if (array := getattr(confusion, name)) is not None}
    with written_aside(path) as aside:
        np.savez_compressed(
            aside,
            image=confusion.image,
            true=confusion.true,
            predicted=confusion.predicted,
            count=confusion.count,
            names=np.array(confusion.names, dtype=np.str_),
            shape=np.array(shape, dtype=np.int64),
            **others,
        )


def read_confusion(path: Path) -> Confusion:
    """Read a ``<evaluation>.confusion.npz``.

    Raises
    ------
    UserError
        If the file is missing or damaged.
    """
    try:
        with np.load(path, allow_pickle=False) as data:
            arrays = [data[key] for key in ("image", "true", "predicted", "count")]
            names, shape = tuple(data["names"].tolist()), data["shape"].tolist()
            others = {name: data[name] for name in OTHERS if name in data}
            found = Confusion(*arrays, names=names, num_classes=int(shape[1]), **others)
    except (OSError, ValueError, KeyError, IndexError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"{path}: no readable confusion counts ({error}); run the evaluation again") from error
    if len(names) != shape[0]:
        raise UserError(f"{path}: {len(names)} names for {shape[0]} images; run the evaluation again")
    return found


def class_iou(
    hits: NDArray[np.number], labelled: NDArray[np.number], predicted: NDArray[np.number]
) -> NDArray[np.float64]:
    """Compute TP / (TP + FP + FN).

    Parameters
    ----------
    hits, labelled, predicted : ndarray, shape (..., C)
        True positives, pixels labelled as the class, pixels predicted as the class.

    Returns
    -------
    ndarray, shape (..., C), float64
        Percent; NaN for a class neither labelled nor predicted.
    """
    union = np.asarray(labelled + predicted - hits, np.float64)
    return np.divide(100 * hits, union, out=np.full(union.shape, np.nan), where=union > 0)


def mean_of_known(values: NDArray[np.float64], axis: int = -1) -> NDArray[np.float64]:
    """Average what is no NaN along an axis, as the mIoU does the classes that occur; NaN where nothing is known."""
    there = np.isfinite(values)
    total = np.where(there, values, 0).sum(axis)
    return np.divide(total, there.sum(axis), out=np.full(total.shape, np.nan), where=there.any(axis))


def scores(matrix: NDArray[np.int64]) -> tuple[float, float, list[float | None]]:
    """Compute mIoU, pixel accuracy and IoU per class from summed counts.

    Parameters
    ----------
    matrix : ndarray, shape (C, C), integer
        True class by row.

    Returns
    -------
    miou, aacc : float
        Percent, unrounded. mIoU averages the classes that are labelled or predicted somewhere.
    iou : list of float or None
        Percent per class; None for a class neither labelled nor predicted.

    Raises
    ------
    UserError
        If no pixel was counted.
    """
    if not matrix.any():
        raise UserError("no labelled pixel in the evaluated images: every pixel is ignored; check the labels")
    hits = np.diagonal(matrix)
    iou = class_iou(hits, matrix.sum(1), matrix.sum(0))
    there = np.isfinite(iou)
    per_class = [float(value) if known else None for value, known in zip(iou, there, strict=True)]
    return float(iou[there].mean()), float(100 * hits.sum() / matrix.sum()), per_class


def boundary_iou(confusion: Confusion) -> float | None:
    """Average the IoU of the classes among pixels near a boundary, percent; None where there are none.

    [Cheng et al. 2021, Boundary IoU]; how the pixels are chosen is said at `pne.engine.evaluation.near_boundary`.
    """
    if confusion.boundary is None:
        return None
    iou = class_iou(*confusion.boundary.sum(0).T)
    return float(mean_of_known(iou)) if np.isfinite(iou).any() else None


def calibration_error(confusion: Confusion) -> float | None:
    """Compute the expected calibration error, percent: mean over pixels of |accuracy - confidence| of their bin.

    [Guo et al. 2017, On Calibration of Modern Neural Networks, Eq. 3]; None where it was not counted.
    """
    if confusion.calibration is None:
        return None
    pixels, correct, confidence = confusion.calibration.sum(0).T
    return float(100 * np.abs(correct - confidence).sum() / pixels.sum())
