"""Label conversions follow the official tables, can be repeated and interrupted, and refuse bad files by name."""

import importlib.util
import os
import shutil
from pathlib import Path

import mmseg
import numpy as np
import pytest
from mmseg.registry import DATASETS
from PIL import Image
from scipy.io import savemat

from pne.datasets import cityscapes, coco_stuff10k
from pne.datasets.doctor import check
from pne.datasets.layouts import layout
from pne.datasets.prepare import main, prepare, tasks
from pne.errors import UserError


def mmseg_coco_converter():
    path = Path(mmseg.__file__).parent / ".mim/tools/dataset_converters/coco_stuff10k.py"
    spec = importlib.util.spec_from_file_location("mmseg_coco_stuff10k", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(path: Path) -> np.ndarray:
    with Image.open(path) as picture:
        return np.asarray(picture)


def make_cityscapes(root: Path, per_split: int = 2, size: tuple[int, int] = (1024, 2048)) -> Path:
    """Draw files as Cityscapes lays them out: blocks of all 34 label ids."""
    rng = np.random.default_rng(0)
    for split, city in (("train", "aachen"), ("val", "frankfurt"), ("test", "berlin")):
        for number in range(per_split):
            stem = f"{city}_{number:06d}_000019"
            ids = np.kron(rng.permutation(36).reshape(6, 6) % 34, np.ones((size[0] // 6 + 1, size[1] // 6 + 1)))
            ids = ids[: size[0], : size[1]].astype(np.uint8)
            image = np.repeat((7 * ids)[..., None], 3, 2) + np.uint8(number)
            image[0, 0] = len(city)
            for folder, name, array in (
                ("leftImg8bit", f"{stem}_leftImg8bit.png", image),
                ("gtFine", f"{stem}_gtFine_labelIds.png", ids),
            ):
                path = root / folder / split / city / name
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(array).save(path, compress_level=1)
    return root


def make_coco(root: Path, shared: Path) -> Path:
    """Lay real COCO-Stuff images out as the 10k release does, labels as .mat files."""
    source = shared / "data/fixtures/cocostuff164k"
    (root / "imageLists").mkdir(parents=True)
    (root / "annotations").mkdir()
    (root / "images").mkdir()
    for split, folder in (("train", "train2017"), ("test", "val2017")):
        stems = []
        for label in sorted((source / "stuffthingmaps" / folder).glob("*.png")):
            stem = f"COCO_train2014_{label.stem}"
            values = read(label).astype(int)
            ids = np.where(values == 255, 0, values + 1).astype(np.uint8)  # 10k: 0 unlabelled, 1..182
            names = np.array(["unlabeled"], dtype=object)
            savemat(root / "annotations" / f"{stem}.mat", {"S": ids, "names": names, "captions": names})
            shutil.copy(source / folder / f"{label.stem}.jpg", root / "images" / f"{stem}.jpg")
            stems.append(stem)
        (root / "imageLists" / f"{split}.txt").write_text("\n".join(stems) + "\n")
    return root


def test_cityscapes_table_is_the_classes_of_mmsegmentation_in_order():
    trained = sorted((train_id, name) for name, train_id in cityscapes.LABELS.values() if train_id != 255)
    assert [name for _, name in trained] == list(DATASETS.get("CityscapesDataset").METAINFO["classes"])
    assert [train_id for train_id, _ in trained] == list(range(19))
    assert list(cityscapes.LABELS) == list(range(34))


def test_cityscapes_ids_return_from_train_ids():
    for train_id in range(19):
        assert cityscapes.TRAIN_IDS[cityscapes.LABEL_IDS[train_id]] == train_id
    assert cityscapes.LABEL_IDS[255] == 0


def test_cityscapes_labels_become_train_ids(tmp_path):
    root = make_cityscapes(tmp_path, size=(60, 120))
    assert prepare("cityscapes", root) == 4  # the test split's labels say nothing
    sources = [source for split in ("train", "val") for source in (root / "gtFine" / split).rglob("*_labelIds.png")]
    assert len(sources) == 4
    for source in sources:
        ids = read(source)
        converted = read(source.with_name(source.name.replace("labelIds", "labelTrainIds")))
        assert converted.dtype == np.uint8
        for label_id, (_, train_id) in cityscapes.LABELS.items():
            assert (converted[ids == label_id] == train_id).all()
    dataset = DATASETS.build(
        {
            "type": "CityscapesDataset",
            "data_root": str(root),
            "data_prefix": {"img_path": "leftImg8bit/val", "seg_map_path": "gtFine/val"},
            "pipeline": [{"type": "LoadImageFromFile"}, {"type": "LoadAnnotations"}],
        }
    )
    assert len(dataset) == 2
    assert set(np.unique(dataset[0]["gt_seg_map"])) <= {*range(19), 255}


def test_coco_ids_are_those_of_mmsegmentation():
    for official, ours in mmseg_coco_converter().clsID_to_trID.items():
        assert coco_stuff10k.TRAIN_IDS[official] == ours
    assert set(coco_stuff10k.TRAIN_IDS) == set(range(172))
    assert not coco_stuff10k.TRAIN_IDS[list(coco_stuff10k.UNUSED_IDS)].any()


def test_coco_mat_files_become_what_mmsegmentations_converter_makes(shared, tmp_path):
    ours, theirs = make_coco(tmp_path / "ours", shared), make_coco(tmp_path / "theirs", shared)
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


def test_coco_labels_load_as_the_classes_that_the_real_sample_names(shared, tmp_path):
    root = make_coco(tmp_path, shared)
    prepare("coco_stuff", root)
    names = dict(
        line.split(": ")
        for line in (shared / "data/fixtures/cocostuff164k/cocostuff-labels.txt").read_text().splitlines()
    )
    dataset = DATASETS.build(
        {
            "type": "COCOStuffDataset",
            "data_root": str(root),
            "reduce_zero_label": True,
            "data_prefix": {"img_path": "images/train2014", "seg_map_path": "annotations/train2014"},
            "pipeline": [{"type": "LoadImageFromFile"}, {"type": "LoadAnnotations"}],
        }
    )
    assert len(dataset) == 4
    checked = set()
    for sample in dataset:
        stem = Path(sample["img_path"]).stem.removeprefix("COCO_train2014_")
        original = read(shared / f"data/fixtures/cocostuff164k/stuffthingmaps/train2017/{stem}.png")
        for value in np.unique(original):
            loaded = np.unique(sample["gt_seg_map"][original == value])
            if value == 255:
                assert loaded == [255]
            else:
                name = dataset.metainfo["classes"][loaded.item()]
                assert name == names[str(value + 1)]
                checked.add(name)
    assert len(checked) > 10


@pytest.mark.parametrize("workers", [1, 2])
def test_preparing_twice_writes_once(tmp_path, workers):
    root = make_cityscapes(tmp_path, size=(30, 60))
    calls = []
    assert prepare("cityscapes", root, workers=workers, progress=lambda *done: calls.append(done)) == 4
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert prepare("cityscapes", root, workers=workers) == 0


def test_an_interrupted_preparation_goes_on_where_it_stopped(tmp_path, monkeypatch):
    root = make_cityscapes(tmp_path, size=(30, 60))

    write_bytes = Path.write_bytes

    def full_disk(self, content):
        if len(list(root.rglob("*_labelTrainIds.png"))) < 2:
            return write_bytes(self, content)
        write_bytes(self, content[:20])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full_disk)
    with pytest.raises(UserError, match=r"labelTrainIds.*No space left on device"):
        prepare("cityscapes", root)
    finished = sorted(root.rglob("*_labelTrainIds.png"))
    assert len(finished) == 2
    assert not [p for p in root.rglob("*") if p.name.startswith(".")]
    monkeypatch.undo()
    assert len(tasks("cityscapes", root)) == 2
    assert prepare("cityscapes", root) == 2


def test_a_newer_source_is_converted_again(tmp_path):
    root = make_cityscapes(tmp_path, size=(30, 60))
    prepare("cityscapes", root)
    source = next((root / "gtFine/train").rglob("*_labelIds.png"))
    Image.fromarray(np.full((30, 60), 26, np.uint8)).save(source)
    later = source.stat().st_mtime + 60
    os.utime(source, (later, later))
    assert [task[1] for task in tasks("cityscapes", root)] == [source]
    prepare("cityscapes", root)
    assert (read(source.with_name(source.name.replace("labelIds", "labelTrainIds"))) == 13).all()


def test_images_are_linked_where_possible_and_copied_elsewhere(tmp_path, monkeypatch):
    source = tmp_path / "a.jpg"
    source.write_bytes(b"picture")
    coco_stuff10k.place_image(source, tmp_path / "train" / "a.jpg")
    assert (tmp_path / "train" / "a.jpg").samefile(source)

    def no_links(*args):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    coco_stuff10k.place_image(source, tmp_path / "copied" / "a.jpg")
    assert (tmp_path / "copied" / "a.jpg").read_bytes() == b"picture"


def test_images_behind_links_are_placed_themselves(shared, tmp_path):
    """As git-annex and data sets on a second disk have them: images/x.jpg is a relative link to a file elsewhere."""
    root = make_coco(tmp_path / "coco", shared)
    (root / "store").mkdir()
    for image in sorted((root / "images").glob("*.jpg")):
        image.rename(root / "store" / image.name)
        image.symlink_to(f"../store/{image.name}")
    assert prepare("coco_stuff", root) == 16
    for folder in ("train2014", "test2014"):
        for placed in (root / "images" / folder).iterdir():
            assert placed.samefile(root / "store" / placed.name)
            assert not placed.is_symlink()
    assert tasks("coco_stuff", root) == []


def test_a_link_that_leads_nowhere_and_another_image_are_replaced(shared, tmp_path):
    root = make_coco(tmp_path, shared)
    prepare("coco_stuff", root)
    first, second, third = sorted((root / "images/train2014").iterdir())[:3]
    first.unlink()
    first.symlink_to("nowhere.jpg")
    second.unlink()
    second.write_bytes(b"another picture")  # newer than the source, of another length
    third.unlink()
    third.write_bytes((root / "images" / third.name).read_bytes())
    os.utime(third, ns=(1, 1))  # of the same length, older
    assert sorted(task[2] for task in tasks("coco_stuff", root)) == [first, second, third]
    assert prepare("coco_stuff", root) == 3
    for placed in (first, second, third):
        assert placed.samefile(root / "images" / placed.name)
    assert not [path for path in (root / "images/train2014").iterdir() if path.name.startswith(".")]
    assert prepare("coco_stuff", root) == 0


def test_a_copied_image_is_not_copied_again(shared, tmp_path, monkeypatch):
    def no_links(*args):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    root = make_coco(tmp_path, shared)
    assert prepare("coco_stuff", root) == 16
    assert prepare("coco_stuff", root) == 0


def test_an_impossible_label_id_names_the_file(tmp_path):
    root = make_cityscapes(tmp_path, size=(30, 60))
    bad = next((root / "gtFine/val").rglob("*_labelIds.png"))
    Image.fromarray(np.full((30, 60), 34, np.uint8)).save(bad)
    with pytest.raises(UserError, match=rf"{bad.name}: label id 34 does not exist in Cityscapes \(0 to 33\)"):
        prepare("cityscapes", root)
    with pytest.raises(UserError, match="label id 34"):
        prepare("cityscapes", root, workers=2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            {"S": np.full((4, 4), 183, np.uint8)},
            r"field S should be a map \(h, w\) of ids 0 to 182, is \(4, 4\) with 183 to",
        ),
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
        coco_stuff10k.convert(path, tmp_path / "out.png")
    assert not (tmp_path / "out.png").exists()


def test_missing_downloads_say_what_to_unpack_where(tmp_path):
    with pytest.raises(UserError, match=r"gtFine/train/<city>/\*_gtFine_labelIds\.png, found none; unpack gtFine"):
        prepare("cityscapes", tmp_path)
    with pytest.raises(UserError, match=r"train\.txt: expected the official list .* unpack cocostuff-10k"):
        prepare("coco_stuff", tmp_path)
    with pytest.raises(
        UserError, match=r"expected the folder images/training, found none; unpack ADEChallengeData2016"
    ):
        prepare("ade20k", tmp_path)
    with pytest.raises(UserError, match="expected the folder of a data set, found none"):
        prepare("cityscapes", tmp_path / "nowhere")
    with pytest.raises(UserError, match="CamVid needs no preparation; choose one of cityscapes"):
        prepare("camvid", tmp_path)


def test_a_missing_image_of_the_official_list_is_named(shared, tmp_path):
    root = make_coco(tmp_path, shared)
    gone = next((root / "images").glob("*.jpg"))
    gone.unlink()
    with pytest.raises(UserError, match=rf"{gone.name}: image of the official list is missing"):
        prepare("coco_stuff", root)


def test_ade20k_is_used_as_it_comes(tmp_path):
    for split in layout("ade20k").splits.values():
        (tmp_path / split.images).mkdir(parents=True)
        (tmp_path / split.labels).mkdir(parents=True)
    assert prepare("ade20k", tmp_path) == 0


def test_command_line_prepares_and_reports(tmp_path, capsys):
    root = make_cityscapes(tmp_path, size=(30, 60))
    assert main(["cityscapes", "--data-root", str(root)]) == 0
    assert "Cityscapes: 4 files written" in capsys.readouterr().out
    assert main(["cityscapes", "--data-root", str(tmp_path / "nowhere")]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_prepared_data_is_fit_for_training(shared, tmp_path):
    city = make_cityscapes(tmp_path / "city", per_split=1)
    prepare("cityscapes", city)
    report = check("cityscapes", city, expect_official_counts=False)
    assert not report.errors
    assert report.counts["train"] == {"images": 1, "labels": 1, "official": 2975}
    coco = make_coco(tmp_path / "coco", shared)
    prepare("coco_stuff", coco)
    report = check("coco_stuff", coco, expect_official_counts=False)
    assert not report.errors
    assert report.counts["test"] == {"images": 4, "labels": 4, "official": 1000}
