"""Scenes follow from the seed alone, hold every class, and are found whole or not at all on disk."""

import hashlib
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from data_files import harm, read
from PIL import Image

from pne.datasets.doctor import check
from pne.datasets.fingerprint import fingerprint
from pne.datasets.synthetic_street import IGNORE_INDEX, VARIANTS, Part, variant
from pne.datasets.synthetic_street import __main__ as command
from pne.datasets.synthetic_street.__main__ import main, verify, write
from pne.datasets.synthetic_street.scene import draw_scene
from pne.errors import UserError

CITY = VARIANTS["street_city"]

# sha256 over image and label of scenes 0 to 2 of both splits. A change of the drawing changes them, and with them
# every result on these data: say so in the change log.
DIGESTS = {
    "street_city": "372610953375f8d571df0b32ca05f28004ff69f0f0b9266a373970c68bc72834",
    "street_stuff": "be76293fabcb3ad75c49a625f932c82e877a914faddb9c6353e3bb249d38ad41",
    "street_scene": "a3e3166dbf7113f7a94f9edd7dea5c6257de7ea5625347940403364fb4db4754",
}


@pytest.mark.parametrize("name", VARIANTS)
def test_draws_the_same_pixels_on_every_machine(name):
    scenes = [draw_scene(VARIANTS[name], split, index) for split in ("train", "test") for index in range(3)]
    drawn = b"".join(array.tobytes() for scene in scenes for array in scene)
    assert hashlib.sha256(drawn).hexdigest() == DIGESTS[name]


def test_scene_does_not_depend_on_what_was_drawn_before():
    first = draw_scene(CITY, "train", 3)
    np.random.seed(5)  # noqa: NPY002
    draw_scene(CITY, "test", 0)
    for again, once in zip(draw_scene(CITY, "train", 3), first, strict=True):
        np.testing.assert_array_equal(again, once)


def test_seed_split_and_variant_each_give_other_scenes():
    scenes = [
        draw_scene(CITY, "train", 0),
        draw_scene(CITY, "train", 1),
        draw_scene(CITY, "test", 0),
        draw_scene(CITY, "train", 0, seed=1),
        draw_scene(replace(CITY, stream=9), "train", 0),
    ]
    assert len({image.tobytes() for image, _ in scenes}) == len(scenes)
    assert len({label.tobytes() for _, label in scenes}) == len(scenes)


@pytest.mark.parametrize("name", VARIANTS)
def test_every_class_occurs_and_some_are_rare(name):
    kind = VARIANTS[name]
    labels = np.concatenate([draw_scene(kind, "test", i)[1].ravel() for i in range(kind.test)])
    share = np.bincount(labels[labels != IGNORE_INDEX], minlength=len(kind.classes)) / len(labels)
    assert (share > 0).all(), dict(zip(kind.classes, share, strict=True))
    assert share.max() < 0.4
    assert share.min() < 0.02


def test_every_part_belongs_to_one_class_of_every_variant():
    for kind in VARIANTS.values():
        assert set(kind.parts) == set(Part)
        assert set(kind.parts.values()) == set(range(len(kind.classes)))
        assert len(set(kind.palette)) == len(kind.classes)
        assert kind.test <= 60


def test_written_files_hold_what_was_drawn(street):
    for split in ("train", "test"):
        images = sorted((street / "img_dir" / split).glob("*.png"))
        labels = sorted((street / "ann_dir" / split).glob("*.png"))
        assert [p.name for p in images] == [p.name for p in labels]
        assert len(images) == getattr(CITY, split)
    image, label = draw_scene(CITY, "test", 7)
    np.testing.assert_array_equal(read(street / "img_dir/test/test_0007.png"), image)
    with Image.open(street / "ann_dir/test/test_0007.png") as picture:
        np.testing.assert_array_equal(np.asarray(picture), label)
        assert picture.getpalette()[:3] == list(CITY.palette[0])
    meta = json.loads((street / "meta.json").read_text())
    assert meta["classes"] == list(CITY.classes)
    assert sum(meta["pixels"]["test"].values()) == 60 * 64 * 96


def test_train_and_test_share_no_image(street):
    train, test = ({path.read_bytes() for path in (street / "img_dir" / s).iterdir()} for s in ("train", "test"))
    assert len(train) == CITY.train
    assert not train & test


def test_a_folder_that_is_there_is_left_alone(street):
    before = {p: p.stat().st_mtime_ns for p in street.rglob("*")}
    assert not write("street_city", street)
    assert {p: p.stat().st_mtime_ns for p in street.rglob("*")} == before


def test_fingerprint_survives_another_compression(street, tmp_path):
    copy = shutil.copytree(street, tmp_path / "copy")
    for path in copy.rglob("*.png"):
        with Image.open(path) as picture:
            picture.save(path, compress_level=0)
    assert verify(copy) == verify(street)
    assert fingerprint("street_city", copy) == fingerprint("street_city", street)


def test_doctor_finds_the_drawn_set_healthy(street):
    report = check("street_city", street)
    assert not report.errors
    assert not report.warnings
    assert report.fingerprint == fingerprint("StreetCityDataset", street)


def forge_fingerprint(meta: Path) -> None:
    meta.write_text(json.dumps(json.loads(meta.read_text()) | {"fingerprint": "0" * 64}))


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("ann_dir/train/train_0003.png", lambda path: harm(path, np.zeros((64, 96))), "pixels of NAME are not those"),
        ("img_dir/train/train_0004.png", lambda path: path.write_bytes(path.read_bytes()[:60]), "NAME: cannot be read"),
        ("img_dir/test/test_0001.png", Path.unlink, "NAME is missing"),
        ("img_dir/test/mine.png", lambda path: harm(path, np.zeros((64, 96, 3))), "NAME does not belong here"),
        ("meta.json", lambda path: path.write_text("{"), "NAME: is not readable"),
        ("meta.json", forge_fingerprint, "NAME was changed"),
    ],
)
def test_a_damaged_folder_is_refused_with_the_file_and_the_remedy(street, tmp_path, name, damage, message):
    copy = shutil.copytree(street, tmp_path / "copy")
    damage(copy / name)
    with pytest.raises(UserError, match=message.replace("NAME", re.escape(name))) as error:
        write("street_city", copy)
    assert "python -m pne.datasets.synthetic_street" in str(error.value)


def test_another_data_set_in_the_folder_is_refused(street):
    with pytest.raises(UserError, match="variant is 'street_city', wanted 'street_stuff'"):
        write("street_stuff", street)
    with pytest.raises(UserError, match="seed is 0, wanted 4"):
        write("street_city", street, seed=4)


def test_an_older_drawing_in_the_folder_is_refused(street, monkeypatch):
    def brighter(*args):
        image, label = draw_scene(*args)
        return image | 1, label

    monkeypatch.setattr(command, "draw_scene", brighter)
    with pytest.raises(UserError, match=r"drawing is '\w+', wanted '\w+'"):
        write("street_city", street)


def test_a_folder_with_something_else_is_refused_and_kept(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match=r"expected a SyntheticStreet data set with meta\.json"):
        write("street_city", tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_an_interrupted_drawing_leaves_nothing_behind(tmp_path, monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "draw_scene", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write("street_city", tmp_path / "set")
    assert not list(tmp_path.iterdir())


def test_a_second_writer_that_was_slower_accepts_the_first_ones_folder(street, tmp_path, monkeypatch):
    target = tmp_path / "set"

    def overtaken(kind, folder, seed):
        shutil.copytree(street, folder, dirs_exist_ok=True)
        shutil.copytree(street, target)

    monkeypatch.setattr(command, "_draw", overtaken)
    assert not write("street_city", target)
    assert verify(target) == verify(street)
    assert [p.name for p in tmp_path.iterdir() if p.name != "cache"] == ["set"]


def test_unknown_variant_names_the_known_ones():
    with pytest.raises(UserError, match=r"street_town.*street_city, street_stuff, street_scene"):
        variant("street_town")


def test_command_line_reports_and_fails_without_a_traceback(street, tmp_path, capsys):
    assert main(["--variant", "street_city", "--out", str(street)]) == 0
    assert "already there" in capsys.readouterr().out
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "x").touch()
    assert main(["--variant", "street_city", "--out", str(tmp_path / "set")]) == 2
    assert capsys.readouterr().err.startswith("error: ")
