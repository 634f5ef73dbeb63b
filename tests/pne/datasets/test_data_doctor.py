"""The doctor finds each way in which data are commonly broken, names the files, and passes healthy real data."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pne.datasets import checks, doctor, label_scan, layouts
from pne.datasets.doctor import check, fingerprint, main
from pne.datasets.files import find_files
from pne.datasets.report import Finding
from pne.errors import UserError


def messages(findings: list[Finding]) -> str:
    return "\n".join(map(str, findings))


def read(path: Path) -> np.ndarray:
    with Image.open(path) as picture:
        return np.asarray(picture)


@pytest.fixture
def tiny(shared, tmp_path) -> Path:
    """A copy of a small part of CamVid that a test may harm."""
    return shutil.copytree(shared / "data/camvid_tiny", tmp_path / "camvid", copy_function=shutil.copyfile)


@pytest.fixture
def ade(shared, tmp_path) -> Path:
    """Real ADE20K samples laid out as the full data set is."""
    source = shared / "data/fixtures/ade20k_sceneparsing"
    root = tmp_path / "ADEChallengeData2016"
    for split, numbers in (("training", (1, 2)), ("validation", (3,))):
        for folder, suffix in (("images", ".jpg"), ("annotations", ".png")):
            (root / folder / split).mkdir(parents=True)
            for number in numbers:
                name = f"ADE_val_{number:08d}{suffix}"
                shutil.copyfile(source / folder / name, root / folder / split / name)
    return root


def harm(path: Path, values: np.ndarray) -> None:
    Image.fromarray(values.astype(np.uint8)).save(path)


def test_full_camvid_is_healthy(shared):
    report = check("camvid", shared / "data/camvid")
    assert report.errors == report.warnings == []
    assert report.counts == {
        "train": {"images": 367, "labels": 367, "official": 367},
        "val": {"images": 101, "labels": 101, "official": 101},
        "test": {"images": 233, "labels": 233, "official": 233},
    }
    stated = json.loads((shared / "data/camvid/meta.json").read_text())["stats"]
    for split, pixels in report.pixels.items():
        assert list(pixels.values()) == list(stated[split]["counts"].values())


def test_a_subset_only_warns_when_told_so(shared):
    root = shared / "data/camvid_tiny"
    report = check("camvid", root, expect_official_counts=False)
    assert not report.errors
    assert "train: expected 367 images in img_dir/train, found 24" in messages(report.warnings)
    assert "32 images do not have CamVid's size 360 x 480 (h x w), the first 180 x 240" in messages(report.warnings)
    strict = check("camvid", root)
    assert "train: expected 367 images in img_dir/train, found 24; complete the download" in messages(strict.errors)
    assert "test: expected 233 images in img_dir/test, found 0" in messages(strict.errors)


def test_real_ade20k_samples_are_healthy(ade):
    report = check("ade20k", ade, expect_official_counts=False)
    assert not report.errors
    assert set(report.pixels["train"]) <= set(range(151))


def test_a_missing_label_and_a_missing_image_are_named(tiny):
    (tiny / "ann_dir/train/0001TP_006690.png").unlink()
    (tiny / "img_dir/val/0016E5_07959.jpg").unlink()
    found = messages(check("camvid", tiny, expect_official_counts=False).errors)
    assert "train: 1 of 24 images have no label (*.png in ann_dir/train): img_dir/train/0001TP_006690.jpg" in found
    assert "val: 1 of 8 labels have no image: ann_dir/val/0016E5_07959.png" in found


def test_unreadable_files_are_named(tiny):
    for name in ("img_dir/train/0001TP_006690.jpg", "ann_dir/train/0001TP_007170.png"):
        (tiny / name).write_bytes((tiny / name).read_bytes()[:-200])
    (tiny / "ann_dir/val/0016E5_07959.png").write_text("no picture")
    report = check("camvid", tiny, expect_official_counts=False)
    found = messages(report.errors)
    assert "3 files are unreadable" in found
    for name in ("img_dir/train/0001TP_006690.jpg", "ann_dir/train/0001TP_007170.png", "ann_dir/val/0016E5_07959.png"):
        assert name in found


def test_a_link_that_leads_nowhere_is_one_finding_of_a_whole_report(tiny):
    """As git-annex leaves files whose content was not fetched."""
    for name in ("img_dir/train/0001TP_006690.jpg", "ann_dir/val/0016E5_07959.png"):
        (tiny / name).unlink()
        (tiny / name).symlink_to("../../.git/annex/objects/nowhere")
    for quick in (False, True):
        report = check("camvid", tiny, expect_official_counts=False, quick=quick)
        found = messages(report.errors)
        assert "2 files are unreadable" in found
        assert "ann_dir/val/0016E5_07959.png, img_dir/train/0001TP_006690.jpg" in found
        assert report.fingerprint is None
    (tiny / "ann_dir/val/0016E5_07959.png").unlink()
    with pytest.raises(UserError, match=r"0001TP_006690\.jpg: cannot be read \(No such file"):
        fingerprint("camvid", tiny)


def test_files_that_vanish_while_they_are_compared_are_left_out(tiny):
    camvid = layouts.LAYOUTS["camvid"]
    splits = {name: find_files(camvid, tiny, camvid.splits[name]) for name in ("train", "val")}
    for path in splits["train"].images.values():
        path.unlink()
    assert checks.duplicates(tiny, splits, {}) == []


def unlabelled_split(root: Path) -> Path:
    """A Cityscapes with prepared labels and a test split; returns its test image."""
    image, label = np.zeros((1024, 2048, 3)), np.full((1024, 2048), 7)
    for split, city in (("train", "aachen"), ("val", "ulm"), ("test", "bonn")):
        for folder, name, values in (
            ("leftImg8bit", "leftImg8bit", image + len(city)),
            ("gtFine", "gtFine_labelTrainIds", label),
        ):
            path = root / folder / split / city / f"{city}_000000_000019_{name}.png"
            if split != "test" or folder == "leftImg8bit":
                path.parent.mkdir(parents=True)
                harm(path, values)
    return root / "leftImg8bit/test/bonn/bonn_000000_000019_leftImg8bit.png"


@pytest.mark.parametrize("damage", ["cut short", "another size", "nowhere"])
def test_images_without_labels_do_not_keep_from_training(tmp_path, monkeypatch, damage):
    image = unlabelled_split(tmp_path)
    cityscapes = layouts.LAYOUTS["cityscapes"]
    one = {name: replace(split, count=1) for name, split in cityscapes.splits.items()}
    monkeypatch.setitem(layouts.LAYOUTS, "cityscapes", replace(cityscapes, splits=one))
    healthy = check("cityscapes", tmp_path)
    # Of one class alone, the last not among them: the only errors that this drawing has.
    assert [str(finding)[:25] for finding in healthy.errors] == ["train: 18 of 19 classes n"]
    if damage == "cut short":
        image.write_bytes(image.read_bytes()[:-200])
    elif damage == "another size":
        harm(image, np.zeros((512, 1024, 3)))
    else:
        image.unlink()
        image.symlink_to("nowhere.png")
    report = check("cityscapes", tmp_path)
    assert report.errors == healthy.errors
    assert image.name in messages(report.warnings)
    assert report.fingerprint == fingerprint("cityscapes", tmp_path) != healthy.fingerprint
    trained = tmp_path / "leftImg8bit/train/aachen/aachen_000000_000019_leftImg8bit.png"
    trained.write_bytes(trained.read_bytes()[:-200])
    assert trained.name in messages(check("cityscapes", tmp_path).errors)


def test_a_label_in_colours_is_unreadable_as_labels(tiny):
    path = tiny / "ann_dir/train/0001TP_006690.png"
    harm(path, np.zeros((180, 240, 3)))
    found = messages(check("camvid", tiny, expect_official_counts=False).errors)
    assert "expected one 8-bit channel of labels, got mode RGB" in found


def test_labels_of_another_size_than_their_image_are_named(tiny):
    path = tiny / "ann_dir/train/0001TP_006690.png"
    harm(path, read(path)[:-1])
    found = messages(check("camvid", tiny, expect_official_counts=False).errors)
    assert "1 labels differ in size (h x w) from their image (the first is 179 x 240, its image 180 x 240)" in found
    assert "ann_dir/train/0001TP_006690.png" in found


def test_values_out_of_range_are_named_with_a_guess(tiny):
    paths = sorted((tiny / "ann_dir").rglob("*.png"))
    for path in paths:
        labels = read(path)
        harm(path, np.where(labels == 255, 11, labels))
    found = messages(check("camvid", tiny, expect_official_counts=False).errors)
    assert "labels hold values out of range (expected 0 to 10, void 255, found 11)" in found
    assert "they look shifted by one, or 11 stands for void, which is 255 here" in found


def test_ade20k_labels_that_were_already_reduced_are_seen(ade):
    for path in (ade / "annotations").rglob("*.png"):
        harm(path, read(path) - np.uint8(1))
    found = messages(check("ade20k", ade, expect_official_counts=False).errors)
    assert "3 labels hold values out of range (expected 1 to 150, void 0, found 255)" in found
    assert "they look shifted by one (255 for void, where void is 0 here)" in found
    assert "annotations/training/ADE_val_00000001.png" in found


def test_a_shift_within_the_legal_range_shows_in_the_last_class(tiny, monkeypatch):
    camvid = layouts.LAYOUTS["camvid"]
    complete = {
        name: replace(split, count={"train": 24, "val": 8, "test": 0}[name]) for name, split in camvid.splits.items()
    }
    monkeypatch.setitem(layouts.LAYOUTS, "camvid", replace(camvid, splits=complete))
    assert not check("camvid", tiny).errors
    for path in (tiny / "ann_dir").rglob("*.png"):
        labels = read(path).astype(int)
        harm(path, np.where(labels == 255, 255, np.maximum(labels - 1, 0)))
    report = check("camvid", tiny)
    assert "train: 1 of 11 classes never occur (Bicyclist); the last class is among them" in messages(report.errors)
    assert "val: 1 of 11 classes never occur (Bicyclist)" in messages(report.warnings)


def test_missing_classes_are_named(tiny):
    for path in (tiny / "ann_dir").rglob("*.png"):
        labels = read(path)
        harm(path, np.where(labels == 9, 255, labels))
    report = check("camvid", tiny, expect_official_counts=False)
    assert not report.errors
    assert "train: 1 of 11 classes never occur (Pedestrian)" in messages(report.warnings)


def test_images_in_two_splits_are_named(tiny):
    shutil.copyfile(tiny / "img_dir/train/0001TP_006690.jpg", tiny / "img_dir/val/copy.jpg")
    shutil.copyfile(tiny / "ann_dir/train/0001TP_006690.png", tiny / "ann_dir/val/copy.png")
    found = messages(check("camvid", tiny, expect_official_counts=False).errors)
    assert "1 images occur in train and in val: img_dir/train/0001TP_006690.jpg, img_dir/val/copy.jpg" in found


def test_unprepared_cityscapes_says_how_to_prepare(tmp_path):
    for folder, name in (("leftImg8bit", "leftImg8bit"), ("gtFine", "gtFine_labelIds")):
        path = tmp_path / folder / "train/aachen" / f"aachen_000000_000019_{name}.png"
        path.parent.mkdir(parents=True)
        harm(path, np.full((1024, 2048, 3) if folder == "leftImg8bit" else (1024, 2048), 7))
    found = messages(check("cityscapes", tmp_path, expect_official_counts=False).errors)
    assert "train: 1 of 1 images have no label (*_gtFine_labelTrainIds.png in gtFine/train)" in found
    assert "make them with python -m pne.datasets.prepare cityscapes" in found


def test_label_ids_under_the_name_of_train_ids_are_recognised(tmp_path):
    for folder, name, shape in (
        ("leftImg8bit", "leftImg8bit", (512, 1024, 3)),
        ("gtFine", "gtFine_labelTrainIds", (512, 1024)),
    ):
        path = tmp_path / folder / "train/aachen" / f"aachen_000000_000019_{name}.png"
        path.parent.mkdir(parents=True)
        harm(path, np.full(shape, 26))
    report = check("cityscapes", tmp_path)
    assert "they look like labelIds, not labelTrainIds" in messages(report.errors)
    assert "1 images do not have Cityscapes's size 1024 x 2048 (h x w), the first 512 x 1024" in messages(report.errors)
    assert "test: expected 1525 images" in messages(report.warnings)  # needed for submissions alone


def test_a_folder_without_the_data_set_is_an_error(tmp_path):
    report = check("camvid", tmp_path, expect_official_counts=False)
    assert "train: expected *.jpg in img_dir/train, found none; name the folder of CamVid" in messages(report.errors)
    with pytest.raises(UserError, match="found none; name it with --data-root"):
        check("camvid", tmp_path / "nowhere")


def test_another_data_set_with_the_same_layout_is_recognised(street):
    found = messages(check("street_stuff", street).errors)
    assert "expected the 16 classes of SyntheticStreet (stuff), meta.json names 11 others" in found
    assert "this one holds 'street_city'" in found


def test_quick_reads_headers_and_some_labels(tiny, monkeypatch):
    monkeypatch.setattr(doctor, "QUICK_LABELS", 2)
    monkeypatch.setattr(doctor, "read_image", None)
    report = check("camvid", tiny, expect_official_counts=False, quick=True)
    assert not report.errors
    assert report.fingerprint is None
    assert sum(report.pixels["train"].values()) == 2 * 180 * 240
    assert "quick" in report.text()


def test_errors_are_raised_with_first_files_and_remedy(tiny):
    for path in sorted((tiny / "ann_dir/train").glob("*.png"))[:5]:
        path.unlink()
    report = check("camvid", tiny, expect_official_counts=False)
    with pytest.raises(UserError) as error:
        report.raise_for_errors()
    text = str(error.value)
    assert text.startswith(f"{tiny}: CamVid is not fit for training")
    assert (
        "0001TP_006690.jpg, img_dir/train/0001TP_007170.jpg, img_dir/train/0001TP_007650.jpg and 2 more; complete"
        in text
    )


def test_command_line_writes_both_reports_and_fails_on_errors(tiny, tmp_path, capsys):
    arguments = [
        "--dataset",
        "camvid",
        "--data-root",
        str(tiny),
        "--subset",
        "--report",
        str(tmp_path / "out/report.json"),
    ]
    assert main(arguments) == 0
    stored = json.loads((tmp_path / "out/report.json").read_text())
    assert stored["counts"]["train"]["images"] == 24
    assert stored["fingerprint"] == fingerprint("camvid", tiny)
    text, shown = (tmp_path / "out/report.txt").read_text(), capsys.readouterr().out
    images = sorted(path.relative_to(tiny).as_posix() for path in (tiny / "img_dir").rglob("*.jpg"))
    assert all(f"\n    {name}\n" in text for name in images)  # all of another size than the official ones
    assert f"{', '.join(images[:3])} and 29 more" in shown
    assert images[4] not in shown
    next((tiny / "ann_dir/train").glob("*.png")).unlink()
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert "images have no label" in error
    assert f"all files: {tmp_path / 'out/report.txt'}" in error
    assert "images have no label" in (tmp_path / "out/report.txt").read_text()
    assert json.loads((tmp_path / "out/report.json").read_text())["errors"]


def test_fingerprint_does_not_depend_on_the_place(shared, tiny):
    assert fingerprint("camvid", tiny) == fingerprint("camvid", shared / "data/camvid_tiny")
    assert check("camvid", tiny, expect_official_counts=False).fingerprint == fingerprint("CamVidDataset", tiny)


def test_fingerprint_sees_a_changed_label_a_renamed_and_a_replaced_image(tiny):
    marks = [fingerprint("camvid", tiny)]
    path = tiny / "ann_dir/train/0001TP_006690.png"
    labels = read(path).copy()
    labels[0, 0] = 3 if labels[0, 0] != 3 else 4
    harm(path, labels)
    marks.append(fingerprint("camvid", tiny))
    for folder, suffix in (("img_dir", ".jpg"), ("ann_dir", ".png")):
        (tiny / folder / f"val/0016E5_07959{suffix}").rename(tiny / folder / f"val/renamed{suffix}")
    marks.append(fingerprint("camvid", tiny))
    shutil.copyfile(tiny / "img_dir/val/0016E5_08159.jpg", tiny / "img_dir/val/renamed.jpg")
    marks.append(fingerprint("camvid", tiny))
    assert len(set(marks)) == 4


def test_unchanged_labels_are_not_read_twice(tiny, monkeypatch):
    first = fingerprint("camvid", tiny)
    reads, scan = [], label_scan.scan_label
    monkeypatch.setattr(label_scan, "scan_label", lambda path: reads.append(path) or scan(path))
    assert fingerprint("camvid", tiny) == first
    assert not reads
    touched = tiny / "ann_dir/train/0001TP_006690.png"
    os.utime(touched, ns=(1, 1))
    assert fingerprint("camvid", tiny) == first
    assert reads == [touched]


def test_a_broken_or_forbidden_cache_changes_nothing(tiny, tmp_path, monkeypatch):
    first = fingerprint("camvid", tiny)
    for stored in (tmp_path / "cache").rglob("*.json"):
        stored.write_text("{")
    assert fingerprint("camvid", tiny) == first
    (tmp_path / "file").touch()
    monkeypatch.setenv("PNE_CACHE", str(tmp_path / "file" / "below"))
    assert fingerprint("camvid", tiny) == first


def test_fingerprint_of_unreadable_or_missing_data_is_an_error(tiny, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="expected CamVid with images in img_dir/train, img_dir/val, img_dir/test"):
        fingerprint("camvid", tmp_path / "empty")
    path = tiny / "ann_dir/train/0001TP_006690.png"
    path.write_text("no picture")
    with pytest.raises(UserError, match=r"0001TP_006690\.png: cannot be read as an image"):
        fingerprint("camvid", tiny)
