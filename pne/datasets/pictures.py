"""Reading and writing label and image files, with one clear error each."""

import warnings
from io import BytesIO
from pathlib import Path
from threading import Lock

import numpy as np
from PIL import Image

from pne.errors import UserError
from pne.files import written_aside

ORIENTATION = 0x0112  # tag of EXIF
TURNED = (5, 6, 7, 8)  # its values by which height and width change places


def read_label(path: Path) -> np.ndarray:
    """Read a label image of one channel, its values as stored (a palette is not applied), shape (h, w), uint8.

    Raises
    ------
    UserError
        If the file cannot be read, or is no 8-bit image of one channel.
    """
    try:
        with Image.open(path) as picture:
            mode, values = picture.mode, np.asarray(picture)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UserError(f"{path}: cannot be read as an image ({error}); fetch or make it again") from error
    if mode not in ("L", "P"):
        raise UserError(f"{path}: expected one 8-bit channel of labels, got mode {mode}; convert it to label values")
    return values


def read_image(path: Path) -> tuple[int, int]:
    """Decode an image completely and return its size (h, w) in pixels, as mmcv reads it.

    Raises
    ------
    UserError
        If it cannot be decoded, for example because the file is cut short.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(path) as picture:
                picture.load()
                return _size_as_read(picture)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UserError(f"{path}: cannot be read as an image ({error}); fetch it again") from error


def image_size(path: Path) -> tuple[int, int]:
    """Return the size (h, w) that the header of an image states, as mmcv reads it, without decoding it.

    Raises
    ------
    UserError
        If the header cannot be read.
    """
    try:
        with Image.open(path) as picture:
            return _size_as_read(picture)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UserError(f"{path}: cannot be read as an image ({error}); fetch it again") from error


def _size_as_read(picture: Image.Image) -> tuple[int, int]:
    """Size (h, w) after the turn that the picture's EXIF data ask for: mmcv.imread carries it out, Pillow does not."""
    size = picture.height, picture.width
    return size[::-1] if _orientation(picture) in TURNED else size


def _orientation(picture: Image.Image) -> int:
    if "exif" not in picture.info:
        return 1
    data = Image.Exif()
    try:
        data.load(picture.info["exif"])
        return int(data.get(ORIENTATION, 1))
    except Exception:  # damaged EXIF data; what that makes Pillow raise is not documented, and mmcv ignores them
        return 1


def save_label(path: Path, labels: np.ndarray) -> None:
    """Write label values, shape (h, w), uint8, as a grey PNG, atomically; several threads may do so at once."""
    encoded = BytesIO()
    Image.fromarray(labels).save(encoded, "PNG")  # the slow part, outside of the lock
    write_bytes(path, encoded.getvalue())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically; several threads may do so at once."""
    with _writing, written_aside(path) as aside:  # which looks at the process's umask by setting it
        aside.write_bytes(content)


_writing = Lock()
