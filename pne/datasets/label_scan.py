"""What label files hold, read once per file and version of it."""

import hashlib
import json
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from pne.datasets.cores import usable_threads
from pne.datasets.pictures import read_label
from pne.errors import UserError
from pne.files import write_text

CACHE_VERSION = 1


@dataclass(frozen=True)
class LabelScan:
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
    counts = np.bincount(labels.ravel(), minlength=256)
    digest = hashlib.sha256(f"{labels.shape}".encode() + np.ascontiguousarray(labels).tobytes()).hexdigest()[:32]
    size = (labels.shape[0], labels.shape[1])
    return LabelScan(size, digest, {int(v): int(counts[v]) for v in counts.nonzero()[0]})


def scan_labels(root: Path, paths: Iterable[Path], workers: int | None = None) -> dict[Path, LabelScan | UserError]:
    """Read label files, several at a time; files that have not changed since an earlier call come from a cache.

    Parameters
    ----------
    root : Path
        The data root; names the cache.
    paths : iterable of Path
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
    unchanged while its size and time of modification stay the same.
    """
    cache = _Cache(root)
    paths = list(paths)
    with ThreadPoolExecutor(usable_threads(workers)) as pool:
        scans = dict(zip(paths, pool.map(cache.scan, paths), strict=True))
    cache.save()
    return scans


class _Cache:
    def __init__(self, root: Path) -> None:
        folder = Path(os.environ.get("PNE_CACHE") or Path.home() / ".cache" / "pne")
        self.root = root
        self.path = folder / "labels" / f"{hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:16]}.json"
        self.known: dict[str, dict] = {}
        self.changed = False
        try:
            stored = json.loads(self.path.read_text(encoding="utf-8"))
            if stored["version"] == CACHE_VERSION:
                self.known = stored["files"]
        except (OSError, ValueError, KeyError, TypeError):
            self.known = {}  # no cache, or not a readable one: everything is read again

    def scan(self, path: Path) -> LabelScan | UserError:
        try:
            state = path.stat()
        except OSError as error:
            return UserError(f"{path}: cannot be read ({error.strerror})")
        key, stamp = path.relative_to(self.root).as_posix(), [state.st_size, state.st_mtime_ns]
        entry = self.known.get(key)
        if entry is not None and entry["stamp"] == stamp:
            height, width = entry["size"]
            return LabelScan((height, width), entry["digest"], {int(v): n for v, n in entry["counts"].items()})
        try:
            found = scan_label(path)
        except UserError as error:
            return error
        self.known[key] = {"stamp": stamp, **asdict(found)}
        self.changed = True
        return found

    def save(self) -> None:
        if not self.changed:
            return
        try:
            write_text(self.path, json.dumps({"version": CACHE_VERSION, "files": self.known}))
        except UserError:
            return  # a cache that cannot be kept costs time at the next call, and changes no result
