"""The single checks of the data doctor, each from files and their contents to findings."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pne.datasets.files import SplitFiles
from pne.datasets.label_scan import LabelScan
from pne.datasets.layouts import Layout
from pne.datasets.report import Finding
from pne.errors import UserError

Sizes = Mapping[Path, tuple[int, int] | UserError]
Scans = Mapping[Path, LabelScan | UserError]


def relative(root: Path, paths: list[Path]) -> list[str]:
    """Return names below the data root, sorted."""
    return sorted(path.relative_to(root).as_posix() for path in paths)


def foreign_classes(known: Layout, root: Path) -> list[Finding]:
    """A ``meta.json`` in the data root whose class names are not those of this data set."""
    path = root / "meta.json"
    if not known.classes or not path.is_file():
        return []
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))
        names = tuple(meta["classes"])
    except (OSError, ValueError, KeyError, TypeError):
        return [Finding(f"expected class names in {path.name}, found none", [path.name], "restore the file")]
    if names == known.classes:
        return []
    problem = f"expected the {known.num_classes} classes of {known.title}, {path.name} names {len(names)} others"
    return [Finding(problem, [path.name], f"name the folder of {known.title}; this one holds {meta.get('name')!r}")]


def unpaired(known: Layout, root: Path, split: str, files: SplitFiles) -> list[Finding]:
    """Images without a label and labels without an image."""
    findings = []
    if lonely := [path for stem, path in files.images.items() if stem not in files.labels]:
        remedy = f"make them with {known.preparation}" if known.preparation else "complete the download"
        expected = f"*{known.label_suffix} in {known.splits[split].labels}"
        problem = f"{split}: {len(lonely)} of {len(files.images)} images have no label ({expected})"
        findings.append(Finding(problem, relative(root, lonely), remedy))
    if lonely := [path for stem, path in files.labels.items() if stem not in files.images]:
        problem = f"{split}: {len(lonely)} of {len(files.labels)} labels have no image"
        findings.append(Finding(problem, relative(root, lonely), "complete the download or remove them"))
    return findings


def unreadable(root: Path, contents: Mapping[Path, object]) -> list[Finding]:
    """Files that could not be decoded."""
    bad = {path: found for path, found in contents.items() if isinstance(found, UserError)}
    if not bad:
        return []
    first = str(next(iter(bad.values()))).split(": ", 1)[-1].split(";")[0]
    return [
        Finding(f"{len(bad)} files are unreadable ({first})", relative(root, list(bad)), "fetch or make them again")
    ]


def mismatched_sizes(root: Path, files: SplitFiles, sizes: Sizes, scans: Scans) -> list[Finding]:
    """Labels that differ in size from their image."""
    bad, example = [], ""
    for image, label in files.pairs:
        size, scan = sizes.get(image), scans.get(label)
        if isinstance(size, tuple) and isinstance(scan, LabelScan) and size != scan.size:
            bad.append(label)
            example = example or f"the first is {_times(scan.size)}, its image {_times(size)}"
    if not bad:
        return []
    problem = f"{len(bad)} labels differ in size (h x w) from their image ({example})"
    return [Finding(problem, relative(root, bad), "fetch both again; do not resize one alone")]


def other_sizes(known: Layout, root: Path, sizes: Sizes) -> list[Finding]:
    """Images that do not have the size that the data set has."""
    bad = [path for path, size in sizes.items() if isinstance(size, tuple) and size != known.size]
    if known.size is None or not bad:
        return []
    came = _times(sizes[bad[0]])  # type: ignore[arg-type]
    problem = f"{len(bad)} images do not have {known.title}'s size {_times(known.size)} (h x w), the first {came}"
    return [Finding(problem, relative(root, bad), "use the original files; results on resized ones are not comparable")]


def illegal_values(known: Layout, root: Path, scans: Scans) -> list[Finding]:
    """Labels with values that mean nothing, with a guess at what happened."""
    legal = {*known.label_values, *known.void}
    bad: dict[Path, set[int]] = {}
    for path, scan in scans.items():
        if isinstance(scan, LabelScan) and (wrong := set(scan.counts) - legal):
            bad[path] = wrong
    if not bad:
        return []
    wrong = sorted(set().union(*bad.values()))
    void = ", ".join(map(str, sorted(known.void)))
    expected = f"{known.label_values[0]} to {known.label_values[-1]}, void {void}"
    shown = ", ".join(map(str, wrong[:8])) + (", ..." if len(wrong) > 8 else "")
    problem = f"{len(bad)} labels hold values out of range (expected {expected}, found {shown})"
    return [Finding(problem, relative(root, list(bad)), _guess(known, set(wrong)))]


def _guess(known: Layout, wrong: set[int]) -> str:
    above = known.label_values[-1] + 1
    again = f"make them again with {known.preparation}" if known.preparation else "use the original label files"
    if wrong == {255} and 0 in known.void:
        return f"they look shifted by one (255 for void, where void is 0 here); {again}"
    if wrong == {above}:
        return f"they look shifted by one, or {above} stands for void, which is {min(known.void)} here; {again}"
    if known.name == "coco_stuff" and wrong <= set(range(above, 183)):
        return f"they look like ids of the release (1 to 182); {again}"
    if known.name == "coco_stuff" and wrong <= {*range(above, 182), 255}:
        return f"they look like labels of COCO-Stuff 164k (0 to 181, 255 for void); {again}"
    if known.name == "cityscapes" and max(wrong) <= 33:
        return f"they look like labelIds, not labelTrainIds; {again}"
    return again


def missing_classes(
    known: Layout, split: str, pixels: Mapping[int, int], *, complete: bool
) -> tuple[list[Finding], list[Finding]]:
    """Classes without a pixel in a split: (errors, warnings).

    A complete training split whose last class is missing has shifted labels.
    """
    missing = [value for value in known.label_values if value not in pixels]
    if not missing or not pixels:
        return [], []
    names = ", ".join(_class_name(known, value) for value in missing[:8]) + (", ..." if len(missing) > 8 else "")
    problem = f"{split}: {len(missing)} of {known.num_classes} classes never occur ({names})"
    if complete and split == next(iter(known.splits)) and missing[-1] == known.label_values[-1]:
        remedy = "the last class is among them: the values look shifted by one; use the original label files"
        return [Finding(problem, [], remedy)], []
    return [], [Finding(problem, [], "scores of these classes mean nothing on this data")]


def _class_name(known: Layout, value: int) -> str:
    index = known.label_values.index(value)
    return known.classes[index] if known.classes else f"value {value}"


def duplicates(root: Path, splits: Mapping[str, SplitFiles], sizes: Sizes) -> list[tuple[str, str, Finding]]:
    """Images that two splits share byte by byte, as (split, other split, finding); unreadable ones are left out."""
    by_size: dict[int, list[tuple[str, Path]]] = defaultdict(list)
    for split, files in splits.items():
        for path in files.images.values():
            if isinstance(sizes.get(path), UserError):
                continue  # told already; a link that leads nowhere has no size
            with suppress(OSError):  # gone or forbidden since it was read
                by_size[path.stat().st_size].append((split, path))
    shared: dict[tuple[str, str], list[Path]] = defaultdict(list)
    for same_size in by_size.values():
        if len({split for split, _ in same_size}) < 2:
            continue  # files of different length differ, so few are read at all
        by_content: dict[str, list[tuple[str, Path]]] = defaultdict(list)
        for split, path in same_size:
            with suppress(OSError):
                by_content[hashlib.sha256(path.read_bytes()).hexdigest()].append((split, path))
        for copies in by_content.values():
            for i, (split, path) in enumerate(copies):
                for other_split, other in copies[i + 1 :]:
                    if split != other_split:
                        shared[split, other_split] += [path, other]
    return [
        (
            a,
            b,
            Finding(
                f"{len(set(paths)) // 2 or 1} images occur in {a} and in {b}",
                relative(root, list(set(paths))),
                "remove them from one of the splits: scores on images that were trained on mean nothing",
            ),
        )
        for (a, b), paths in shared.items()
    ]


def _times(size: tuple[int, int]) -> str:
    return f"{size[0]} x {size[1]}"
