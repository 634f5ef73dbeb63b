"""Convert downloaded labels to what is trained on: ``python -m pne.datasets.prepare cityscapes --data-root DIR``.

Files that are there already, and not older than their source, are left alone; each new one appears complete or not at
all, so that an interrupted preparation is simply started again.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pne.datasets import cityscapes, coco_stuff10k
from pne.datasets.cores import usable_threads
from pne.datasets.layouts import data_folder, layout
from pne.errors import UserError, reports_user_errors

Task = tuple[Callable[[Path, Path], None], Path, Path]


def tasks(dataset: str, root: Path) -> list[Task]:
    """List what is to be done: (conversion, source, target), finished ones left out.

    Raises
    ------
    UserError
        If the data set is not known, needs no preparation here, or its downloaded files are missing.
    """
    if dataset == "cityscapes":
        candidates: Iterable[Task] = ((cityscapes.convert, *pair) for pair in cityscapes.conversions(root))
    elif dataset == "coco_stuff":
        candidates = (
            task
            for mat, label, image, placed in coco_stuff10k.conversions(root)
            for task in ((coco_stuff10k.convert, mat, label), (coco_stuff10k.place_image, image, placed))
        )
    elif dataset == "ade20k":
        candidates = _as_it_comes(root)
    else:
        raise UserError(f"{layout(dataset).title} needs no preparation; choose one of {', '.join(PREPARED)}")
    return [task for task in candidates if _is_due(*task)]


PREPARED = ("cityscapes", "coco_stuff", "ade20k")


def _as_it_comes(root: Path) -> Iterable[Task]:
    root = data_folder(root)
    for split in layout("ade20k").splits.values():
        for folder in (split.images, split.labels):
            if not (root / folder).is_dir():
                raise UserError(
                    f"{root}: expected the folder {folder}, found none; unpack ADEChallengeData2016.zip "
                    "(data.csail.mit.edu/places/ADEchallenge) and name the folder ADEChallengeData2016"
                )
    return ()


def _is_due(conversion: Callable[[Path, Path], None], source: Path, target: Path) -> bool:
    try:
        found = target.stat()
    except FileNotFoundError:  # there is none, or a link that leads nowhere
        return True
    if found.st_size == 0:
        return True
    try:
        origin = source.stat()
    except OSError:
        return False  # converted before, and the source was removed
    if conversion is coco_stuff10k.place_image:
        return not coco_stuff10k.is_placed(origin, found)
    return origin.st_mtime_ns > found.st_mtime_ns


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
            for number, _ in enumerate(pool.map(_run, due), 1):
                progress(number, len(due))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return len(due)


def _run(task: Task) -> None:
    conversion, source, target = task
    conversion(source, target)


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
