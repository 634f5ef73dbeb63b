"""The fingerprint follows the content of a data set, whatever its place, compression and cache."""

import os
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest
from data_files import harm, read

from pne.datasets import fingerprint as fingerprints
from pne.datasets.doctor import check
from pne.datasets.fingerprint import fingerprint
from pne.errors import UserError


def test_fingerprint_does_not_depend_on_the_place(shared, tiny):
    mark = "6360c0e9d68b273d28379ef627c8580638a15fc068389500a759d21a98ad98c3"  # results on these images carry it
    assert fingerprint("camvid_tiny", tiny) == fingerprint("camvid_tiny", shared / "data/camvid_tiny") == mark
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
    reads, scan = [], fingerprints.scan_label
    monkeypatch.setattr(fingerprints, "scan_label", lambda path: reads.append(path) or scan(path))
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
    monkeypatch.delenv("PNE_CACHE")
    monkeypatch.setattr(Path, "home", Mock(side_effect=RuntimeError("Could not determine home directory.")))
    assert fingerprint("camvid", tiny) == first


def test_fingerprint_of_unreadable_or_missing_data_is_an_error(tiny, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="expected CamVid with images in img_dir/train, img_dir/val, img_dir/test"):
        fingerprint("camvid", tmp_path / "empty")
    path = tiny / "ann_dir/train/0001TP_006690.png"
    path.write_text("no picture")
    with pytest.raises(UserError, match=r"0001TP_006690\.png: cannot be read as an image"):
        fingerprint("camvid", tiny)
