"""Real street scenes through the same Snakefile."""

import csv
from pathlib import Path

from checkout import Checkout

TABLE = """\
table: pair
question: Does PNE train on real street scenes?
dataset: cityscapes
model: deeplabv3_r50
columns:
  name: {title: Row, kind: label}
  miou: {title: mIoU, kind: metric, metric: miou, delta: true}
rows:
  base: {label: Base}
  pne: {label: PNE, baseline: base, contrast: {use: pne}}
"""


def test_base_and_pne_train_on_real_images(checkout: Checkout, shared: Path) -> None:
    (checkout / "experiments/tables/pair.yaml").write_text(TABLE)
    target = ("table_pair", "--config", "track=camvid_tiny", f"data_root={shared / 'data'}", "iterations=20")
    checkout.snakemake("--cores", "2", *target)
    with (checkout / "results/camvid_tiny/tables/pair.csv").open() as file:
        rows = {row["row"]: row for row in csv.DictReader(file)}
    assert set(rows) == {"base", "pne"}
    for row in rows.values():
        assert 0 < float(row["miou_measured"]) < 100
    assert "CamVid" in (checkout / "results/camvid_tiny/tables/pair.md").read_text()
    assert checkout.plan(*target).empty


def test_incomplete_data_is_told_before_anything_trains(checkout: Checkout, shared: Path) -> None:
    (checkout / "real").mkdir()
    (checkout / "real/camvid").symlink_to(shared / "data/camvid_tiny")
    output = checkout.snakemake(
        "--cores", "2", "table_positive_weights", "--config", "track=camvid", "data_root=real", accept=(1,)
    )
    assert "expected 367 images in img_dir/train, found 24" in output
    assert "train cityscapes" not in output
