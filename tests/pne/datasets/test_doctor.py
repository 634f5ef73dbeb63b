"""The doctor finds each way in which data are commonly broken, names the files, and passes healthy real data."""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from data_files import harm, read
from paper_data import copy_ade20k, write_coco_stuff
from PIL import Image

from pne.datasets import doctor, layouts
from pne.datasets.doctor import check, main
from pne.datasets.files import ORIENTATION, find_files, read_size
from pne.datasets.fingerprint import fingerprint
from pne.datasets.prepare import COCO_STUFF_TRAIN_IDS, prepare
from pne.errors import UserError


def errors(dataset: str, root: Path) -> str:
    return "\n".join(check(dataset, root, expect_official_counts=False).errors)


def relabel(labels: Path, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """Change the values of all labels below a folder."""
    for path in labels.rglob("*.png"):
        harm(path, change(read(path).astype(int)))


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
    assert "train: expected 367 images in img_dir/train, found 24" in "\n".join(report.warnings)
    assert "32 images do not have CamVid's size 360 x 480 (h x w), the first 180 x 240" in "\n".join(report.warnings)
    strict = check("camvid", root)
    assert "train: expected 367 images in img_dir/train, found 24; complete the download" in "\n".join(strict.errors)
    assert "test: expected 233 images in img_dir/test, found 0" in "\n".join(strict.errors)


def test_real_ade20k_samples_are_healthy(shared, tmp_path):
    report = check("ade20k", copy_ade20k(tmp_path / "ade", shared), expect_official_counts=False)
    assert not report.errors
    assert set(report.pixels["train"]) <= set(range(151))


def test_a_missing_label_and_a_missing_image_are_named(tiny):
    (tiny / "ann_dir/train/0001TP_006690.png").unlink()
    (tiny / "img_dir/val/0016E5_07959.jpg").unlink()
    found = errors("camvid", tiny)
    expected = "train: 1 of 24 images have no label (*.png in ann_dir/train); complete the download\n    img_dir/train/"
    assert f"{expected}0001TP_006690.jpg" in found
    expected = "val: 1 of 8 labels have no image; complete the download or remove them\n    ann_dir/val/"
    assert f"{expected}0016E5_07959.png" in found


def test_unreadable_files_are_named(tiny):
    names = ["img_dir/train/0001TP_006690.jpg", "ann_dir/train/0001TP_007170.png", "ann_dir/val/0016E5_07959.png"]
    for name in names[:2]:
        (tiny / name).write_bytes((tiny / name).read_bytes()[:-200])
    (tiny / names[2]).write_text("no picture")
    found = errors("camvid", tiny)
    assert "3 files are unreadable" in found
    assert all(name in found for name in names)


def test_a_link_that_leads_nowhere_is_one_finding_of_a_whole_report(tiny):
    """As git-annex leaves files whose content was not fetched."""
    for name in ("img_dir/train/0001TP_006690.jpg", "ann_dir/val/0016E5_07959.png"):
        (tiny / name).unlink()
        (tiny / name).symlink_to("../../.git/annex/objects/nowhere")
    for quick in (False, True):
        report = check("camvid", tiny, expect_official_counts=False, quick=quick)
        found = "\n".join(report.errors)
        assert "2 files are unreadable" in found
        assert "again\n    ann_dir/val/0016E5_07959.png\n    img_dir/train/0001TP_006690.jpg" in found
        assert report.fingerprint is None
    (tiny / "ann_dir/val/0016E5_07959.png").unlink()
    with pytest.raises(UserError, match=r"0001TP_006690\.jpg: cannot be read \(No such file"):
        fingerprint("camvid", tiny)


def test_files_that_vanish_while_they_are_compared_are_left_out(tiny):
    camvid = layouts.LAYOUTS["camvid"]
    splits = {name: find_files(camvid, tiny, camvid.splits[name]) for name in ("train", "val")}
    for path in splits["train"].images.values():
        path.unlink()
    assert doctor.duplicates(tiny, splits, {}) == {}


def draw_city(root: Path, place: str, labels: str = "", label: int = 7, size: tuple[int, int] = (1024, 2048)) -> Path:
    """Draw an image of Cityscapes, of one colour, and its label, of one class; returns the image."""
    stem = f"{place}/{Path(place).name}_000000_000019"
    image = root / f"leftImg8bit/{stem}_leftImg8bit.png"
    harm(image, np.full((*size, 3), len(place)))
    if labels:
        harm(root / f"gtFine/{stem}_gtFine_{labels}.png", np.full(size, label))
    return image


@pytest.mark.parametrize("damage", ["cut short", "another size", "nowhere"])
def test_images_without_labels_do_not_keep_from_training(tmp_path, state_counts, damage):
    trained, _ = (draw_city(tmp_path, place, "labelTrainIds") for place in ("train/aachen", "val/ulm"))
    image = draw_city(tmp_path, "test/bonn")
    state_counts("cityscapes", lambda name, split: 1)
    healthy = check("cityscapes", tmp_path)
    # Of one class alone, the last not among them: the only errors that this drawing has.
    assert [finding[:25] for finding in healthy.errors] == ["train: 18 of 19 classes n"]
    if damage == "cut short":
        image.write_bytes(image.read_bytes()[:-200])
    elif damage == "another size":
        harm(image, np.zeros((512, 1024, 3)))
    else:
        image.unlink()
        image.symlink_to("nowhere.png")
    report = check("cityscapes", tmp_path)
    assert report.errors == healthy.errors
    assert image.name in "\n".join(report.warnings)
    assert report.fingerprint == fingerprint("cityscapes", tmp_path) != healthy.fingerprint
    trained.write_bytes(trained.read_bytes()[:-200])
    assert trained.name in "\n".join(check("cityscapes", tmp_path).errors)


@pytest.mark.parametrize("mode", ["RGB", "I;16", "LA", "1"])
def test_labels_in_colours_or_16_bits_are_to_be_converted(tiny, mode):
    path = tiny / "ann_dir/train/0001TP_006690.png"
    before, numbers = fingerprint("camvid", tiny), read(path).astype(np.uint16 if mode == "I;16" else np.uint8)
    Image.fromarray(numbers).convert(mode).save(path)
    found = errors("camvid", tiny)
    assert f"1 labels: expected one 8-bit channel of labels, got mode {mode[0]}" in found
    assert "; convert to one channel of class numbers: PIL.Image.fromarray(numbers" in found
    assert "save(file), where numbers are the values of a 16-bit file, or the number of the class that each" in found
    assert "\n    ann_dir/train/0001TP_006690.png" in found
    assert "unreadable" not in found
    command = re.search(r"PIL(\.Image\.fromarray.*save\(file\)), where", found).group(1)
    eval(f"PIL{command}", {"PIL": PIL, "numbers": numbers, "file": path})
    assert fingerprint("camvid", tiny) == before


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("shape", [(40, 60, 3), (40, 40, 3)])
def test_images_that_are_turned_when_they_are_read_are_refused(tmp_path, shape, quick):
    for orientation in range(1, 9):
        for split in ("training", "validation"):
            image = tmp_path / f"images/{split}/{orientation}.jpg"
            label = tmp_path / f"annotations/{split}/{orientation}.png"
            exif = Image.Exif()
            exif[ORIENTATION] = orientation
            harm(label, np.ones(shape[:2]))
            image.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.full(shape, 10 * orientation + len(split), np.uint8)).save(image, exif=exif)
    turned, *mismatched = check("ade20k", tmp_path, expect_official_counts=False, quick=quick).errors
    assert turned.startswith("14 images are turned or mirrored by the orientation in their EXIF data when they are")
    names = [f"images/{split}/{number}.jpg" for split in ("training", "validation") for number in range(2, 9)]
    assert turned.split("\n    ")[1:] == names
    assert len(mismatched) == (2 if shape[0] != shape[1] else 0)  # one a split
    for text in mismatched:
        assert text.startswith("4 labels differ in size (h x w) from their image (the first is 40 x 60, its image 60 x")


def test_names_that_are_no_utf_8_are_told_and_do_not_stop_the_examination(tiny, capsys):
    image, label = tiny / "img_dir/train/0001TP_006690.jpg", tiny / "ann_dir/train/0001TP_006690.png"
    for path in (image, label):
        path.rename(os.fsdecode(os.fsencode(path.parent / "caf") + b"\xe9" + os.fsencode(path.suffix)))
    arguments = ["--dataset", "camvid", "--data-root", str(tiny), "--subset", "--report", str(tiny / "report.json")]
    assert main(arguments) == 2
    expected = r"""2 files have names that are no UTF-8; rename them and their partners
    ann_dir/train/caf\xe9.png
    img_dir/train/caf\xe9.jpg"""
    assert expected in capsys.readouterr().out
    assert expected in (tiny / "report.txt").read_text(encoding="utf-8")
    report = json.loads((tiny / "report.json").read_text())
    assert report["errors"] == [expected]
    assert report["fingerprint"] == fingerprint("camvid", tiny)


def test_labels_of_another_size_than_their_image_are_named(tiny):
    path = tiny / "ann_dir/train/0001TP_006690.png"
    harm(path, read(path)[:-1])
    found = errors("camvid", tiny)
    assert "1 labels differ in size (h x w) from their image (the first is 179 x 240, its image 180 x 240)" in found
    assert "ann_dir/train/0001TP_006690.png" in found


def test_values_out_of_range_are_named_with_a_guess(tiny):
    relabel(tiny / "ann_dir", lambda labels: np.where(labels == 255, 11, labels))
    found = errors("camvid", tiny)
    assert "labels hold values out of range (expected 0 to 10, void 255, found 11)" in found
    assert "ann_dir/train/0001TP_006690.png" in found
    assert "they look shifted by one, or 11 stands for void, which is 255 here" in found


def test_a_shift_within_the_legal_range_shows_in_the_last_class(tiny, state_counts):
    state_counts("camvid", lambda name, _: {"train": 24, "val": 8, "test": 0}[name])
    assert not check("camvid", tiny).errors
    relabel(tiny / "ann_dir", lambda labels: np.where(labels == 255, 255, np.maximum(labels - 1, 0)))
    report = check("camvid", tiny)
    assert "train: 1 of 11 classes never occur (Bicyclist); the last class is among them" in "\n".join(report.errors)
    assert "val: 1 of 11 classes never occur (Bicyclist)" in "\n".join(report.warnings)


def test_missing_classes_are_named(tiny):
    relabel(tiny / "ann_dir", lambda labels: np.where(labels == 9, 255, labels))
    report = check("camvid", tiny, expect_official_counts=False)
    assert not report.errors
    assert "train: 1 of 11 classes never occur (Pedestrian)" in "\n".join(report.warnings)


def test_images_in_two_splits_are_named(tiny):
    shutil.copyfile(tiny / "img_dir/train/0001TP_006690.jpg", tiny / "img_dir/val/copy.jpg")
    shutil.copyfile(tiny / "ann_dir/train/0001TP_006690.png", tiny / "ann_dir/val/copy.png")
    found = errors("camvid", tiny)
    assert "mean nothing\n    img_dir/train/0001TP_006690.jpg\n    img_dir/val/copy.jpg" in found
    assert "1 images occur in train and in val; remove them" in found


def test_unprepared_cityscapes_says_how_to_prepare(tmp_path):
    draw_city(tmp_path, "train/aachen", "labelIds")
    found = errors("cityscapes", tmp_path)
    assert "train: 1 of 1 images have no label (*_gtFine_labelTrainIds.png in gtFine/train)" in found
    assert "make them with python -m pne.datasets.prepare cityscapes" in found


def test_label_ids_under_the_name_of_train_ids_are_recognised(tmp_path):
    draw_city(tmp_path, "train/aachen", "labelTrainIds", label=26, size=(512, 1024))
    report = check("cityscapes", tmp_path)
    found = "\n".join(report.errors)
    assert "they look like labelIds, not labelTrainIds" in found
    assert "1 images do not have Cityscapes's size 1024 x 2048 (h x w), the first 512 x 1024" in found
    assert "test: expected 1525 images" in "\n".join(report.warnings)  # needed for submissions alone


def test_a_folder_without_the_data_set_is_an_error(tmp_path):
    report = check("camvid", tmp_path, expect_official_counts=False)
    assert "train: expected *.jpg in img_dir/train, found none; name the folder of CamVid" in "\n".join(report.errors)
    with pytest.raises(UserError, match="found none; name it with --data-root"):
        check("camvid", tmp_path / "nowhere")


def test_another_data_set_with_the_same_layout_is_recognised(street):
    found = "\n".join(check("street_stuff", street).errors)
    assert "expected the 16 classes of SyntheticStreet (stuff), meta.json names 11 others" in found
    assert "this one holds 'street_city'" in found


def test_quick_reads_headers_and_some_labels(tiny, monkeypatch):
    monkeypatch.setattr(doctor, "QUICK_LABELS", 2)
    monkeypatch.setattr(doctor, "read_size", lambda path, decode: 1 / 0 if decode else read_size(path))
    report = check("camvid", tiny, expect_official_counts=False, quick=True)
    assert not report.errors
    assert report.fingerprint is None
    assert sum(report.pixels["train"].values()) == 2 * 180 * 240
    assert "quick" in report.text()


def test_command_line_writes_both_reports_and_fails_on_errors(tiny, tmp_path, capsys):
    stored, text = tmp_path / "out/report.json", tmp_path / "out/report.txt"
    arguments = ["--dataset", "camvid", "--data-root", str(tiny), "--subset"]
    assert main([*arguments, "--report", str(stored)]) == 0
    report = json.loads(stored.read_text())
    assert report["counts"]["train"]["images"] == 24
    assert report["fingerprint"] == fingerprint("camvid", tiny)
    images = sorted(path.relative_to(tiny).as_posix() for path in (tiny / "img_dir").rglob("*.jpg"))
    assert all(f"\n    {name}\n" in text.read_text() for name in images)  # all of another size than the official ones
    shown = capsys.readouterr().out
    assert "\n    ".join(["not comparable", *images[:3], "and 29 more\n"]) in shown
    assert images[4] not in shown
    labels = sorted((tiny / "ann_dir/train").glob("*.png"))
    for path in labels[:5]:
        path.unlink()
    assert main([*arguments, "--report", str(stored)]) == 2
    error = capsys.readouterr().err
    first = [f"img_dir/train/{path.stem}.jpg" for path in labels[:3]]
    assert error.startswith(f"error: {tiny}: CamVid is not fit for training:\n  train: 5 of 24 images have no label")
    assert "\n      ".join(["complete the download", *first, f"and 2 more\n  all files: {text}\n"]) in error
    assert all(f"    img_dir/train/{path.stem}.jpg\n" in text.read_text() for path in labels[:5])
    assert len(json.loads(stored.read_text())["errors"]) == 1
    assert main(arguments) == 2
    assert "all files" not in capsys.readouterr().err


LAST = 171
RELEASED = np.zeros(LAST + 1, np.uint8)
"""Id in the release, 1 to 182, of every id that is trained on."""
RELEASED[COCO_STUFF_TRAIN_IDS[COCO_STUFF_TRAIN_IDS > 0]] = np.flatnonzero(COCO_STUFF_TRAIN_IDS)


@pytest.fixture
def coco(shared: Path, tmp_path: Path, state_counts: Callable) -> Path:
    """Real samples prepared as the 10k release, said to be all that there are; one shows all classes."""
    root = write_coco_stuff(tmp_path / "coco_stuff10k", shared)
    prepare("coco_stuff", root)
    state_counts("coco_stuff", lambda _, split: len(list((root / split.images).iterdir())))
    first = sorted((root / "annotations/train2014").iterdir())[-2]
    values = read(first).copy()
    values.ravel()[: LAST + 1] = np.arange(LAST + 1)
    harm(first, values)
    return root


OUT = "labels hold values out of range (expected 1 to 171, void 0, found"
SHIFTED = "they look shifted by one"
REMEDY = "python -m pne.datasets.prepare"


@pytest.mark.parametrize(
    ("renumbered", "expected"),
    [
        (lambda values: values, []),
        # 0 to 170 and 255 for void, as mmsegmentation sees them
        (lambda values: values - 1, [f"8 {OUT} 255)", f"{SHIFTED} (255 for void, where void is 0 here)", REMEDY]),
        # reduced within the legal range
        (
            lambda values: np.maximum(values - 1, 0),
            ["train: 1 of 171 classes never occur", "the last class is among them: the values look shifted by one"],
        ),
        (lambda values: values + 1, [f"1 {OUT} 172)", SHIFTED]),
        (
            lambda values: RELEASED[values],
            [f"{OUT} 172, 173", f"like ids of the release (1 to 182); make them again with {REMEDY}"],
        ),
        (lambda values: RELEASED[values].astype(int) - 1, ["like labels of COCO-Stuff 164k (0 to 181, 255 for void)"]),
    ],
)
def test_coco_stuff_labels_in_another_numbering_are_told(coco, renumbered, expected):
    assert len(list((coco / "annotations").glob("*2014/*.png"))) == 8
    relabel(coco / "annotations", renumbered)
    found = "\n".join(check("coco_stuff", coco).errors)
    assert bool(found) == bool(expected)
    for part in expected:
        assert part in found
