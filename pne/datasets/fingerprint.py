"""One number for the content of a data set, for the provenance of results."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image

from pne.datasets.files import SplitFiles, find_files
from pne.datasets.label_scan import LabelScan, scan_labels
from pne.datasets.layouts import Layout, data_folder, layout
from pne.errors import UserError


def fingerprint(dataset: str, data_root: Path | str) -> str:
    """Return the fingerprint of a data set on disk.

    sha256 over the sorted lines ``split image-stem size-in-bytes`` and ``split label-stem digest-of-its-values``. It
    depends on what the labels say and not on where the folder lies or how PNG files are compressed. Label files that
    have not changed are not read again.

    Parameters
    ----------
    dataset : str
        Key of the data set or name of its mmsegmentation class.
    data_root : Path
        Its folder.

    Returns
    -------
    str
        64 hexadecimal digits.

    Raises
    ------
    UserError
        If the folder or its files are missing, or a label file cannot be read.
    """
    known, root = layout(dataset), data_folder(data_root)
    splits = {name: find_files(known, root, split) for name, split in known.splits.items()}
    if not any(files.images for files in splits.values()):
        raise UserError(f"{root}: expected {known.title} with images in {_folders(known)}, found none")
    scans = scan_labels(root, [path for files in splits.values() for path in files.labels.values()])
    for found in scans.values():
        if isinstance(found, UserError):
            raise found
    return fingerprint_of(known, splits, scans)


def fingerprint_of(known: Layout, splits: Mapping[str, SplitFiles], scans: Mapping[Path, LabelScan | UserError]) -> str:
    """Return the fingerprint from files and label contents that were read before; see `fingerprint`."""
    lines = []
    for name, files in splits.items():
        for stem, path in files.images.items():
            content = _pixels(path) if known.hash_images else _bytes(path, needed=known.splits[name].labels is not None)
            lines.append(f"{name} image {stem} {content}")
        for stem, path in files.labels.items():
            found = scans[path]
            lines.append(f"{name} label {stem} {found.digest if isinstance(found, LabelScan) else 'unreadable'}")
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def _bytes(path: Path, *, needed: bool) -> str:
    try:
        return str(path.stat().st_size)
    except OSError as error:
        if not needed:  # nobody trains on it
            return "missing"
        raise UserError(f"{path}: cannot be read ({error.strerror}); fetch it, or mend the link") from error


def _pixels(path: Path) -> str:
    try:
        with Image.open(path) as picture:
            values = np.asarray(picture)
    except (OSError, SyntaxError, ValueError) as error:
        raise UserError(f"{path}: cannot be read as an image ({error}); draw the data set again") from error
    return hashlib.sha256(f"{values.shape}".encode() + values.tobytes()).hexdigest()[:32]


def _folders(known: Layout) -> str:
    return ", ".join(split.images for split in known.splits.values())
