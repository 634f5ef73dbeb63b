"""Confusion counts of images, the metrics computed from them, and their sparse file."""

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pne.errors import UserError
from pne.files import written_aside


@dataclass(frozen=True)
class Confusion:
    """Sparse confusion counts of a set of images; entry k says how often what was taken for what in which image.

    Attributes
    ----------
    image, true, predicted : numpy.ndarray, shape (E,), int32
        Index of the image in ``names``, labelled class, predicted class.
    count : numpy.ndarray, shape (E,), int64
        Pixels, > 0.
    names : tuple of str
        One per image, in order.
    num_classes : int
        C.
    """

    image: np.ndarray
    true: np.ndarray
    predicted: np.ndarray
    count: np.ndarray
    names: tuple[str, ...]
    num_classes: int

    def total(self) -> np.ndarray:
        """Sum over the images; shape (C, C), int64, true class by row, predicted class by column."""
        matrix = np.zeros((self.num_classes, self.num_classes), dtype=np.int64)
        np.add.at(matrix, (self.true, self.predicted), self.count)
        return matrix


def count_pixels(predicted: Tensor, labels: Tensor, num_classes: int, ignore_index: int = 255) -> Tensor:
    """Count the pairs of labelled and predicted class of one image.

    Parameters
    ----------
    predicted, labels : Tensor, shape (H, W), integer, same device
        Pixels labelled ``ignore_index`` are left out.
    num_classes : int
        C.
    ignore_index : int
        Label that does not count.

    Returns
    -------
    Tensor, shape (C, C), int64
        True class by row, predicted class by column.

    Raises
    ------
    UserError
        If the shapes differ or a label is neither a class nor ``ignore_index``.
    """
    if predicted.shape != labels.shape:
        raise UserError(
            f"prediction of shape {tuple(predicted.shape)} for a label of shape {tuple(labels.shape)}; "
            "load annotations after the resizing in the test pipeline, so that they keep their size"
        )
    counted = labels != ignore_index
    true = labels[counted].long()
    if true.numel() and (int(true.max()) >= num_classes or int(true.min()) < 0):
        raise UserError(
            f"label values {int(true.min())} to {int(true.max())}, expected 0 to {num_classes - 1} and {ignore_index}; "
            "check how the labels were converted"
        )
    pairs = true * num_classes + predicted[counted].long()
    return torch.bincount(pairs, minlength=num_classes**2).reshape(num_classes, num_classes)


@dataclass(frozen=True)
class ImageCounts:
    """The non-zero confusion counts of one image; arrays of shape (E,), integer."""

    name: str
    true: np.ndarray
    predicted: np.ndarray
    count: np.ndarray


def sparse_counts(name: str, matrix: Tensor) -> ImageCounts:
    """Keep the non-zero entries of one image's (C, C) counts, on the CPU."""
    dense = matrix.cpu().numpy()
    true, predicted = np.nonzero(dense)
    return ImageCounts(name, true.astype(np.int32), predicted.astype(np.int32), dense[true, predicted])


def join_images(images: Sequence[ImageCounts], num_classes: int) -> Confusion:
    """Make one ``Confusion`` of the counts of images, in the order given."""
    indices = [np.full(len(image.count), index, np.int32) for index, image in enumerate(images)]
    return Confusion(
        image=np.concatenate(indices),
        true=np.concatenate([image.true for image in images]),
        predicted=np.concatenate([image.predicted for image in images]),
        count=np.concatenate([image.count for image in images]),
        names=tuple(image.name for image in images),
        num_classes=num_classes,
    )


def scores(matrix: np.ndarray) -> tuple[float, float, list[float | None]]:
    """Compute mIoU, pixel accuracy and IoU per class from summed counts.

    IoU of class c is TP / (TP + FP + FN). mIoU averages the classes that are labelled or predicted somewhere.

    Parameters
    ----------
    matrix : numpy.ndarray, shape (C, C), integer
        True class by row.

    Returns
    -------
    miou, aacc : float
        Percent, unrounded.
    iou : list of float or None
        Percent per class; None for a class neither labelled nor predicted.

    Raises
    ------
    UserError
        If no pixel was counted.
    """
    hits = np.diagonal(matrix).astype(np.float64)
    union = matrix.sum(0) + matrix.sum(1) - hits
    if not matrix.sum():
        raise UserError("no labelled pixel in the evaluated images: every pixel is ignored; check the labels")
    occurs = union > 0
    iou = 100 * hits[occurs] / union[occurs]
    per_class: list[float | None] = [None] * len(hits)
    for index, value in zip(np.flatnonzero(occurs), iou, strict=True):
        per_class[index] = float(value)
    return float(iou.mean()), float(100 * hits.sum() / matrix.sum()), per_class


def write_confusion(path: Path, confusion: Confusion) -> None:
    """Write ``image``, ``true``, ``predicted``, ``count``, ``names`` and ``shape`` (images, C, C), atomically."""
    shape = (len(confusion.names), confusion.num_classes, confusion.num_classes)
    with written_aside(path) as aside:
        np.savez_compressed(
            aside,
            image=confusion.image,
            true=confusion.true,
            predicted=confusion.predicted,
            count=confusion.count,
            names=np.array(confusion.names, dtype=np.str_),
            shape=np.array(shape, dtype=np.int64),
        )


def read_confusion(path: Path) -> Confusion:
    """Read what `write_confusion` wrote.

    Raises
    ------
    UserError
        If the file is missing or damaged.
    """
    try:
        with np.load(path, allow_pickle=False) as data:
            return Confusion(
                data["image"],
                data["true"],
                data["predicted"],
                data["count"],
                tuple(data["names"].tolist()),
                int(data["shape"][1]),
            )
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: no readable confusion counts ({error}); run the evaluation again") from error
