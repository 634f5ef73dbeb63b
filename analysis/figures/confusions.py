"""Per-image confusion counts of an evaluation, entry by entry, and what is chosen from them by rule."""

import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pne.errors import UserError
from pne.extraction.selections import ChosenImage, Confusion, ConfusionSelection, ImageSelection

IMAGE_RULE = (
    "The images are chosen by the change of the image's own mIoU (over the classes labelled in it, single scale) from "
    "the baseline to ours: the two largest gains, the median, and the largest loss, or the "
    "smallest gain where no image loses."
)
IMAGES_OF_CONFUSION = 5
MOST_CONFUSIONS = 40
CONFUSION_RULE = (
    "Confusions of two classes are ranked by their mistaken pixels over all evaluated images; each is looked for in "
    f"the {IMAGES_OF_CONFUSION} images that hold most of them, among the images where both classes have at least as "
    f"many correctly predicted pixels; at most {MOST_CONFUSIONS} confusions in an image in all."
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
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
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
    second = order[min(1, len(order) - 1)]
    last = next(index for index in order if change[index] == change[order[-1]])
    picks = [
        (order[0], "largest gain" if change[order[0]] >= 0 else "smallest loss"),
        (second, "2nd largest gain" if change[second] >= 0 else "2nd smallest loss"),
        (order[len(order) // 2], "median"),
        (last, "largest loss" if change[last] < 0 else "smallest gain"),
    ]
    chosen: dict[int, ChosenImage] = {}
    for index, name in picks:
        reason = f"{name}: {change[index]:+.1f}".replace("-", "−")
        chosen.setdefault(index, ChosenImage(index=index, name=ours.names[index], reason=reason))
    return ImageSelection(rule=IMAGE_RULE, images=list(chosen.values()))


def select_confusions(entries: Entries) -> ConfusionSelection:
    """Rank confusions in images by `CONFUSION_RULE`; ties go to the lower class numbers and the earlier image.

    There are none where every pixel is right, or no image shows both classes of a confusion correctly.
    """
    size = entries.num_classes
    wrong = entries.true != entries.predicted
    totals = np.bincount(entries.true[wrong] * size + entries.predicted[wrong], entries.count[wrong], size * size)
    right = {value: entries.per_image(~wrong & (entries.true == value)) for value in np.unique(entries.true).tolist()}
    found: list[Confusion] = []
    for pair in np.argsort(-totals, kind="stable").tolist():
        if totals[pair] == 0 or len(found) >= MOST_CONFUSIONS:
            break
        true, predicted = divmod(pair, size)
        mistaken = entries.per_image((entries.true == true) & (entries.predicted == predicted))
        enough = (right[true] >= mistaken) & (right.get(predicted, np.zeros_like(mistaken)) >= mistaken)
        mistaken = np.where(enough, mistaken, 0)
        for index in np.argsort(-mistaken, kind="stable")[:IMAGES_OF_CONFUSION].tolist():
            pixels = int(mistaken[index])
            if pixels > 0:
                image = ChosenImage(index=index, name=entries.names[index], reason=f"{pixels} mistaken pixels")
                found.append(Confusion(image=image, true_class=true, predicted_class=predicted, pixels=pixels))
    return ConfusionSelection(rule=CONFUSION_RULE, confusions=found[:MOST_CONFUSIONS])
