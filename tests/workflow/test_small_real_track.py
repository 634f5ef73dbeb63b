"""Every row of a table of the paper trained on real street scenes, through the same Snakefile as every other track."""

import csv
import json
from pathlib import Path

from checkout import Checkout

from pne.datasets.fingerprint import fingerprint
from pne.results import EvaluationResult, TrainResult, read_result

ITERATIONS = 20
TABLE = Path("results/camvid_tiny/tables")
BASES, CONTRASTS = ("base_r50", "base_r101"), ("asymmetric_r50", "asymmetric_r101", "pne_r50", "pne_r101")


def test_a_table_of_the_paper_is_trained_on_real_images(checkout: Checkout, shared: Path) -> None:
    options = ("table_contrast_form", "--config", "track=camvid_tiny", f"iterations={ITERATIONS}")
    options += (f"data_root={shared / 'data'}",)
    assert len(checkout.plan(*options).of("train")) == 6
    checkout.snakemake("--cores", "2", *options)

    with (checkout / TABLE / "contrast_form.csv").open(encoding="utf-8") as file:
        rows = {row["row"]: row for row in csv.DictReader(file)}
    assert set(rows) == {*BASES, *CONTRASTS}
    assert all(0 < float(row["miou_measured"]) < 100 for row in rows.values())
    assert all(row["miou_measured_delta"] for key, row in rows.items() if key in CONTRASTS)
    assert "CamVid (24 training images)" in (checkout / TABLE / "contrast_form.md").read_text(encoding="utf-8")
    assert (checkout / TABLE / "contrast_form.tex").stat().st_size

    [report] = (checkout / "results/camvid_tiny/data").glob("cityscapes-*.json")
    report = json.loads(report.read_text(encoding="utf-8"))
    assert not report["errors"]
    assert report["fingerprint"] == fingerprint("camvid_tiny", shared / "data/camvid_tiny")

    trained = {path.parent.name: read_result(path, TrainResult) for path in checkout.folder.rglob("train.json")}
    assert len({result.weights_sha256 for result in trained.values()}) == len(trained) == 6
    assert all(result.iterations == ITERATIONS for result in trained.values())
    assert {result.provenance.dataset_fingerprint for result in trained.values()} == {report["fingerprint"]}
    losses = {run: result.contrast for run, result in trained.items() if result.contrast}
    assert len(losses) == len(CONTRASTS)
    for run, summary in losses.items():
        assert summary.healthy, run
        assert summary.final_statistics["loss_contrast"] > 0, run
    scores = [read_result(path, EvaluationResult) for path in checkout.folder.rglob("single_scale.json")]
    assert {score.images for score in scores} == {8}

    assert checkout.plan(*options).empty
