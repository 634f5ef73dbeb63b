"""Label conversions follow the official tables, can be repeated and interrupted, and refuse bad files by name."""

import importlib.util
import os
import shutil
from pathlib import Path
from unittest.mock import Mock

import mmseg
import numpy as np
import pytest
from data_files import LOADING, dataset_config, harm, read
from mmseg.registry import DATASETS
from paper_data import draw_cityscapes, write_coco_stuff
from PIL import Image
from scipy.io import savemat

from pne.datasets import prepare as preparation
from pne.datasets.layouts import layout
from pne.datasets.prepare import main, prepare, tasks
from pne.errors import UserError


def mmseg_coco_converter():
    path = Path(mmseg.__file__).parent / ".mim/tools/dataset_converters/coco_stuff10k.py"
    spec = importlib.util.spec_from_file_location("mmseg_coco_stuff10k", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# `labels` of cityscapesscripts/helpers/labels.py of github.com/mcordts/cityscapesScripts from id 0: the name, and *
# where it is trained on. The license plate (id -1) has no value of its own in label images.
LABELS = """unlabeled, ego vehicle, rectification border, out of roi, static, dynamic, ground, *road, *sidewalk,
parking, rail track, *building, *wall, *fence, guard rail, bridge, tunnel, *pole, polegroup, *traffic light,
*traffic sign, *vegetation, *terrain, *sky, *person, *rider, *car, *truck, *bus, caravan, trailer, *train,
*motorcycle, *bicycle"""
NAMES = [name.strip() for name in LABELS.split(",")]


@pytest.fixture
def city(tmp_path) -> Path:
    return draw_cityscapes(tmp_path / "city", size=(32, 64), per_split=2)


@pytest.fixture
def coco(shared, tmp_path) -> Path:
    return write_coco_stuff(tmp_path / "coco", shared)


def train_ids(label: Path) -> Path:
    """The prepared file of a labelIds file."""
    return label.with_name(label.name.replace("labelIds", "labelTrainIds"))


def test_cityscapes_ids_are_those_of_the_official_table():
    trained = [name.removeprefix("*") for name in NAMES if name.startswith("*")]
    assert trained == list(DATASETS.get("CityscapesDataset").METAINFO["classes"])
    assert len(NAMES) - 1 == preparation.HIGHEST_LABEL_ID
    for label_id, name in enumerate(NAMES):
        expected = trained.index(name.removeprefix("*")) if name.startswith("*") else 255
        assert preparation.CITYSCAPES_TRAIN_IDS[label_id] == expected
        if expected < 255:
            assert preparation.LABEL_IDS[expected] == label_id
    assert not preparation.LABEL_IDS[19:].any()
    assert (preparation.CITYSCAPES_TRAIN_IDS[34:] == 255).all()


def test_cityscapes_labels_become_train_ids(city):
    all_ids = next((city / "gtFine/val").rglob("*_labelIds.png"))
    harm(all_ids, np.resize(np.arange(34), (32, 64)))
    assert prepare("cityscapes", city) == 4  # the test split's labels say nothing
    sources = [source for split in ("train", "val") for source in (city / "gtFine" / split).rglob("*_labelIds.png")]
    assert len(sources) == 4
    for source in sources:
        np.testing.assert_array_equal(read(train_ids(source)), preparation.CITYSCAPES_TRAIN_IDS[read(source)])
    dataset = DATASETS.build(dataset_config(city, "CityscapesDataset", "val", pipeline=LOADING))
    assert len(dataset) == 2
    assert {value for sample in dataset for value in np.unique(sample["gt_seg_map"])} == {*range(19), 255}


def test_coco_ids_are_those_of_mmsegmentation():
    for official, ours in mmseg_coco_converter().clsID_to_trID.items():
        assert preparation.COCO_STUFF_TRAIN_IDS[official] == ours
    assert set(preparation.COCO_STUFF_TRAIN_IDS) == set(range(172))
    assert not preparation.COCO_STUFF_TRAIN_IDS[list(preparation.UNUSED_IDS)].any()


def test_coco_mat_files_become_what_mmsegmentations_converter_makes(coco, tmp_path):
    ours, theirs = coco, shutil.copytree(coco, tmp_path / "theirs")
    assert prepare("coco_stuff", ours) == 16  # 8 labels, 8 images in their split's folder
    converter = mmseg_coco_converter()
    for split in ("train", "test"):
        for folder in ("images", "annotations"):
            (theirs / folder / f"{split}2014").mkdir(parents=True)
        for stem in (theirs / "imageLists" / f"{split}.txt").read_text().split():
            pair = (f"{stem}.jpg", f"{stem}.mat")
            folders = [str(theirs / name) for name in ("images", "annotations", "images", "annotations")]
            converter.convert_to_trainID(pair, *folders, is_train=split == "train")
            name = f"annotations/{split}2014/{stem}_labelTrainIds.png"
            np.testing.assert_array_equal(read(ours / name), read(theirs / name))
            name = f"images/{split}2014/{stem}.jpg"
            assert (ours / name).read_bytes() == (theirs / name).read_bytes()


@pytest.mark.parametrize("workers", [1, 2])
def test_preparing_twice_writes_once(city, workers):
    calls = []
    assert prepare("cityscapes", city, workers=workers, progress=lambda *done: calls.append(done)) == 4
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert prepare("cityscapes", city, workers=workers) == 0


def test_an_interrupted_preparation_goes_on_where_it_stopped(city, monkeypatch):
    save = Image.Image.save

    def full_disk(self, path, kind):
        if len(list(city.rglob("*_labelTrainIds.png"))) < 2:
            return save(self, path, kind)
        path.write_bytes(b"the first of its bytes")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Image.Image, "save", full_disk)
    with pytest.raises(UserError, match=r"labelTrainIds.*No space left on device"):
        prepare("cityscapes", city)
    finished = sorted(city.rglob("*_labelTrainIds.png"))
    assert len(finished) == 2
    assert not [p for p in city.rglob("*") if p.name.startswith(".")]
    monkeypatch.undo()
    assert len(tasks("cityscapes", city)) == 2
    assert prepare("cityscapes", city) == 2


def test_a_newer_source_is_converted_again(city):
    prepare("cityscapes", city)
    source = next((city / "gtFine/train").rglob("*_labelIds.png"))
    harm(source, np.full((32, 64), 26))
    later = source.stat().st_mtime + 60
    os.utime(source, (later, later))
    assert [task[1] for task in tasks("cityscapes", city)] == [source]
    prepare("cityscapes", city)
    assert (read(train_ids(source)) == 13).all()


def test_images_behind_links_are_placed_themselves(coco):
    """As git-annex and data sets on a second disk have them: images/x.jpg is a relative link to a file elsewhere."""
    (coco / "store").mkdir()
    for image in sorted((coco / "images").glob("*.jpg")):
        image.rename(coco / "store" / image.name)
        image.symlink_to(f"../store/{image.name}")
    assert prepare("coco_stuff", coco) == 16
    for folder in ("train2014", "test2014"):
        for placed in (coco / "images" / folder).iterdir():
            assert placed.samefile(coco / "store" / placed.name)
            assert not placed.is_symlink()
    assert tasks("coco_stuff", coco) == []


def test_a_link_that_leads_nowhere_and_another_image_are_replaced(coco):
    prepare("coco_stuff", coco)
    first, second, third = sorted((coco / "images/train2014").iterdir())[:3]
    first.unlink()
    first.symlink_to("nowhere.jpg")
    second.unlink()
    second.write_bytes(b"another picture")  # newer than the source, of another length
    third.unlink()
    third.write_bytes((coco / "images" / third.name).read_bytes())
    os.utime(third, ns=(1, 1))  # of the same length, older
    assert sorted(task[2] for task in tasks("coco_stuff", coco)) == [first, second, third]
    assert prepare("coco_stuff", coco) == 3
    for placed in (first, second, third):
        assert placed.samefile(coco / "images" / placed.name)
    assert not [path for path in (coco / "images/train2014").iterdir() if path.name.startswith(".")]
    assert prepare("coco_stuff", coco) == 0


def test_images_are_copied_once_where_they_cannot_be_linked(coco, monkeypatch):
    monkeypatch.setattr(os, "link", Mock(side_effect=OSError(1, "Operation not permitted")))
    assert prepare("coco_stuff", coco) == 16
    for placed in (coco / "images/train2014").iterdir():
        source = coco / "images" / placed.name
        assert placed.read_bytes() == source.read_bytes()
        assert not placed.samefile(source)
    assert prepare("coco_stuff", coco) == 0


def test_an_impossible_label_id_names_the_file(city):
    bad = next((city / "gtFine/val").rglob("*_labelIds.png"))
    harm(bad, np.full((32, 64), 34))
    with pytest.raises(UserError, match=rf"{bad.name}: label id 34 does not exist in Cityscapes \(0 to 33\)"):
        prepare("cityscapes", city)
    with pytest.raises(UserError, match="label id 34"):
        prepare("cityscapes", city, workers=2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"S": np.full((4, 4), 183, np.uint8)}, r"S should be a map \(h, w\) of ids 0 to 182, is \(4, 4\) with 183 to"),
        ({"S": np.zeros((4, 4, 3), np.uint8)}, r"is \(4, 4, 3\)"),
        ({"T": np.zeros((4, 4), np.uint8)}, "expected the label map in a field S"),
        (None, "cannot be read as a MATLAB file"),
    ],
)
def test_a_bad_mat_file_is_named(tmp_path, content, message):
    path = tmp_path / "COCO_1.mat"
    if content is None:
        savemat(path, {"S": np.zeros((40, 40), np.uint8)}, do_compression=True)
        path.write_bytes(path.read_bytes()[:140])
    else:
        savemat(path, content)
    with pytest.raises(UserError, match=rf"COCO_1\.mat: .*{message}"):
        preparation.convert_coco_stuff(path, tmp_path / "out.png")
    assert not (tmp_path / "out.png").exists()


@pytest.mark.parametrize(
    ("dataset", "folder", "message"),
    [
        ("cityscapes", "", r"gtFine/train/<city>/\*_gtFine_labelIds\.png, found none; unpack gtFine"),
        ("coco_stuff", "", r"train\.txt: expected the official list .* unpack cocostuff-10k"),
        ("ade20k", "", "expected the folder images/training, found none; unpack ADEChallengeData2016"),
        ("cityscapes", "nowhere", "expected the folder of a data set, found none"),
        ("camvid", "", "CamVid needs no preparation; choose one of cityscapes"),
    ],
)
def test_missing_downloads_say_what_to_unpack_where(tmp_path, dataset, folder, message):
    with pytest.raises(UserError, match=message):
        prepare(dataset, tmp_path / folder)


def test_a_missing_image_of_the_official_list_is_named(coco):
    gone = next((coco / "images").glob("*.jpg"))
    gone.unlink()
    with pytest.raises(UserError, match=rf"{gone.name}: image of the official list is missing"):
        prepare("coco_stuff", coco)


def test_ade20k_is_used_as_it_comes(tmp_path):
    for split in layout("ade20k").splits.values():
        (tmp_path / split.images).mkdir(parents=True)
        (tmp_path / split.labels).mkdir(parents=True)
    assert prepare("ade20k", tmp_path) == 0


def test_command_line_prepares_and_reports(city, tmp_path, capsys):
    assert main(["cityscapes", "--data-root", str(city)]) == 0
    assert "Cityscapes: 4 files written" in capsys.readouterr().out
    assert main(["cityscapes", "--data-root", str(tmp_path / "nowhere")]) == 2
    assert capsys.readouterr().err.startswith("error: ")
