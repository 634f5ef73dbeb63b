"""Convert downloaded labels to what is trained on: ``python -m pne.datasets.prepare cityscapes --data-root DIR``.

Files that are there already, and not older than their source, are left alone; each new one appears complete or not at
all, so that an interrupted preparation is simply started again.
"""

import argparse
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np

from pne.datasets.files import read_label, save_label, usable_threads
from pne.datasets.layouts import IGNORE_INDEX, data_folder, layout
from pne.errors import UserError, reports_user_errors
from pne.files import written_aside

LABEL_SUFFIX = "_gtFine_labelIds.png"
HIGHEST_LABEL_ID = 33
TRAINED_IDS = (7, 8, 11, 12, 13, 17, *range(19, 29), 31, 32, 33)
"""Label ids of Cityscapes in the order of their trainIds (`labels` of cityscapesscripts/helpers/labels.py)."""

CITYSCAPES_TRAIN_IDS = np.full(256, IGNORE_INDEX, np.uint8)
"""trainId of every label id, shape (256,), uint8; 255 for what is not trained on."""
CITYSCAPES_TRAIN_IDS[list(TRAINED_IDS)] = np.arange(len(TRAINED_IDS))

LABEL_IDS = np.zeros(256, np.uint8)
"""Label id of every trainId, shape (256,), uint8, as the test server wants them; 0 (unlabeled) for what is none."""
LABEL_IDS[: len(TRAINED_IDS)] = TRAINED_IDS

# Ids of COCO-Stuff 10k for things that COCO reserved but never annotated (cocostuff-labels.txt of
# github.com/nightrome/cocostuff10k numbers things 1 to 91 and stuff 92 to 182). mmsegmentation numbers the 171 others
# 1 to 171, 0 stays unlabelled.
UNUSED_IDS = (12, 26, 29, 30, 45, 66, 68, 69, 71, 83, 91)
HIGHEST_ID = 182

COCO_STUFF_TRAIN_IDS = np.zeros(256, np.uint8)
"""Id on disk, 1 to 171, of every released id, shape (256,), uint8; 0 for unlabelled and unused ids."""
_used = [i for i in range(1, HIGHEST_ID + 1) if i not in UNUSED_IDS]
COCO_STUFF_TRAIN_IDS[_used] = np.arange(1, len(_used) + 1)


Task = tuple[Callable[[Path, Path], None], Path, Path]
"""A conversion, its source and its target."""


def cityscapes_tasks(root: Path) -> Iterator[Task]:
    """Yield the conversions from labelIds to labelTrainIds of the splits with public labels."""
    cityscapes, found = layout("cityscapes"), False
    for split in cityscapes.splits.values():
        for source in sorted((root / split.labels).rglob(f"*{LABEL_SUFFIX}")) if split.labels else ():
            found = True
            target = source.with_name(source.name.removesuffix(LABEL_SUFFIX) + cityscapes.label_suffix)
            yield convert_cityscapes, source, target
    if not found:
        raise UserError(
            f"{root}: expected gtFine/train/<city>/*{LABEL_SUFFIX}, found none; unpack gtFine_trainvaltest.zip of "
            "cityscapes-dataset.com there"
        )


def convert_cityscapes(source: Path, target: Path) -> None:
    """Write the trainIds of one labelIds file, atomically.

    Raises
    ------
    UserError
        If the file cannot be read or holds a value above 33.
    """
    labels = read_label(source)
    if (highest := int(labels.max())) > HIGHEST_LABEL_ID:
        raise UserError(f"{source}: label id {highest} does not exist in Cityscapes (0 to 33); download the file again")
    save_label(target, CITYSCAPES_TRAIN_IDS[labels])


def coco_stuff_tasks(root: Path) -> Iterator[Task]:
    """Yield, for every name of the official lists, the conversion of its .mat file and the placing of its image."""
    coco = layout("coco_stuff")
    for name, split in coco.splits.items():
        listing = root / "imageLists" / f"{name}.txt"
        if not listing.is_file():
            raise UserError(
                f"{listing}: expected the official list of the {name} images, found none; unpack "
                "cocostuff-10k-v1.1.zip (github.com/nightrome/cocostuff10k) into the data root"
            )
        for stem in filter(None, map(str.strip, listing.read_text(encoding="utf-8").splitlines())):
            label = root / split.labels / f"{stem}{coco.label_suffix}"
            yield convert_coco_stuff, root / "annotations" / f"{stem}.mat", label
            yield place_image, root / "images" / f"{stem}.jpg", root / split.images / f"{stem}.jpg"


def convert_coco_stuff(source: Path, target: Path) -> None:
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
        raise UserError(f"{source}: expected the label map in a field S, found none; download it again") from error
    except (OSError, ValueError, TypeError, NotImplementedError, MatReadError, zlib.error) as error:
        raise UserError(f"{source}: cannot be read as a MATLAB file ({error}); download it again") from error
    if labels.ndim != 2 or labels.size == 0 or labels.min() < 0 or labels.max() > HIGHEST_ID:
        extent = f"{labels.min()} to {labels.max()}" if labels.size else "nothing"
        raise UserError(
            f"{source}: field S should be a map (h, w) of ids 0 to {HIGHEST_ID}, is {labels.shape} with {extent}; "
            "download the file again"
        )
    save_label(target, COCO_STUFF_TRAIN_IDS[labels.astype(np.uint8)])


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
    with written_aside(target) as aside:
        aside.unlink()
        try:
            os.link(source.resolve(), aside)
        except OSError:  # no hard links here, or not to files of others
            aside.write_bytes(source.read_bytes())


def ade20k_tasks(root: Path) -> Iterator[Task]:
    """Yield nothing: ADE20K is trained on as it comes, once all of it is there."""
    for split in layout("ade20k").splits.values():
        for folder in (split.images, split.labels):
            if not (root / folder).is_dir():
                raise UserError(
                    f"{root}: expected the folder {folder}, found none; unpack ADEChallengeData2016.zip "
                    "(data.csail.mit.edu/places/ADEchallenge) and name the folder ADEChallengeData2016"
                )
    yield from ()


PREPARED = {"cityscapes": cityscapes_tasks, "coco_stuff": coco_stuff_tasks, "ade20k": ade20k_tasks}


def tasks(dataset: str, root: Path) -> list[Task]:
    """List what is to be done, without what is done.

    Raises
    ------
    UserError
        If the data set is not known, needs no preparation here, or its downloaded files are missing.
    """
    if dataset not in PREPARED:
        raise UserError(f"{layout(dataset).title} needs no preparation; choose one of {', '.join(PREPARED)}")
    return [task for task in PREPARED[dataset](data_folder(root)) if _is_due(*task)]


def _is_due(conversion: Callable[[Path, Path], None], source: Path, target: Path) -> bool:
    if not target.exists() or target.stat().st_size == 0:  # none, a link that leads nowhere, or an empty file
        return True
    with suppress(OSError):  # converted before, and the source was removed
        found, origin = target.stat(), source.stat()
        another = conversion is place_image and origin.st_size != found.st_size
        return another or origin.st_mtime_ns > found.st_mtime_ns
    return False


def prepare(
    dataset: str, root: Path, *, workers: int = 1, progress: Callable[[int, int], None] = lambda done, total: None
) -> int:
    """Convert what is not converted yet.

    Parameters
    ----------
    dataset : {'cityscapes', 'coco_stuff', 'ade20k'}
        The data set.
    root : Path
        Its folder.
    workers : int
        Number of threads.
    progress : callable
        Called with the number of finished and of all files, after each file.

    Returns
    -------
    int
        Number of files written.

    Raises
    ------
    UserError
        On the first file that is missing, unreadable or holds impossible values.
    """
    due = tasks(dataset, Path(root))
    with ThreadPoolExecutor(max(1, workers)) as pool:  # decoding and compressing release the interpreter's lock
        try:
            for number, _ in enumerate(pool.map(lambda task: task[0](*task[1:]), due), 1):
                progress(number, len(due))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return len(due)


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    result = argparse.ArgumentParser(prog="python -m pne.datasets.prepare", description=__doc__)
    result.add_argument("dataset", choices=PREPARED, help="which data set")
    result.add_argument("--data-root", type=Path, required=True, metavar="DIR", help="its folder")
    result.add_argument("--workers", type=int, metavar="N", help="threads (default: one per core, at most 8)")
    return result


def _show(done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{done}/{total} files", end="\n" if done == total else "", file=sys.stderr, flush=True)
    elif done == total or done % 500 == 0:
        print(f"{done}/{total} files", file=sys.stderr, flush=True)


@reports_user_errors
def main(argv: Sequence[str] | None = None) -> None:
    """Prepare one data set and say how many files were written."""
    args = parser().parse_args(argv)
    written = prepare(args.dataset, args.data_root, workers=usable_threads(args.workers), progress=_show)
    print(f"{args.data_root}: {layout(args.dataset).title}: {written} files written; the rest was there already")


if __name__ == "__main__":
    sys.exit(main())
