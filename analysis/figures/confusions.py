"""Per-image confusion counts of an evaluation, entry by entry, and what is chosen from them by rule."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pne.errors import UserError
from pne.extraction.selections import ChosenImage, ConfusionSelection, ImageSelection

IMAGE_RULE = (
    "The images are chosen by the change of the image's own mIoU (over the classes labelled in it, single scale) from "
    "the baseline to ours: the two largest gains, the median, and the largest loss."
)
CONFUSION_RULE = (
    "The confusion is the one with the most mistaken pixels over all evaluated images; the image is the one with the "
    "most of them among the images where both classes have at least as many correctly predicted pixels."
)


@dataclass(frozen=True)
class Entries:
    """Sparse counts: in image ``image``, ``count`` pixels of class ``true`` were taken for ``predicted``."""

    image: NDArray[np.int64]
    true: NDArray[np.int64]
    predicted: NDArray[np.int64]
    count: NDArray[np.int64]
    names: tuple[str, ...]
    num_classes: int

    def per_image(self, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Sum chosen entries by image, shape (I,)."""
        return np.bincount(self.image[chosen], self.count[chosen], len(self.names)).astype(np.int64)


def read_entries(path: Path) -> Entries:
    """Read a ``<evaluation>.confusion.npz``.

    Raises
    ------
    UserError
        If it is missing or damaged.
    """
    try:
        with np.load(path, allow_pickle=False) as data:
            arrays = [data[key].astype(np.int64) for key in ("image", "true", "predicted", "count")]
            return Entries(*arrays, names=tuple(data["names"].tolist()), num_classes=int(data["shape"][1]))
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise UserError(f"{path}: no readable confusion counts ({error}); run the evaluation again") from error


def image_miou(entries: Entries) -> NDArray[np.float64]:
    """Compute the mIoU of each image over the classes labelled in it, percent; NaN for an image without labels."""
    shape = (len(entries.names), entries.num_classes)

    def by_class(of: NDArray[np.int64], weights: NDArray[np.int64]) -> NDArray[np.float64]:
        flat = np.bincount(entries.image * shape[1] + of, weights, shape[0] * shape[1])
        return flat.reshape(shape)

    hits = by_class(entries.true, entries.count * (entries.true == entries.predicted))
    labelled, predicted = by_class(entries.true, entries.count), by_class(entries.predicted, entries.count)
    iou = np.divide(hits, labelled + predicted - hits, out=np.zeros(shape), where=labelled > 0)
    present = (labelled > 0).sum(1)
    return np.divide(100 * iou.sum(1), present, out=np.full(shape[0], np.nan), where=present > 0)


def select_images(baseline: Entries, ours: Entries) -> ImageSelection:
    """Choose images by `IMAGE_RULE`; ties go to the earlier image.

    Raises
    ------
    UserError
        If the runs were evaluated on different images, or no image has labels.
    """
    if baseline.names != ours.names:
        raise UserError("the baseline and ours were evaluated on different images; evaluate them again")
    change = image_miou(ours) - image_miou(baseline)
    order = [index for index in np.argsort(-change, kind="stable").tolist() if np.isfinite(change[index])]
    if not order:
        raise UserError("no evaluated image has a labelled pixel; check the labels")
    picks = [
        (order[0], "largest gain"),
        (order[min(1, len(order) - 1)], "2nd largest gain"),
        (order[len(order) // 2], "median"),
        (order[-1], "largest loss" if change[order[-1]] < 0 else "smallest gain"),
    ]
    chosen: dict[int, ChosenImage] = {}
    for index, name in picks:
        reason = f"{name}: {change[index]:+.1f}".replace("-", "−")
        chosen.setdefault(index, ChosenImage(index=index, name=ours.names[index], reason=reason))
    return ImageSelection(rule=IMAGE_RULE, images=list(chosen.values()))


def select_confusion(entries: Entries) -> ConfusionSelection:
    """Choose one confusion and one image by `CONFUSION_RULE`; a confusion without such an image gives way to the next.

    Raises
    ------
    UserError
        If no image holds a confusion of two classes that it also shows correctly.
    """
    size = entries.num_classes
    wrong = entries.true != entries.predicted
    totals = np.bincount(entries.true[wrong] * size + entries.predicted[wrong], entries.count[wrong], size * size)
    correct = ~wrong
    for pair in np.argsort(-totals, kind="stable").tolist():
        if totals[pair] == 0:
            break
        true, predicted = divmod(pair, size)
        mistaken = entries.per_image((entries.true == true) & (entries.predicted == predicted))
        enough = np.ones(len(entries.names), bool)
        for value in (true, predicted):
            enough &= entries.per_image(correct & (entries.true == value)) >= mistaken
        mistaken = np.where(enough, mistaken, 0)
        index = int(mistaken.argmax())
        if mistaken[index] > 0:
            pixels = int(mistaken[index])
            image = ChosenImage(index=index, name=entries.names[index], reason=f"{pixels} mistaken pixels")
            return ConfusionSelection(
                rule=CONFUSION_RULE, image=image, true_class=true, predicted_class=predicted, pixels=pixels
            )
    raise UserError("no evaluated image shows a confusion of two classes beside correct pixels of both")
