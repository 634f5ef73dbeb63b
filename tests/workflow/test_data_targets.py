"""Data sets as targets: prepared, examined before anything trains, and examined once."""

import json
import sys
from pathlib import Path

import pytest
from checkout import REPOSITORY, Checkout

sys.path.insert(0, str(REPOSITORY / "tests/pne"))
from paper_data import copy_ade20k, draw_cityscapes, write_coco_stuff

PREPARE = ("prepare_cityscapes", "prepare_coco_stuff", "prepare_ade20k")


@pytest.fixture
def paper(checkout: Checkout, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    """A copy of the project with a few images of every data set as downloaded, below ``downloads``."""
    monkeypatch.setenv("PNE_CACHE", str(tmp_path / "cache"))
    draw_cityscapes(checkout / "downloads/cityscapes")
    write_coco_stuff(checkout / "downloads/coco_stuff10k", shared)
    copy_ade20k(checkout / "downloads/ade/ADEChallengeData2016", shared)
    return checkout


def reports(checkout: Checkout) -> dict[str, dict]:
    folder = checkout / "results/paper/data"
    return {path.name.rpartition("-")[0]: json.loads(path.read_text()) for path in folder.glob("*.json")}


def test_prepare_then_examine_all_data_of_the_paper(paper: Checkout) -> None:
    where = ("--config", "track=paper", "data_root=downloads", "subset=true")
    paper.snakemake("--cores", "2", *PREPARE, *where)
    assert len(list((paper / "downloads/cityscapes/gtFine").rglob("*_labelTrainIds.png"))) == 6
    assert len(list((paper / "downloads/coco_stuff10k/annotations").rglob("*_labelTrainIds.png"))) == 8
    assert "6 files written" in (paper / "results/paper/data/prepare_cityscapes.log").read_text()

    paper.snakemake("--cores", "2", "data", *where)
    found = reports(paper)
    assert {name: report["counts"]["train"]["images"] for name, report in found.items()} == {
        "cityscapes": 3,
        "coco_stuff": 4,
        "ade20k": 2,
    }
    for report in found.values():
        assert not report["errors"]
        assert len(report["fingerprint"]) == 64
    assert paper.plan("data", *where).empty


def test_bad_data_are_examined_once_and_every_file_is_named(paper: Checkout) -> None:
    where = ("--config", "track=paper", "data_root=downloads", "subset=true")
    output = paper.snakemake("--cores", "2", "--retries", "2", "examine_cityscapes", *where, accept=(1,))
    assert output.count("examine the data set Cityscapes") == 1
    assert "3 of 3 images have no label" in output
    assert not reports(paper)
    (text,) = (paper / "results/paper/data").glob("cityscapes-*.txt")
    assert f"all files: {text.relative_to(paper.folder)}" in output
    for split, city in (("train", "aachen"), ("val", "frankfurt")):
        for number in range(3):
            assert f"leftImg8bit/{split}/{city}/{city}_{number:06d}_000019_leftImg8bit.png" in text.read_text()


def test_incomplete_data_is_told_before_anything_trains(checkout: Checkout, shared: Path) -> None:
    (checkout / "real").mkdir()
    (checkout / "real/camvid").symlink_to(shared / "data/camvid_tiny")
    output = checkout.snakemake(
        "--cores", "2", "table_positive_weights", "--config", "track=camvid", "data_root=real", accept=(1,)
    )
    assert "expected 367 images in img_dir/train, found 24" in output
    assert "train cityscapes" not in output
