"""One number for the content of a data set, for the provenance of results."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pne.datasets.files import SplitFiles, find_files, opened, read_label, usable_threads
from pne.datasets.layouts import Layout, data_folder, layout
from pne.errors import UserError
from pne.files import write_text

CACHE_VERSION = 1


class LabelScan(NamedTuple):
    """Content of one label file.

    Attributes
    ----------
    size : (int, int)
        (height, width) in pixels.
    digest : str
        sha256 over size and values, shortened to 32 hexadecimal digits; the same however the file is compressed.
    counts : dict of int to int
        Pixels of each value that occurs.
    """

    size: tuple[int, int]
    digest: str
    counts: dict[int, int]


def scan_label(path: Path) -> LabelScan:
    """Read one label file.

    Raises
    ------
    UserError
        If it cannot be read as a label image.
    """
    labels = read_label(path)
    counts = enumerate(np.bincount(labels.ravel()).tolist())
    digest = hashlib.sha256(f"{labels.shape}".encode() + np.ascontiguousarray(labels).tobytes()).hexdigest()[:32]
    return LabelScan(labels.shape, digest, {value: pixels for value, pixels in counts if pixels})


def scan_labels(root: Path, paths: Sequence[Path], workers: int | None = None) -> dict[Path, LabelScan | UserError]:
    """Read label files, several at a time; files that have not changed since an earlier call come from a cache.

    Parameters
    ----------
    root : Path
        The data root; names the cache.
    paths : sequence of Path
        Files below ``root``.
    workers : int, optional
        Number of threads; by default one per core, at most eight.

    Returns
    -------
    dict
        For each path its content, or the error that reading it raised, in the order of ``paths``.

    Notes
    -----
    The cache lies in ``$PNE_CACHE``, by default ``~/.cache/pne``: data folders are often read-only. A file counts as
    unchanged while its size and time of modification stay the same. A user without a home folder has no cache.
    """
    store = _store(root)
    known = _stored(store)
    read: dict[str, dict] = {}

    def scan(path: Path) -> LabelScan | UserError:
        try:
            state = path.stat()
            key, stamp = path.relative_to(root).as_posix(), [state.st_size, state.st_mtime_ns]
            if key in known and known[key]["stamp"] == stamp:
                entry = known[key]
                return LabelScan(tuple(entry["size"]), entry["digest"], {int(v): n for v, n in entry["counts"].items()})
            found = scan_label(path)
        except OSError as error:
            return UserError(f"{path}: cannot be read ({error.strerror})")
        except UserError as error:
            return error
        read[key] = {"stamp": stamp, **found._asdict()}
        return found

    with ThreadPoolExecutor(usable_threads(workers)) as pool:
        scans = dict(zip(paths, pool.map(scan, paths), strict=True))
    if read:
        with suppress(UserError):  # a cache that cannot be kept costs time at the next call, and changes no result
            write_text(store, json.dumps({"version": CACHE_VERSION, "files": known | read}))
    return scans


def _store(root: Path) -> Path:
    try:
        folder = Path(os.environ.get("PNE_CACHE") or Path.home() / ".cache/pne")
    except RuntimeError:  # no HOME and an unknown user
        folder = Path(os.devnull)  # which holds no files: nothing is kept
    return folder / "labels" / f"{hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:16]}.json"


def _stored(path: Path) -> dict[str, dict]:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return stored["files"] if stored["version"] == CACHE_VERSION else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}  # no cache, or not a readable one: everything is read again


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
        folders = ", ".join(split.images for split in known.splits.values())
        raise UserError(f"{root}: expected {known.title} with images in {folders}, found none")
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
    # Names that are no UTF-8 count with their bytes.
    return hashlib.sha256("\n".join(sorted(lines)).encode(errors="surrogateescape")).hexdigest()


def _bytes(path: Path, *, needed: bool) -> str:
    try:
        return str(path.stat().st_size)
    except OSError as error:
        if not needed:  # nobody trains on it
            return "missing"
        raise UserError(f"{path}: cannot be read ({error.strerror}); fetch it, or mend the link") from error


def _pixels(path: Path) -> str:
    with opened(path, "draw the data set again") as picture:
        values = np.asarray(picture)
    return hashlib.sha256(f"{values.shape}".encode() + values.tobytes()).hexdigest()[:32]
