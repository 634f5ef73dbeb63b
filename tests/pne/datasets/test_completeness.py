"""A data set is complete if each split with labels has the official number of images."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pne.datasets import layouts
from pne.datasets.completeness import is_complete
from pne.errors import UserError


def test_drawn_data_are_complete_until_an_image_is_missing(street: Path, tmp_path: Path) -> None:
    assert is_complete("street_city", street) is True
    copy = shutil.copytree(street, tmp_path / "street_city")
    next((copy / "img_dir/test").iterdir()).unlink()
    assert is_complete("street_city", copy) is False


def test_a_part_of_real_data_is_not_complete(shared: Path) -> None:
    assert is_complete("camvid", shared / "data/camvid_tiny") is False
    assert is_complete("camvid_tiny", shared / "data/camvid_tiny") is True
    assert is_complete("CamVidDataset", shared / "data/camvid") is True


def test_images_too_many_are_not_the_official_data(street: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(street, tmp_path / "street_city")
    image = next((copy / "img_dir/train").iterdir())
    shutil.copyfile(image, image.with_name("another.png"))
    assert is_complete("street_city", copy) is False


def test_a_split_without_labels_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cityscapes = layouts.LAYOUTS["cityscapes"]
    few = {name: replace(split, count=2 if split.labels else 5) for name, split in cityscapes.splits.items()}
    monkeypatch.setitem(layouts.LAYOUTS, "cityscapes", replace(cityscapes, splits=few))
    for split in ("train", "val"):
        for number in range(2):
            path = tmp_path / "leftImg8bit" / split / "city" / f"city_{number:06d}_000000_leftImg8bit.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    assert is_complete("cityscapes", tmp_path) is True
    path.unlink()
    assert is_complete("cityscapes", tmp_path) is False


def test_without_official_numbers_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    camvid = layouts.LAYOUTS["camvid"]
    unknown = {name: replace(split, count=0) for name, split in camvid.splits.items()}
    monkeypatch.setitem(layouts.LAYOUTS, "camvid", replace(camvid, splits=unknown))
    assert is_complete("camvid", tmp_path) is None


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected the folder of a data set, found none"):
        is_complete("camvid", tmp_path / "nowhere")
