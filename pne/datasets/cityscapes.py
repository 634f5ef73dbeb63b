"""Cityscapes: the official label ids and the ids that are trained on."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pne.datasets.layouts import data_folder, layout
from pne.datasets.pictures import read_label, save_label
from pne.errors import UserError

LABEL_SUFFIX = "_gtFine_labelIds.png"

# id: (name, trainId), from `labels` in cityscapesscripts/helpers/labels.py of github.com/mcordts/cityscapesScripts.
# The license plate (id -1) has no value of its own in label images.
LABELS: dict[int, tuple[str, int]] = {
    0: ("unlabeled", 255),
    1: ("ego vehicle", 255),
    2: ("rectification border", 255),
    3: ("out of roi", 255),
    4: ("static", 255),
    5: ("dynamic", 255),
    6: ("ground", 255),
    7: ("road", 0),
    8: ("sidewalk", 1),
    9: ("parking", 255),
    10: ("rail track", 255),
    11: ("building", 2),
    12: ("wall", 3),
    13: ("fence", 4),
    14: ("guard rail", 255),
    15: ("bridge", 255),
    16: ("tunnel", 255),
    17: ("pole", 5),
    18: ("polegroup", 255),
    19: ("traffic light", 6),
    20: ("traffic sign", 7),
    21: ("vegetation", 8),
    22: ("terrain", 9),
    23: ("sky", 10),
    24: ("person", 11),
    25: ("rider", 12),
    26: ("car", 13),
    27: ("truck", 14),
    28: ("bus", 15),
    29: ("caravan", 255),
    30: ("trailer", 255),
    31: ("train", 16),
    32: ("motorcycle", 17),
    33: ("bicycle", 18),
}

TRAIN_IDS = np.full(256, 255, np.uint8)
"""trainId of every label id, shape (256,), uint8; 255 for what is not trained on."""
for _id, (_, _train_id) in LABELS.items():
    TRAIN_IDS[_id] = _train_id

LABEL_IDS = np.zeros(256, np.uint8)
"""Label id of every trainId, shape (256,), uint8, as the test server wants them; 0 (unlabeled) for what is none."""
for _id, (_, _train_id) in LABELS.items():
    if _train_id != 255:
        LABEL_IDS[_train_id] = _id


def conversions(root: Path) -> Iterator[tuple[Path, Path]]:
    """Yield (labelIds file, labelTrainIds file) of the splits with public labels.

    Raises
    ------
    UserError
        If there is no labelIds file.
    """
    root, cityscapes, found = data_folder(root), layout("cityscapes"), False
    for split in cityscapes.splits.values():
        for source in sorted((root / split.labels).rglob(f"*{LABEL_SUFFIX}")) if split.labels else ():
            found = True
            yield source, source.with_name(source.name.removesuffix(LABEL_SUFFIX) + cityscapes.label_suffix)
    if not found:
        raise UserError(
            f"{root}: expected gtFine/train/<city>/*{LABEL_SUFFIX}, found none; unpack gtFine_trainvaltest.zip of "
            "cityscapes-dataset.com there"
        )


def convert(source: Path, target: Path) -> None:
    """Write the trainIds of one labelIds file, atomically.

    Raises
    ------
    UserError
        If the file cannot be read or holds a value above 33.
    """
    labels = read_label(source)
    if (highest := int(labels.max())) > max(LABELS):
        raise UserError(f"{source}: label id {highest} does not exist in Cityscapes (0 to 33); download the file again")
    save_label(target, TRAIN_IDS[labels])
