"""Examine a data set before it costs a training: ``python -m pne.datasets.doctor --dataset camvid --data-root DIR``."""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pne.datasets import checks
from pne.datasets.cores import usable_threads
from pne.datasets.files import SplitFiles, find_files
from pne.datasets.fingerprint import fingerprint, fingerprint_of
from pne.datasets.label_scan import LabelScan, scan_labels
from pne.datasets.layouts import LAYOUTS, Layout, data_folder, layout
from pne.datasets.pictures import image_size, read_image
from pne.datasets.report import Finding, Report
from pne.errors import UserError, reports_user_errors

__all__ = ["Finding", "Report", "check", "fingerprint"]

QUICK_LABELS = 50


def check(
    dataset: str,
    data_root: Path | str,
    *,
    expect_official_counts: bool = True,
    quick: bool = False,
    workers: int | None = None,
) -> Report:
    """Examine a data set.

    Parameters
    ----------
    dataset : str
        Key of the data set or name of its mmsegmentation class.
    data_root : Path
        Its folder.
    expect_official_counts : bool
        Whether all official splits should be complete; otherwise deviations in number and size are warnings, as for
        a subset made for tests.
    quick : bool
        Read only the headers of images and evenly spaced labels, about 50 per split; no fingerprint, no duplicates.
    workers : int, optional
        Number of threads; by default one per core, at most eight.

    Returns
    -------
    Report
        Counts, findings and fingerprint.

    Raises
    ------
    UserError
        If the data set is not known or the folder does not exist.
    """
    known, root = layout(dataset), data_folder(data_root)
    report = Report(known.name, known.title, str(root), quick)
    splits = {name: find_files(known, root, split) for name, split in known.splits.items()}
    _check_counts(report, known, splits, expect_official_counts)
    if not any(files.images for files in splits.values()):
        return report

    labels = [p for files in splits.values() for p in _some(list(files.labels.values()), quick)]
    images = [p for files in splits.values() for p in files.images.values()]
    scans = scan_labels(root, labels, workers)
    sizes = _each(images, image_size if quick else read_image, workers)
    report.errors += checks.foreign_classes(known, root)
    # What is wrong with images that have no labels spoils a submission, not a training.
    labelled = {path for name in splits if known.splits[name].labels for path in splits[name].images.values()}
    trained = {path: found for path, found in sizes.items() if path in labelled}
    others = {path: found for path, found in sizes.items() if path not in labelled}
    report.errors += checks.unreadable(root, {**trained, **scans})
    report.warnings += checks.unreadable(root, others)
    for name, files in splits.items():
        if known.splits[name].labels:
            report.errors += checks.unpaired(known, root, name, files)
            report.errors += checks.mismatched_sizes(root, files, sizes, scans)
            _check_classes(report, known, name, files, scans, complete=not quick)
    report.errors += checks.illegal_values(known, root, scans)
    strange = checks.other_sizes(known, root, trained)
    (report.errors if expect_official_counts and not known.other_sizes else report.warnings).extend(strange)
    report.warnings += checks.other_sizes(known, root, others)
    if not quick:
        for a, b, finding in checks.duplicates(root, splits, sizes):
            # Official splits are what they are; in any other folder somebody mixed up files.
            (report.warnings if _official(report, a) and _official(report, b) else report.errors).append(finding)
        if not any(isinstance(found, UserError) for found in trained.values()):
            report.fingerprint = fingerprint_of(known, splits, scans)
    return report


def _check_counts(report: Report, known: Layout, splits: dict[str, SplitFiles], official: bool) -> None:
    for name, files in splits.items():
        split = known.splits[name]
        report.counts[name] = {"images": len(files.images), "labels": len(files.labels), "official": split.count}
        if len(files.images) == split.count:
            continue
        problem = f"{name}: expected {split.count} images in {split.images}, found {len(files.images)}"
        needed = official and split.labels is not None  # a split without labels serves submissions alone
        (report.errors if needed else report.warnings).append(
            Finding(problem, [], "complete the download" if needed else "")
        )
    trained = next(iter(splits))
    if not splits[trained].images and (not official or known.splits[trained].count == 0):
        problem = f"{trained}: expected *{known.image_suffix} in {known.splits[trained].images}, found none"
        report.errors.append(Finding(problem, [], f"name the folder of {known.title}"))


def _check_classes(
    report: Report,
    known: Layout,
    split: str,
    files: SplitFiles,
    scans: dict[Path, LabelScan | UserError],
    *,
    complete: bool,
) -> None:
    pixels: dict[int, int] = {}
    for path in files.labels.values():
        found = scans.get(path)
        for value, number in found.counts.items() if isinstance(found, LabelScan) else ():
            pixels[value] = pixels.get(value, 0) + number
    report.pixels[split] = dict(sorted(pixels.items()))
    if complete:  # some labels alone need not show every class
        errors, warnings = checks.missing_classes(known, split, pixels, complete=_official(report, split))
        report.errors += errors
        report.warnings += warnings


def _official(report: Report, split: str) -> bool:
    return report.counts[split]["images"] == report.counts[split]["official"]


def _some(paths: list[Path], quick: bool) -> list[Path]:
    return paths[:: max(1, len(paths) // QUICK_LABELS)] if quick else paths


def _each(
    paths: Iterable[Path], read: Callable[[Path], tuple[int, int]], workers: int | None
) -> dict[Path, tuple[int, int] | UserError]:
    def attempt(path: Path) -> tuple[int, int] | UserError:
        try:
            return read(path)
        except UserError as error:
            return error

    paths = list(paths)
    with ThreadPoolExecutor(usable_threads(workers)) as pool:
        return dict(zip(paths, pool.map(attempt, paths), strict=True))


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    result = argparse.ArgumentParser(prog="python -m pne.datasets.doctor", description=__doc__)
    result.add_argument("--dataset", choices=list(LAYOUTS), required=True, help="which data set")
    result.add_argument("--data-root", type=Path, required=True, metavar="DIR", help="its folder")
    result.add_argument("--report", type=Path, metavar="FILE", help="write JSON to FILE and text beside it (.txt)")
    result.add_argument("--quick", action="store_true", help="read headers and some labels only")
    result.add_argument("--subset", action="store_true", help="do not expect the official numbers and sizes of images")
    result.add_argument("--workers", type=int, metavar="N", help="threads (default: one per core, at most 8)")
    return result


@reports_user_errors
def main(argv: Sequence[str] | None = None) -> None:
    """Examine, report, and end with exit code 2 if the data set is not fit for training."""
    args = parser().parse_args(argv)
    report = check(
        args.dataset,
        args.data_root,
        expect_official_counts=not args.subset,
        quick=args.quick,
        workers=args.workers,
    )
    if args.report:
        report.write(args.report)
    print(report.text(), flush=True)
    report.raise_for_errors(args.report)


if __name__ == "__main__":
    sys.exit(main())
