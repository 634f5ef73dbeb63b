"""Sizes of images are those that mmcv reads, whatever their EXIF data say."""

from pathlib import Path

import mmcv
import numpy as np
import pytest
from PIL import Image

from pne.datasets.doctor import check
from pne.datasets.pictures import ORIENTATION, image_size, read_image


def save(path: Path, orientation: int | None, **options: object) -> Path:
    exif = Image.Exif()
    if orientation is not None:
        exif[ORIENTATION] = orientation
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.zeros((40, 60, 3), np.uint8)).save(path, exif=exif, **options)
    return path


@pytest.mark.parametrize("suffix", ["jpg", "png"])
@pytest.mark.parametrize("orientation", [None, *range(1, 9), 77])
def test_the_size_is_that_which_mmcv_returns(tmp_path: Path, suffix: str, orientation: int | None) -> None:
    path = save(tmp_path / f"image.{suffix}", orientation)
    assert read_image(path) == image_size(path) == mmcv.imread(path).shape[:2]


def test_damaged_exif_data_turn_nothing(tmp_path: Path) -> None:
    path = tmp_path / "image.jpg"
    Image.fromarray(np.zeros((40, 60, 3), np.uint8)).save(path, exif=b"Exif\x00\x00MM\x00*\xff\xff\xff\xff")
    assert read_image(path) == image_size(path) == mmcv.imread(path).shape[:2] == (40, 60)


def test_a_turned_image_does_not_fit_its_label(tmp_path: Path) -> None:
    for number, orientation in enumerate((1, 3, 6)):
        save(tmp_path / f"images/training/{number}.jpg", orientation)
        label = tmp_path / f"annotations/training/{number}.png"
        label.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.ones((40, 60), np.uint8)).save(label)
    for quick in (False, True):
        (found,) = check("ade20k", tmp_path, expect_official_counts=False, quick=quick).errors
        assert found.files == ["annotations/training/2.png"]
        assert "1 labels differ in size (h x w) from their image (the first is 40 x 60, its image 60 x 40)" in str(
            found
        )
