"""Examine a data set before it costs a training: ``python -m pne.datasets.doctor --dataset camvid --data-root DIR``.

A finding is a sentence that says what was expected, what came and what to do; below it stand the files concerned, one
per line. Errors make training pointless, warnings are for the reader to judge.
"""

import argparse
import hashlib
import json
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path

from pne.datasets.files import CONVERT, ImageSize, NotLabels, SplitFiles, find_files, read_size, usable_threads
from pne.datasets.fingerprint import LabelScan, fingerprint_of, scan_labels
from pne.datasets.layouts import LAYOUTS, Layout, data_folder, layout
from pne.errors import UserError, reports_user_errors
from pne.files import write_text

QUICK_LABELS = 50
SHOWN_FILES = 3

Contents = Mapping[Path, ImageSize | LabelScan | UserError]
"""What reading each file gave."""


@dataclass
class Report:
    """Result of `check`.

    Attributes
    ----------
    dataset, title, data_root : str
        What was examined.
    quick : bool
        Whether only headers and a part of the labels were read.
    counts : dict
        Per split: ``images`` and ``labels`` found and ``official`` number of images.
    pixels : dict
        Per split, pixels of each label value that occurs, as stored on disk.
    errors, warnings : list of str
        Findings, each with all its files.
    fingerprint : str or None
        Fingerprint of the data set; None after a quick examination.
    """

    dataset: str
    title: str
    data_root: str
    quick: bool
    counts: dict[str, dict[str, int]]
    pixels: dict[str, dict[int, int]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    fingerprint: str | None = None

    def text(self, files: int | None = None) -> str:
        """Return the report for a reader, with at most ``files`` files of each finding, or with every one."""
        lines = [f"{self.title} in {self.data_root}" + (" (quick: headers and some labels)" if self.quick else "")]
        line = "  {:6} {images:6} images, {labels:6} labels; official {official}"
        lines += [line.format(split, **numbers) for split, numbers in self.counts.items()]
        lines += [f"error: {shortened(finding, files)}" for finding in self.errors]
        lines += [f"warning: {shortened(finding, files)}" for finding in self.warnings]
        lines.append(f"fingerprint: {self.fingerprint or 'not computed'}")
        lines.append("result: " + (f"{len(self.errors)} errors" if self.errors else "fit for training"))
        return "\n".join(lines)

    def write(self, path: Path) -> None:
        """Write the report as JSON to ``path`` and, for a reader, beside it with the suffix ``.txt``.

        Both name every file. A workflow that declares the first as a rule's output deletes it when the examination
        fails; the other stays.
        """
        write_text(path.with_suffix(".txt"), self.text() + "\n")
        write_text(path, json.dumps(asdict(self), indent=1) + "\n")


def finding(root: Path, problem: str, remedy: str, files: Iterable[Path] = ()) -> str:
    """Return a finding: one line, and below it the files, by their names below the data root."""
    names = sorted(printable(path.relative_to(root)) for path in files)
    return "\n    ".join([f"{problem}; {remedy}" if remedy else problem, *names])


def shortened(finding: str, files: int | None = SHOWN_FILES) -> str:
    """Return a finding with at most so many of its files."""
    sentence, *names = finding.split("\n    ")
    rest = [] if files is None or len(names) <= files else [f"and {len(names) - files} more"]
    return "\n    ".join([sentence, *names[:files], *rest])


def printable(path: Path) -> str:
    """Return a path as text that can be printed: bytes that are no UTF-8 as ``\\xe9``."""
    return os.fsencode(path).decode(errors="backslashreplace")


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
    splits = {name: find_files(known, root, split) for name, split in known.splits.items()}
    counts = {
        name: {"images": len(files.images), "labels": len(files.labels), "official": known.splits[name].count}
        for name, files in splits.items()
    }
    report = Report(known.name, known.title, printable(root), quick, counts)
    _check_counts(report, known, root, official=expect_official_counts)
    if not any(files.images for files in splits.values()):
        return report

    labels = [list(files.labels.values()) for files in splits.values()]
    read = [path for paths in labels for path in paths[:: max(1, len(paths) // QUICK_LABELS) if quick else 1]]
    scans = scan_labels(root, read, workers)
    images = [path for files in splits.values() for path in files.images.values()]
    with ThreadPoolExecutor(usable_threads(workers)) as pool:
        sizes = dict(zip(images, pool.map(lambda path: _size(path, decode=not quick), images), strict=True))
    report.errors += foreign_classes(known, root)
    # What is wrong with images that have no labels spoils a submission, not a training.
    labelled = {path for name in splits if known.splits[name].labels for path in splits[name].images.values()}
    trained = {path: found for path, found in sizes.items() if path in labelled}
    others = {path: found for path, found in sizes.items() if path not in labelled}
    report.errors += unusable(root, {**trained, **scans})
    report.warnings += unusable(root, others)
    for name, files in splits.items():
        if known.splits[name].labels:
            report.errors += unpaired(known, root, name, files)
            report.errors += mismatched_sizes(root, files, sizes, scans)
            found = (Counter(getattr(scans.get(path), "counts", {})) for path in files.labels.values())
            report.pixels[name] = dict(sorted(sum(found, Counter()).items()))
            if not quick:  # some labels alone need not show every class
                _check_classes(report, known, root, name)
    report.errors += illegal_values(known, root, scans)
    as_stated = expect_official_counts and not known.other_sizes
    (report.errors if as_stated else report.warnings).extend(other_sizes(known, root, trained))
    report.warnings += other_sizes(known, root, others)
    if not quick:
        for pair, shared in duplicates(root, splits, sizes).items():
            # Official splits are what they are; in any other folder somebody mixed up files.
            (report.warnings if all(_official(report, split) for split in pair) else report.errors).append(shared)
        if not any(isinstance(found, UserError) for found in trained.values()):
            report.fingerprint = fingerprint_of(known, splits, scans)
    return report


def _size(path: Path, *, decode: bool) -> ImageSize | UserError:
    try:
        return read_size(path, decode=decode)
    except UserError as error:
        return error


def _official(report: Report, split: str) -> bool:
    return report.counts[split]["images"] == report.counts[split]["official"]


def _check_counts(report: Report, known: Layout, root: Path, *, official: bool) -> None:
    for name, split in known.splits.items():
        if not _official(report, name):
            problem = f"{name}: expected {split.count} images in {split.images}, found {report.counts[name]['images']}"
            if official and split.labels is not None:  # a split without labels serves submissions alone
                report.errors.append(finding(root, problem, "complete the download"))
            else:
                report.warnings.append(problem)
    name, split = next(iter(known.splits.items()))
    if not report.counts[name]["images"] and not (official and split.count):
        problem = f"{name}: expected *{known.image_suffix} in {split.images}, found none"
        report.errors.append(finding(root, problem, f"name the folder of {known.title}"))


def foreign_classes(known: Layout, root: Path) -> Iterator[str]:
    """A ``meta.json`` in the data root whose class names are not those of this data set."""
    path = root / "meta.json"
    if not known.classes or not path.is_file():
        return
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))
        names = tuple(meta["classes"])
    except (OSError, ValueError, KeyError, TypeError):
        yield finding(root, f"expected class names in {path.name}, found none", "restore the file", [path])
        return
    if names != known.classes:
        problem = f"expected the {known.num_classes} classes of {known.title}, {path.name} names {len(names)} others"
        remedy = f"name the folder of {known.title}; this one holds {meta.get('name')!r}"
        yield finding(root, problem, remedy, [path])


def unusable(root: Path, contents: Contents) -> Iterator[str]:
    """Files that cannot be decoded, are no labels, are turned when they are read, or have names that are no UTF-8."""
    errors = {path: found for path, found in contents.items() if isinstance(found, UserError)}
    if strange := {path: found.mode for path, found in errors.items() if isinstance(found, NotLabels)}:
        modes = ", ".join(sorted(set(strange.values())))
        problem = f"{len(strange)} labels: expected one 8-bit channel of labels, got mode {modes}"
        yield finding(root, problem, CONVERT, strange)
    if bad := [path for path, found in errors.items() if not isinstance(found, NotLabels)]:
        first = str(errors[bad[0]]).split(": ", 1)[-1].split(";")[0]
        yield finding(root, f"{len(bad)} files are unreadable ({first})", "fetch or make them again", bad)
    if turned := [path for path, found in contents.items() if isinstance(found, ImageSize) and found.orientation > 1]:
        yield finding(
            root,
            f"{len(turned)} images are turned or mirrored by the orientation in their EXIF data when they are read, "
            "labels never are",
            "store them as their labels lie and without it (exiftool -Orientation= FILE removes it, "
            "exiftran -ai FILE turns the pixels)",
            turned,
        )
    if odd := [path for path in contents if printable(path) != str(path)]:
        yield finding(root, f"{len(odd)} files have names that are no UTF-8", "rename them and their partners", odd)


def unpaired(known: Layout, root: Path, split: str, files: SplitFiles) -> Iterator[str]:
    """Images without a label and labels without an image."""
    if lonely := [path for stem, path in files.images.items() if stem not in files.labels]:
        remedy = f"make them with {known.preparation}" if known.preparation else "complete the download"
        expected = f"*{known.label_suffix} in {known.splits[split].labels}"
        problem = f"{split}: {len(lonely)} of {len(files.images)} images have no label ({expected})"
        yield finding(root, problem, remedy, lonely)
    if lonely := [path for stem, path in files.labels.items() if stem not in files.images]:
        problem = f"{split}: {len(lonely)} of {len(files.labels)} labels have no image"
        yield finding(root, problem, "complete the download or remove them", lonely)


def mismatched_sizes(root: Path, files: SplitFiles, sizes: Contents, scans: Contents) -> Iterator[str]:
    """Labels that differ in size from their image as it is read."""
    bad = {}
    for stem, label in files.labels.items():
        image, scan = sizes.get(files.images.get(stem, label)), scans.get(label)
        if isinstance(image, ImageSize) and isinstance(scan, LabelScan) and image.size != scan.size:
            bad[label] = f"the first is {_times(scan.size)}, its image {_times(image.size)}"
    if bad:
        problem = f"{len(bad)} labels differ in size (h x w) from their image ({next(iter(bad.values()))})"
        yield finding(root, problem, "fetch both again; do not resize one alone", bad)


def other_sizes(known: Layout, root: Path, sizes: Contents) -> Iterator[str]:
    """Images that do not have the size that the data set has."""
    read = {path: found.size for path, found in sizes.items() if isinstance(found, ImageSize)}
    bad = {path: size for path, size in read.items() if size != known.size}
    if known.size and bad:
        expected, came = _times(known.size), _times(next(iter(bad.values())))
        problem = f"{len(bad)} images do not have {known.title}'s size {expected} (h x w), the first {came}"
        yield finding(root, problem, "use the original files; results on resized ones are not comparable", bad)


def _times(size: tuple[int, int]) -> str:
    return f"{size[0]} x {size[1]}"


def illegal_values(known: Layout, root: Path, scans: Contents) -> Iterator[str]:
    """Labels with values that mean nothing, with a guess at what happened."""
    legal = {*known.label_values, known.void}
    bad = {path: scan.counts.keys() - legal for path, scan in scans.items() if isinstance(scan, LabelScan)}
    bad = {path: wrong for path, wrong in bad.items() if wrong}
    if bad:
        wrong = set().union(*bad.values())
        expected = f"{known.label_values[0]} to {known.label_values[-1]}, void {known.void}"
        problem = f"{len(bad)} labels hold values out of range (expected {expected}, found {_first(sorted(wrong))})"
        yield finding(root, problem, _guess(known, wrong), bad)


def _first(things: Sequence[object]) -> str:
    return ", ".join(map(str, things[:8])) + (", ..." if len(things) > 8 else "")


def _guess(known: Layout, wrong: set[int]) -> str:
    above = known.label_values[-1] + 1
    again = f"make them again with {known.preparation}" if known.preparation else "use the original label files"
    if wrong == {255} and known.void == 0:
        return f"they look shifted by one (255 for void, where void is 0 here); {again}"
    if wrong == {above}:
        return f"they look shifted by one, or {above} stands for void, which is {known.void} here; {again}"
    if known.name == "coco_stuff" and wrong <= set(range(above, 183)):
        return f"they look like ids of the release (1 to 182); {again}"
    if known.name == "coco_stuff" and wrong <= {*range(above, 182), 255}:
        return f"they look like labels of COCO-Stuff 164k (0 to 181, 255 for void); {again}"
    if known.name == "cityscapes" and max(wrong) <= 33:
        return f"they look like labelIds, not labelTrainIds; {again}"
    return again


def _check_classes(report: Report, known: Layout, root: Path, split: str) -> None:
    """Find classes without a pixel in a split; a complete training split without the last one has shifted labels."""
    missing = [value for value in known.label_values if value not in report.pixels[split]]
    if not missing or not report.pixels[split]:
        return
    names = [known.classes[known.label_values.index(v)] if known.classes else f"value {v}" for v in missing]
    problem = f"{split}: {len(missing)} of {known.num_classes} classes never occur ({_first(names)})"
    if _official(report, split) and split == next(iter(known.splits)) and missing[-1] == known.label_values[-1]:
        remedy = "the last class is among them: the values look shifted by one; use the original label files"
        report.errors.append(finding(root, problem, remedy))
    else:
        report.warnings.append(finding(root, problem, "scores of these classes mean nothing on this data"))


def duplicates(root: Path, splits: Mapping[str, SplitFiles], sizes: Contents) -> dict[tuple[str, str], str]:
    """Images that two splits share byte by byte, a finding per pair of splits; unreadable ones are left out."""
    by_size: dict[int, list[tuple[str, Path]]] = defaultdict(list)
    for split, files in splits.items():
        for path in files.images.values():
            if not isinstance(sizes.get(path), UserError):  # told already; a link that leads nowhere has no size
                with suppress(OSError):  # gone or forbidden since it was read
                    by_size[path.stat().st_size].append((split, path))
    by_content: dict[str, list[tuple[str, Path]]] = defaultdict(list)
    for same_size in by_size.values():
        if len({split for split, _ in same_size}) > 1:  # files of different length differ, so few are read at all
            for split, path in same_size:
                with suppress(OSError):
                    by_content[hashlib.sha256(path.read_bytes()).hexdigest()].append((split, path))
    shared: dict[tuple[str, str], set[Path]] = defaultdict(set)
    for copies in by_content.values():
        for (split, path), (other_split, other) in combinations(copies, 2):
            if split != other_split:
                shared[split, other_split] |= {path, other}
    remedy = "remove them from one of the splits: scores on images that were trained on mean nothing"
    return {
        (a, b): finding(root, f"{len(paths) // 2} images occur in {a} and in {b}", remedy, paths)
        for (a, b), paths in shared.items()
    }


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
        args.dataset, args.data_root, expect_official_counts=not args.subset, quick=args.quick, workers=args.workers
    )
    if args.report:
        report.write(args.report)
    print(report.text(SHOWN_FILES), flush=True)
    if report.errors:
        found = "\n".join(map(shortened, report.errors)).replace("\n", "\n  ")
        where = f"\n  all files: {args.report.with_suffix('.txt')}" if args.report else ""
        raise UserError(f"{report.data_root}: {report.title} is not fit for training:\n  {found}{where}")


if __name__ == "__main__":
    sys.exit(main())
