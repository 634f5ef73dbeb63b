"""Read and harm the files of a data set."""

from pathlib import Path

import numpy as np
from PIL import Image


def read(path: Path) -> np.ndarray:
    """Values of a picture as stored."""
    with Image.open(path) as picture:
        return np.asarray(picture)


def harm(path: Path, values: np.ndarray) -> None:
    """Write other values to a picture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values.astype(np.uint8)).save(path)
