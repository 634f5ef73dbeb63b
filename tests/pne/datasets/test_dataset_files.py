"""Sizes of images are those that mmcv reads; a data set is complete if its labelled splits have all their images."""

import shutil
from collections.abc import Callable
from pathlib import Path

import mmcv
import numpy as np
import pytest
from PIL import Image

from pne.datasets.files import ORIENTATION, is_complete, read_size
from pne.errors import UserError


@pytest.mark.parametrize("suffix", ["jpg", "png"])
@pytest.mark.parametrize("orientation", [None, *range(1, 9), 77])
def test_size_and_orientation_are_those_which_mmcv_reads(tmp_path: Path, suffix: str, orientation: int | None) -> None:
    path, exif = tmp_path / f"image.{suffix}", Image.Exif()
    if orientation is not None:
        exif[ORIENTATION] = orientation
    stored = np.kron([[0, 255], [80, 160]], np.ones((20, 30))).astype(np.uint8)
    Image.fromarray(stored).save(path, exif=exif)
    found, seen = read_size(path), mmcv.imread(path, "grayscale")
    assert found == read_size(path, decode=True)
    assert found.size == seen.shape
    is_as_stored = seen.shape == stored.shape and np.abs(seen.astype(int) - stored).mean() < 9
    assert (found.orientation == 1) == is_as_stored


def test_damaged_exif_data_turn_nothing(tmp_path: Path) -> None:
    path = tmp_path / "image.jpg"
    Image.fromarray(np.zeros((40, 60, 3), np.uint8)).save(path, exif=b"Exif\x00\x00MM\x00*\xff\xff\xff\xff")
    assert read_size(path) == read_size(path, decode=True) == ((40, 60), 1)
    assert mmcv.imread(path).shape[:2] == (40, 60)


def test_drawn_data_are_complete_with_no_image_missing_and_none_too_many(street: Path, tmp_path: Path) -> None:
    assert is_complete("street_city", street) is True
    copy = shutil.copytree(street, tmp_path / "street_city")
    image = next((copy / "img_dir/test").iterdir())
    another = shutil.copyfile(image, image.with_name("another.png"))
    assert is_complete("street_city", copy) is False
    another.unlink()
    image.unlink()
    assert is_complete("street_city", copy) is False


def test_a_part_of_real_data_is_not_complete(shared: Path) -> None:
    assert is_complete("camvid", shared / "data/camvid_tiny") is False
    assert is_complete("camvid_tiny", shared / "data/camvid_tiny") is True
    assert is_complete("CamVidDataset", shared / "data/camvid") is True


def test_a_split_without_labels_does_not_count(tmp_path: Path, state_counts: Callable) -> None:
    state_counts("cityscapes", lambda _, split: 2 if split.labels else 5)
    for split in ("train", "val"):
        for number in range(2):
            path = tmp_path / "leftImg8bit" / split / "city" / f"city_{number:06d}_000000_leftImg8bit.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    assert is_complete("cityscapes", tmp_path) is True
    path.unlink()
    assert is_complete("cityscapes", tmp_path) is False


def test_without_official_numbers_nothing_is_said(tmp_path: Path, state_counts: Callable) -> None:
    state_counts("camvid", lambda name, split: 0)
    assert is_complete("camvid", tmp_path) is None


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected the folder of a data set, found none"):
        is_complete("camvid", tmp_path / "nowhere")
