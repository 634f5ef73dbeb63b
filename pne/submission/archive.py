"""The archive that the Cityscapes server takes: one PNG of label ids per test image.

The server looks for ``<city>_<sequence>_<frame>*.png``, in any folder, exactly one per image, as large as the image
(`getPrediction` of evaluation/evalPixelLevelSemanticLabeling.py, github.com/mcordts/cityscapesScripts).
"""

import re
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field

from pne.datasets.cityscapes import LABEL_IDS
from pne.datasets.layouts import layout
from pne.errors import UserError
from pne.results import Provenance

NAME = re.compile(r"(?P<frame>[a-z-]+_\d{6}_\d{6})(_leftImg8bit)?")


class Submission(BaseModel):
    """``<run>.json`` beside the archive: where its predictions come from."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    run: str
    evaluation: str = Field(description="How it was predicted: single_scale or multi_scale_flip.")
    bfloat16: bool
    images: int = Field(ge=1)
    weights_sha256: str
    archive_sha256: str
    provenance: Provenance


def archive_name(image: str) -> str:
    """Return the name of the prediction of an image.

    Raises
    ------
    UserError
        If the image is not named as Cityscapes names its images.

    Examples
    --------
    >>> archive_name("berlin_000000_000019_leftImg8bit")
    'berlin_000000_000019_labelIds.png'
    """
    found = NAME.fullmatch(image)
    if found is None:
        raise UserError(f"{image}: expected <city>_<6 digits>_<6 digits>_leftImg8bit; the server knows no other images")
    return f"{found['frame']}_labelIds.png"


def encode(train_ids: np.ndarray) -> bytes:
    """Turn predicted classes, (H, W) with values 0 to 18, into a PNG of label ids."""
    stream = BytesIO()
    Image.fromarray(LABEL_IDS[train_ids]).save(stream, "PNG")
    return stream.getvalue()


def find_images(root: Path, subset: bool = False) -> list[Path]:
    """List the images of the test split, in the order of their names.

    Parameters
    ----------
    root : Path
        Folder of the data set.
    subset : bool
        Whether a part of the split will do.

    Raises
    ------
    UserError
        If there is none, or not all of the official split.
    """
    cityscapes = layout("cityscapes")
    split = cityscapes.splits["test"]
    images = sorted((root / split.images).rglob(f"*{cityscapes.image_suffix}"))
    if not images:
        raise UserError(
            f"{root}: expected {split.images}/<city>/*{cityscapes.image_suffix}, found none; unpack "
            "leftImg8bit_trainvaltest.zip of cityscapes-dataset.com there"
        )
    if len(images) != split.count and not subset:
        raise UserError(
            f"{root}: expected the {split.count} images of the test split in {split.images}, found {len(images)}; the "
            "server refuses an incomplete archive: complete the download (--subset writes one for a look)"
        )
    return images


def write_archive(path: Path, folder: Path, names: list[str]) -> None:
    """Pack predictions with fixed dates: equal pictures give equal bytes.

    Parameters
    ----------
    path : Path
        Where to write.
    folder : Path
        Folder of the pictures.
    names : list of str
        Their names, in the order of the archive.
    """
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:  # PNG is compressed already
        for name in names:
            archive.writestr(zipfile.ZipInfo(name), (folder / name).read_bytes())
