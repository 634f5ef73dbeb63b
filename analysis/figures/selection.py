"""What is shown of evaluated images, chosen from their confusion counts by a stated rule and stored."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from analysis.figures import SELECTION, ResolvedFigure, data_folder
from pne.counts import Confusion, class_iou, mean_of_known, read_confusion
from pne.errors import UserError
from pne.extract.archives import ChosenImage, ConfusionSelection, ImageSelection, write_selection
from pne.extract.archives import Confusion as ChosenConfusion
from pne.spec import ResolvedTrack

CONFUSION = "single_scale.confusion.npz"  # selections show single-scale predictions
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


def image_miou(confusion: Confusion) -> NDArray[np.float64]:
    """Compute the mIoU of each image over the classes labelled in it, percent; NaN for an image without labels."""
    hits, labelled, predicted = confusion.per_class()
    return mean_of_known(np.where(labelled > 0, class_iou(hits, labelled, predicted), np.nan))


def select_images(baseline: Confusion, ours: Confusion) -> ImageSelection:
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


def select_confusions(confusion: Confusion) -> ConfusionSelection:
    """Rank confusions in images by `CONFUSION_RULE`; ties go to the lower class numbers and the earlier image.

    There are none where every pixel is right, or no image shows both classes of a confusion correctly.
    """
    size = confusion.num_classes
    wrong = confusion.true != confusion.predicted
    totals = np.bincount(confusion.true[wrong] * size + confusion.predicted[wrong], confusion.count[wrong], size * size)
    right = [confusion.per_image(~wrong & (confusion.true == value)) for value in range(size)]
    found: list[ChosenConfusion] = []
    for pair in np.argsort(-totals, kind="stable").tolist():
        if totals[pair] == 0 or len(found) >= MOST_CONFUSIONS:
            break
        true, predicted = divmod(pair, size)
        mistaken = confusion.per_image((confusion.true == true) & (confusion.predicted == predicted))
        enough = (right[true] >= mistaken) & (right[predicted] >= mistaken)
        mistaken = np.where(enough, mistaken, 0)
        for index in np.argsort(-mistaken, kind="stable")[:IMAGES_OF_CONFUSION].tolist():
            pixels = int(mistaken[index])
            if pixels > 0:
                image = ChosenImage(index=index, name=confusion.names[index], reason=f"{pixels} mistaken pixels")
                found.append(ChosenConfusion(image=image, true_class=true, predicted_class=predicted, pixels=pixels))
    return ConfusionSelection(rule=CONFUSION_RULE, confusions=found[:MOST_CONFUSIONS])


def select(figure: ResolvedFigure, track: ResolvedTrack) -> Path:
    """Choose images, or a confusion, by the rule of the figure's kind and store the choice.

    Raises
    ------
    UserError
        If the figure selects nothing, or counts are missing.
    """
    choose = {"qualitative": select_images, "pairs": select_confusions}.get(figure.declaration.kind)
    if choose is None:
        raise UserError(f"figure {figure.name}: a figure of kind {figure.declaration.kind} selects no images")
    path = data_folder(figure, track) / SELECTION
    counts = [read_confusion(track.runs[run].directory / CONFUSION) for run in figure.first_seed_runs]
    write_selection(path, choose(*counts))
    return path
