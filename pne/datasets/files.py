"""The files of a data set: which images and labels a split has, and one reader and one writer of pictures."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from pne.datasets.layouts import Layout, Split, data_folder, layout
from pne.errors import UserError
from pne.files import written_aside

ORIENTATION = 0x0112  # tag of EXIF
MOST_THREADS = 8  # more than this wait for disks, not for cores
CONVERT = (
    "convert to one channel of class numbers: PIL.Image.fromarray(numbers.astype('uint8')).save(file), where numbers "
    "are the values of a 16-bit file, or the number of the class that each colour stands for"
)


class SplitFiles(NamedTuple):
    """Files of one split by stem: the path below the split's folder without the suffix.

    Attributes
    ----------
    images, labels : dict of str to Path
        In sorted order of the stems. ``labels`` is empty where labels are not published.
    """

    images: dict[str, Path]
    labels: dict[str, Path]


def find_files(layout: Layout, root: Path, split: Split) -> SplitFiles:
    """List the files of a split; a folder that does not exist has none."""
    labels = _by_stem(root / split.labels, layout.label_suffix) if split.labels else {}
    return SplitFiles(_by_stem(root / split.images, layout.image_suffix), labels)


def _by_stem(folder: Path, suffix: str) -> dict[str, Path]:
    found = (
        Path(parent, name)
        for parent, _, names in os.walk(folder, followlinks=True)
        for name in names
        if name.endswith(suffix) and not name.startswith(".")
    )
    return dict(sorted((path.relative_to(folder).as_posix().removesuffix(suffix), path) for path in found))


@contextmanager
def naming_files(dataset: Any, index: int) -> Iterator[None]:
    """Name the files of a data set's sample where they cannot be read inside the block, such as those changed since.

    Raises
    ------
    UserError
        In place of what the readers raise.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, UserError | MemoryError) or not hasattr(dataset, "get_data_info"):
            raise
        sample = dataset.get_data_info(index)
        files = " or ".join(str(sample[key]) for key in ("img_path", "seg_map_path") if sample.get(key))
        raise UserError(
            f"{files}: cannot be read as the pipeline asks ({type(error).__name__}: {error}); put the file back, or "
            "let the doctor examine the data set (python -m pne.datasets.doctor)"
        ) from error


def is_complete(dataset: str, data_root: Path | str) -> bool | None:
    """Return whether every split with labels has the official number of images; file names alone are read.

    Splits without labels serve submissions alone and do not count.

    Parameters
    ----------
    dataset : str
        Key of the data set or name of its mmsegmentation class.
    data_root : Path
        Its folder.

    Returns
    -------
    bool or None
        None where the data set has no official numbers.

    Raises
    ------
    UserError
        If the data set is not known or the folder does not exist.
    """
    known, root = layout(dataset), data_folder(data_root)
    official = [split for split in known.splits.values() if split.labels is not None and split.count]
    if not official:
        return None
    return all(len(find_files(known, root, split).images) == split.count for split in official)


def usable_threads(wanted: int | None = None) -> int:
    """Return the number of threads to read files with: ``wanted``, or one per core that this process may use.

    A batch system gives a job some of a machine's cores; where the operating system does not tell which, all of the
    machine's count.
    """
    if wanted is not None:
        return max(1, wanted)
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS and Windows
        cores = os.cpu_count() or 1
    return min(MOST_THREADS, cores)


class NotLabels(UserError):
    """An image that can be read, but is no single 8-bit channel; it has this mode of Pillow's."""

    def __init__(self, path: Path, mode: str) -> None:
        super().__init__(f"{path}: expected one 8-bit channel of labels, got mode {mode}; {CONVERT}")
        self.mode = mode


class ImageSize(NamedTuple):
    """Size (h, w) of an image in pixels as mmcv reads it, and its EXIF orientation, 1 for an image as it is stored."""

    size: tuple[int, int]
    orientation: int


@contextmanager
def opened(path: Path, remedy: str = "fetch or make it again") -> Iterator[Image.Image]:
    """Open an image file; one that cannot be read, in the block too, is a ``UserError`` with the ``remedy``."""
    try:
        with Image.open(path) as picture:
            yield picture
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UserError(f"{path}: cannot be read as an image ({error}); {remedy}") from error


def read_label(path: Path) -> np.ndarray:
    """Read a label image of one channel, its values as stored (a palette is not applied), shape (h, w), uint8.

    Raises
    ------
    UserError
        If the file cannot be read; `NotLabels` if it is no 8-bit image of one channel.
    """
    with opened(path) as picture:
        mode, values = picture.mode, np.asarray(picture)
    if mode not in ("L", "P"):
        raise NotLabels(path, mode)
    return values


def read_size(path: Path, *, decode: bool = False) -> ImageSize:
    """Read the size and orientation that the header of an image states.

    mmcv turns an image as its EXIF data ask for, Pillow does not. With ``decode`` the whole image is decoded, so that
    one that is cut short is found.

    Raises
    ------
    UserError
        If the file cannot be read.
    """
    with warnings.catch_warnings(action="ignore"), opened(path) as picture:
        if decode:
            picture.load()
        orientation = _orientation(picture)
        return ImageSize(picture.size if orientation >= 5 else picture.size[::-1], orientation)


def _orientation(picture: Image.Image) -> int:
    data = Image.Exif()
    try:
        data.load(picture.info.get("exif"))
        value = int(data.get(ORIENTATION, 1))
    except Exception:  # damaged EXIF data; what that makes Pillow raise is not documented, and mmcv ignores them
        return 1
    return value if value in range(1, 9) else 1


def save_label(path: Path, labels: np.ndarray) -> None:
    """Write label values, shape (h, w), uint8, as a grey PNG, atomically."""
    with written_aside(path) as aside:
        Image.fromarray(labels).save(aside, "PNG")
