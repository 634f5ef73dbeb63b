"""COCO-Stuff 10k: released .mat annotations and the ids that mmsegmentation trains on."""

import os
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pne.datasets.layouts import data_folder, layout
from pne.datasets.pictures import save_label, write_bytes
from pne.errors import UserError

# Ids of things that COCO reserved but never annotated (cocostuff-labels.txt of github.com/nightrome/cocostuff10k
# numbers things 1 to 91 and stuff 92 to 182). mmsegmentation numbers the 171 others 1 to 171, 0 stays unlabelled.
UNUSED_IDS = (12, 26, 29, 30, 45, 66, 68, 69, 71, 83, 91)
HIGHEST_ID = 182

TRAIN_IDS = np.zeros(256, np.uint8)
"""Id on disk, 1 to 171, of every released id, shape (256,), uint8; 0 for unlabelled and unused ids."""
_used = [i for i in range(1, HIGHEST_ID + 1) if i not in UNUSED_IDS]
TRAIN_IDS[_used] = np.arange(1, len(_used) + 1)


def conversions(root: Path) -> Iterator[tuple[Path, Path, Path, Path]]:
    """Yield (.mat file, label file, image, image in its split's folder) for every name of the official lists.

    Raises
    ------
    UserError
        If a list is missing or names a file that is not there.
    """
    root, coco = data_folder(root), layout("coco_stuff")
    for name, split in coco.splits.items():
        listing = root / "imageLists" / f"{name}.txt"
        if not listing.is_file():
            raise UserError(
                f"{listing}: expected the official list of the {name} images, found none; unpack "
                "cocostuff-10k-v1.1.zip (github.com/nightrome/cocostuff10k) into the data root"
            )
        for stem in filter(None, map(str.strip, listing.read_text(encoding="utf-8").splitlines())):
            target = root / split.labels / f"{stem}{coco.label_suffix}"
            image = root / split.images / f"{stem}.jpg"
            yield root / "annotations" / f"{stem}.mat", target, root / "images" / f"{stem}.jpg", image


def convert(source: Path, target: Path) -> None:
    """Write the label image of one .mat file, atomically.

    Raises
    ------
    UserError
        If the file cannot be read, has no field ``S`` of two axes, or holds an id above 182.
    """
    from scipy.io import loadmat  # takes a second to import
    from scipy.io.matlab import MatReadError

    try:
        labels = np.asarray(loadmat(source, variable_names=["S"])["S"])
    except KeyError as error:
        raise UserError(
            f"{source}: expected the label map in a field S, found none; download the file again"
        ) from error
    except (OSError, ValueError, TypeError, NotImplementedError, MatReadError, zlib.error) as error:
        raise UserError(f"{source}: cannot be read as a MATLAB file ({error}); download it again") from error
    if labels.ndim != 2 or labels.size == 0 or labels.min() < 0 or labels.max() > HIGHEST_ID:
        extent = f"{labels.min()} to {labels.max()}" if labels.size else "nothing"
        raise UserError(
            f"{source}: field S should be a map (h, w) of ids 0 to {HIGHEST_ID}, is {labels.shape} with {extent}; "
            "download the file again"
        )
    save_label(target, TRAIN_IDS[labels.astype(np.uint8)])


def is_placed(source: os.stat_result, target: os.stat_result) -> bool:
    """Whether a placed image is its source: the same file, or a copy of its length that is not older."""
    if (source.st_dev, source.st_ino) == (target.st_dev, target.st_ino):
        return True
    return source.st_size == target.st_size and source.st_mtime_ns <= target.st_mtime_ns


def place_image(source: Path, target: Path) -> None:
    """Give an image its place in its split's folder: a hard link where the file system has them, a copy elsewhere.

    Of a symbolic link the file is placed that it leads to; another file or link at the target is replaced.

    Raises
    ------
    UserError
        If the image is missing.
    """
    if not source.is_file():
        raise UserError(f"{source}: image of the official list is missing; unpack cocostuff-10k-v1.1.zip again")
    file = source.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists() and target.samefile(file):
        return
    aside = target.with_name(f".{target.stem}.{uuid.uuid4().hex[:8]}{target.suffix}")
    try:
        os.link(file, aside)
        aside.replace(target)
    except OSError:  # no hard links here, or not to files of others
        aside.unlink(missing_ok=True)
        write_bytes(target, file.read_bytes())
